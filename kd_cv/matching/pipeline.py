"""Match two images: extract, search neighbours, estimate and refine a model."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_float, as_int, as_positive
from kd_cv.descriptor.frames import resized_frames
from kd_cv.detector.settings import MAX_FEATURES
from kd_cv.gray import as_gray, to_8bit
from kd_cv.io.images import reduced
from kd_cv.io.sources import Source, as_source
from kd_cv.keypoints import from_keypoints, strongest
from kd_cv.matching.neighbours import (
    RATIO,
    SIFT_RATIO,
    Matches,
    as_ratio,
    match_descriptors,
)
from kd_cv.matching.result import MatchResult, positions
from kd_cv.matching.two_view import (
    NEEDED,
    WORDS,
    TwoViews,
    as_camera,
    camera_of,
    check_model,
    estimate,
    fundamental_of,
)
from kd_cv.opencv.dog import DoG
from kd_cv.opencv.kd_descriptor import KDDescriptor
from kd_cv.opencv.rootsift import as_feature
from kd_cv.types import Detector, Feature, KeyPoints, Picture
from kd_cv.views import VIEWS

STEPS = ("detect", "describe", "match", "geometry")
MAX_KEYPOINTS = 20_000  # of an image: textures have hundreds of thousands
#: Inliers that are enough with so many views. With fewer, and fewer than a fifth of the keypoints,
#: views="auto" searches more views. Easy pairs lose accuracy with views.
ENOUGH = {1: 400, 3: 60, 5: 0, 11: 0}
AUTO = (1, 3, 11)
#: Factors of the number of keypoints in a second or third search, up to `MAX_KEYPOINTS`.
MORE = {1: 1, 3: 2, 5: 2, 11: 4}


def match(
    image0: Picture,
    image1: Picture,
    descriptor: str | Feature = "kd",
    *,
    detector: Detector | None = None,
    max_keypoints: int | None = None,
    ratio: float | None = None,
    mutual: bool = True,
    threshold: float = 3.0,
    model: str = "homography",
    camera0: float | NDArray[np.float64] | None = None,
    camera1: float | NDArray[np.float64] | None = None,
    max_size: int | None = None,
    views: int | str = "auto",
) -> MatchResult:
    """Match two images and estimate the two-view model of the matches.

    image0, image1  arrays (BGR), paths, PIL images or torch tensors (C, H, W)
    descriptor  "kd", "sift", "rootsift", or any object with detectAndCompute
    detector    any object with OpenCV's detect; the descriptor's own by default
    max_keypoints  limit for each image, keeping the strongest; MAX_KEYPOINTS (20,000) by default. A
                descriptor with a smaller limit, such as KDDescriptor(200), keeps it
    ratio       accept a match whose nearest neighbour is closer than `ratio` times the nearest at
                another place; by default 0.85 for KD, 0.8 for other descriptors
    mutual      accept a match only if it is the nearest in both directions
    threshold   of the model's inliers, in pixels
    model       "homography" for one plane, "fundamental" for a scene, "essential" for a scene and
                known cameras, which gives their pose; "auto" tells a plane from a scene
    camera0, camera1  (3, 3) camera matrices, or focal lengths in pixels with the axis in the middle
                of the image; by default from EXIF data, and camera1 from camera0
    max_size    larger images are reduced to this longer side; results are in their own pixels
    views       number of synthetic views of each image to search, for wide viewpoint changes: 1, 3,
                5 or 11. "auto" searches the image itself; 3 views, for twice as many keypoints, if
                there are fewer than 400 inliers; and 11 views, for four times as many, if there are
                then fewer than 60

    >>> result = match(image0, image1)
    >>> result.success, result.H_0to1.round()[:2, 2]
    (True, array([24., 16.]))
    """
    if detector is not None and not callable(getattr(detector, "detect", None)):
        raise TypeError(f"detector must have a method detect, got {type(detector).__name__}")
    if isinstance(descriptor, str) and descriptor == "kd" and detector is not None:
        descriptor = KDDescriptor(detector=detector)  # it knows the patch sizes
    for name, number in (("max_keypoints", max_keypoints), ("max_size", max_size)):
        if number is not None:
            as_int(number, name)
    feature = _limited(as_feature(descriptor), max_keypoints)
    counts = _counts(views, feature)
    check_model(model, cameras=True)  # `_cameras` checks them
    if ratio is None:
        ratio = RATIO if isinstance(feature, KDDescriptor) else SIFT_RATIO
    ratio, threshold = as_ratio(ratio), as_positive(threshold, "threshold")
    sources = as_source(image0, "image0"), as_source(image1, "image1")
    K0, K1 = _cameras(sources, (camera0, camera1), model)
    limit = MAX_KEYPOINTS if max_keypoints is None else max_keypoints

    def look(count: int, more: int) -> Found:
        looking, most = _with_views(feature, count, more), _times(more, limit)
        extracted = [_extract(looking, detector, s.pixels, most, max_size) for s in sources]
        return search(extracted, (ratio, mutual, threshold), model, (K0, K1))

    best, used = search_views(look, counts)
    two_views = best.two_views
    pixels = sources[0].pixels, sources[1].pixels
    return MatchResult(
        *best.keypoints,
        best.matches,
        best.ratios,
        two_views.inliers,
        two_views.matrix if two_views.model == "homography" else None,
        success=two_views.success,
        candidates=best.candidates,
        model=two_views.model,
        F_0to1=_fundamental(two_views, K0, K1),
        E_0to1=two_views.matrix if two_views.model == "essential" else None,
        R_0to1=two_views.R_0to1,
        t_0to1=two_views.t_0to1,
        failure="" if two_views.success else _failure(pixels, best.keypoints, two_views),
        images=pixels,
        views=used,
        ratio=ratio,
    )


class Found(NamedTuple):
    """Keypoints of both images, their matches and the model that fits them."""

    keypoints: tuple[KeyPoints, KeyPoints]
    candidates: Matches
    matches: NDArray[np.int64]
    ratios: NDArray[np.float32]
    two_views: TwoViews


def search_views(look: Callable[[int, int], Found], counts: Sequence[int]) -> tuple[Found, int]:
    """Search one number of views after the other while there are too few inliers.

    look  (number of views, factor of the number of keypoints) -> Found

    Returns the result with the most inliers, and its number of views.
    """
    best, used = look(counts[0], 1), counts[0]
    for last, count in pairwise(counts):
        inliers = best.two_views.inliers.sum()
        if inliers >= min(ENOUGH[last], min(map(len, best.keypoints)) / 5):
            break
        found = look(count, MORE[count])
        if found.two_views.inliers.sum() > inliers:
            best, used = found, count
    return best, used


def search(
    extracted: Sequence[tuple[KeyPoints, Any]],
    tests: tuple[float, bool, float],
    model: str,
    cameras: tuple[Any, Any],
) -> Found:
    """Match descriptors and estimate a model; tests: ratio, mutual, threshold."""
    (keypoints0, d0), (keypoints1, d1) = extracted
    ratio, mutual, threshold = tests
    points0, points1 = positions(keypoints0), positions(keypoints1)
    with _timed("match"):
        candidates, all_ratios = match_descriptors(
            d0, d1, mutual=mutual, points0=points0, points1=points1
        )
        matches, ratios = candidates[all_ratios <= ratio], all_ratios[all_ratios <= ratio]
    with _timed("geometry"):
        K0, K1 = cameras
        sizes0, sizes1 = (from_keypoints(k)[:, 2].clip(1e-3) for k in (keypoints0, keypoints1))
        two_views = estimate(
            points0[matches[:, 0]], points1[matches[:, 1]], model,
            threshold=threshold, K0=K0, K1=K1,
            sizes=np.sqrt(sizes0[matches[:, 0]] * sizes1[matches[:, 1]]),
        )  # fmt: skip
    return Found((keypoints0, keypoints1), (candidates, all_ratios), matches, ratios, two_views)


def _counts(views: int | str, feature: Feature) -> tuple[int, ...]:
    is_kd = isinstance(feature, KDDescriptor) and feature.detector is None
    if views != "auto" and views not in VIEWS:
        raise ValueError(f"views must be 'auto' or one of {list(VIEWS)}, got {views!r}")
    if not is_kd:
        if views not in ("auto", 1):
            raise ValueError(f"views={views} needs the detector of KDDescriptor itself")
        return (1,)
    if views != "auto":
        return (int(views),)
    own = feature.settings.views  # type: ignore[attr-defined]
    return AUTO if own == 1 else (own,)


def _with_views(feature: Feature, count: int, more: int) -> Feature:
    if isinstance(feature, KDDescriptor) and feature.settings.views != count:
        return feature.with_settings(views=count, nfeatures=_times(more, feature.getNFeatures()))
    return feature


def _times(more: int, number: int) -> int:
    """Multiply a number of keypoints, up to MAX_KEYPOINTS; a larger number stays.

    >>> _times(4, 2000), _times(4, 6000), _times(4, 30000)
    (8000, 20000, 30000)
    """
    return max(number, min(more * number, MAX_KEYPOINTS))


def _fundamental(views: TwoViews, K0: Any, K1: Any) -> NDArray[np.float64] | None:
    if views.model == "essential" and views.matrix is not None:
        return fundamental_of(views.matrix, K0, K1)
    return views.matrix if views.model == "fundamental" else None


def _cameras(
    sources: tuple[Source, Source], given: tuple[Any, Any], model: str
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Return the matrices of both cameras, as given or from EXIF; None if one is unknown."""
    if given[1] is None:
        given = given[0], given[0]
    cameras: list[NDArray[np.float64] | None] = []
    for k, (source, camera) in enumerate(zip(sources, given, strict=True)):
        shape = as_gray(source.pixels).shape
        if camera is None and source.focal_in_widths is not None:
            camera = source.focal_in_widths * max(shape)
        if camera is None and model == "essential":
            raise ValueError(
                f"model 'essential' needs camera{k}, a (3, 3) matrix or a focal length in pixels: "
                f"image{k} has no EXIF that says it"
            )
        if camera is None:
            cameras.append(None)
        elif np.ndim(camera) > 0:
            cameras.append(as_camera(camera, f"camera{k}"))
        elif 0 < as_float(camera, f"camera{k}") < np.inf:
            cameras.append(camera_of(float(camera), shape))
        else:
            raise ValueError(f"camera{k} must be a positive focal length in pixels, got {camera}")
    return cameras[0], cameras[1]


def _failure(
    pixels: tuple[Any, Any], keypoints: tuple[KeyPoints, KeyPoints], views: TwoViews
) -> str:
    """Say in one sentence why there is no model."""
    for k in range(2):
        if not keypoints[k]:
            return f"image {k} has no keypoints: {_poor(as_gray(pixels[k]))}"
    matches, inliers, needed = len(views.inliers), int(views.inliers.sum()), NEEDED[views.model]
    if matches < needed:
        return f"{matches} matches, at least {needed} are needed (a larger ratio?)"
    if views.matrix is None:
        return f"no model fits the {matches} matches"
    there = WORDS[views.model][0]
    return f"only {inliers} of {matches} matches are {there}, too few to be sure"


def _poor(gray: NDArray[Any]) -> str:
    """Say why an image has no keypoints."""
    if not gray.size or min(gray.shape) < 16:
        return f"it is tiny, {gray.shape[1]} x {gray.shape[0]} pixels"
    low, high = np.percentile(to_8bit(gray), (1, 99))
    if high < 32:
        return f"it is too dark, 99 of 100 pixels are at most {high:.0f} of 255"
    if low > 223:
        return f"it is too bright, 99 of 100 pixels are at least {low:.0f} of 255"
    if high - low < 16:
        return f"it is flat, nearly all pixels lie from {low:.0f} to {high:.0f} of 255"
    return "it has no corners or blobs that stand out"


def _extract(
    feature: Feature, detector: Detector | None, image: Any, limit: int, max_size: int | None
) -> tuple[KeyPoints, Any]:
    """Return at most `limit` keypoints, and descriptors, in the image's own pixels."""
    gray = as_gray(image)
    if max_size is not None and max(gray.shape) > max_size:
        small = reduced(gray, max_size)
        of_small, descriptors = _extract(feature, detector, small, limit, None)
        zoom = gray.shape[1] / small.shape[1], gray.shape[0] / small.shape[0]
        return enlarged(of_small, *zoom), descriptors
    if detector is None:
        with _timed("describe"):
            keypoints, descriptors = feature.detectAndCompute(_taken_by(feature, image), None)
            kept = _strongest(keypoints, limit)
        return tuple(keypoints[k] for k in kept), None if descriptors is None else descriptors[kept]
    with _timed("detect"):
        found = strongest(detector.detect(_taken_by(detector, image), None), limit)
    with _timed("describe"):
        keypoints, descriptors = feature.compute(_taken_by(feature, image), found)
    return tuple(keypoints), descriptors


def _strongest(keypoints: Sequence[cv2.KeyPoint], limit: int) -> NDArray[np.int64]:
    responses = np.array([keypoint.response for keypoint in keypoints])
    return np.sort(np.argsort(-responses, kind="stable")[:limit])


def _taken_by(feature: Any, image: Any) -> Any:
    """Convert an image to 8 bits for detectors other than kd_cv's."""
    if isinstance(feature, KDDescriptor | DoG) or np.asarray(image).dtype == np.uint8:
        return image
    return to_8bit(as_gray(image))


def _limited(feature: Feature, max_keypoints: int | None) -> Feature:
    """Limit the descriptor to max_keypoints; None: `MAX_KEYPOINTS` above the contrast threshold."""
    if not isinstance(feature, KDDescriptor) or feature.detector is not None:
        return feature
    own = feature.getNFeatures()
    if max_keypoints is None:
        contrast = feature.detection.contrastThreshold
        if not own:  # a number would let weaker ones through
            contrast = feature.detection.contrast
        return feature.with_settings(nfeatures=own or MAX_KEYPOINTS, contrastThreshold=contrast)
    return feature.with_settings(nfeatures=min(own or max_keypoints, max_keypoints, MAX_FEATURES))


def enlarged(keypoints: KeyPoints, x: float, y: float) -> KeyPoints:
    """Map keypoints of an image reduced x and y times to the image itself."""
    frames = resized_frames(from_keypoints(keypoints), np.array([x, y])).tolist()
    return tuple(
        cv2.KeyPoint(*frame, k.response, k.octave, k.class_id)
        for frame, k in zip(frames, keypoints, strict=True)
    )


_seconds: ContextVar[dict[str, float] | None] = ContextVar("seconds", default=None)


@contextmanager
def timing() -> Iterator[dict[str, float]]:
    """Time the calls of `match` in the block: the seconds of each of STEPS for both images.

    A descriptor that detects and describes in one call counts as "describe".

    >>> with timing() as seconds:
    ...     result = match(image, image)
    >>> list(seconds)
    ['detect', 'describe', 'match', 'geometry']
    """
    seconds = dict.fromkeys(STEPS, 0.0)
    token = _seconds.set(seconds)
    try:
        yield seconds
    finally:
        _seconds.reset(token)


@contextmanager
def _timed(step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds = _seconds.get()
    if seconds is not None:
        seconds[step] += time.perf_counter() - start

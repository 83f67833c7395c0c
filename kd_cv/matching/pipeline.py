"""From two images to what they have in common, with one result type that failure fills too."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_float, as_int, as_positive
from kd_cv.descriptor.frames import resized_frames
from kd_cv.detector.settings import MAX_FEATURES
from kd_cv.gray import as_gray, to_8bit
from kd_cv.io.files import PathLike
from kd_cv.io.images import reduced
from kd_cv.io.sources import Source, as_source
from kd_cv.keypoints import from_keypoints, strongest
from kd_cv.matching.geometry import epipolar_errors, reprojection_errors
from kd_cv.matching.neighbours import RATIO, Matches, as_ratio, match_descriptors, no_matches
from kd_cv.matching.two_view import (
    NEEDED,
    WORDS,
    Model,
    TwoViews,
    as_camera,
    camera_of,
    check_model,
    estimate,
)
from kd_cv.opencv.kd_descriptor import KDDescriptor
from kd_cv.opencv.rootsift import as_feature
from kd_cv.types import Array32, Detector, Feature, Image, KeyPoints, Picture

STEPS = ("detect", "describe", "match", "geometry")


@dataclass(frozen=True)
class MatchResult:
    """What was found between image 0 and image 1.

    matches  (M, 2) rows of keypoints0 and keypoints1
    ratios   (M,) distance of the nearest neighbour over that of the second: small is certain
    inliers  (M,) bool, matches that agree with the model
    H_0to1   (3, 3) homography from image 0 to image 1; None if there is none, or another model
    success  whether there are enough inliers to believe the model
    candidates  (K, 2) and (K,): matches and ratios before the test of the ratio
    model    "homography" (one plane), "fundamental" (a scene) or "essential" (seen by known
             cameras); of "auto", the one that was taken
    F_0to1   (3, 3) of these two: x1^T F x0 = 0
    E_0to1   (3, 3) of "essential": K1^T F K0
    R_0to1, t_0to1  (3, 3) and (3,) of unit length, of "essential": X1 = R X0 + t
    failure  why there is no success, in one sentence; empty if there is
    images   the two images, as they were matched and drawn
    """

    keypoints0: KeyPoints
    keypoints1: KeyPoints
    matches: NDArray[np.int64]
    ratios: Array32
    inliers: NDArray[np.bool_]
    H_0to1: NDArray[np.float64] | None
    success: bool
    candidates: Matches = field(default_factory=no_matches)
    model: Model = "homography"
    F_0to1: NDArray[np.float64] | None = None
    E_0to1: NDArray[np.float64] | None = None
    R_0to1: NDArray[np.float64] | None = None
    t_0to1: NDArray[np.float64] | None = None
    failure: str = ""
    images: tuple[Image | None, Image | None] = field(default=(None, None), compare=False)

    def __repr__(self) -> str:
        return (
            f"MatchResult({len(self.keypoints0)} and {len(self.keypoints1)} keypoints, "
            f"{len(self.matches)} matches, {int(self.inliers.sum())} inliers "
            f"{WORDS[self.model][0]}, success={bool(self.success)})"
        )

    @property
    def points0(self) -> NDArray[np.float64]:
        """(M, 2) positions of the matches in image 0."""
        return _points(self.keypoints0)[self.matches[:, 0]]

    @property
    def points1(self) -> NDArray[np.float64]:
        """(M, 2) positions of the matches in image 1."""
        return _points(self.keypoints1)[self.matches[:, 1]]

    @property
    def matrix(self) -> NDArray[np.float64] | None:
        """H_0to1, F_0to1 or E_0to1, whichever the model has."""
        return {
            "homography": self.H_0to1, "fundamental": self.F_0to1, "essential": self.E_0to1
        }[self.model]  # fmt: skip

    def errors(
        self, points0: NDArray[np.float64], points1: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """How far other matches (N, 2) and (N, 2) are from the model, in pixels: (N,)."""
        if self.matrix is None:
            return np.full(len(points0), np.inf)
        if self.H_0to1 is not None:
            return reprojection_errors(points0, points1, self.H_0to1)
        return epipolar_errors(points0, points1, self.F_0to1)  # type: ignore[arg-type]

    def draw(self, path: PathLike | None = None) -> NDArray[np.uint8]:
        """The picture of the matches (H, W, 3) BGR, and written to a file if one is given."""
        from kd_cv.viz.matches import draw_result  # which needs Matplotlib

        return draw_result(self, path, WORDS[self.model] if self.success else ("", ""))

    def dmatches(self) -> list[cv2.DMatch]:
        """For cv2.drawMatches; the distance of each is its ratio."""
        pairs = zip(self.matches.tolist(), self.ratios.tolist(), strict=True)
        return [cv2.DMatch(i, j, ratio) for (i, j), ratio in pairs]


def match(
    image0: Picture,
    image1: Picture,
    descriptor: str | Feature = "kd",
    *,
    detector: Detector | None = None,
    max_keypoints: int | None = None,
    ratio: float = RATIO,
    mutual: bool = True,
    threshold: float = 3.0,
    model: str = "homography",
    camera0: float | NDArray[np.float64] | None = None,
    camera1: float | NDArray[np.float64] | None = None,
    max_size: int | None = None,
) -> MatchResult:
    """Match two images and estimate what they have in common.

    image0, image1  arrays (BGR), paths, PIL images or torch tensors (C, H, W)
    descriptor  "kd", "sift", "rootsift", or any object with detectAndCompute
    detector    any object with OpenCV's detect; the descriptor's own by default
    max_keypoints  the strongest of each image are matched; all by default
    ratio       accept a match whose nearest neighbour is closer than `ratio` times the second
    mutual      and is the nearest neighbour in both directions
    threshold   of the model's inliers, in pixels
    model       "homography" for one plane, "fundamental" for a scene, "essential" for a scene and
                known cameras, which gives their pose; "auto" tells a plane from a scene
    camera0, camera1  (3, 3) camera matrices, or focal lengths in pixels with the axis in the middle
                of the image; by default what the EXIF data says, and for camera1 what camera0 is
    max_size    larger images are reduced to this longer side; results are in their own pixels

    >>> result = match(image0, image1)
    >>> result.success, result.H_0to1.round()[:2, 2]
    (True, array([24., 16.]))
    """
    if detector is not None and not callable(getattr(detector, "detect", None)):
        raise TypeError(f"detector must have a method detect, got {type(detector).__name__}")
    if isinstance(descriptor, str) and descriptor == "kd" and detector is not None:
        descriptor = KDDescriptor(detector=detector)  # which knows the windows of its keypoints
    feature = as_feature(descriptor)
    for name, number in (("max_keypoints", max_keypoints), ("max_size", max_size)):
        if number is not None:
            as_int(number, name)
    check_model(model, cameras=True)  # of which `_cameras` knows more
    ratio, threshold = as_ratio(ratio), as_positive(threshold, "threshold")
    sources = as_source(image0, "image0"), as_source(image1, "image1")
    K0, K1 = _cameras(sources, (camera0, camera1), model)
    (keypoints0, d0), (keypoints1, d1) = (
        _extract(feature, detector, source.pixels, max_keypoints, max_size) for source in sources
    )
    with _timed("match"):
        candidates, all_ratios = match_descriptors(d0, d1, mutual=mutual)
        matches, ratios = candidates[all_ratios <= ratio], all_ratios[all_ratios <= ratio]
    with _timed("geometry"):
        points0, points1 = (
            _points(keypoints)[rows]
            for keypoints, rows in zip((keypoints0, keypoints1), matches.T, strict=True)
        )
        views = estimate(points0, points1, model, threshold=threshold, K0=K0, K1=K1)
    pixels = sources[0].pixels, sources[1].pixels
    return MatchResult(
        keypoints0,
        keypoints1,
        matches,
        ratios,
        views.inliers,
        views.matrix if views.model == "homography" else None,
        success=views.success,
        candidates=(candidates, all_ratios),
        model=views.model,
        F_0to1=_fundamental(views, K0, K1),
        E_0to1=views.matrix if views.model == "essential" else None,
        R_0to1=views.R_0to1,
        t_0to1=views.t_0to1,
        failure="" if views.success else _failure(pixels, (keypoints0, keypoints1), views),
        images=pixels,
    )


def _fundamental(views: TwoViews, K0: Any, K1: Any) -> NDArray[np.float64] | None:
    """F_0to1 of a scene, whichever way it was found."""
    if views.model == "essential" and views.matrix is not None:
        return np.linalg.inv(K1).T @ views.matrix @ np.linalg.inv(K0)
    return views.matrix if views.model == "fundamental" else None


def _cameras(
    sources: tuple[Source, Source], given: tuple[Any, Any], model: str
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """The matrices of both cameras, as they are given or as EXIF says; None if one is not known."""
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
    """Why nothing was found, in one sentence."""
    for k in range(2):
        if not keypoints[k]:
            return f"image {k} has no keypoints: {_poor(as_gray(pixels[k]))}"
    matches, inliers, needed = len(views.inliers), int(views.inliers.sum()), NEEDED[views.model]
    if matches < needed:
        return f"{matches} matches, at least {needed} are needed (a larger ratio?)"
    if views.matrix is None:
        return f"the {matches} matches have nothing in common"
    there = WORDS[views.model][0]
    return f"only {inliers} of {matches} matches are {there}, too few to be sure"


def named_failure(result: MatchResult, names: tuple[str, str]) -> str:
    """`result.failure` with the names of the photographs in place of "image 0" and "image 1"."""
    why = result.failure
    for k, name in enumerate(names):
        why = why.replace(f"image {k} ", f"{name} ")
    return why


def _poor(gray: NDArray[Any]) -> str:
    """What is wrong with an image in which nothing is found."""
    if not gray.size or min(gray.shape) < 16:
        return f"it is tiny, {gray.shape[1]} x {gray.shape[0]} pixels"
    # As a detector sees it, in 8 bits.
    low, high = np.percentile(to_8bit(gray), (1, 99))
    if high < 32:
        return f"it is too dark, 99 of 100 pixels are at most {high:.0f} of 255"
    if low > 223:
        return f"it is too bright, 99 of 100 pixels are at least {low:.0f} of 255"
    if high - low < 16:
        return f"it is flat, nearly all pixels lie from {low:.0f} to {high:.0f} of 255"
    return "it has no corners or blobs that stand out"


def _extract(
    feature: Feature,
    detector: Detector | None,
    image: Any,
    max_keypoints: int | None,
    max_size: int | None,
) -> tuple[KeyPoints, Any]:
    """Keypoints and rows of an image, reduced to max_size; keypoints in its own pixels."""
    if max_size is not None:
        shape = np.shape(image)
        if max(shape[:2], default=0) > max_size and min(shape[:2]) > 0:
            small = reduced(to_8bit(as_gray(image)), max_size)
            of_small, rows = _extract(feature, detector, small, max_keypoints, None)
            return enlarged(of_small, shape[1] / small.shape[1], shape[0] / small.shape[0]), rows
    if detector is None and max_keypoints is None:
        with _timed("describe"):
            keypoints, rows = feature.detectAndCompute(image, None)
        return tuple(keypoints), rows
    if isinstance(feature, KDDescriptor) and max_keypoints is not None:
        # More may be there than cv2.SIFT's threshold lets through.
        feature = feature.with_settings(nfeatures=min(max_keypoints, MAX_FEATURES))
    finder = feature if detector is None else detector
    with _timed("detect"):
        keypoints = finder.detect(image, None)
        if max_keypoints is not None:
            keypoints = strongest(keypoints, max_keypoints)
    with _timed("describe"):
        keypoints, rows = feature.compute(image, keypoints)
    return tuple(keypoints), rows


def enlarged(keypoints: KeyPoints, x: float, y: float) -> KeyPoints:
    """Keypoints of an image reduced x and y times, in the pixels of the image itself."""
    frames = resized_frames(from_keypoints(keypoints), np.array([x, y])).tolist()
    return tuple(
        cv2.KeyPoint(*frame, k.response, k.octave, k.class_id)
        for frame, k in zip(frames, keypoints, strict=True)
    )


_seconds: ContextVar[dict[str, float] | None] = ContextVar("seconds", default=None)


@contextmanager
def timing() -> Iterator[dict[str, float]]:
    """Time the calls of `match` in the block: the seconds of each of STEPS, both images together.

    For a descriptor that detects and describes in one call, all of it counts as "describe".

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


def _points(keypoints: KeyPoints) -> NDArray[np.float64]:
    if not keypoints:
        return np.zeros((0, 2))
    return cv2.KeyPoint.convert(keypoints).astype(np.float64)

"""From two images to a homography, with one result type that failure fills too."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import as_float
from kd_cv.detector.keypoints import strongest
from kd_cv.feature2d import KDDescriptor
from kd_cv.types import Array32, Detector, Feature, Image, KeyPoints

#: Names of descriptors, and how tables and pictures show them.
DESCRIPTORS = {"kd": "KD", "sift": "SIFT", "rootsift": "RootSIFT"}
RATIO = 0.85  # of the distances to the nearest and to the second nearest, at most
STEPS = ("detect", "describe", "match", "homography")
Matches = tuple[NDArray[np.int64], Array32]


def _no_matches() -> Matches:
    return np.zeros((0, 2), np.int64), np.zeros(0, np.float32)


@dataclass(frozen=True)
class MatchResult:
    """What was found between image 0 and image 1.

    matches  (M, 2) rows of keypoints0 and keypoints1
    ratios   (M,) distance of the nearest neighbour over that of the second: small is certain
    inliers  (M,) bool, matches that agree with H_0to1
    H_0to1   (3, 3) homography from image 0 to image 1, or None
    success  whether there are enough inliers to believe it
    candidates  (K, 2) and (K,): matches and ratios before the test of the ratio
    """

    keypoints0: KeyPoints
    keypoints1: KeyPoints
    matches: NDArray[np.int64]
    ratios: Array32
    inliers: NDArray[np.bool_]
    H_0to1: NDArray[np.float64] | None
    success: bool
    candidates: Matches = field(default_factory=_no_matches)

    def __repr__(self) -> str:
        return (
            f"MatchResult({len(self.keypoints0)} and {len(self.keypoints1)} keypoints, "
            f"{len(self.matches)} matches, {int(self.inliers.sum())} inliers, "
            f"success={bool(self.success)})"
        )

    @property
    def points0(self) -> NDArray[np.float64]:
        """(M, 2) positions of the matches in image 0."""
        return _points(self.keypoints0)[self.matches[:, 0]]

    @property
    def points1(self) -> NDArray[np.float64]:
        """(M, 2) positions of the matches in image 1."""
        return _points(self.keypoints1)[self.matches[:, 1]]

    def dmatches(self) -> list[cv2.DMatch]:
        """For cv2.drawMatches; the distance of each is its ratio."""
        pairs = zip(self.matches.tolist(), self.ratios.tolist(), strict=True)
        return [cv2.DMatch(i, j, ratio) for (i, j), ratio in pairs]


def match(
    image0: Image,
    image1: Image,
    descriptor: str | Feature = "kd",
    *,
    detector: Detector | None = None,
    max_keypoints: int | None = None,
    ratio: float = RATIO,
    mutual: bool = True,
    threshold: float = 3.0,
) -> MatchResult:
    """Match two images and estimate the homography between them.

    descriptor  "kd", "sift", "rootsift", or any object with detectAndCompute
    detector    any object with OpenCV's detect; the descriptor's own by default
    max_keypoints  the strongest of each image are matched; all by default
    ratio       accept a match whose nearest neighbour is closer than `ratio` times the second
    mutual      and is the nearest neighbour in both directions
    threshold   of the homography's inliers, in pixels

    >>> result = match(image0, image1)
    >>> result.success, result.H_0to1.round()[:2, 2]
    (True, array([24., 16.]))
    """
    for name, image in (("image0", image0), ("image1", image1)):
        if image is None or isinstance(image, list | tuple):
            given = "None: could the file be read?" if image is None else type(image).__name__
            raise TypeError(f"{name} must be one image, an array, got {given}")
    feature = as_feature(descriptor)
    if detector is not None and not callable(getattr(detector, "detect", None)):
        raise TypeError(f"detector must have a method detect, got {type(detector).__name__}")
    if max_keypoints is not None:
        if isinstance(max_keypoints, bool) or not isinstance(max_keypoints, int | np.integer):
            raise TypeError(f"max_keypoints must be an int, got {max_keypoints!r}")
        if max_keypoints < 1:
            raise ValueError(f"max_keypoints must be at least 1, got {max_keypoints}")
    if not 0 < as_float(ratio, "ratio") <= 1:
        raise ValueError(f"ratio must be above 0 and at most 1, got {ratio}")
    if not 0 < as_float(threshold, "threshold") < np.inf:
        raise ValueError(f"threshold must be positive and finite, got {threshold}")
    (keypoints0, d0), (keypoints1, d1) = (
        _extract(feature, detector, image, max_keypoints) for image in (image0, image1)
    )
    with _timed("match"):
        candidates, all_ratios = match_descriptors(d0, d1, mutual=mutual)
        matches, ratios = candidates[all_ratios <= ratio], all_ratios[all_ratios <= ratio]
    with _timed("homography"):
        H_0to1, inliers = find_homography(
            _points(keypoints0)[matches[:, 0]], _points(keypoints1)[matches[:, 1]], threshold
        )
    return MatchResult(
        keypoints0,
        keypoints1,
        matches,
        ratios,
        inliers,
        H_0to1,
        success=H_0to1 is not None and believable(int(inliers.sum()), len(matches)),
        candidates=(candidates, all_ratios),
    )


def as_feature(descriptor: str | Feature) -> Feature:
    """The object behind a name; an object with detectAndCompute stays as it is."""
    makers = dict(zip(DESCRIPTORS, (KDDescriptor, cv2.SIFT_create, RootSIFT), strict=True))
    if isinstance(descriptor, str) and descriptor in makers:
        return makers[descriptor]()
    describes = callable(getattr(descriptor, "detectAndCompute", None))
    if isinstance(descriptor, str | type) or not describes:
        raise ValueError(
            f"unknown descriptor {descriptor!r}: expected one of {list(DESCRIPTORS)} or an object "
            "with detectAndCompute"
        )
    return descriptor


class RootSIFT:
    """SIFT whose rows are divided by their sum and square-rooted (Arandjelovic and Zisserman)."""

    def __init__(self, nfeatures: int = 0) -> None:
        self._sift = cv2.SIFT_create(nfeatures)

    def detect(self, image: Any, mask: Any = None) -> KeyPoints:
        return self._sift.detect(image, mask)

    def compute(self, image: Any, keypoints: Any) -> tuple[KeyPoints, Array32 | None]:
        keypoints, rows = self._sift.compute(image, keypoints)
        return keypoints, None if rows is None else root(rows)

    def detectAndCompute(self, image: Any, mask: Any) -> tuple[KeyPoints, Array32 | None]:
        keypoints, rows = self._sift.detectAndCompute(image, mask)
        return keypoints, None if rows is None else root(rows)


def root(rows: Array32) -> Array32:
    """Square root of rows of unit sum; rows of zeros stay so."""
    total = rows.sum(axis=1, keepdims=True)
    return np.sqrt(rows / np.where(total > 0, total, 1))


def match_descriptors(
    d0: Any, d1: Any, *, ratio: float = 1.0, mutual: bool = True, chunk: int = 2048
) -> Matches:
    """Nearest neighbours of d0 (N0, D) in d1 (N1, D): matches (M, 2) and ratios (M,).

    Rows of zeros, which describe nothing, match nothing. With one candidate only there is no
    second neighbour, and the ratio is 0.
    """
    if d0 is None or d1 is None:
        return _no_matches()
    d0, d1 = np.asarray(d0), np.asarray(d1)
    if d0.ndim != 2 or d1.ndim != 2 or d0.shape[1] != d1.shape[1]:
        raise ValueError(f"expected d0 (N0, D) and d1 (N1, D), got {d0.shape} and {d1.shape}")
    if any(d.dtype.kind not in "fiu" or not np.isfinite(d).all() for d in (d0, d1)):
        raise ValueError(f"descriptors must be finite numbers, got {d0.dtype} and {d1.dtype}")
    rows0, rows1 = (np.flatnonzero(np.any(d, axis=1)) for d in (d0, d1))
    if not len(rows0) or not len(rows1):
        return _no_matches()
    a, b = (np.asarray(d, dtype=np.float32)[rows] for d, rows in ((d0, rows0), (d1, rows1)))
    b_squares = (b * b).sum(axis=1)
    nearest = np.empty(len(a), dtype=np.int64)
    ratios = np.zeros(len(a), dtype=np.float32)
    back_distance = np.full(len(b), np.inf, dtype=np.float32)
    back = np.zeros(len(b), dtype=np.int64)
    for start in range(0, len(a), chunk):
        block = a[start : start + chunk]
        squares = (block * block).sum(axis=1)[:, None] + b_squares - 2 * block @ b.T
        here = np.arange(len(block))
        nearest[start : start + chunk] = first = squares.argmin(axis=1)
        closest = squares.min(axis=0)
        better = closest < back_distance
        back[better] = start + squares.argmin(axis=0)[better]
        back_distance[better] = closest[better]
        if len(b) > 1:
            squares[here, first] = np.inf
            # From the differences: `squares` of near copies are rounding noise.
            best, second = (
                np.linalg.norm(block - b[i], axis=1) for i in (first, squares.argmin(axis=1))
            )
            # Two copies of the same row are no certain match: 0 / 0 is 1.
            ratio_here = np.divide(best, second, out=np.ones_like(best), where=second > 0)
            ratios[start : start + chunk] = np.minimum(ratio_here, 1)
    keep = ratios <= ratio
    if mutual:
        keep &= back[nearest] == np.arange(len(a))
    matches = np.stack([rows0[keep], rows1[nearest[keep]]], axis=1)
    return matches, ratios[keep]


def find_homography(
    points0: NDArray[np.float64], points1: NDArray[np.float64], threshold: float = 3.0
) -> tuple[NDArray[np.float64] | None, NDArray[np.bool_]]:
    """H_0to1 by MAGSAC and its inliers (M,); None and no inliers if it finds nothing."""
    none = np.zeros(len(points0), dtype=bool)
    if len(points0) < 4:
        return None, none
    H_0to1, mask = cv2.findHomography(
        points0, points1, cv2.USAC_MAGSAC, threshold, maxIters=10_000, confidence=0.9999
    )
    if H_0to1 is None or not np.isfinite(H_0to1).all():
        return None, none
    return H_0to1, mask.ravel().astype(bool)


def believable(inliers: int, matches: int) -> bool:
    """More inliers than chance gives: n_i > 8 + 0.3 n_f (Brown and Lowe, 2007)."""
    return inliers > 8 + 0.3 * matches


def _extract(
    feature: Feature, detector: Detector | None, image: Image, max_keypoints: int | None
) -> tuple[KeyPoints, Any]:
    if detector is None and max_keypoints is None:
        with _timed("describe"):
            keypoints, rows = feature.detectAndCompute(image, None)
        return tuple(keypoints), rows
    if isinstance(feature, KDDescriptor) and max_keypoints is not None:
        feature = feature.with_settings(nfeatures=max_keypoints)  # as many as there are
    with _timed("detect"):
        keypoints = (feature if detector is None else detector).detect(image, None)
        if max_keypoints is not None:
            keypoints = strongest(keypoints, max_keypoints)
    with _timed("describe"):
        keypoints, rows = feature.compute(image, keypoints)
    return tuple(keypoints), rows


_seconds: ContextVar[dict[str, float] | None] = ContextVar("seconds", default=None)


@contextmanager
def timing() -> Iterator[dict[str, float]]:
    """Times the calls of `match` inside: the seconds of each of STEPS, both images together.

    A descriptor that detects by itself, in one call, has it all in "describe".

    >>> with timing() as seconds:
    ...     result = match(image, image)
    >>> list(seconds)
    ['detect', 'describe', 'match', 'homography']
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

"""The steps of `kd-cv match`, timed one by one."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.cli.detectors import make_detector
from kd_cv.engine import DEFAULT_WHITENING
from kd_cv.extract import strongest
from kd_cv.feature2d import KDDescriptor, KeyPoints
from kd_cv.matching import (
    DESCRIPTORS,
    MatchResult,
    as_feature,
    believable,
    find_homography,
    match_descriptors,
)

STEPS = ("detect", "describe", "match", "homography")


@dataclass(frozen=True)
class Options:
    """What the user asked for, checked."""

    detector: str = "sift"
    ratio: float = 0.85
    threshold: float = 3.0
    max_keypoints: int = 5000
    weights: str | None = None

    def __post_init__(self) -> None:
        make_detector(self.detector, 1)
        if not 0 < self.ratio <= 1:
            raise ValueError(f"--ratio must lie between 0 and 1, got {self.ratio:g}")
        if not (np.isfinite(self.threshold) and self.threshold > 0):
            raise ValueError(f"--threshold must be a positive number, got {self.threshold:g}")
        if self.max_keypoints < 1:
            raise ValueError(f"--max-keypoints must be at least 1, got {self.max_keypoints}")


@dataclass
class Timed:
    """What one descriptor found, and the seconds of each step."""

    name: str
    feature: Any
    result: MatchResult
    candidates: tuple[NDArray[np.int64], NDArray[np.float32]]
    seconds: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


@dataclass
class Stopwatch:
    """Wall-clock seconds by step."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[step] = time.perf_counter() - start


def make_feature(name: str, weights: str | None = None) -> Any:
    """The descriptor of a name; `weights` replaces the matrices of "kd"."""
    if name not in DESCRIPTORS:
        raise ValueError(f"unknown descriptor {name!r}: expected one of {', '.join(DESCRIPTORS)}")
    if weights is None:
        return as_feature(name)
    if name != "kd":
        raise ValueError(f"--weights is for the descriptor kd, not for {name}")
    return KDDescriptor(weights=weights, whitening=DEFAULT_WHITENING or "ws")


def detect(
    image0: NDArray[np.uint8], image1: NDArray[np.uint8], options: Options
) -> tuple[tuple[KeyPoints, KeyPoints], float]:
    """The strongest keypoints of both gray images, and the seconds it took."""
    watch = Stopwatch()
    with watch("detect"):
        detector = make_detector(options.detector, options.max_keypoints)
        keypoints0, keypoints1 = (
            tuple(strongest(detector.detect(image, None), options.max_keypoints))
            for image in (image0, image1)
        )
    return (keypoints0, keypoints1), watch.seconds["detect"]


def run(
    name: str,
    image0: NDArray[np.uint8],
    image1: NDArray[np.uint8],
    keypoints: tuple[KeyPoints, KeyPoints],
    detect_seconds: float,
    options: Options,
) -> Timed:
    """Describe given keypoints of gray images, match them and estimate H_0to1."""
    feature = make_feature(name, options.weights if name == "kd" else None)
    _warm_up(feature)
    watch = Stopwatch({"detect": detect_seconds})
    with watch("describe"):
        (keypoints0, d0), (keypoints1, d1) = (
            feature.compute(image, found)
            for image, found in zip((image0, image1), keypoints, strict=True)
        )
    with watch("match"):
        candidates, all_ratios = match_descriptors(d0, d1)
        kept = all_ratios <= options.ratio
        matches, ratios = candidates[kept], all_ratios[kept]
    with watch("homography"):
        frame = MatchResult(
            tuple(keypoints0), tuple(keypoints1), matches, ratios,
            np.zeros(len(matches), bool), None, False,
        )  # fmt: skip
        H_0to1, inliers = find_homography(frame.points0, frame.points1, options.threshold)
    success = H_0to1 is not None and believable(int(inliers.sum()), len(matches))
    result = MatchResult(
        frame.keypoints0, frame.keypoints1, matches, ratios, inliers, H_0to1, success
    )
    return Timed(name, feature, result, (candidates, all_ratios), watch.seconds)


def _warm_up(feature: Any) -> None:
    """Compile, or load what was compiled, so that the clock sees the work alone."""
    image = np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)
    feature.compute(image, [cv2.KeyPoint(32, 32, 6, 0)])

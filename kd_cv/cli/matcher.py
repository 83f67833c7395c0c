"""`matching.match` with the options of the command line."""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.cli.detectors import make_detector
from kd_cv.feature2d import KDDescriptor
from kd_cv.matching import DESCRIPTORS, RATIO, MatchResult, as_feature, match, timing


@dataclass(frozen=True)
class Options:
    """What the user asked for, checked."""

    detector: str = "dog"
    ratio: float = RATIO
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
class Answer:
    """What one descriptor matched."""

    name: str
    feature: Any
    result: MatchResult
    seconds: dict[str, float]  # of each step of the match


def make_feature(name: str, weights: str | None = None) -> Any:
    """The descriptor of a name; `weights` replaces the matrices of "kd"."""
    if name not in DESCRIPTORS:
        raise ValueError(f"unknown descriptor {name!r}: expected one of {', '.join(DESCRIPTORS)}")
    if weights is None:
        return as_feature(name)
    if name != "kd":
        raise ValueError(f"--weights is for the descriptor kd, not for {name}")
    return KDDescriptor(weights=weights)


def run(
    name: str, image0: NDArray[np.uint8], image1: NDArray[np.uint8], options: Options
) -> Answer:
    """Match gray images by the descriptor of a name."""
    feature = make_feature(name, options.weights if name == "kd" else None)
    _warm_up(feature)
    with timing() as seconds:
        result = match(
            image0,
            image1,
            feature,
            detector=make_detector(options.detector, options.max_keypoints),
            max_keypoints=options.max_keypoints,
            ratio=options.ratio,
            threshold=options.threshold,
        )
    return Answer(name, feature, result, seconds)


def _warm_up(feature: Any) -> None:
    """Compile, or load what was compiled, so that the clock sees the work alone."""
    image = np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)
    feature.compute(image, [cv2.KeyPoint(32, 32, 6, 0)])

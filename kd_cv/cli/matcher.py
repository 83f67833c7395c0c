"""What the options of the command line name: a descriptor, an extraction, a match."""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from kd_cv.checks import as_int, as_positive
from kd_cv.cli.detectors import make_detector
from kd_cv.cli.images import Pair
from kd_cv.descriptor.frames import as_gray
from kd_cv.feature2d import KDDescriptor
from kd_cv.features import DESCRIPTORS, as_feature
from kd_cv.matching import MatchResult, match, timing
from kd_cv.models import MODELS
from kd_cv.neighbours import RATIO, as_ratio


@dataclass(frozen=True)
class Options:
    """What the user asked for, checked."""

    detector: str = "dog"
    ratio: float = RATIO
    threshold: float = 3.0
    max_keypoints: int = 5000
    weights: str | None = None
    model: str = "auto"
    focal: float | None = None
    max_size: int | None = None

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"--model must be one of {', '.join(MODELS)}, got {self.model!r}")
        if self.focal is not None:
            as_positive(self.focal, "--focal")
        if self.max_size is not None:
            as_int(self.max_size, "--max-size", 16)
        make_detector(self.detector, 1)
        as_ratio(self.ratio, "--ratio")
        as_positive(self.threshold, "--threshold")
        as_int(self.max_keypoints, "--max-keypoints")


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


def extraction_of(descriptor: str, weights: str | None, *settings: Any) -> Any:
    """What --descriptor and --weights name, with the other settings of an Extraction."""
    from kd_cv.collection import Extraction

    return Extraction(make_feature(descriptor, weights) if weights else descriptor, *settings)


def run(name: str, pair: Pair, options: Options) -> Answer:
    """Match two photographs by the descriptor of a name."""
    feature = make_feature(name, options.weights if name == "kd" else None)
    _warm_up(feature)
    camera0, camera1 = pair.cameras(options.focal)
    if options.model == "essential" and camera0 is None:
        raise ValueError(
            "--model essential needs --focal: the photographs have no EXIF that says it"
        )
    with timing() as seconds:
        result = match(
            as_gray(pair.image0),
            as_gray(pair.image1),
            feature,
            detector=make_detector(options.detector, options.max_keypoints),
            max_keypoints=options.max_keypoints,
            ratio=options.ratio,
            threshold=options.threshold,
            model=options.model,
            camera0=camera0,
            camera1=camera1,
            max_size=options.max_size,
        )
    return Answer(name, feature, result, seconds)


def _warm_up(feature: Any) -> None:
    """Compile, or load what was compiled, so that the clock sees the work alone."""
    image = np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)
    feature.compute(image, [cv2.KeyPoint(32, 32, 6, 0)])

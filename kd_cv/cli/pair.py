"""Load and match two photographs, for `kd-cv match` and `kd-cv explain`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_int, as_positive
from kd_cv.cli.options import make_feature
from kd_cv.detector.settings import MAX_FEATURES
from kd_cv.extras import extra
from kd_cv.gray import as_gray
from kd_cv.io.files import printable
from kd_cv.io.sources import read_source
from kd_cv.matching.neighbours import as_ratio
from kd_cv.matching.pipeline import match, timing
from kd_cv.matching.result import MatchResult
from kd_cv.opencv.dog import DoG
from kd_cv.opencv.rootsift import DESCRIPTORS
from kd_cv.views import VIEWS

#: OpenCV's detectors by name.
FACTORIES = {
    "sift": "SIFT_create",
    "orb": "ORB_create",
    "fast": "FastFeatureDetector_create",
    "gftt": "GFTTDetector_create",
    "mser": "MSER_create",
    "agast": "AgastFeatureDetector_create",
    "brisk": "BRISK_create",
    "akaze": "AKAZE_create",
    "kaze": "KAZE_create",
}


def available() -> list[str]:
    return ["dog", *(name for name in FACTORIES if opencv_factory(FACTORIES[name]))]


def opencv_factory(name: str) -> Any:
    """Return OpenCV's factory, such as "AKAZE_create", or None.

    The AKAZE family, BRISK and AGAST moved to the contributed modules in version 5.
    """
    homes = (cv2, getattr(cv2, "xfeatures2d", None))
    return next((getattr(home, name) for home in homes if hasattr(home, name)), None)


def make_detector(name: str, max_keypoints: int) -> Any:
    max_keypoints = min(max_keypoints, MAX_FEATURES)
    if name == "dog":
        return DoG(max_keypoints)
    factory = opencv_factory(FACTORIES.get(name, ""))
    if factory is None:
        known = "is not in" if name in FACTORIES else "is unknown to"
        raise ValueError(
            f"detector {name!r} {known} OpenCV {cv2.__version__}: it has {', '.join(available())}"
        )
    counts = {"orb": "nfeatures", "gftt": "maxCorners"}
    return factory(**({counts[name]: max_keypoints} if name in counts else {}))


class Pair(NamedTuple):
    """Two photographs, their names, and the true H_0to1 and focal lengths, if known."""

    image0: NDArray[Any]
    image1: NDArray[Any]
    names: tuple[str, str]
    H_true: NDArray[np.float64] | None = None
    focals_in_widths: tuple[float | None, float | None] = (None, None)

    def cameras(self, focal: float | None) -> tuple[float | None, float | None]:
        """Return focal lengths in pixels: as given, else from EXIF if it has both."""
        first, second = self.focals_in_widths
        if focal is not None or first is None or second is None:
            return focal, focal
        return first * max(self.image0.shape[:2]), second * max(self.image1.shape[:2])


def example_pair() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float64]]:
    """Return a photograph, its rotated, darkened and noisy copy, and the true H_0to1."""
    image0 = np.ascontiguousarray(skimage_photo("astronaut")[:, :, ::-1])
    height, width = image0.shape[:2]
    side = np.array([width, height], np.float32)
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float32)
    seen = np.array([[0.17, 0.05], [0.93, 0.15], [0.85, 0.95], [0.04, 0.80]], np.float32)
    H_0to1 = cv2.getPerspectiveTransform(corners * side, seen * side)
    warped = cv2.warpPerspective(image0, H_0to1, (width, height), flags=cv2.INTER_AREA)
    noise = np.random.default_rng(0).normal(0, 6, warped.shape)
    image1 = np.clip(0.6 * warped + 10 + noise, 0, 255).astype(np.uint8)
    return image0, image1, H_0to1


def skimage_photo(name: str) -> NDArray[np.uint8]:
    skimage = extra("skimage", "the built-in photographs come with scikit-image", "cli")
    return np.asarray(getattr(skimage.data, name)())


def load_pair(photos: Sequence[Path]) -> Pair:
    if len(photos) not in (0, 2):
        raise ValueError(f"expected two photographs, or none for the example; got {len(photos)}")
    if not photos:
        image0, image1, H_true = example_pair()
        return Pair(image0, image1, ("astronaut", "astronaut, warped"), H_true)
    first, second = (read_source(path) for path in photos)
    names = printable(photos[0].name), printable(photos[1].name)
    focals = first.focal_in_widths, second.focal_in_widths
    return Pair(first.pixels, second.pixels, names, None, focals)


@dataclass(frozen=True)
class Options:
    """How to match two photographs; the values are checked."""

    weights: str | None = None
    detector: str = "dog"
    max_keypoints: int = 5000
    max_size: int = 3200
    ratio: float | None = None
    model: Literal["auto", "homography", "fundamental", "essential"] = "auto"
    threshold: float = 3.0
    views: str = "auto"
    focal: float | None = None

    def __post_init__(self) -> None:
        if self.focal is not None:
            as_positive(self.focal, "--focal")
        as_int(self.max_size, "--max-size", 16)
        make_detector(self.detector, 1)
        if self.ratio is not None:
            as_ratio(self.ratio, "--ratio")
        as_positive(self.threshold, "--threshold")
        as_int(self.max_keypoints, "--max-keypoints")
        if self.views != "auto" and self.views not in map(str, VIEWS):
            raise ValueError(
                f"--views must be auto or one of {', '.join(map(str, VIEWS))}, got {self.views}"
            )

    @property
    def views_searched(self) -> int | str:
        return "auto" if self.views == "auto" else int(self.views)


class Answer(NamedTuple):
    """The result of a descriptor, and the seconds of each step."""

    name: str
    feature: Any
    result: MatchResult
    seconds: dict[str, float]


def run(
    name: str, pair: Pair, options: Options, tell: Callable[[str], None] = lambda text: None
) -> Answer:
    """Match two photographs by the descriptor of a name; call `tell` with each step."""
    feature = make_feature(name, options.weights if name == "kd" else None)
    detector = make_detector(options.detector, options.max_keypoints)
    own = name == "kd" and options.detector == "dog"  # detected and described in one pass
    camera0, camera1 = pair.cameras(options.focal)
    if options.model == "essential" and camera0 is None:
        raise ValueError(
            "--model essential needs --focal: the photographs have no EXIF that says it"
        )
    tell("Loading compiled code, or compiling it: once, for about 10 s ...")
    noise = np.random.default_rng(0).integers(0, 255, (96, 96), dtype=np.uint8)
    match(noise, noise, feature, detector=None if own else detector)  # before the clock runs
    tell(f"Matching with {DESCRIPTORS[name]} ...")
    with timing() as seconds:
        result = match(
            as_gray(pair.image0), as_gray(pair.image1), feature,
            detector=None if own else detector,
            max_keypoints=options.max_keypoints, ratio=options.ratio,
            threshold=options.threshold, model=options.model, camera0=camera0, camera1=camera1,
            max_size=options.max_size, views=options.views_searched if own else 1,
        )  # fmt: skip
    return Answer(name, feature, result, seconds)

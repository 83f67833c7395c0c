"""Detectors by name: our own, and OpenCV's as far as the OpenCV that runs has them."""

from typing import Any

import cv2

from kd_cv.detector.settings import MAX_FEATURES
from kd_cv.keypoints import opencv_factory
from kd_cv.opencv.dog import DoG

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
    """The names that there are."""
    return ["dog", *(name for name in FACTORIES if _factory(name))]


def make_detector(name: str, max_keypoints: int) -> Any:
    """The detector of a name. Some need to be told how many keypoints are wanted."""
    max_keypoints = min(max_keypoints, MAX_FEATURES)
    if name == "dog":
        return DoG(max_keypoints)
    factory = _factory(name)
    if factory is None:
        known = "is not in" if name in FACTORIES else "is unknown to"
        raise ValueError(
            f"detector {name!r} {known} OpenCV {cv2.__version__}: it has {', '.join(available())}"
        )
    if name == "orb":
        return factory(nfeatures=max_keypoints)
    if name == "gftt":
        return factory(maxCorners=max_keypoints)
    return factory()


def _factory(name: str) -> Any:
    return opencv_factory(FACTORIES.get(name, ""))

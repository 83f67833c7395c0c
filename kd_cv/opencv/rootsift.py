"""The descriptors that have a name: KD, SIFT and RootSIFT."""

from typing import Any

import cv2
import numpy as np

from kd_cv.opencv.kd_descriptor import KDDescriptor
from kd_cv.types import Array32, Feature, KeyPoints

#: Their names, and how tables and pictures show them.
DESCRIPTORS = {"kd": "KD", "sift": "SIFT", "rootsift": "RootSIFT"}


def as_feature(descriptor: str | Feature) -> Feature:
    """Make the descriptor of a name; return an object with detectAndCompute as it is."""
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
    """SIFT, divided by its sum and square-rooted (Arandjelovic and Zisserman)."""

    def __init__(self, nfeatures: int = 0) -> None:
        self._sift = cv2.SIFT_create(nfeatures)

    def detect(self, image: Any, mask: Any = None) -> KeyPoints:
        return self._sift.detect(image, mask)

    def compute(self, image: Any, keypoints: Any) -> tuple[KeyPoints, Array32 | None]:
        keypoints, descriptors = self._sift.compute(image, keypoints)
        return keypoints, None if descriptors is None else root(descriptors)

    def detectAndCompute(self, image: Any, mask: Any) -> tuple[KeyPoints, Array32 | None]:
        keypoints, descriptors = self._sift.detectAndCompute(image, mask)
        return keypoints, None if descriptors is None else root(descriptors)


def root(descriptors: Array32) -> Array32:
    """Take the square root of descriptors, divided by their sum."""
    total = descriptors.sum(axis=1, keepdims=True)
    return np.sqrt(descriptors / np.where(total > 0, total, 1))

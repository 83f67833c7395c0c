"""Photographs that come with scikit-image, for examples and tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.extras import extra

Gray = NDArray[np.uint8]

#: Photographs to fit on, and to test on.
FIT_PHOTOS = ("coffee", "chelsea", "rocket", "brick", "gravel", "grass", "coins", "page")
TEST_PHOTOS = ("astronaut", "camera")


def builtin_photos(names: Iterable[str] = TEST_PHOTOS) -> Iterator[tuple[str, Gray]]:
    """Name and gray image of photographs inside scikit-image."""
    for name in names:
        image = _skimage_photo(name)
        gray = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        yield name, np.asarray(gray, np.uint8)


def example_pair() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float64]]:
    """A real photograph, its turned, darkened and noisy copy, and the true H_0to1."""
    image0 = np.ascontiguousarray(_skimage_photo("astronaut")[:, :, ::-1])
    height, width = image0.shape[:2]
    side = np.array([width, height], np.float32)
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float32)
    seen = np.array([[0.17, 0.05], [0.93, 0.15], [0.85, 0.95], [0.04, 0.80]], np.float32)
    H_0to1 = cv2.getPerspectiveTransform(corners * side, seen * side)
    warped = cv2.warpPerspective(image0, H_0to1, (width, height), flags=cv2.INTER_AREA)
    noise = np.random.default_rng(0).normal(0, 6, warped.shape)
    image1 = np.clip(0.6 * warped + 10 + noise, 0, 255).astype(np.uint8)
    return image0, image1, H_0to1


def _skimage_photo(name: str) -> NDArray[np.uint8]:
    skimage = extra("skimage", "the built-in photographs come with scikit-image", "cli")
    return np.asarray(getattr(skimage.data, name)())

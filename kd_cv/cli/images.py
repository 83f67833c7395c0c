"""Photographs for the command line: from files, and one that is built in."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.io.datasets import read_image_bytes

Image = NDArray[np.uint8]


class Pair(NamedTuple):
    """Two photographs, their names, and the true H_0to1 where it is known."""

    image0: Image
    image1: Image
    names: tuple[str, str]
    H_true: NDArray[np.float64] | None


def check_count(photos: Sequence[Path]) -> None:
    """Two photographs, or none for the example."""
    if len(photos) not in (0, 2):
        raise ValueError(f"expected two photographs, or none for the example; got {len(photos)}")


def load_pair(photos: Sequence[Path]) -> Pair:
    """The photographs of two files; of none, the example."""
    check_count(photos)
    if not photos:
        image0, image1, H_true = example_pair()
        return Pair(image0, image1, ("astronaut", "astronaut, warped"), H_true)
    image0, image1 = (read_photo(path) for path in photos)
    return Pair(image0, image1, (photos[0].name, photos[1].name), None)


def read_photo(path: str | os.PathLike[str]) -> Image:
    """A photograph (H, W, 3), BGR, upright as its EXIF orientation says."""
    data = np.frombuffer(read_image_bytes(path, others=True), np.uint8)
    try:
        image = cv2.imdecode(data, cv2.IMREAD_COLOR) if data.size else None
    except cv2.error as error:
        raise ValueError(f"{os.fspath(path)} cannot be decoded: {error.err}") from error
    if image is None:
        raise ValueError(f"{os.fspath(path)} is not an image that OpenCV can read")
    return np.asarray(image, dtype=np.uint8)


def example_pair() -> tuple[Image, Image, NDArray[np.float64]]:
    """A real photograph, its turned, darkened and noisy copy, and the true H_0to1."""
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            "the built-in photograph comes with scikit-image: pip install 'kd-cv[cli]'"
        ) from error
    image0 = np.ascontiguousarray(data.astronaut()[:, :, ::-1])
    height, width = image0.shape[:2]
    side = np.array([width, height], np.float32)
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float32)
    seen = np.array([[0.17, 0.05], [0.93, 0.15], [0.85, 0.95], [0.04, 0.80]], np.float32)
    H_0to1 = cv2.getPerspectiveTransform(corners * side, seen * side)
    warped = cv2.warpPerspective(image0, H_0to1, (width, height), flags=cv2.INTER_AREA)
    noise = np.random.default_rng(0).normal(0, 6, warped.shape)
    image1 = np.clip(0.6 * warped + 10 + noise, 0, 255).astype(np.uint8)
    return image0, image1, H_0to1

"""Photographs for the command line: from files, and one that is built in."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.io.builtin import example_pair
from kd_cv.io.images import read_image_bytes

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

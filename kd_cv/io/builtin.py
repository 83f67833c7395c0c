"""Photographs inside scikit-image, for whoever has none at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

Gray = NDArray[np.uint8]

#: Photographs to fit on, and to test on.
FIT_PHOTOS = ("coffee", "chelsea", "rocket", "brick", "gravel", "grass", "coins", "page")
TEST_PHOTOS = ("astronaut", "camera")


def builtin_photos(names: Iterable[str] = TEST_PHOTOS) -> Iterator[tuple[str, Gray]]:
    """Name and gray image of photographs inside scikit-image."""
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            "the built-in photographs come with scikit-image: pip install 'kd-cv[cli]'"
        ) from error
    for name in names:
        image = np.asarray(getattr(data, name)())
        gray = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        yield name, np.asarray(gray, np.uint8)

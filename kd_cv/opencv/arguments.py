"""Images, masks and lists of them, as OpenCV's detectors take them, checked."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray


def as_list(values: Any, count: int, what: str) -> Sequence[Any]:
    """A list of `count` values, one for each image; None stands for as many of None."""
    if values is None and what == "masks":
        return [None] * count
    if not isinstance(values, list | tuple) or len(values) != count:
        given = len(values) if isinstance(values, list | tuple) else type(values).__name__
        raise ValueError(f"{count} images need as many {what}, got {given}")
    return values


def as_mask(mask: Any, shape: tuple[int, ...]) -> NDArray[np.uint8] | None:
    """A mask (H, W) for an image of this shape."""
    if mask is None:
        return None
    if isinstance(mask, cv2.UMat):
        mask = mask.get()
    if not isinstance(mask, np.ndarray) or mask.dtype != np.uint8:
        given = mask.dtype if isinstance(mask, np.ndarray) else type(mask).__name__
        raise TypeError(f"a mask must be a uint8 array, got {given}")
    if mask.shape[:2] != tuple(shape) or mask.size != shape[0] * shape[1]:
        raise ValueError(f"a mask must have the shape of its image, {shape}, got {mask.shape}")
    return mask.reshape(shape)

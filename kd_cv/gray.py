"""Convert any image to one gray plane."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

#: Longest side of an image, and of a patch, in pixels: float32 positions resolve no more.
MAX_SIDE = 2**24
#: Range of the largest value of a float image that is not rescaled.
MIN_VALUE, MAX_VALUE = 2.0**-6, 2.0**16


def as_gray(image: Any) -> NDArray[Any]:
    """Return the one-channel image (H, W), C-contiguous: uint8 unchanged, all else as float32.

    Takes (H, W), (H, W, 1), BGR and BGRA of type uint8, uint16 or float, and cv2.UMat. 16-bit
    values are divided by 65535. Float values may have any range: the descriptor does not depend on
    gain.
    """
    image = out_of_umat(image)
    if not isinstance(image, np.ndarray):
        raise TypeError(f"an image must be a NumPy array or cv2.UMat, got {type(image).__name__}")
    image = np.asarray(image)  # a mask would hide NaN
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)):
        raise ValueError(
            f"an image must have shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), got {image.shape}"
        )
    if max(image.shape[:2]) > MAX_SIDE:
        raise ValueError(f"a side of an image must be at most {MAX_SIDE}, got {image.shape}")
    if image.dtype.kind == "u" and image.dtype.itemsize == 2:  # in either byte order
        image = image.astype(np.float32) / np.float32(65535)
    elif image.dtype.kind == "f":
        with np.errstate(over="ignore"):
            image = image.astype(np.float32, copy=False)
        image = _visible(in_range(image, "a float image"))
    elif image.dtype != np.uint8:
        raise TypeError(f"an image must be uint8, uint16 or float, got {image.dtype}")
    if image.size == 0:
        return np.zeros((0, 0), dtype=image.dtype)
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    elif image.ndim == 3:
        code = cv2.COLOR_BGR2GRAY if image.shape[2] == 3 else cv2.COLOR_BGRA2GRAY
        image = cv2.cvtColor(np.ascontiguousarray(image), code)
    return np.ascontiguousarray(image)


def out_of_umat(image: Any) -> Any:
    """Return the array of a cv2.UMat, (0, 0) if it is empty; any other image unchanged."""
    if not isinstance(image, cv2.UMat):
        return image
    pixels = image.get()
    return np.zeros((0, 0), dtype=np.uint8) if pixels is None else pixels


def in_range(values: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    """Check for finite values; divide by a power of 2 if their squares might overflow float32."""
    if not values.size:
        return values
    largest = np.maximum(values.max(), -values.min())  # NaN if there is one
    if not np.isfinite(largest):
        raise ValueError(f"{name} must not contain NaN, infinity or values too large for float32")
    if largest <= MAX_VALUE:
        return values
    return values * np.float32(np.exp2(-np.ceil(np.log2(largest / MAX_VALUE))))


def _visible(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Multiply faint values by a power of 2: rounding would look like texture."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest >= MIN_VALUE or largest == 0:
        return values
    return values * np.float32(np.exp2(min(-np.ceil(np.log2(largest)), 120)))


def as_mask(mask: Any, shape: tuple[int, ...]) -> NDArray[np.uint8] | None:
    """Check a mask (H, W), uint8 or bool, for an image of this shape."""
    mask = out_of_umat(mask)
    if mask is None:
        return None
    if not isinstance(mask, np.ndarray) or mask.dtype not in (np.uint8, np.bool_):
        given = mask.dtype if isinstance(mask, np.ndarray) else type(mask).__name__
        raise TypeError(f"a mask must be a uint8 or bool array, got {given}")
    if mask.shape[:2] != tuple(shape) or mask.size != shape[0] * shape[1]:
        raise ValueError(f"a mask must have the shape of its image, {shape}, got {mask.shape}")
    return mask.reshape(shape).view(np.uint8) if mask.dtype == bool else mask.reshape(shape)


def to_8bit(gray: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert a gray image to 8 bits for other detectors; floats count as 0..1 or 0..255."""
    if gray.dtype == np.uint8:
        return gray
    scale = 255.0 if gray.max(initial=0.0) <= 1.0 else 1.0
    return np.clip(np.rint(gray * scale), 0, 255).astype(np.uint8)

"""Images of arrays, paths, PIL images and torch tensors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.gray import out_of_umat
from kd_cv.io.files import PathLike
from kd_cv.io.images import decoded, is_heif, open_heif, pillow_image, read_image_bytes

# Tags of EXIF.
EXIF_DIRECTORY = 0x8769
FOCAL_LENGTH, FOCAL_LENGTH_35MM = 0x920A, 0xA405  # in mm; of a 36 mm film that sees the same
PIXEL_WIDTH, PLANE_RESOLUTION, PLANE_UNIT = 0xA002, 0xA20E, 0xA210  # of the sensor
UNITS_MM = {2: 25.4, 3: 10.0, 4: 1.0}
FILM_MM = 36.0


@dataclass(frozen=True)
class Source:
    """An image and its focal length."""

    pixels: Any  # (H, W), BGR or BGRA
    focal_in_widths: float | None = None  # in longer sides of the image, from EXIF


def as_source(image: Any, name: str = "image") -> Source:
    """Read an image from an array, a path, a PIL image or a torch tensor (C, H, W), RGB.

    >>> as_source(np.zeros((40, 60, 3), np.uint8)).pixels.shape
    (40, 60, 3)
    """
    if image is None or isinstance(image, list | tuple):
        given = "None: could the file be read?" if image is None else type(image).__name__
        raise TypeError(
            f"{name} must be one image: an array, a path, a PIL image or a tensor; got {given}"
        )
    if isinstance(image, str | os.PathLike):
        return read_source(image)
    kind = type(image).__module__.partition(".")[0]
    if kind == "PIL":
        return _from_pillow(image)
    if kind == "torch":
        return Source(_from_tensor(image, name))
    return Source(out_of_umat(image))


def read_source(path: PathLike) -> Source:
    """Read an image file (H, W, 3), BGR, at its own depth, with its EXIF orientation applied."""
    data = read_image_bytes(path)
    if is_heif(data):
        from PIL import ImageOps

        return _from_pillow(ImageOps.exif_transpose(open_heif(path, data)))
    header = pillow_image(path, data)
    focal = None if header is None else focal_in_widths(header)
    return Source(decoded(path, data, cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH), focal)


def focal_in_widths(image: Any) -> float | None:
    """Return the focal length of a Pillow image in its longer sides, from EXIF, or None."""
    try:
        tags = image.getexif().get_ifd(EXIF_DIRECTORY)
        film = float(tags.get(FOCAL_LENGTH_35MM, 0))
        if 1 <= film <= 10_000:
            return film / FILM_MM
        per_mm = float(tags.get(PLANE_RESOLUTION, 0)) / UNITS_MM[tags.get(PLANE_UNIT, 2)]
        focal = float(tags.get(FOCAL_LENGTH, 0)) * per_mm / float(tags.get(PIXEL_WIDTH, 0))
    except Exception:  # Pillow raises many types for damaged tags
        return None
    return focal if 0.01 <= focal <= 1000 else None


def _from_pillow(image: Any) -> Source:
    if image.mode.startswith("I;16"):
        pixels = np.asarray(image).astype(np.uint16)
    elif image.mode in ("I", "F"):
        pixels = np.asarray(image).astype(np.float32)
    elif image.mode in ("1", "L", "LA"):
        pixels = np.asarray(image.convert("L"))
    else:
        pixels = np.ascontiguousarray(np.asarray(image.convert("RGB"))[:, :, ::-1])
    return Source(pixels, focal_in_widths(image))


def _from_tensor(tensor: Any, name: str) -> NDArray[Any]:
    """Convert (C, H, W) RGB, (1, C, H, W) or (H, W) to (H, W, C) BGR or (H, W)."""
    array = tensor.detach().cpu()
    array = (array.float() if array.is_floating_point() else array).numpy()
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    if array.ndim == 3 and array.shape[0] in (1, 3):
        return np.ascontiguousarray(array[::-1].transpose(1, 2, 0))
    if array.ndim != 2:
        raise ValueError(
            f"{name} as a tensor must be (C, H, W) with 1 or 3 channels, RGB, or (H, W); "
            f"got {tuple(tensor.shape)}"
        )
    return array

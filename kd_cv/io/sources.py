"""An image in the forms in which people hold one: an array, a path, a PIL image, a torch tensor."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.gray import out_of_umat
from kd_cv.io.exif import EXIF_DIRECTORY, FILM_MM, FOCAL_LENGTH_35MM, focal_in_widths
from kd_cv.io.files import PathLike, refused_as
from kd_cv.io.images import decoded, read_image_bytes

#: The brand of an HEIC or AVIF file, behind the size of its first box and "ftyp".
HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif")


@dataclass(frozen=True)
class Source:
    """An image and what is known of its camera.

    pixels           as `as_gray` takes them: (H, W), BGR or BGRA
    focal_in_widths  focal length in longer sides of the image, from EXIF; None without it
    """

    pixels: Any
    focal_in_widths: float | None = None


def as_source(image: Any, name: str = "image") -> Source:
    """The image of an array, a path, a PIL image or a torch tensor (C, H, W), RGB.

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
        return _of_pillow(image)
    if kind == "torch":
        return Source(_of_tensor(image, name))
    return Source(out_of_umat(image))


def read_source(path: PathLike) -> Source:
    """A photograph (H, W, 3), BGR, upright as its EXIF orientation says."""
    data = read_image_bytes(path, others=True)
    if data[4:8] == b"ftyp" and data[8:12] in HEIF_BRANDS:
        return _of_heif(Path(path))
    return Source(decoded(path, data, cv2.IMREAD_COLOR), focal_in_widths(data))


def _of_heif(path: Path) -> Source:
    try:
        from PIL import Image, ImageOps
        from pillow_heif import register_heif_opener
    except ImportError as error:
        raise ValueError(
            f"{path} is an HEIC photograph: pip install pillow-heif, or convert it "
            f"(heif-convert {path.name} {path.stem}.jpg; on a Mac: "
            f"sips -s format jpeg {path.name} --out {path.stem}.jpg)"
        ) from error
    register_heif_opener()
    damage = (EOFError, RuntimeError, SyntaxError, Image.DecompressionBombError)
    with refused_as(f"{path} cannot be decoded", *damage), Image.open(path) as image:
        return _of_pillow(ImageOps.exif_transpose(image))


def _of_pillow(image: Any) -> Source:
    if image.mode.startswith("I;16"):
        pixels = np.asarray(image).astype(np.uint16)
    elif image.mode in ("1", "L", "LA"):
        pixels = np.asarray(image.convert("L"))
    else:
        pixels = np.ascontiguousarray(np.asarray(image.convert("RGB"))[:, :, ::-1])
    film = image.getexif().get_ifd(EXIF_DIRECTORY).get(FOCAL_LENGTH_35MM, 0)
    return Source(pixels, film / FILM_MM if isinstance(film, int) and film > 0 else None)


def _of_tensor(tensor: Any, name: str) -> NDArray[Any]:
    """(C, H, W) RGB, (1, C, H, W) or (H, W) as (H, W, C) BGR or (H, W)."""
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

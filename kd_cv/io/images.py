"""Photographs in folders, and their pixels, decoded within limits.

OpenCV decodes; Pillow, if installed, reads the size first, the EXIF data, and HEIC.
"""

from __future__ import annotations

import io
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.gray import as_gray, to_8bit
from kd_cv.io.files import PathLike, as_folder, read_bytes, reason, refused_as

PHOTO_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp", ".heic", ".heif"}
)
#: The brand of an HEIC or AVIF file, behind the size of its first box and "ftyp".
HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif")

MAX_PIXELS = 2**27
MAX_IMAGE_BYTES = 2**30
MAX_SCANS = 100  # of a JPEG: each is a pass over all pixels; cameras and editors make 12 at most


class Found(NamedTuple):
    """The files in a folder and below it."""

    photos: list[Path]
    unread: dict[Path, str]  # folder that cannot be read -> reason
    others: Mapping[str, int]  # suffix -> count of other files


def find_photos(folder: PathLike) -> Found:
    """List the files in a folder and below it; links to folders are not followed."""
    unread: dict[Path, str] = {}

    def skip(error: OSError) -> None:
        unread[Path(error.filename)] = reason(error)

    tree = os.walk(as_folder(folder), onerror=skip)
    paths = [path for place, _, names in tree for name in names if (path := Path(place, name))]
    files = [path for path in paths if path.is_file()]
    photos = [path for path in files if path.suffix.lower() in PHOTO_SUFFIXES]
    return Found(sorted(photos), unread, by_suffix(set(files) - set(photos)))


def by_suffix(paths: Iterable[Path]) -> dict[str, int]:
    """Count files by suffix, the most frequent first; hidden files do not count.

    >>> by_suffix([Path("a.MOV"), Path("b.mov"), Path("notes"), Path(".hidden")])
    {'.mov': 2, '': 1}
    """
    counts = Counter(path.suffix.lower() for path in paths if path.name[:1] != ".")
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def say_others(others: Mapping[str, int]) -> str:
    """Format the counts of files that are not read.

    >>> say_others({".mov": 2, "": 1})
    '3 other files are not read: 2 .mov, 1 without a suffix'
    """
    if not others:
        return ""
    total = sum(others.values())
    kinds = ", ".join(f"{count} {suffix or 'without a suffix'}" for suffix, count in others.items())
    return f"{total} other {'file is' if total == 1 else 'files are'} not read: {kinds}"


def list_photos(folder: PathLike) -> list[Path]:
    """List the photographs in a folder and below it; warn of folders that cannot be read."""
    content = find_photos(folder)
    for place, why in content.unread.items():
        warnings.warn(f"folder skipped: {place}: {why}", stacklevel=2)
    if not content.photos:
        known = ", ".join(sorted(PHOTO_SUFFIXES))
        others = say_others(content.others)
        raise ValueError(
            f"{folder} holds no photographs ({known})" + (f"; {others}" if others else "")
        )
    return content.photos


def read_or_skip(path: Path) -> NDArray[np.uint8] | None:
    """Read an 8-bit gray image (H, W); None, with a warning, if it cannot be read."""
    try:
        return to_8bit(read_gray(path))
    except (ValueError, OSError) as error:
        warnings.warn(f"photograph skipped: {error}", stacklevel=3)
        return None


def reduced(image: NDArray[Any], max_size: int | None) -> NDArray[Any]:
    """Reduce the longer side of an image to at most `max_size`, unless it is None."""
    height, width = image.shape[:2]
    if max_size is None or max(height, width) <= max_size:
        return image
    scale = max_size / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def read_gray(path: PathLike) -> NDArray[Any]:
    """Read an image file as one gray plane (H, W): uint8, or float32 for 16 bits and more.

    As in COLMAP, the EXIF orientation is not applied: keypoints are in the pixel grid of the file.
    """
    data = read_image_bytes(path)
    if is_heif(data):
        with open_heif(path, data) as image:
            return np.asarray(image.convert("L"))
    flags = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
    with refused_as(os.fspath(path), TypeError, ValueError):
        return as_gray(decoded(path, data, flags))


def decoded(path: PathLike, data: bytes, flags: int) -> NDArray[Any]:
    """Decode the bytes of an image file; flags: those of cv2.imdecode."""
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if data else None
        if image is None and data.startswith((b"II*\0", b"MM\0*")):
            # Float TIFF files are decoded with the channels that they have only.
            flags = flags & cv2.IMREAD_IGNORE_ORIENTATION | cv2.IMREAD_ANYDEPTH
            image = cv2.imdecode(np.frombuffer(data, np.uint8), flags | cv2.IMREAD_ANYCOLOR)
    except cv2.error as error:
        raise ValueError(f"{os.fspath(path)} cannot be decoded: {error.err}") from error
    if image is None:
        raise ValueError(f"{os.fspath(path)} is not an image that OpenCV can decode")
    return image.astype(np.float32) if image.dtype.kind == "i" else np.asarray(image)


def read_image_bytes(path: PathLike) -> bytes:
    """Read an image file; ValueError if it would decode to more than MAX_PIXELS.

    Without Pillow, and for formats that Pillow does not know, OpenCV's own limit holds.
    """
    data = read_bytes(path, MAX_IMAGE_BYTES)
    if data[:2] == b"\xff\xd8":
        # Beyond 100, as many as twice those that chance puts into a video behind the image.
        allowed = MAX_SCANS + len(data) // 2**15
        if data.count(b"\xff\xda") > allowed:
            raise ValueError(f"{os.fspath(path)} has more than {allowed} scans")
    header = pillow_image(path, data)
    if header is not None:
        width, height = header.size
        if width * height > MAX_PIXELS:
            raise ValueError(
                f"{os.fspath(path)}: {width} x {height} pixels, at most {MAX_PIXELS} are read"
            )
    return data


def pillow_image(path: PathLike, data: bytes) -> Any:
    """Open an image in Pillow without decoding it; None if Pillow cannot."""
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        return Image.open(io.BytesIO(data))
    except Image.DecompressionBombError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error
    except Exception:  # its plugins raise many types
        return None


def is_heif(data: bytes) -> bool:
    return data[4:8] == b"ftyp" and data[8:12] in HEIF_BRANDS


def open_heif(path: PathLike, data: bytes) -> Any:
    """Decode the bytes of an HEIC file in Pillow."""
    path = Path(path)
    try:
        from PIL import Image
        from pillow_heif import register_heif_opener
    except ImportError as error:
        raise ValueError(f"{path} is an HEIC photograph: pip install pillow-heif") from error
    register_heif_opener()
    errors = (EOFError, RuntimeError, SyntaxError, ValueError, OSError)
    with refused_as(f"{path} cannot be decoded", *errors, Image.DecompressionBombError):
        image = Image.open(io.BytesIO(data))
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels, at most {MAX_PIXELS}")
        image.load()
        return image

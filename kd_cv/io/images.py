"""Photographs: which files are taken for one, what they may cost, and their pixels."""

from __future__ import annotations

import os
import re
import struct
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.io.exif import tiff_size
from kd_cv.io.files import PathLike, as_folder, read_bytes, reason

PHOTO_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
)
#: Photographs of phones, which OpenCV does not read.
HEIF_SUFFIXES = frozenset({".heic", ".heif"})

MAX_PIXELS = 2**27  # a photograph larger than this is taken for a decompression bomb
MAX_IMAGE_BYTES = 2**30
MAX_SCANS = 100  # of a JPEG: each is a pass over all pixels; cameras and editors make 12 at most


# ----------------------------------------------------------------------------------------- folders


class Found(NamedTuple):
    """What a folder and those below it hold.

    photos  the photographs, sorted
    unread  folders that cannot be read, with why
    others  how many other files there are of each suffix; hidden ones do not count
    """

    photos: list[Path]
    unread: dict[Path, str]
    others: Mapping[str, int]


def find_photos(folder: PathLike) -> Found:
    """What a folder and those below it hold.

    Links to folders are not followed: they may lead round in a circle.
    """
    photos: list[Path] = []
    unread: dict[Path, str] = {}
    others: list[Path] = []
    waiting = [as_folder(folder)]
    while waiting:
        place = waiting.pop()
        try:
            entries = list(os.scandir(place))
        except OSError as error:  # not ours to read, or a path longer than the system takes
            unread[place] = reason(error)
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(place / entry.name)
            elif entry.is_file():
                known = Path(entry.name).suffix.lower() in PHOTO_SUFFIXES
                (photos if known else others).append(place / entry.name)
    return Found(sorted(photos), unread, by_suffix(others))


def by_suffix(paths: list[Path]) -> dict[str, int]:
    """How many files there are of each suffix, the most frequent first; hidden ones do not count.

    >>> by_suffix([Path("a.HEIC"), Path("b.heic"), Path("notes"), Path(".hidden")])
    {'.heic': 2, '': 1}
    """
    counts = Counter(path.suffix.lower() for path in paths if path.name[:1] != ".")
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def say_others(others: Mapping[str, int]) -> str:
    """The files of a folder that are not read, in one line; empty if there are none.

    >>> say_others({".heic": 2, "": 1})
    '3 other files are not read: 2 .heic (convert them to .jpg first), 1 without a suffix'
    """
    if not others:
        return ""
    total = sum(others.values())
    kinds = ", ".join(
        f"{count} {suffix or 'without a suffix'}"
        + (" (convert them to .jpg first)" if suffix in HEIF_SUFFIXES else "")
        for suffix, count in others.items()
    )
    return f"{total} other {'file is' if total == 1 else 'files are'} not read: {kinds}"


def list_photos(folder: PathLike) -> list[Path]:
    """Photographs in a folder and below it, sorted; ValueError if there is none.

    A folder below it that cannot be read is skipped with a warning that names it.
    """
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


def read_photos(
    photos: PathLike | Sequence[Path],
) -> Iterator[tuple[Path, NDArray[np.uint8]]]:
    """Path and gray image (H, W) of photographs: those listed, or all in a folder and below it.

    One that cannot be read is skipped with a warning that names it; ValueError if none can.
    """
    paths = list_photos(photos) if isinstance(photos, (str, os.PathLike)) else photos
    read = 0
    for path in paths:
        image = read_or_skip(path)
        if image is not None:
            read += 1
            yield path, image
    if not read:
        raise ValueError(f"none of the {len(paths)} photographs in {paths[0].parent} can be read")


def read_or_skip(path: Path) -> NDArray[np.uint8] | None:
    """A photograph in gray (H, W); None, with a warning that names it, if it cannot be read."""
    try:
        return read_gray(path)
    except (ValueError, OSError) as error:
        warnings.warn(f"photograph skipped: {error}", stacklevel=3)
        return None


# ------------------------------------------------------------------------------------------ pixels


def reduced(image: NDArray[Any], max_size: int | None) -> NDArray[Any]:
    """The image with its longer side at most `max_size`; None: as it is."""
    height, width = image.shape[:2]
    if max_size is None or max(height, width) <= max_size:
        return image
    scale = max_size / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def read_gray(path: PathLike) -> NDArray[np.uint8]:
    """Decode a JPEG, PNG, BMP, PNM, TIFF or WebP file to a gray uint8 image (H, W).

    The pixel grid is the stored one: an EXIF orientation is not applied, as COLMAP does not either,
    so that frames of a reconstruction fit the image.
    """
    flags = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION
    return decoded(path, read_image_bytes(path), flags)


def decoded(path: PathLike, data: bytes, flags: int) -> NDArray[np.uint8]:
    """The pixels of an image file, from its bytes; flags: those of cv2.imdecode."""
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if data else None
    except cv2.error as error:
        raise ValueError(f"{os.fspath(path)} cannot be decoded: {error.err}") from error
    if image is None:
        raise ValueError(f"{os.fspath(path)} is not an image that OpenCV can decode")
    return np.asarray(image, dtype=np.uint8)


def read_image_bytes(path: PathLike, others: bool = False) -> bytes:
    """The bytes of an image of a known kind that does not decode to more than MAX_PIXELS.

    others: also those of another kind of file, of which OpenCV decodes up to 2**30 pixels.
    """
    path = Path(path)
    data = read_bytes(path, MAX_IMAGE_BYTES)
    if others and not data.startswith(_SIGNATURES):
        return data
    size = _image_size(data)
    if size is None:
        raise ValueError(f"{path} is not a JPEG, PNG, BMP, PNM, TIFF or WebP image")
    width, height = size
    if not 0 < width * height <= MAX_PIXELS:
        raise ValueError(f"{path}: {width} x {height} pixels, at most {MAX_PIXELS} are read")
    return data


_SIGNATURES = (
    b"\x89PNG", b"BM", b"P2", b"P3", b"P5", b"P6", b"\xff\xd8", b"II*\0", b"MM\0*", b"RIFF"
)  # fmt: skip

# The header of a PNM file: blanks and comments, a number, ... ; as strict as OpenCV's reader, or
# what is read here would not be what is decoded there.
_BLANKS = rb"(?:\s|#[^\r\n]*[\r\n])*"
_PNM = re.compile(rb"P[2356]\s" + _BLANKS + rb"(\d{1,9})\s" + _BLANKS + rb"(\d{1,9})\s")


def _image_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) from the header, before anything is decoded; None if it is not understood."""
    try:
        if data[:8] == b"\x89PNG\r\n\x1a\n" and data[8:16] == b"\0\0\0\x0dIHDR":
            width, height = struct.unpack(">II", data[16:24])
            return width, height
        if data[:2] == b"BM":
            (header,) = struct.unpack("<I", data[14:18])
            if header == 12:
                width, height = struct.unpack("<HH", data[18:22])
            else:
                width, height = struct.unpack("<ii", data[18:26])
            return width, abs(height)  # a negative height means top row first
        if found := _PNM.match(data[:4096]):
            return int(found[1]), int(found[2])
        if data[:4] in (b"II*\0", b"MM\0*"):
            return tiff_size(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp_size(data)
        if data[:2] == b"\xff\xd8" and data.count(b"\xff\xda") <= MAX_SCANS:
            return _jpeg_size(data)
    except struct.error:
        return None
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    """Of the canvas, or of the only frame: lossy (VP8), lossless (VP8L)."""
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L" and data[20:21] == b"\x2f":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        # Frame headers are C0..CF but for the tables C4, C8, CC.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        # Before it come tables, application data and comments. A decoder reads on behind other
        # markers as if they had no length: they could hide the true frame header.
        (length,) = struct.unpack(">H", data[at + 2 : at + 4])
        if marker not in (0xC4, 0xCC, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)) or length < 2:
            return None
        at += 2 + length
    return None

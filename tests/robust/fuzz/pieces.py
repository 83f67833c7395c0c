"""Inputs of the fuzz targets: several files in one string of bytes, and small valid files."""

import io
import json
import random
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np

BETWEEN = b"\0\xfe\xfd\0"  # the files of one input


def join(*pieces: bytes) -> bytes:
    """One input of several files."""
    return BETWEEN.join(pieces)


def split(data: bytes, count: int) -> list[bytes]:
    """The files of an input, always `count` of them."""
    pieces = data.split(BETWEEN, count - 1)
    return pieces + [b""] * (count - len(pieces))


def as_zip(data: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A sound zip file, right checksums and all, of pieces that are names and contents in turn."""
    pieces = split(data, 64)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in zip(pieces[::2], pieces[1::2], strict=True):
            if name:
                info = zipfile.ZipInfo(name[:100].decode("latin-1").replace("\0", "") or "x")
                info.compress_type = compression
                archive.writestr(info, content)
    return stream.getvalue()


def from_zip(data: bytes) -> bytes:
    """The pieces that `as_zip` makes this file of."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name.encode(), archive.read(name)) for name in archive.namelist()]
    return join(*(piece for member in members for piece in member))


def with_png_checksums(data: bytes) -> bytes:
    """The same PNG with right checksums, or a damaged chunk would be all that a decoder sees."""
    out, at = bytearray(data), 8
    while at + 12 <= len(out):
        (length,) = struct.unpack(">I", out[at : at + 4])
        end = at + 8 + length
        if end + 4 > len(out):
            break
        out[end : end + 4] = struct.pack(">I", zlib.crc32(out[at + 4 : end]))
        at = end + 4
    return bytes(out)


def texture(height: int, width: int) -> np.ndarray:
    """A gray image (height, width) without a flat spot."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    waves = np.sin(x / 3) + np.sin(y / 4) + np.sin((x + y) / 7) + np.sin(x * y / 300)
    return np.rint(127 + 30 * waves).astype(np.uint8)


def encoded(image: np.ndarray, suffix: str, *options: int) -> bytes:
    return cv2.imencode(suffix, image, list(options))[1].tobytes()


def written(name: str, write: Callable[[Path], None]) -> bytes:
    """What write(path) puts into a file of that name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path)
        return path.read_bytes()


def as_json(content: object) -> bytes:
    return json.dumps(content).encode()


INTERESTING = (
    b"\0", b"\xff", b"\x80", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f",
    b"\x80\0\0\0", b"\0\0\0\0\0\0\0\0", b"-1", b"nan", b"inf", b"1e999", b"99999999999999999999",
    b"..", b"/", b"%s", b"\n", b"\r", b"#", b"{", b"[", b"<", b"&a", b"*a", BETWEEN,
)  # fmt: skip


def mutations(seeds: list[bytes], seed: int) -> Iterator[bytes]:
    """Endless inputs, each a seed with a few random changes; the same for the same `seed`."""
    rng = random.Random(seed)
    while True:
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 1, 2, 3, 5, 8))):
            at = rng.randrange(len(data) + 1)
            length = min(rng.choice((1, 1, 2, 4, 8, 64)), len(data) - at)
            kind = rng.randrange(7)
            if kind == 0 and length:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[at : at + length] = rng.randbytes(length)
            elif kind == 2:
                del data[at : at + length]
            elif kind == 3:
                new = rng.choice(INTERESTING)
                data[at : at + rng.choice((0, len(new)))] = new
            elif kind == 4:
                data[at:at] = data[at : at + length] * rng.choice((1, 2, 50))
            elif kind == 5:
                other = rng.choice(seeds)
                start = rng.randrange(len(other) + 1)
                data[at : at + length] = other[start : start + rng.choice((1, 8, 64))]
            elif rng.random() < 0.3:
                del data[at:]
        yield bytes(data)

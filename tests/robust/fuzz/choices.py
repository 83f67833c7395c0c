"""Arguments of any kind, made of bytes: each byte is a choice."""

import struct
from collections.abc import Sequence
from typing import Any, TypeVar

import cv2
import numpy as np
from pieces import texture

T = TypeVar("T")

TYPES = (
    "u1", "u1", "u1", "f4", "u2", "f8", "f2", ">u2", ">f4", "i1", "i2", "i4", "i8", "u4", "?",
    "c8", "O", "U4", "V3",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 0.5, 1.5, 1e-9, -1e-9, 1e9, 1e-45, 3.4e38, 1.8e308, float("nan"), float("inf"),
    float("-inf"), 2**31, -(2**31), 2**63, 10**400, None, True, "3", "nan", b"4", [5], (), {},
    np.float32(0.25), np.int64(7), np.array(3), np.array([1.0, 2.0]), 3j,
)  # fmt: skip
SIDES = (24, 32, 40, 17, 16, 8, 5, 4, 3, 2, 1, 0)


class Choices:
    """The bytes of an input, taken from its beginning; zeros follow them."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.byte() % len(options)]

    def rest(self) -> bytes:
        return self._data[self._at :]

    def taken(self, count: int) -> bytes:
        """The next bytes, always `count` of them."""
        data = self._data[self._at : self._at + count]
        self._at += count
        return data.ljust(count, b"\0")

    def float32(self) -> float:
        return struct.unpack("<f", self.taken(4))[0]

    def number(self, usual: Any) -> Any:
        """`usual`, or a small number, or any float, or what is none."""
        kind = self.byte()
        if kind < 128:
            return usual
        if kind < 160:
            return kind - 128
        if kind < 176:
            return self.byte() / 16
        if kind < 192:
            return self.float32()
        return NUMBERS[kind % len(NUMBERS)]

    def chosen(self, **usual: Any) -> dict[str, Any]:
        """Keyword arguments, of which a few are not what is usual."""
        which = self.byte()
        return {
            name: self.number(value)
            for k, (name, value) in enumerate(usual.items())
            if which >> k % 8 & 1
        }

    def image(self) -> Any:
        """A small image of any type, shape and content; rarely something else."""
        kind = self.byte()
        if kind >= 250:
            return (None, "text", [], cv2.UMat(), 3.0, np.zeros(5))[kind - 250]
        shape = (self.one_of(SIDES), self.one_of(SIDES))
        channels = (None, None, None, None, None, 1, 3, 4, 2, 0, 7)[kind % 11]
        values = self._pixels(*shape)
        if channels is not None:
            values = np.repeat(values[:, :, None], channels, axis=2)
        values = _as_type(values, self.one_of(TYPES))
        layout = self.byte() % 16
        if layout == 1:
            return np.asfortranarray(values)
        if layout == 2:
            return values[::-1, ::-2]
        if layout == 3 and values.dtype.kind in "uf" and values.ndim == 3:
            return values[:, :, ::-1]
        if layout == 4:
            return np.ma.masked_array(values)
        if layout == 5 and values.dtype == np.uint8 and values.size:
            return cv2.UMat(np.ascontiguousarray(values))
        return values

    def _pixels(self, height: int, width: int) -> np.ndarray:
        """(height, width) float64: a texture, with what the next bytes change of it."""
        kind = self.byte()
        values = texture(height, width).astype(np.float64)
        if kind & 1:  # blocks of their own
            few = np.frombuffer(self.taken(24), np.uint8).reshape(4, 6).astype(np.float64)
            rows, columns = np.arange(height) * 4 // max(1, height), np.arange(width)
            values = few[rows][:, columns * 6 // max(1, width)]
        if kind & 2:  # noise
            values = values + np.random.default_rng(self.byte()).normal(0, 40, values.shape)
        if kind & 4:
            values = values * self.float32()
        if kind & 8 and values.size:
            values[self.byte() % height, self.byte() % width] = self.one_of(
                (np.nan, np.inf, -np.inf, 1e300, 1e38, -1e30, 1e-40, 65504.0)
            )
        if kind & 16:
            values = values / 255
        if kind & 32:
            values = values + self.one_of((1e3, 1e6, 1e12, -1e5, 1e37, 0.5))
        return values

    def mask(self, image: Any) -> Any:
        """None, or a mask of the image, or of another shape or type."""
        kind = self.byte()
        if kind < 96:
            return None
        shape = np.shape(image)[:2] if isinstance(image, np.ndarray) else (24, 32)
        mask = np.zeros(shape, np.uint8)
        if mask.ndim == 2:
            top, left = self.byte() % 32, self.byte() % 32
            mask[top : top + self.byte(), left : left + self.byte()] = 1 + self.byte() % 255
        if kind < 240:
            return mask
        return (
            mask[:-1], mask.astype(bool), mask.astype(np.float32), mask[..., None], mask[None],
            "mask", 1, mask.T, np.asfortranarray(mask), mask[::-1], [], np.zeros((0, 0), np.uint8),
            np.dstack([mask] * 3) if mask.ndim == 2 else mask, mask.tolist(), mask.astype("O"), (),
        )[kind - 240]  # fmt: skip

    def keypoints(self, most: int) -> list[cv2.KeyPoint]:
        """Keypoints of any fields, from the bytes that are left."""
        data = self.rest()[: most * FIELDS.size]
        data = data[: len(data) // FIELDS.size * FIELDS.size]
        return [cv2.KeyPoint(*fields) for fields in FIELDS.iter_unpack(data)]


FIELDS = struct.Struct("<5f2i")  # x, y, size, angle, response, octave, class_id
_INF, _NAN, _TINY, _HUGE = float("inf"), float("nan"), 1e-45, 3.4e38
#: Keypoints to start from: what detectors make, and what none should.
STRANGE = b"".join(
    FIELDS.pack(*row)
    for row in [
        (20, 20, 3, 45, 1, 0, -1), (0, 0, 8, -1, 1, 0, 0), (20, 20, _NAN, 0, 1, 0, -1),
        (_INF, 3, 4, 0, 1, 0, -1), (20, 20, _TINY, 0, 1, 0, 3), (20, 20, _HUGE, 0, 1, 0, -1),
        (20, 20, 4, _HUGE, 1, 0, -1), (_HUGE, -_HUGE, _HUGE, 0, 1, 0, -1),
        (-1e7, 20, 1e7, 10, _NAN, -1, -1), (20.5, 20.5, 1e5, 0, 1, 0, -1),
        (20, 20, 31, 90, 1e-3, 0, -1), (20, 20, 37.2, 90, 1e-3, 1, -1), (9, 9, 12, 90, 60, 0, -1),
        (20, 20, 7, -1, 20, 0, -1), (20, 20, 3, -1, 1, 0, -1), (20, 20, 8.5, -1, 0, 0, -1),
        (9, 12, 4, 30, 0.1, 255 | 1 << 8 | 90 << 16, -1), (9, 12, 4, 30, 0.1, 2**31 - 1, 2**31 - 1),
    ]
)  # fmt: skip


def _as_type(values: np.ndarray, name: str) -> np.ndarray:
    if name == "V3":
        return np.zeros(values.shape, name)
    with np.errstate(all="ignore"):
        if name in ("u2", ">u2"):
            values = values * 257
        return values.astype(name)

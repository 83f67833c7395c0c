"""Images of every kind at every way in: what is taken, what is empty, and what is refused, and why.

The values that `as_gray` gives are in tests/unit/descriptor/test_frames_sampling.py.
"""

import re

import cv2
import numpy as np
import pytest

from kd_cv import KDDescriptor, match
from kd_cv.gray import as_gray

rng = np.random.default_rng(0)
IMAGE = cv2.GaussianBlur(rng.integers(0, 256, (60, 80)).astype(np.uint8), (0, 0), 1.0)
POINTS = [cv2.KeyPoint(20.0, 20.0, 3.0, 0.0), cv2.KeyPoint(40.0, 30.0, 2.0, 90.0)]
as_strided = np.lib.stride_tricks.as_strided

TAKEN = {
    "uint16": IMAGE.astype(np.uint16) * 257,
    "float16": IMAGE.astype(np.float16),
    "float32": IMAGE.astype(np.float32) / 255,
    "float64": IMAGE / 255,
    "long double": IMAGE.astype(np.longdouble),
    "big-endian 16 bits": IMAGE.astype(">u2"),
    "big-endian float": IMAGE.astype(">f8"),
    "negative values": -IMAGE.astype(np.float32),
    "values to 3e38": IMAGE.astype(np.float32) / 256 * np.float32(3e38),
    "masked": np.ma.masked_greater(IMAGE, 100),
    "subclass": IMAGE.view(type("Sub", (np.ndarray,), {})),
    "record array": IMAGE.view(np.recarray),
    "read-only": np.frombuffer(IMAGE.tobytes(), np.uint8).reshape(IMAGE.shape),
    "negative strides": IMAGE[::-1, ::-1],
    "transposed": IMAGE.T,
    "overlapping strides": as_strided(IMAGE, (50, 60), (1, 1)),
    "stride 0 down": np.broadcast_to(IMAGE[:1], (60, 80)),
    "stride 0 along": np.broadcast_to(IMAGE[:, :1], (60, 80)),
    "one row": IMAGE[:1],
    "one column": IMAGE[:, :1],
    "two pixels": IMAGE[:1, :2],
    "UMat": cv2.UMat(IMAGE),
    "UMat of floats": cv2.UMat(IMAGE.astype(np.float32)),
    "one channel": IMAGE[:, :, None],
    "BGR": np.repeat(IMAGE[:, :, None], 3, axis=2),
    "BGRA": np.repeat(IMAGE[:, :, None], 4, axis=2)[::-1, ::-1],
}
FLAT = {
    "1 x 1": np.zeros((1, 1), np.uint8),
    "stride 0 both ways": np.broadcast_to(np.uint8(9), (60, 80)),
    "rows 100,000 bytes apart": as_strided(np.zeros(4_000_000, np.uint8), (40, 40), (10**5, 1)),
    "subnormal": IMAGE.astype(np.float32) * np.float32(1e-44),
    "offset of 1e8": IMAGE.astype(np.float32) + np.float32(1e8),
    "1e36": np.full((60, 80), 1e36, np.float32),
    "3e38": np.full((60, 80), 3e38, np.float32),
}
EMPTY = {
    "None": None,
    "0 x 0": np.zeros((0, 0), np.uint8),
    "0 x 5": np.zeros((0, 5)),
    "5 x 0": np.zeros((5, 0), np.uint8),
    "0 x 5 x 3": np.zeros((0, 5, 3), np.uint8),
    "empty UMat": cv2.UMat(),
}


def no_array(image):
    words = rf"must be a NumPy array or cv2\.UMat, got {type(image).__name__}"
    return image, TypeError, words


def no_shape(image):
    return image, ValueError, rf"must have shape \(H, W\).* got {re.escape(str(image.shape))}"


def no_type(image):
    return image, TypeError, f"must be uint8, uint16 or float, got {re.escape(str(image.dtype))}"


def no_values(image):
    return image, ValueError, "must not contain NaN, infinity or values too large for float32"


REFUSED = {
    "a path": no_array("photo.png"),
    "bytes": no_array(b"photo"),
    "a dict": no_array({}),
    "a number": no_array(3.5),
    "a feature": no_array(cv2.SIFT_create()),
    "0-D": no_shape(np.array(3, np.uint8)),
    "1-D": no_shape(np.zeros(5, np.uint8)),
    "4-D": no_shape(np.zeros((2, 50, 50, 3), np.uint8)),
    "5-D": no_shape(np.zeros((1, 2, 3, 4, 5), np.uint8)),
    "2 channels": no_shape(np.zeros((9, 9, 2), np.uint8)),
    "5 channels": no_shape(np.zeros((9, 9, 5), np.uint8)),
    "no channels": no_shape(np.zeros((9, 9, 0), np.uint8)),
    "objects": no_type(np.full((9, 9), None)),
    "strings": no_type(np.array([["a"]])),
    "structured": no_type(np.zeros((9, 9), [("a", "u1")])),
    "complex": no_type(np.zeros((9, 9), complex)),
    "dates": no_type(np.zeros((9, 9), "M8[s]")),
    "void": no_type(np.zeros((9, 9), "V1")),
    "bool": no_type(np.zeros((9, 9), bool)),
    "int8": no_type(np.zeros((9, 9), np.int8)),
    "int32": no_type(np.zeros((9, 9), np.int32)),
    "int64": no_type(np.zeros((9, 9), np.int64)),
    "NaN": no_values(np.full((9, 9), np.nan)),
    "one infinity": no_values(np.where(np.eye(9) > 0, np.inf, 0.0)),
    "minus infinity": no_values(np.where(np.eye(9) > 0, -np.inf, 0.0)),
    "infinite float32": no_values(np.full((9, 9), np.inf, np.float32)),
    "NaN under a mask": no_values(np.ma.masked_invalid(np.full((9, 9), np.nan))),
    "1e300": no_values(np.full((9, 9), 1e300)),
    "2^24 + 1 wide": (np.broadcast_to(np.uint8(0), (2, 2**24 + 1)), ValueError, "at most 16777216"),
}
KD = KDDescriptor(drop=False)
WAYS = {
    "as_gray": as_gray,
    "compute": lambda image: KD.compute(image, POINTS),
    "detect": KD.detect,
    "detectAndCompute": lambda image: KD.detectAndCompute(image, None),
    "match": lambda image: match(IMAGE, image),
}


def table(rows):
    """The rows (n, 128) float32 of a result, of norm 1 or 0."""
    rows = rows.get() if isinstance(rows, cv2.UMat) else rows
    assert rows.shape[1:] == (128,) and rows.dtype == np.float32
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert np.all((norms == 0) | (np.abs(norms - 1) < 1e-4))
    return rows


@pytest.mark.parametrize("image", TAKEN.values(), ids=TAKEN)
def test_what_is_taken(image):
    kept, rows = KD.compute(image, POINTS)
    assert len(kept) == len(table(rows)) == 2
    kept, rows = KD.detectAndCompute(image, None)
    assert len(kept) == (0 if rows is None else len(table(rows))) == len(KD.detect(image))
    gray = as_gray(image)
    assert gray.ndim == 2 and gray.flags.c_contiguous and gray.dtype in (np.uint8, np.float32)


@pytest.mark.parametrize("image", FLAT.values(), ids=FLAT)
def test_what_shows_nothing_has_zero_rows(image):
    kept, rows = KD.compute(image, POINTS)
    assert len(kept) == len(table(rows)) == 2 and not rows.any()


@pytest.mark.parametrize("image", EMPTY.values(), ids=EMPTY)
def test_what_is_empty_has_no_rows(image):
    kept, rows = KD.compute(image, POINTS)
    assert len(kept) == 2 and rows is None
    assert KD.detect(image) == ()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("image", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(way, image, error, words):
    if way is WAYS["match"] and isinstance(image, str):  # which takes a path, if there is a file
        error, words = FileNotFoundError, re.escape(image)
    with pytest.raises(error, match=words):
        way(image)


def test_a_file_mapped_into_memory_and_deleted(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(IMAGE.tobytes())
    image = np.memmap(path, np.uint8, "r", shape=IMAGE.shape)
    path.unlink()
    assert table(KD.compute(image, POINTS)[1]).any(axis=1).all()

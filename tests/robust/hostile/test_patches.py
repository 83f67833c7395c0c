"""Patches for `describe`."""

import numpy as np
import pytest

from hostile import RNG
from kd_cv import describe

GOOD = RNG.random((3, 32, 32))
SHAPES = [
    None, "x", [[1]], np.zeros(3), np.zeros((32, 32)), np.zeros((1, 1, 32, 32)),
    np.zeros((2, 32, 16)), np.zeros((2, 15, 15)), np.zeros((2, 129, 129)), np.zeros((0, 0, 0)),
]  # fmt: skip
VIEWS = {
    "1e15": GOOD * 1e15, "1e30": GOOD * 1e30, "3e38": GOOD * 3e38, "1e-30": GOOD * 1e-30,
    "negative": -GOOD, "float16": GOOD.astype(np.float16), "big-endian": GOOD.astype(">f4"),
    "nested lists": GOOD.tolist(), "stride 0": np.broadcast_to(GOOD[:1], (9, 32, 32)),
    "reversed": GOOD[::-1, ::-1, ::-1], "none": GOOD[:0],
    "long double": GOOD.astype(np.longdouble),
}  # fmt: skip


@pytest.mark.parametrize("value", SHAPES, ids=lambda v: f"{np.shape(v)} {type(v).__name__}")
def test_shapes_that_are_no_patches(value):
    with pytest.raises(ValueError, match=r"patches must have shape|patch_size must be"):
        describe(value)


@pytest.mark.parametrize("dtype", [object, int, bool, complex, np.uint16, "M8[s]"], ids=np.dtype)
def test_types_that_are_no_patches(dtype):
    with pytest.raises(TypeError, match="patches must be uint8 or float"):
        describe(np.zeros((1, 32, 32), dtype))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_patches_must_be_finite(number):
    value = GOOD.copy()
    value[1, 5, 5] = number
    with pytest.raises(ValueError, match="must not contain NaN, infinity"):
        describe(value)


@pytest.mark.parametrize("value", VIEWS.values(), ids=VIEWS)
def test_patches_of_any_range_and_layout(value):
    norms = np.linalg.norm(describe(value).astype(np.float64), axis=1)
    assert np.all((norms == 0) | (np.abs(norms - 1) < 1e-4))


def test_patches_of_another_size():
    with pytest.raises(ValueError, match="patch_size is 31"):
        describe(GOOD, patch_size=31)

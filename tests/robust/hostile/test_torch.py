"""Tensors for `KDModule`."""

import pytest

torch = pytest.importorskip("torch")

from kd_cv import KDModule  # noqa: E402

FINITE = torch.rand(2, 1, 32, 32)
LAYOUTS = {
    "transposed": FINITE.transpose(2, 3), "expanded": FINITE[:1].expand(5, 1, 32, 32),
    "no patches": FINITE[:0], "1e30": FINITE * 1e30, "float16": FINITE.half(),
    "strided": torch.rand(2, 1, 64, 64)[:, :, ::2, ::2], "flat": torch.ones(2, 1, 32, 32),
}  # fmt: skip


@pytest.fixture(scope="module")
def module():
    return KDModule()


@pytest.mark.parametrize(
    "size", [(), (3,), (32, 32), (2, 32, 32), (2, 3, 32, 32), (2, 1, 31, 31), (1,) * 5], ids=str
)
def test_shapes_that_are_no_patches(module, size):
    with pytest.raises((ValueError, TypeError), match=r"patches must be|takes patches"):
        module(torch.zeros(size))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.complex64], ids=str)
def test_types_that_are_no_patches(module, dtype):
    with pytest.raises((ValueError, TypeError), match=r"patches must be|takes patches"):
        module(torch.zeros((2, 1, 32, 32), dtype=dtype))


@pytest.mark.parametrize("value", LAYOUTS.values(), ids=LAYOUTS)
def test_any_layout_gives_finite_rows(module, value):
    rows = module(value)
    assert rows.shape[1] == 128 and torch.isfinite(rows).all()

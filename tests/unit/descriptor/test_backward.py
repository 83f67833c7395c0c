"""The compiled derivative against autograd's of `reference.raw`, and differences."""

import cv2
import numpy as np
import pytest

pytest.importorskip("numba")

from kd_cv.descriptor import reference
from kd_cv.descriptor.backward import patch_gradients
from kd_cv.descriptor.spec import Spec

NAMES = ("smooth", "diff", "Phi", "T", "parts")


def _photographs(P: int, count: int) -> np.ndarray:
    """(count, P, P) of a smooth random texture; the second is flat, the third half flat."""
    rng = np.random.default_rng(P)
    y, x = np.mgrid[:P, :P] / P
    waves = rng.normal(size=(count, 12, 4, 1, 1))
    patches = sum(
        0.06
        * waves[:, k, 0]
        * np.sin(9 * (waves[:, k, 1] * x + waves[:, k, 2] * y) + waves[:, k, 3])
        for k in range(12)
    )
    patches[1], patches[2, : P // 2] = 0.5, 0.25
    return (patches + 0.5).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["concat", "polar", "cart"])
@pytest.mark.parametrize("P", [16, 17, 32, 33, 64])
def test_it_is_the_derivative_that_autograd_finds(P, kernel):
    torch = pytest.importorskip("torch")
    spec, patches = Spec(P, kernel), _photographs(P, 6)
    slopes = np.random.default_rng(0).normal(size=(6, spec.dim)).astype(np.float32)
    found = patch_gradients(patches, slopes, spec)
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.float64, 1e-3)):
        x = torch.tensor(patches, dtype=dtype, requires_grad=True)
        constants = [torch.tensor(getattr(spec.constants, name)).to(dtype) for name in NAMES]
        (expected,) = torch.autograd.grad(
            reference.raw(x, *constants), x, torch.tensor(slopes).to(dtype)
        )
        largest = expected.abs().amax((1, 2), keepdim=True).numpy()
        assert np.all(np.abs(found - expected.numpy()) <= tolerance * largest)
    assert not found[1].any() and found[0].any()


def test_it_predicts_small_changes():
    spec, patches = Spec(32), _photographs(32, 3)[:1].astype(np.float64)
    rng = np.random.default_rng(1)
    slopes, step = rng.normal(size=(1, spec.dim)), 1e-5 * rng.normal(size=patches.shape)
    constants = [getattr(spec.constants, name) for name in NAMES]
    ahead, behind = (reference.raw(patches + sign * step, *constants) for sign in (0.5, -0.5))
    gradient = patch_gradients(np.float32(patches), np.float32(slopes), spec)
    assert np.vdot(gradient, step) == pytest.approx(np.vdot(slopes, ahead - behind), rel=1e-3)


def test_it_is_the_same_for_any_number_of_threads_and_any_neighbours():
    spec, patches = Spec(32), np.tile(_photographs(32, 6), (40, 1, 1))
    slopes = np.random.default_rng(2).normal(size=(240, spec.dim)).astype(np.float32)
    found, before = [], cv2.getNumThreads()
    for count in (1, 2, 5):
        cv2.setNumThreads(count)
        found.append(patch_gradients(patches, slopes, spec))
    cv2.setNumThreads(before)
    alone = patch_gradients(patches[7:8], slopes[7:8], spec)
    assert all(np.array_equal(found[0], other) for other in found[1:])
    assert np.array_equal(found[0][7:8], alone)

"""KDModule: the same vectors as everywhere else, and what torch users expect of a module."""

import copy
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest

from kd_cv import KDDescriptor, describe
from kd_cv.descriptor.patches import extract_patches
from kd_cv.keypoints import from_keypoints
from kd_cv.whitening.variants import VARIANTS
from kd_cv.whitening.whitening import Whitening

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from kd_cv import KDModule  # noqa: E402
from kd_cv.nn import module  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
P = 32


@pytest.fixture(scope="module")
def patches(camera, keypoints):
    """(300, 1, 32, 32) patches of a photograph; number 7 is flat."""
    patches = torch.from_numpy(extract_patches(camera, from_keypoints(keypoints), P))[:, None]
    patches[7] = 0.3
    return patches


@pytest.fixture(scope="module")
def supervised(fitted):
    return KDModule(whitening="ws", weights=fitted)


def l2(a, b):
    """L2 distances of rows."""
    return (a.double() - b.double()).norm(dim=1)


def gap(a, b):
    """Largest difference of a component."""
    return (a.double() - b.double()).abs().max()


def by_plain_operations(kd, patches):
    """The result of the path that autograd takes."""
    return kd(patches.clone().requires_grad_()).detach()


# One descriptor, one meaning ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("whitening", [None, *VARIANTS])
def test_agrees_with_describe(patches, fitted, whitening):
    kd = KDModule(whitening=whitening, weights=fitted, dim=100)
    expected = torch.from_numpy(
        describe(patches[:, 0].numpy(), whitening=whitening, weights=fitted, dim=100)
    )
    assert expected.shape == (len(patches), kd.dim)
    assert gap(kd(patches), expected) < 1e-5
    # Rounding is magnified by the slope of the square root at 0, and by W in weak directions.
    tolerance = {"pcasqrt": 1e-4, "w": 5e-5}.get(whitening, 1e-5)
    assert gap(by_plain_operations(kd, patches), expected) < tolerance


@pytest.mark.parametrize("kernel", ["concat", "polar", "cart"])
@pytest.mark.parametrize("patch_size", [16, 33, 64])
def test_agrees_with_describe_in_all_sizes_and_kernels(camera, keypoints, kernel, patch_size):
    patches = extract_patches(camera, from_keypoints(keypoints[:40]), patch_size)
    kd = KDModule(patch_size, kernel, whitening=None)
    expected = torch.from_numpy(describe(patches, kernel=kernel, whitening=None))
    assert gap(by_plain_operations(kd, torch.from_numpy(patches)[:, None]), expected) < 1e-5


def test_module_of_a_descriptor_has_its_settings(patches, camera, keypoints, fitted):
    descriptor = KDDescriptor(whitening="wua", weights=fitted, dim=64, magnification=10)
    frames = from_keypoints(keypoints)
    seen = torch.from_numpy(extract_patches(camera.astype(np.float32) / 255, frames, P, 10))
    _, expected = descriptor.compute(camera.astype(np.float32) / 255, keypoints)
    assert gap(descriptor.module()(seen[:, None]), torch.from_numpy(expected)) < 1e-5


def test_default_settings_are_those_of_describe(patches):
    assert gap(KDModule()(patches), torch.from_numpy(describe(patches[:, 0].numpy()))) < 1e-5


def test_unit_rows_and_zero_rows(patches, supervised):
    for rows in (supervised(patches), by_plain_operations(supervised, patches)):
        norms = rows.norm(dim=1)
        assert norms[7] == 0
        norms[7] = 1
        assert (norms - 1).abs().max() < 1e-5


@pytest.mark.parametrize("whitening", [None, "ws", "pcasqrt"])
def test_pooled_averages_raw_vectors_before_whitening(patches, fitted, whitening):
    kd = KDModule(whitening=whitening, weights=fitted)
    sizes = patches[:300].reshape(100, 3, P, P)
    V = describe(sizes.reshape(-1, P, P).numpy(), whitening=None).reshape(100, 3, -1).sum(1)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    expected = torch.from_numpy(V if whitening is None else fitted.apply(V, whitening, 128))
    tolerance = 1e-4 if whitening == "pcasqrt" else 1e-5
    assert gap(kd.pooled(sizes), expected) < tolerance
    assert gap(kd.pooled(sizes.clone().requires_grad_()).detach(), expected) < tolerance


# Input --------------------------------------------------------------------------------------------


def test_a_patch_size_mismatch_says_what_to_do(supervised):
    with pytest.raises(ValueError, match=r"LAFDescriptor\(kd, patch_size=32\)"):
        supervised(torch.zeros(2, 1, 41, 41))
    with pytest.raises(ValueError, match=r"KDModule\(patch_size=...\)"):
        supervised(torch.zeros(2, 1, 64, 64))
    with pytest.raises(ValueError, match=r"\(B, 1, 32, 32\), got \[2, 32, 32\]"):
        supervised(torch.zeros(2, 32, 32))


def test_colour_and_bytes_are_refused(supervised):
    with pytest.raises(ValueError, match="rgb_to_grayscale"):
        supervised(torch.zeros(2, 3, P, P))
    with pytest.raises(TypeError, match="/ 255"):
        supervised(torch.zeros(2, 1, P, P, dtype=torch.uint8))


# Precision ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("whitening", ["ws", "w"])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_half_precision_loses_little(patches, fitted, dtype, whitening, needs_grad):
    kd = KDModule(whitening=whitening, weights=fitted)
    seen = patches.to(dtype)  # what rounding the pixels costs is not the module's
    expected = kd(seen.float())
    rows = kd.to(dtype)(seen.clone().requires_grad_(needs_grad)).detach()
    assert rows.dtype == dtype
    assert l2(rows, expected).max() < 0.01


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_loses_nothing(patches, supervised, dtype):
    expected = supervised(patches)
    with torch.autocast("cpu", dtype=dtype):
        assert gap(by_plain_operations(supervised, patches), expected) < 1e-5
        assert gap(supervised(patches), expected) < 1e-5


def test_casts_leave_the_tensors_float32(fitted):
    kd = KDModule(whitening="ws", weights=fitted, trainable=True)
    for cast in (kd.half(), kd.bfloat16(), kd.double(), kd.to(torch.float16), copy.deepcopy(kd)):
        assert {t.dtype for t in cast.state_dict().values()} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tensors_cast_from_outside_do_not_reach_the_projection(patches, supervised, dtype):
    """As kornia's LAFDescriptor does: functional_call with all tensors in the image's type."""
    loaded, state = copy.deepcopy(supervised), supervised.state_dict()
    loaded.load_state_dict(state | {"A": state["A"].flip(0)}, assign=True)
    for kd in (supervised, loaded):
        cast = {name: t.to(dtype) for name, t in kd.state_dict().items()}
        rows = torch.func.functional_call(kd, cast, (patches.to(dtype),))
        assert l2(rows, kd(patches.to(dtype).float())).max() < 0.01
    # Tensors of another module are used as they are given.
    rows = torch.func.functional_call(supervised, cast, (patches.to(dtype),))
    given = {"mu": cast["mu"].float(), "A": cast["A"].float()}
    expected = torch.func.functional_call(supervised, given, (patches.to(dtype).float(),))
    assert l2(rows, expected).max() < 0.01
    assert l2(rows, supervised(patches)).median() > 0.5


def test_float64_is_computed_in_float64(patches):
    kd = KDModule(whitening=None)
    rows = kd(patches.double())
    assert rows.dtype == torch.float64
    keep = torch.arange(len(rows)) != 7
    assert (rows[keep].norm(dim=1) - 1).abs().max() < 1e-12


# Gradients ----------------------------------------------------------------------------------------


def test_gradcheck_of_the_patches(patches, fitted):
    few = patches[[0, 7]].double().requires_grad_()  # number 7 is flat
    for whitening in (None, "ws", "pcasqrt"):
        kd = KDModule(whitening=whitening, weights=fitted, dim=4)
        assert gradcheck(kd, (few,), fast_mode=True)


@pytest.mark.slow
def test_gradcheck_of_a_whole_small_patch():
    few = torch.rand(1, 1, 16, 16, dtype=torch.float64, generator=torch.manual_seed(0))
    assert gradcheck(KDModule(16, "cart", whitening=None), (few.requires_grad_(),))


def test_gradcheck_of_the_whitening(patches, fitted):
    kd = KDModule(whitening="ws", weights=fitted, dim=3)
    buffers = dict(kd.named_buffers())

    def run(mu, A):
        return torch.func.functional_call(kd, buffers | {"mu": mu, "A": A}, (patches[:4].double(),))

    mu, A = (buffers[name].double().requires_grad_() for name in ("mu", "A"))
    assert gradcheck(run, (mu, A), fast_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize("whitening", [None, *VARIANTS])
def test_flat_patches_have_a_zero_gradient(patches, fitted, whitening):
    x = patches.clone().requires_grad_()
    KDModule(whitening=whitening, weights=fitted)(x).pow(3).sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad[7] == 0).all() and x.grad[:7].abs().amax((1, 2, 3)).min() > 0


@pytest.mark.slow
def test_other_derivatives_do_not_take_the_fused_path(patches):
    kd, x = KDModule(whitening=None), patches[:2]

    def energy(x):
        return kd(x[None])[0, 3]

    expected = torch.autograd.functional.jacobian(lambda x: kd(x)[:, 3].sum(), x)
    per_patch = torch.func.vmap(torch.func.grad(energy))(x)
    torch.testing.assert_close(per_patch, expected, atol=1e-5, rtol=1e-3)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(kd(forward_ad.make_dual(x, x))).tangent
    torch.testing.assert_close(tangent[:, 3], (expected * x).sum((1, 2, 3)), atol=1e-4, rtol=1e-3)


def kept_bytes(kd, x):
    """Bytes that autograd keeps of a forward, each storage once; and the rows."""
    storages = {}

    def pack(t):
        storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        rows = kd(x)
    return sum(storages.values()), rows


@pytest.fixture
def by_torch(monkeypatch):
    """Gradients as without Numba, and as on other devices."""
    monkeypatch.setattr(module, "load_compiled", lambda: None)


def test_a_gradient_changes_no_bit_and_keeps_the_patches_only(patches):
    kd = KDModule(whitening=None)
    kept, rows = kept_bytes(kd, patches.clone().requires_grad_())
    assert torch.equal(rows.detach(), kd(patches))
    assert kept == patches.numel() * patches.element_size()


def test_compiled_gradients_are_those_of_torch(patches, fitted, monkeypatch):
    for settings in ({"whitening": None}, {"whitening": "pcasqrt"}, {"trainable": True}):
        kd, grads = KDModule(weights=fitted, **settings), []
        for way in (module.load_compiled, lambda: None):
            monkeypatch.setattr(module, "load_compiled", way)
            x = patches.clone().requires_grad_()
            kd.pooled(x[:300].reshape(-1, 2, P, P)).pow(3).sum().backward()
            grads.append([x.grad, *(p.grad.clone() for p in kd.parameters())])
            kd.zero_grad()
        torch.testing.assert_close(*grads, atol=1e-4, rtol=1e-3)


def test_a_derivative_of_the_compiled_derivative(patches, fitted, monkeypatch):
    kd, found = KDModule(whitening=None), []
    for way in (module.load_compiled, lambda: None):
        monkeypatch.setattr(module, "load_compiled", way)
        x = patches[:4].clone().requires_grad_()
        (slope,) = torch.autograd.grad(kd(x).pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), x)[0])
    assert found[0].abs().max() > 0
    torch.testing.assert_close(*found, atol=1e-3, rtol=1e-2)


def test_chunks_are_computed_again_for_the_gradient(patches, fitted, monkeypatch, by_torch):
    """Autograd keeps patches and constants, not some twenty planes of each; nothing else."""
    kd, size = KDModule(whitening="ws", weights=fitted), patches.numel() * patches.element_size()
    constants = sum(t.numel() * t.element_size() for t in kd.state_dict().values())
    leaves, results = [patches.clone().requires_grad_() for _ in range(2)], []
    for leaf, chunk in zip(
        leaves, (1 << 30, 120 * P * P), strict=True
    ):  # 30 patches, as gradients need
        monkeypatch.setattr(module, "CHUNK_CPU", chunk)
        results.append(kept_bytes(kd, leaf))
        results[-1][1].pow(3).sum().backward()
    (whole, rows), (parts, others) = results
    assert whole > 15 * size and parts < 2 * size + constants
    torch.testing.assert_close(others, rows, atol=1e-5, rtol=0)
    torch.testing.assert_close(leaves[1].grad, leaves[0].grad, atol=1e-5, rtol=1e-3)


@pytest.mark.slow
def test_derivatives_of_several_chunks(fitted, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_CPU", 1)  # each patch is a chunk
    x = torch.rand(3, 1, 16, 16, dtype=torch.float64, generator=torch.manual_seed(0))
    kd = KDModule(16, "cart", whitening=None)
    assert gradcheck(kd, (x.clone().requires_grad_(),), fast_mode=True, check_forward_ad=True)
    assert gradgradcheck(kd, (x.clone().requires_grad_(),), fast_mode=True)

    def energy(x):
        return kd(x).pow(3).sum()

    expected = torch.autograd.functional.jacobian(energy, x)
    torch.testing.assert_close(torch.func.grad(energy)(x), expected)


def test_the_matrix_of_several_chunks_is_trained(patches, fitted, monkeypatch, by_torch):
    grads = []
    for chunk in (1 << 30, 120 * P * P):
        monkeypatch.setattr(module, "CHUNK_CPU", chunk)
        kd = KDModule(whitening="ws", weights=fitted, trainable=True)
        kd(patches.clone().requires_grad_()).pow(3).sum().backward()
        grads.append([p.grad for p in kd.parameters()])
    torch.testing.assert_close(grads[1], grads[0], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("chunk", [1 << 30, 120 * P * P])
def test_autocast_does_not_reach_the_gradient(patches, supervised, monkeypatch, compiled, chunk):
    """Not even that of a `backward` inside it, whose products torch would have in bfloat16."""
    monkeypatch.setattr(module, "CHUNK_CPU", chunk)
    if not compiled:
        monkeypatch.setattr(module, "load_compiled", lambda: None)

    def gradient(pooled):
        x = patches[:300].clone().requires_grad_()
        rows = supervised.pooled(x.reshape(-1, 2, P, P)) if pooled else supervised(x)
        (rows * rows * rows).sum().backward()
        return x.grad

    for pooled in (False, True):
        expected = gradient(pooled)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(gradient(pooled), expected, atol=1e-4, rtol=1e-4)


def test_derivatives_by_a_whitening_that_is_handed_in(patches, supervised):
    """As buffers of functional_call, the whitening of a module that trains nothing."""
    buffers = dict(supervised.named_buffers())

    def energy(A):
        rows = torch.func.functional_call(supervised, buffers | {"A": A}, (patches[:9],))
        return rows.pow(3).sum()

    A = buffers["A"].clone().requires_grad_()
    (expected,) = torch.autograd.grad(energy(A), A)
    assert expected.abs().max() > 0
    torch.testing.assert_close(torch.func.grad(energy)(A.detach()), expected, atol=1e-5, rtol=1e-3)
    both = torch.func.vmap(energy)(torch.stack([A.detach(), 2 * A.detach()]))
    torch.testing.assert_close(both, energy(A.detach()).expand(2))


def test_trainable_whitening(patches, fitted):
    kd = KDModule(whitening="ws", weights=fitted, trainable=True)
    assert {name for name, _ in kd.named_parameters()} == {"mu", "A"}
    before = kd(patches).detach()
    optimiser = torch.optim.SGD(kd.parameters(), lr=1.0)
    kd(patches).pow(3).sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.abs().max() > 0 for p in kd.parameters())
    optimiser.step()
    with torch.no_grad():
        after = kd(patches)
    assert l2(before, after).max() > 1e-4, "the fused path sees the new matrix"
    frozen = KDModule(whitening="ws", weights=fitted)
    frozen.load_state_dict(kd.state_dict())
    assert gap(frozen(patches), after) < 1e-6
    assert not list(frozen.parameters())


# State and devices --------------------------------------------------------------------------------


def test_copies(patches, supervised):
    expected = supervised(patches)
    saved = io.BytesIO()
    torch.save(supervised.state_dict(), saved)
    saved.seek(0)
    blank = KDModule(whitening="ws", weights=_shuffled(supervised))
    assert l2(blank(patches), expected).max() > 0.1
    blank.load_state_dict(torch.load(saved, weights_only=True))
    for kd in (copy.deepcopy(supervised), pickle.loads(pickle.dumps(supervised)), blank):
        assert gap(kd(patches), expected) == 0
        assert gap(by_plain_operations(kd, patches), expected) < 1e-5


def _shuffled(kd):
    D = len(kd.mu)
    rng = np.random.default_rng(0)
    return Whitening(mu=np.zeros(D), U=np.eye(D), lam=np.ones(D), A_s=rng.normal(size=(D, D)))


def test_state_of_another_patch_size_is_refused(fitted):
    with pytest.raises(RuntimeError, match="size mismatch for Phi"):
        KDModule(32, whitening=None).load_state_dict(KDModule(64, whitening=None).state_dict())


class OnlyDevice(TorchDispatchMode):
    """Fails where an operation makes a tensor on another device."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                assert leaf.device.type == self.device, f"{func} made a tensor on {leaf.device}"
        return result


@pytest.mark.slow
@pytest.mark.parametrize("whitening", [None, "ws", "pcasqrt"])
def test_no_tensor_leaves_the_device(fitted, whitening):
    kd = KDModule(whitening=whitening, weights=fitted).to("meta")
    with OnlyDevice("meta"):
        x = torch.empty(5000, 1, P, P, device="meta", requires_grad=True)
        rows = kd(x)
        rows.sum().backward()
        assert kd.half().pooled(torch.empty(9, 3, P, P, device="meta").half()).shape[0] == 9
    assert (rows.shape, x.grad.shape) == ((5000, kd.dim), x.shape)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_cuda(patches, supervised, dtype):
    kd = copy.deepcopy(supervised).cuda()
    with OnlyDevice("cuda"):
        rows = kd(patches.cuda().to(dtype))
    assert l2(rows.cpu(), supervised(patches.to(dtype).float())).max() < 0.01


# Imports ------------------------------------------------------------------------------------------


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_without_torch_the_error_names_the_extra():
    program = "import sys; sys.modules['torch'] = None; import kd_cv; kd_cv.KDModule()"
    assert "pip install kd-cv[torch]" in run(program).stderr


def test_patches_that_are_no_tensor():
    with pytest.raises(TypeError, match=r"patches must be a torch\.Tensor, got NoneType"):
        KDModule()(None)

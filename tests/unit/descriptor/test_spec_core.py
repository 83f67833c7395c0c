"""The raw descriptor, against the paper's sum over pixels and against Kornia's implementation."""

from itertools import product

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kd_cv
from kd_cv.descriptor import reference
from kd_cv.descriptor.patches import extract_patches
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.keypoints import from_keypoints

DIM = {"concat": 238, "polar": 175, "cart": 63}


def raw64(patches, spec):
    """core.raw in float64."""
    c = spec.constants
    return reference.raw(np.asarray(patches, np.float64), c.smooth, c.diff, c.Phi, c.T, c.parts)


@pytest.fixture(scope="module")
def sift_patches(photographs):
    """Patches at SIFT keypoints of several photographs, flat regions included."""

    def at_size(P):
        return np.concatenate(
            [
                extract_patches(
                    photographs[name],
                    from_keypoints(cv2.SIFT_create(60).detect(photographs[name], None)),
                    P,
                )
                for name in ("camera", "astronaut", "coffee", "chelsea")
            ]
        )

    return at_size


def textured_patches(photographs, P, count=3):
    """Crops of photographs, (count, P, P) float64 in 0..1, with a gradient at every pixel."""
    rng = np.random.default_rng(P)
    crops = [photographs[n][150 : 150 + P, 200 : 200 + P] for n in ("gravel", "grass", "camera")]
    patches = np.stack(crops[:count]) / 255.0
    return patches + rng.uniform(0, 0.01, patches.shape)


# The paper, pixel by pixel ------------------------------------------------------------------------


def von_mises(kappa, N):
    """gamma_0 .. gamma_N by numerical integration."""
    delta = np.arange(2048) * (2 * np.pi / 2048)
    k = (np.exp(kappa * np.cos(delta)) - np.exp(-kappa)) / (2 * np.sinh(kappa))
    return [(1 if i == 0 else 2) * np.mean(k * np.cos(i * delta)) for i in range(N + 1)]


GAMMA = {
    "theta": von_mises(8.0, 3),
    "rho": von_mises(8.0, 2),
    "phi": von_mises(8.0, 2),
    "x": von_mises(1.0, 1),
    "y": von_mises(1.0, 1),
}


def psi(attribute, p):
    """Equation 7 of the paper for one scalar."""
    g = GAMMA[attribute]
    cosines = [np.sqrt(g[i]) * np.cos(i * p) for i in range(len(g))]
    sines = [np.sqrt(g[i]) * np.sin(i * p) for i in range(1, len(g))]
    return np.array(cosines + sines)


def pixels(patch):
    """Attributes of each pixel of a (P, P) patch, by loops: dicts with weight, angles, position."""
    P = len(patch)
    sigma = 1.4 * P / 64
    taps = np.exp(-(np.arange(-2, 3) ** 2) / (2 * sigma**2))
    taps /= taps.sum()

    def at(image, i, j):
        return image[min(max(i, 0), P - 1), min(max(j, 0), P - 1)]

    smooth = np.zeros((P, P))
    for i, j in product(range(P), repeat=2):
        for a, b in product(range(5), repeat=2):
            smooth[i, j] += taps[a] * taps[b] * at(patch, i + a - 2, j + b - 2)
    for i, j in product(range(P), repeat=2):
        # From bright to dark, without halving.
        gx = at(smooth, i, j - 1) - at(smooth, i, j + 1)
        gy = at(smooth, i - 1, j) - at(smooth, i + 1, j)
        x, y = 2 * j / (P - 1) - 1, 2 * i / (P - 1) - 1
        m = np.hypot(gx, gy)
        assert m > 1e-6, "the test needs a gradient at every pixel"
        rho = np.hypot(x, y) / np.sqrt(2)
        phi = np.arctan2(y, x)
        theta = np.arctan2(gy, gx)
        yield {
            "weight": np.exp(-(rho**2)) * np.sqrt(m + 1e-8),
            "theta": theta,
            "theta_rel": theta - phi,
            "phi": phi,
            "rho": rho * np.pi,
            "x": x * np.pi / 2,
            "y": y * np.pi / 2,
        }


def unit(v):
    return v / np.linalg.norm(v)


def paper(patch, kernel):
    """The descriptor as the paper writes it: a sum over pixels of Kronecker products."""
    polar, cart = np.zeros(175), np.zeros(63)
    for p in pixels(patch):
        position = np.kron(psi("phi", p["phi"]), psi("rho", p["rho"]))
        polar += p["weight"] * np.kron(psi("theta", p["theta_rel"]), position)
        position = np.kron(psi("x", p["x"]), psi("y", p["y"]))
        cart += p["weight"] * np.kron(psi("theta", p["theta"]), position)
    if kernel == "concat":
        return unit(np.concatenate([unit(polar), unit(cart)]))
    return unit(polar if kernel == "polar" else cart)


@pytest.mark.slow
@pytest.mark.parametrize("P", [16, 17, 32])
def test_raw_equals_the_papers_sum_over_pixels(photographs, P):
    patches = textured_patches(photographs, P, count=2 if P < 32 else 1)
    for kernel in KERNELS:
        expected = [paper(patch, kernel) for patch in patches]
        np.testing.assert_allclose(raw64(patches, Spec(P, kernel)), expected, rtol=0, atol=1e-10)


def match_kernel(P, Q, kernel):
    """M(P, Q): the double sum over pixel pairs of products of truncated kernels."""

    def attribute(patch, name):
        return np.array([p[name] for p in patch])

    def k(name, a, b):
        delta = attribute(P, a)[:, None] - attribute(Q, b)[None, :]
        return sum(g * np.cos(i * delta) for i, g in enumerate(GAMMA[name]))

    if kernel == "polar":
        pairs = k("phi", "phi", "phi") * k("rho", "rho", "rho")
        pairs = pairs * k("theta", "theta_rel", "theta_rel")
    else:
        pairs = k("x", "x", "x") * k("y", "y", "y") * k("theta", "theta", "theta")
    return attribute(P, "weight") @ pairs @ attribute(Q, "weight")


def similarity(P, Q, kernel):
    """The match kernel of two lists of pixels, scaled so that self-similarity is 1."""
    return match_kernel(P, Q, kernel) / np.sqrt(
        match_kernel(P, P, kernel) * match_kernel(Q, Q, kernel)
    )


def test_dot_product_equals_the_double_sum_over_pixel_pairs(photographs):
    patches = textured_patches(photographs, 16, count=2)
    P, Q = (list(pixels(patch)) for patch in patches)
    expected = {kernel: similarity(P, Q, kernel) for kernel in ("polar", "cart")}
    expected["concat"] = (expected["polar"] + expected["cart"]) / 2
    for kernel, value in expected.items():
        V, W = raw64(patches, Spec(16, kernel))
        assert abs(V @ W - value) < 1e-12, kernel


# Kornia -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("P", [32, 64])
@pytest.mark.parametrize("kernel", KERNELS)
def test_raw_equals_kornias(sift_patches, P, kernel):
    torch = pytest.importorskip("torch")
    feature = pytest.importorskip("kornia.feature")
    patches = sift_patches(P)
    mkd = feature.MKDDescriptor(patch_size=P, kernel_type=kernel, whitening=None)
    with torch.no_grad():
        expected = mkd(torch.from_numpy(patches)[:, None]).numpy()
    result = kd_cv.describe(patches, kernel=kernel, whitening=None)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype, atol", [("float32", 1e-5), ("float64", 1e-12)])
def test_core_runs_on_torch_tensors(sift_patches, dtype, atol):
    torch = pytest.importorskip("torch")
    patches, c = sift_patches(32)[:40].astype(dtype), Spec(32).constants
    constants = [a.astype(dtype) for a in (c.smooth, c.diff, c.Phi, c.T, c.parts)]
    tensors = [torch.from_numpy(a) for a in (patches, *constants)]
    result = reference.raw(*tensors)
    assert result.dtype == getattr(torch, dtype)
    np.testing.assert_allclose(
        result.numpy(), reference.raw(patches, *constants), rtol=0, atol=atol
    )


# Properties of the raw vector ---------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@given(P=st.integers(17, 64))
@example(P=16)
@example(P=127)
@example(P=128)
@settings(max_examples=6)
def test_every_patch_size_gives_unit_parts(photographs, kernel, P):
    spec = Spec(P, kernel)
    V = raw64(textured_patches(photographs, P, count=1), spec)
    assert V.shape == (1, DIM[kernel]) == (1, spec.dim)
    parts = [np.linalg.norm(V[:, part]) for part in spec.parts]
    np.testing.assert_allclose(parts, 1 / np.sqrt(len(spec.parts)), atol=1e-12)


@given(gain=st.floats(0.2, 200.0), offset=st.floats(-0.5, 0.5))
def test_gain_and_offset_do_not_matter(photographs, gain, offset):
    patches = textured_patches(photographs, 24)
    V, W = raw64(patches, Spec(24)), raw64(gain * (patches + offset), Spec(24))
    # The 1e-8 under the root of the magnitude is all that knows the gain.
    np.testing.assert_allclose(V, W, rtol=0, atol=1e-5)


def test_a_negative_shows_opposite_gradients(photographs):
    patches = textured_patches(photographs, 32)
    V, W = raw64(patches, Spec(32, "cart")), raw64(1 - patches, Spec(32, "cart"))
    sign = np.repeat([1, -1, 1, -1, -1, 1, -1], 9)  # theta + pi: cos and sin of odd multiples
    np.testing.assert_allclose(V, W * sign, atol=1e-12)


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_polar_vector_turns_with_the_patch(photographs, quarters):
    P = 32  # the exact centre of an odd patch has no angle phi, so nothing there can turn
    patches = textured_patches(photographs, P)
    turned = np.rot90(patches, -quarters, axes=(1, 2))  # clockwise on the screen
    V, W = (raw64(p, Spec(P, "polar")).reshape(3, 7, 5, 5) for p in (patches, turned))
    # rho and theta_rel stay, phi grows: psi_phi(phi + a) is a rotation of psi_phi(phi).
    a = quarters * np.pi / 2
    expected = V.copy()
    for k in (1, 2):
        cos, sin = V[:, :, k], V[:, :, k + 2]
        expected[:, :, k] = np.cos(k * a) * cos - np.sin(k * a) * sin
        expected[:, :, k + 2] = np.sin(k * a) * cos + np.cos(k * a) * sin
    np.testing.assert_allclose(W, expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.0, 0.3, 1.0, 255.0, 1e4])
def test_a_constant_patch_gives_zeros(dtype, value):
    patches = np.full((2, 32, 32), value, dtype)
    assert not raw64(patches, Spec(32)).any()
    assert not kd_cv.describe(patches, whitening=None).any()


def test_one_step_of_an_8_bit_image_is_texture():
    patch = np.full((1, 32, 32), 100, np.uint8)
    patch[0, 10:20, 12:22] += 1
    assert np.linalg.norm(kd_cv.describe(patch, whitening=None)) == pytest.approx(1, abs=1e-6)


def test_no_patches_give_no_rows():
    assert raw64(np.zeros((0, 32, 32)), Spec(32)).shape == (0, 238)


# The constants ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel, F", [("concat", 64), ("polar", 55), ("cart", 9)])
@pytest.mark.parametrize("P", [16, 31])
def test_spatial_functions_and_their_recombination(kernel, F, P):
    c = Spec(P, kernel).constants
    assert c.Phi.shape == (P * P, F)
    assert c.T.shape == (7, F, DIM[kernel])
    assert (np.count_nonzero(c.T, axis=(0, 1)) <= 4).all()
    assert np.count_nonzero(c.T, axis=(0, 1)).min() >= 1
    assert c.parts.shape == (DIM[kernel], len(Spec(P, kernel).parts))
    assert (c.parts.sum(axis=1) == 1).all()


def test_spatial_functions_are_even_or_odd():
    functions = Spec(32).constants.Phi.T.reshape(64, 32, 32)
    count = {}
    for f in functions:
        odd_x, odd_y = (np.allclose(f, -np.flip(f, axis), atol=1e-12) for axis in (1, 0))
        assert odd_x or np.allclose(f, np.flip(f, 1), atol=1e-12)
        assert odd_y or np.allclose(f, np.flip(f, 0), atol=1e-12)
        count[odd_x, odd_y] = count.get((odd_x, odd_y), 0) + 1
    assert count == {(False, False): 19, (True, False): 17, (False, True): 17, (True, True): 11}


# Spec ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("P", [15, 129, 0, -32])
def test_patch_size_out_of_range(P):
    with pytest.raises(ValueError, match=rf"patch_size must be from 16 to 128, got {P}"):
        Spec(P)


@pytest.mark.parametrize("kernel", ["xy", "", None, "CONCAT"])
def test_unknown_kernel_lists_the_known(kernel):
    with pytest.raises(ValueError, match=r"unknown kernel .* \['concat', 'polar', 'cart'\]"):
        Spec(32, kernel)


# Projection ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_project_centres_multiplies_raises_and_normalises(power):
    rng = np.random.default_rng(0)
    V, mu, A = rng.normal(size=(6, 20)), rng.normal(size=20), rng.normal(size=(20, 8))
    V[3] = 0
    result = Projection(mu, A, power)(V)
    for row, v in zip(result, V, strict=True):
        y = A.T @ (v - mu)
        expected = unit(np.sign(y) * np.abs(y) ** power) if v.any() else np.zeros(8)
        np.testing.assert_allclose(row, expected, atol=1e-13)
    with pytest.raises(ValueError, match=r"expected raw vectors \(N, 20\), got shape \(6, 19\)"):
        Projection(mu, A, power)(V[:, 1:])


# describe: arrays in, arrays out ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_describe_equals_core_in_float64(sift_patches, kernel):
    patches = sift_patches(32)
    result = kd_cv.describe(patches, kernel=kernel, whitening=None)
    assert result.shape == (len(patches), DIM[kernel])
    assert result.dtype == np.float32 and result.flags.c_contiguous
    np.testing.assert_allclose(result, raw64(patches, Spec(32, kernel)), rtol=0, atol=1e-4)


def test_describe_takes_bytes_floats_and_any_strides(photographs):
    crops = np.stack([photographs["gravel"][i : i + 32, 100:132] for i in range(0, 200, 20)])
    expected = kd_cv.describe(crops, whitening=None)
    for dtype, atol in ((np.float32, 1e-5), (np.float64, 1e-5), (np.float16, 0.05)):
        result = kd_cv.describe((crops / 255).astype(dtype), whitening=None)
        np.testing.assert_allclose(result, expected, rtol=0, atol=atol)
    before = crops.copy()
    flipped = kd_cv.describe(crops[::-1], whitening=None)
    assert np.array_equal(flipped[::-1], expected)
    strided = np.zeros((10, 32, 64), np.uint8)
    strided[:, :, ::2] = crops
    assert np.array_equal(kd_cv.describe(strided[:, :, ::2], whitening=None), expected)
    crops.flags.writeable = False
    assert np.array_equal(kd_cv.describe(crops, whitening=None), expected)
    assert np.array_equal(crops, before)
    assert np.array_equal(kd_cv.describe(list(crops), whitening=None), expected)


@pytest.mark.slow
def test_describe_whitens(sift_patches, fitted):
    patches = sift_patches(32)
    raw = kd_cv.describe(patches, whitening=None)
    for name in ("ws", "wus", "wua", "w", "pcasqrt"):
        result = kd_cv.describe(patches, whitening=name, weights=fitted, dim=96)
        assert result.shape == (len(patches), 96) and result.dtype == np.float32
        # PCA whitening divides by the smallest deviations, which magnifies rounding.
        np.testing.assert_allclose(result, fitted.apply(raw, name, 96), rtol=0, atol=1e-4)
    # Kornia's names mean the same.
    for theirs, ours in (("lw", "ws"), ("pcaws", "wus"), ("pcawt", "wua")):
        assert np.array_equal(
            kd_cv.describe(patches[:5], whitening=theirs, weights=fitted),
            kd_cv.describe(patches[:5], whitening=ours, weights=fitted),
        )


@pytest.mark.parametrize("whitening", [None, "ws"])
def test_describe_of_nothing_and_of_flat_patches(fitted, whitening):
    D = 238 if whitening is None else 128
    for dtype in (np.uint8, np.float32):
        arguments = {"whitening": whitening, "weights": fitted}
        assert kd_cv.describe(np.zeros((0, 32, 32), dtype), **arguments).shape == (0, D)
        flat = kd_cv.describe(np.ones((3, 32, 32), dtype), **arguments)
        assert flat.shape == (3, D) and not flat.any()


@pytest.mark.parametrize(
    "patches, error, message",
    [
        (None, ValueError, r"patches must have shape \(N, P, P\), got \(\)"),
        ([], ValueError, r"patches must have shape \(N, P, P\), got \(0,\)"),
        (np.zeros((32, 32), np.uint8), ValueError, r"\(N, P, P\), got \(32, 32\)"),
        (np.zeros((2, 32, 31), np.uint8), ValueError, r"\(N, P, P\), got \(2, 32, 31\)"),
        (np.zeros((2, 1, 32, 32), np.uint8), ValueError, r"\(N, P, P\), got \(2, 1, 32, 32\)"),
        (np.zeros((2, 8, 8), np.uint8), ValueError, "from 16 to 128, got 8"),
        (np.zeros((2, 200, 200), np.uint8), ValueError, "from 16 to 128, got 200"),
        (np.zeros((2, 32, 32), np.int32), TypeError, "uint8 or float, got int32"),
        (np.zeros((2, 32, 32), bool), TypeError, "uint8 or float, got bool"),
        (np.zeros((2, 32, 32), complex), TypeError, "uint8 or float, got complex128"),
        (np.full((2, 32, 32), np.nan), ValueError, "NaN, infinity"),
        (np.full((2, 32, 32), np.inf, np.float32), ValueError, "NaN, infinity"),
    ],
)
def test_describe_refuses(patches, error, message):
    with pytest.raises(error, match=message):
        kd_cv.describe(patches)

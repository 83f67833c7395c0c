"""What must hold for any image, any keypoints and any settings."""

import cv2
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kd_cv import KDDescriptor, describe
from kd_cv.descriptor import reference
from kd_cv.descriptor.describer import describe_frames, describe_patches
from kd_cv.descriptor.frames import patch_regions
from kd_cv.descriptor.kernels import PHI, RHO, THETA, X
from kd_cv.descriptor.patches import extract_patches, max_depth, sampling_steps
from kd_cv.descriptor.spec import CART_DIM, KERNELS, POLAR_DIM, Spec
from kd_cv.gray import MAX_SIDE
from kd_cv.keypoints import to_keypoints

pytestmark = pytest.mark.slow

U = 2.0**-24  # half the spacing of float32 numbers at 1


def noise(seed: int, shape: tuple[int, int], sigma: float) -> np.ndarray:
    """A texture (H, W) uint8 of full contrast, smooth over `sigma` pixels."""
    image = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    image = cv2.GaussianBlur(image, (0, 0), sigma)
    return cv2.normalize(image, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


def patches_of(seed: int, P: int) -> np.ndarray:
    """Textures (3, P, P), float64 in 0..1, fine to coarse, with a gradient at every pixel."""
    rng = np.random.default_rng(seed)
    return np.stack([cv2.GaussianBlur(rng.uniform(size=(P, P)), (0, 0), s) for s in (0.5, 1, 2)])


def raw64(patches: np.ndarray, spec: Spec) -> np.ndarray:
    c = spec.constants
    return reference.raw(np.asarray(patches, np.float64), c.smooth, c.diff, c.Phi, c.T, c.parts)


seeds = st.integers(0, 2**32 - 1)
any_float = st.floats(allow_nan=True, allow_infinity=True, width=32)
sensible_frames = st.tuples(
    st.floats(-30, 150), st.floats(-30, 150), st.floats(0.5, 30), st.floats(0, 359)
)
any_frames = st.lists(
    st.one_of(sensible_frames, st.tuples(any_float, any_float, any_float, any_float)), max_size=40
)


# Finite or zero, of unit norm ---------------------------------------------------------------------


def are_unit_or_zero(rows: np.ndarray) -> bool:
    """Finite; each row of norm 1, to the rounding of a sum of D squares, or of zeros."""
    assert rows.dtype == np.float32 and np.isfinite(rows).all()
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    zero = ~rows.any(axis=1)
    np.testing.assert_allclose(norms[~zero], 1.0, rtol=0, atol=rows.shape[1] * U)
    return True


@given(
    seed=seeds,
    shape=st.sampled_from([(120, 120), (1, 1), (1, 90), (90, 1), (2, 3), (33, 120)]),
    kind=st.sampled_from(["uint8", "uint16", "float32", "float64", "flat", "steps", "huge"]),
    rows=any_frames,
    P=st.integers(16, 48),
    kernel=st.sampled_from(KERNELS),
    whitening=st.sampled_from(["ws", "wus", "pcasqrt", None]),
    magnification=st.sampled_from([1e-3, 6.0, 15.0, 1e5]),
    scales=st.sampled_from([1, 3, (0.1, 10.0)]),
    drop=st.booleans(),
)
@settings(max_examples=40)
def test_rows_are_finite_and_of_norm_one_or_zero(
    seed, shape, kind, rows, P, kernel, whitening, magnification, scales, drop
):
    texture = noise(seed, shape, 1.0)
    image = {
        "uint16": texture.astype(np.uint16) * 257,
        "float32": texture.astype(np.float32) / 255 - 0.5,
        "float64": texture * 1.0,
        "flat": np.full_like(texture, seed % 256),
        "steps": np.where(texture > 128, 255, 0).astype(np.uint8),
        "huge": texture.astype(np.float32) * np.float32(1e36),
    }.get(kind, texture)
    kd = KDDescriptor(
        patch_size=P, kernel=kernel, whitening=whitening, dim=min(128, Spec(P, kernel).dim),
        magnification=magnification, scales=scales, drop=drop,
    )  # fmt: skip
    keypoints = to_keypoints(np.array(rows, dtype=np.float64).reshape(-1, 4))
    kept, found = kd.compute(image, keypoints)
    if not kept:
        assert found is None
        return
    assert found.shape == (len(kept), kd.descriptorSize()) and are_unit_or_zero(found)
    assert found.any(axis=1).all() if drop else len(kept) == len(keypoints)


@given(seed=seeds, P=st.integers(16, 40), exponent=st.floats(-40, 38), flat=st.booleans())
def test_patches_of_any_contrast_give_finite_rows(seed, P, exponent, flat):
    patches = (patches_of(seed, P) * 10.0**exponent).astype(np.float32)
    if flat:
        patches[1] = patches[1, 0, 0]
    rows = describe(patches, whitening=None)
    assert are_unit_or_zero(rows)
    assert not (flat and rows[1].any())


# Gain and offset ----------------------------------------------------------------------------------


def gain_bound(patches: np.ndarray, spec: Spec, gain: float, rounding: float) -> np.ndarray:
    """How far the raw descriptors of gain * patches can be from those of patches: (N,).

    The gradient of a pixel has magnitude m, in the units of `patches`, and an error of about
    `rounding`. Its angle enters up to 3 theta and its weight is sqrt(m), so its term g w psi of V
    changes by a share of at most 3.5 rounding / m, and never by more than twice itself; these
    errors are as good as independent, so their squares add up, and eight times that is never
    reached. The weight is sqrt(m + EPS) before, but sqrt(gain m + EPS) / sqrt(gain) after: a share
    of at most EPS max(1, 1 / gain) / (2 m), for all pixels at once. All |psi| are the same,
    k(0)^(1/2). Making a part a unit vector at most doubles its change; of two unit parts the whole
    has the mean.
    """
    c = spec.constants
    P = spec.patch_size
    gx, gy = c.smooth @ patches @ c.diff.T, c.diff @ patches @ c.smooth.T
    m, theta = np.maximum(np.hypot(gx, gy), 1e-12), np.arctan2(gy, gx)
    weight = np.sqrt(m + reference.EPS)
    random = np.minimum(2, 3.5 * rounding / m)
    steady = np.minimum(2, reference.EPS * max(1.0, 1 / gain) / (2 * m))
    k = np.arange(1, 4)[:, None, None, None]
    planes = weight * np.concatenate([np.ones((1, *m.shape)), np.cos(k * theta), np.sin(k * theta)])
    V = np.einsum("k n f, k f d -> n d", planes.reshape(7, len(m), -1) @ c.Phi, c.T)
    axis = np.linspace(-1, 1, P)
    g = np.exp(-(axis[:, None] ** 2 + axis**2) / 2)
    moved = 8 * np.sqrt(((g * weight * random) ** 2).sum(axis=(1, 2)))
    moved += (g * weight * steady).sum(axis=(1, 2))
    squares = []
    for part in spec.parts:
        polar = part.stop - part.start == POLAR_DIM
        k0 = THETA(0.0) * (PHI(0.0) * RHO(0.0) if polar else X(0.0) ** 2)
        squares.append((2 * np.sqrt(k0) * moved / np.linalg.norm(V[:, part], axis=1)) ** 2)
    return np.sqrt(np.mean(squares, axis=0))


@pytest.mark.parametrize("kernel", KERNELS)
@given(
    seed=seeds,
    P=st.integers(16, 48),
    gain=st.floats(0.02, 50.0),
    offset=st.floats(-20.0, 20.0),
)
@settings(max_examples=30)
def test_gain_and_offset_of_patches(kernel, seed, P, gain, offset):
    spec = Spec(P, kernel)
    patches = patches_of(seed, P).astype(np.float32)
    changed = np.float32(gain) * patches + np.float32(offset)
    # The change, two smoothings and the difference each round by U of the largest value.
    largest = gain + abs(offset)
    bound = gain_bound(patches.astype(np.float64), spec, gain, 4 * U * (1 + largest / gain))
    assume((bound < 0.05).all())
    distance = np.linalg.norm(
        describe_patches(changed, spec) - describe_patches(patches, spec), axis=1
    )
    assert (distance <= bound + 1e-5).all()


@given(
    seed=seeds,
    gain=st.floats(0.05, 2000.0),
    offset=st.floats(0.0, 4.0),
    rows=st.lists(sensible_frames, min_size=1, max_size=10),
)
@settings(max_examples=30)
def test_gain_and_offset_of_float_images(seed, gain, offset, rows):
    spec = Spec(24)
    image = (noise(seed, (120, 130), 1.5) / 255).astype(np.float32)
    frames = np.array(rows)
    options = {"magnification": 12.0}
    patches = extract_patches(image, frames, 24, 12.0).astype(np.float64)
    changed = np.float32(gain) * (image + np.float32(offset))
    # The descriptor sees them divided by their maximum, if that is more than 1.
    seen = gain / max(1.0, float(changed.max()))
    bound = gain_bound(patches, spec, seen, 8 * U * (1 + (1 + offset)))
    first, second = (describe_frames(im, frames, spec, **options) for im in (image, changed))
    described = first.any(axis=1) & (bound < 0.05)
    assume(described.any())
    distance = np.linalg.norm(first - second, axis=1)
    assert (distance <= bound + 1e-5)[described].all()


# Quarter turns and mirrors ------------------------------------------------------------------------

# What happens to the attributes of a pixel, angles as (sign, offset): angle -> sign angle + offset.
TURN = {"theta_rel": (1, 0.0), "phi": (1, np.pi / 2), "theta": (1, np.pi / 2)}
MIRROR = {"theta_rel": (-1, 0.0), "phi": (-1, np.pi), "theta": (-1, np.pi)}


def by_formula(sign: int, offset: float, N: int) -> np.ndarray:
    """psi(sign a + offset) = M psi(a): cos and sin of a sum, for offsets of quarter turns."""
    M = np.zeros((2 * N + 1, 2 * N + 1))
    M[0, 0] = 1
    for k in range(1, N + 1):
        cos, sin = round(np.cos(k * offset)), round(np.sin(k * offset))
        M[k, [k, k + N]] = cos, -sign * sin
        M[k + N, [k, k + N]] = sin, sign * cos
    return M


def by_samples(kernel, sign: int, offset: float) -> np.ndarray:
    """The same M, solved for from values of the feature map."""
    angles = np.linspace(0, 6, 40)
    return np.linalg.lstsq(kernel.psi(angles), kernel.psi(sign * angles + offset), rcond=None)[0].T


@pytest.mark.parametrize("change", [TURN, MIRROR], ids=["turn", "mirror"])
def test_two_witnesses_of_what_a_turn_does_to_a_feature_map(change):
    for name, kernel in (("theta_rel", THETA), ("phi", PHI), ("theta", THETA)):
        formula = by_formula(*change[name], kernel.N)
        np.testing.assert_allclose(by_samples(kernel, *change[name]), formula, atol=1e-12)


def raw_map(change: dict, kernel: str) -> np.ndarray:
    """(D, D): the raw vector of the changed patch is this times that of the patch."""
    theta_rel, phi, theta = (
        by_formula(*change[name], N)
        for name, N in (("theta_rel", THETA.N), ("phi", PHI.N), ("theta", THETA.N))
    )
    polar = np.kron(theta_rel, np.kron(phi, np.eye(RHO.dim)))
    odd = np.diag([1.0, 1.0, -1.0])  # psi(-x): the sine changes its sign
    if change is MIRROR:  # x -> -x
        position = np.kron(odd, np.eye(3))
    else:  # (x, y) -> (-y, x): psi_a(-y) psi_b(x)
        swap = np.eye(9).reshape(3, 3, 3, 3).transpose(1, 0, 2, 3).reshape(9, 9)
        position = np.kron(odd, np.eye(3)) @ swap
    cart = np.kron(theta, position)
    if kernel == "concat":
        both = np.zeros((POLAR_DIM + CART_DIM,) * 2)
        both[:POLAR_DIM, :POLAR_DIM], both[POLAR_DIM:, POLAR_DIM:] = polar, cart
        return both
    return polar if kernel == "polar" else cart


def changed_patches(change: dict, patches: np.ndarray) -> np.ndarray:
    """Turned clockwise on the screen, or mirrored left to right."""
    if change is TURN:
        return np.rot90(patches, -1, axes=(-2, -1))
    return patches[..., ::-1]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("change", [TURN, MIRROR], ids=["turn", "mirror"])
@given(seed=seeds, half=st.integers(8, 32))
@settings(max_examples=8)
def test_a_turn_or_mirror_permutes_the_raw_vector(change, kernel, seed, half):
    P = 2 * half  # the exact centre of an odd patch has an angle, which does not turn
    patches = patches_of(seed, P)
    M = raw_map(change, kernel)
    assert np.array_equal(np.abs(M).sum(axis=0), np.ones(len(M)))  # a signed permutation
    assert np.array_equal(np.abs(M).sum(axis=1), np.ones(len(M)))
    rows, other = (raw64(p, Spec(P, kernel)) for p in (patches, changed_patches(change, patches)))
    np.testing.assert_allclose(other, rows @ M.T, rtol=0, atol=1e-10)
    assert np.abs(other - rows).max() > 1e-3


SIDE = 129  # of 2^k + 1: OpenCV halves such an image at its even pixels, whichever way it lies


@pytest.mark.parametrize("whitening", ["ws", None])
@given(seed=seeds, quarters=st.integers(1, 3), rows=st.lists(sensible_frames, max_size=20))
@settings(max_examples=30)
def test_a_turned_image_with_turned_keypoints_is_described_alike(whitening, seed, quarters, rows):
    image = noise(seed, (SIDE, SIDE), 1.5)
    frames = np.array(rows).reshape(-1, 4)
    moved = frames.copy()
    for _ in range(quarters):  # clockwise: (x, y) -> (side - 1 - y, x)
        moved[:, 0], moved[:, 1] = SIDE - 1 - moved[:, 1], moved[:, 0].copy()
        moved[:, 3] = (moved[:, 3] + 90) % 360
    kd = KDDescriptor(whitening=whitening)
    spec, options = kd.spec, {"magnification": 15.0, "projection": kd.projection}
    first = describe_frames(image, frames, spec, **options)
    second = describe_frames(
        np.ascontiguousarray(np.rot90(image, -quarters)), moved, spec, **options
    )
    # The samples are the same to the last bit, but for the cosines of the turned angles; where a
    # window leaves the image they fade, and the smallest gradients of that have uncertain angles.
    reach = 0.5 * 15.0 * np.sqrt(2) * frames[:, 2]
    inside = np.all(
        (frames[:, :2] > reach[:, None]) & (frames[:, :2] < SIDE - 1 - reach[:, None]), axis=1
    )
    np.testing.assert_allclose(first[inside], second[inside], rtol=0, atol=1e-5)
    np.testing.assert_allclose(first, second, rtol=0, atol=2e-4)


# Within the image: beyond its border there are no gradients, and no angles to be mirrored.
inner = st.tuples(st.floats(40, 88), st.floats(40, 88), st.floats(1, 3.5), st.floats(0, 359))


@given(seed=seeds, rows=st.lists(inner, max_size=20))
@settings(max_examples=30)
def test_a_mirrored_image_is_described_by_the_mirrored_vector(seed, rows):
    image = noise(seed, (SIDE, SIDE), 1.5)
    frames = np.array(rows).reshape(-1, 4)
    moved = frames * [-1, 1, 1, -1] + [SIDE - 1, 0, 0, 0]
    moved[:, 3] %= 360
    first = describe_frames(image, frames, Spec(32), magnification=15.0)
    mirrored = np.ascontiguousarray(image[:, ::-1])
    second = describe_frames(mirrored, moved, Spec(32), magnification=15.0)
    np.testing.assert_allclose(second, first @ raw_map(MIRROR, "concat").T, rtol=0, atol=1e-5)


# dim ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whitening", ["ws", "wus", "wua", "w", "pcasqrt"])
@given(seed=seeds, dims=st.lists(st.integers(2, 128), min_size=2, max_size=4, unique=True))
@settings(max_examples=8)
def test_fewer_dimensions_are_the_first_ones(whitening, seed, dims):
    patches = patches_of(seed, 32).astype(np.float32)
    full = describe(patches, whitening=whitening, dim=128).astype(np.float64)
    raw = describe(patches, whitening=None).astype(np.float64)
    before = np.zeros((len(patches), len(patches)))
    for dim in sorted(dims):
        rows = describe(patches, whitening=whitening, dim=dim)
        prefix = full[:, :dim] / np.linalg.norm(full[:, :dim], axis=1, keepdims=True)
        # A small share of the whole, in a short prefix, has the rounding of the whole.
        share = np.linalg.norm(full[:, :dim], axis=1).min()
        np.testing.assert_allclose(rows, prefix, rtol=0, atol=2e-5 / share)
        projection = KDDescriptor(whitening=whitening, dim=dim).projection
        Y = (raw - projection.mu) @ projection.A.astype(np.float64)
        distances = np.linalg.norm(Y[:, None] - Y[None], axis=2)
        assert (distances >= before).all()  # each dimension only adds
        before = distances


# Order and neighbours -----------------------------------------------------------------------------


@given(
    seed=seeds,
    rows=st.lists(sensible_frames, min_size=1, max_size=30),
    strangers=any_frames,
    chosen=st.lists(st.integers(0, 29), min_size=1, max_size=40),
)
def test_a_descriptor_does_not_depend_on_order_or_neighbours(seed, rows, strangers, chosen):
    kd = KDDescriptor(drop=False)
    image = noise(seed, (120, 130), 1.5)
    keypoints = to_keypoints(np.array(rows))
    others = to_keypoints(np.array(strangers, dtype=np.float64).reshape(-1, 4))
    expected = kd.compute(image, keypoints)[1]
    chosen = [i % len(rows) for i in chosen]
    picked = [keypoints[i] for i in chosen]
    # The image pyramid is as deep as the largest keypoint needs: it must not matter.
    found = kd.compute(image, [*others, *picked, *others])[1]
    assert np.array_equal(found[len(others) : len(others) + len(picked)], expected[chosen])


# No index overflows -------------------------------------------------------------------------------


@given(
    shape=st.tuples(st.integers(1, MAX_SIDE), st.integers(1, MAX_SIDE)),
    x=st.floats(0, 1),
    y=st.floats(0, 1),
    size=st.floats(1 / MAX_SIDE, MAX_SIDE),
    angle=st.floats(0, 360),
    P=st.integers(16, 128),
)
@example(shape=(MAX_SIDE, MAX_SIDE), x=0.5, y=0.5, size=128 * 2**0.5 - 1e-9, angle=45.0, P=128)
@example(shape=(3, MAX_SIDE), x=0.5, y=0.5, size=MAX_SIDE, angle=45.0, P=128)
@example(shape=(MAX_SIDE, 3), x=0.5, y=0.5, size=MAX_SIDE, angle=45.0, P=128)
@settings(max_examples=200)
def test_samples_of_a_patch_are_within_32_bits_of_its_corner(shape, x, y, size, angle, P):
    """The compiled path counts pixels from the first row that a patch can touch, in uint32."""
    height, width = shape
    frames = np.array([[x * width, y * height, size, angle]])
    level, _, cy, ax, ay = sampling_steps(patch_regions(frames, shape, 1.0), shape, P)[0, 0]
    assume(level >= 0)
    for _ in range(int(level)):
        height, width = (height + 1) // 2, (width + 1) // 2
    reach = (P - 1) / 2 * (abs(ax) + abs(ay))
    first, last = np.clip([cy - reach, cy + reach], 0, height - 1).astype(np.int64)
    assert (int(last) - int(first) + 1) * width < 2**32
    assert level <= max_depth(shape)

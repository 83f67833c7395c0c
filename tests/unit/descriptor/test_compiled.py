"""The compiled data path agrees with `reference`, with the same bits however work is split."""

import multiprocessing
from functools import partial

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kd_cv
import kd_cv.gray
import kd_cv.keypoints
from kd_cv import KDDescriptor
from kd_cv.descriptor import describer
from kd_cv.descriptor.describer import describe_frames, describe_patches
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.keypoints import from_keypoints

compiled = pytest.importorskip("kd_cv.descriptor.compiled", reason="Numba is not installed")


def by_core(monkeypatch, function, *args, **kwargs):
    """The same call through core.py, on one thread beside those of BLAS."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(describer, "load_compiled", lambda: None)
            return function(*args, **kwargs)
    finally:
        cv2.setNumThreads(before)


@pytest.fixture(scope="module")
def many(camera):
    """5,000 frames of `camera`: of all sizes, at all angles, some across the border or outside."""
    rng = np.random.default_rng(3)
    xy = rng.uniform(-40, 550, size=(5000, 2))
    size = np.exp(rng.uniform(np.log(1.0), np.log(60.0), 5000))
    angle = np.where(rng.random(5000) < 0.1, -1.0, rng.uniform(0, 360, 5000))
    return np.column_stack([xy, size, angle])


# Equal to core ------------------------------------------------------------------------------------

patch_sizes = st.one_of(st.integers(16, 70), st.sampled_from([16, 17, 127, 128]))
names = st.sampled_from(["camera", "coffee", "gravel", "astronaut", "brick", "coins"])
corners = st.tuples(st.integers(0, 180), st.integers(0, 200))
# (height, width) of a crop: landscape, portrait, and hardly larger than one patch.
shapes = st.sampled_from([(120, 160), (117, 91), (40, 150)])
scale_factors = st.sampled_from([(1.0,), (0.7, 1.4), (0.75, 1.0, 1.5)])
dims = st.sampled_from([None, 60, 128])


def of_type(gray, kind):
    """A gray crop as an image of a kind, brought to what the engine takes."""
    image = {
        "uint8": lambda: gray,
        "float 0..1": lambda: gray / 255.0,
        "float 0..255": lambda: gray.astype(np.float32),
        "uint16": lambda: gray.astype(np.uint16) * 257,
        "bgr": lambda: cv2.cvtColor(gray, cv2.COLOR_GRAY2BGR),
    }[kind]()
    return kd_cv.gray.as_gray(image)


def random_projection(spec, dim):
    """An orthogonal projection to at most `dim` dimensions, or None."""
    if dim is None:
        return None
    dim = min(dim, spec.dim)
    A = np.linalg.qr(np.random.default_rng(dim).normal(size=(spec.dim, dim)))[0]
    return Projection(np.full(spec.dim, 0.01, np.float32), np.float32(A))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@given(
    P=patch_sizes,
    kind=st.sampled_from(["uint8", "float 0..1", "uint16", "bgr"]),
    name=names,
    corner=corners,
    shape=shapes,
    scales=scale_factors,
    magnification=st.sampled_from([6.0, 12.0]),
    turn=st.floats(0.0, 360.0),
    upright=st.booleans(),
    dim=dims,
)
@settings(max_examples=20)
def test_compiled_equals_reference_at_keypoints_of_photographs(
    photographs, monkeypatch, kernel, P, kind, name, corner, shape, scales, magnification, turn,
    upright, dim,
):  # fmt: skip
    (top, left), (height, width) = corner, shape
    crop = photographs[name][top : top + height, left : left + width]
    # Keypoints are found up to the border, and their patches reach across it.
    frames = from_keypoints(cv2.SIFT_create(40).detect(crop, None))
    frames[:, 3] = -1.0 if upright else (frames[:, 3] + turn) % 360
    spec = Spec(P, kernel)
    arguments = (of_type(crop, kind), frames, spec)
    options = {
        "magnification": magnification,
        "scales": scales,
        "projection": random_projection(spec, dim),
    }
    result = describe_frames(*arguments, **options)
    expected = by_core(monkeypatch, describe_frames, *arguments, **options)
    assert result.dtype == np.float32
    # Both are rounded to float32, in another order: faint patches at a border differ by 1.5e-5.
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5)


@pytest.mark.slow
@given(
    P=patch_sizes,
    name=names,
    corner=corners,
    shape=st.sampled_from([(96, 120), (61, 47), (17, 100), (3, 3), (1, 30), (1, 1)]),
    scales=scale_factors,
    frames=st.lists(
        st.tuples(
            st.floats(-40.0, 140.0),
            st.floats(-40.0, 140.0),
            st.one_of(st.floats(0.01, 60.0), st.sampled_from([0.0, -1.0, 1e-30, 1e30, np.inf])),
            st.one_of(st.just(-1.0), st.floats(-400.0, 400.0), st.just(np.nan)),
        ),
        max_size=20,
    ),
)
def test_compiled_equals_reference_at_any_frame(photographs, monkeypatch, P, name, corner, shape,
                                                scales, frames):  # fmt: skip
    (top, left), (height, width) = corner, shape
    gray = of_type(photographs[name][top : top + height, left : left + width], "uint8")
    arguments = (gray, np.array(frames).reshape(-1, 4), Spec(P))
    options = {"magnification": 12.0, "scales": scales}
    result = describe_frames(*arguments, **options)
    expected = by_core(monkeypatch, describe_frames, *arguments, **options)
    assert np.isfinite(result).all()
    assert np.array_equal(result.any(axis=1), expected.any(axis=1))
    # In a patch of hardly any contrast, the angles of its weakest gradients are rounding.
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-3)


def test_compiled_equals_reference_for_floats_up_to_255(photographs, monkeypatch):
    for name in ("camera", "astronaut", "gravel"):
        crop = photographs[name][100:300, 100:300]
        frames = from_keypoints(cv2.SIFT_create(60).detect(crop, None))
        arguments = (of_type(crop, "float 0..255"), frames, Spec(64))
        result = describe_frames(*arguments, magnification=12.0)
        expected = by_core(monkeypatch, describe_frames, *arguments, magnification=12.0)
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("P", [16, 17, 32, 33, 64, 101, 128])
def test_compiled_equals_reference_on_patches(photographs, monkeypatch, kernel, P):
    corners = [(0, 0), (100, 200), (200, 150), (350, 60), (60, 300)]
    crops = np.stack([photographs["gravel"][i : i + P, j : j + P] for i, j in corners])
    for patches in (crops, crops / np.float32(255)):
        result = describe_patches(patches, Spec(P, kernel))
        expected = by_core(monkeypatch, describe_patches, patches, Spec(P, kernel))
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["ws", "wus", "wua", "w", "pcasqrt"])
def test_compiled_equals_reference_when_whitened(camera, keypoints, monkeypatch, fitted, name):
    kd = KDDescriptor(whitening=name, weights=fitted, dim=100)
    _, result = kd.compute(camera, keypoints)
    _, expected = by_core(monkeypatch, kd.compute, camera, keypoints)
    assert result.shape == (len(keypoints), 100)
    # A small component's root is steep, and so magnifies rounding.
    atol = 1e-5 if name != "pcasqrt" else 1e-3
    # A window that is mostly outside the image has little gradient: rounding weighs more.
    x, y, size, _ = from_keypoints(keypoints).T
    sees = np.minimum.reduce([x, y, 511 - x, 511 - y]) > 0.25 * MAGNIFICATION * size
    assert sees.sum() > 100
    np.testing.assert_allclose(result[sees], expected[sees], rtol=0, atol=atol)
    np.testing.assert_allclose(result, expected, rtol=0, atol=2 * atol)


def test_scales_average_the_raw_vectors(camera, keypoints):
    factors = (0.75, 1.0, 1.5)
    _, pooled = KDDescriptor(whitening=None, scales=factors).compute(camera, keypoints)
    singles = [
        KDDescriptor(whitening=None, magnification=15.0 * f).compute(camera, keypoints)[1]
        for f in factors
    ]
    mean = np.mean(singles, axis=0)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(pooled, mean, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_flat_images_give_zeros_on_both_paths(monkeypatch, dtype):
    flat = np.full((64, 64), 1 if dtype == np.float32 else 200, dtype)
    frames = np.array([[32.0, 32.0, 3.0, 10.0], [0.0, 0.0, 50.0, -1.0]])
    for P in (16, 33):
        for run in (
            describe_frames,
            lambda *a, **k: by_core(monkeypatch, describe_frames, *a, **k),
        ):
            assert not run(flat, frames, Spec(P), magnification=12.0).any()


def test_functions_are_ordered_by_parity():
    plan = compiled.plan(Spec(32))
    # And in each parity five that meet only the planes of k = 2 and 3; padded for tiles of three
    # and of four.
    assert plan.meet_all.tolist() == [14, 12, 12, 6]
    assert np.diff(plan.first).tolist() == [21, 18, 18, 12]
    assert plan.Phi.shape == (69, 16 * 16)


# The same bits ------------------------------------------------------------------------------------


@pytest.fixture(params=["raw", "whitened", "pooled"])
def describe_many(request, camera, fitted):
    """frames (N, 4) to rows (N, D) at a low patch size; whitened and pooled too."""
    spec, options = Spec(16), {"magnification": 12.0}
    if request.param != "raw":
        options["projection"] = fitted.projection("ws", 128)
    if request.param == "pooled":
        options["scales"] = (0.75, 1.0, 1.5)
    return lambda frames: describe_frames(camera, frames, spec, **options)


@pytest.mark.slow
def test_alone_in_a_list_of_5000_and_in_any_order(describe_many, many):
    rows = describe_many(many)
    assert rows.any(axis=1).sum() > 4000
    order = np.random.default_rng(0).permutation(len(many))
    assert np.array_equal(describe_many(many[order]), rows[order])
    for i in order[:40]:
        assert np.array_equal(describe_many(many[i : i + 1])[0], rows[i])


@pytest.mark.parametrize("chunk", [1, 7, 16, 100, 1000])
def test_any_chunk_size(describe_many, many, monkeypatch, chunk):
    frames = many[:300]
    rows = describe_many(frames)
    monkeypatch.setattr("kd_cv.parallel.CHUNK", chunk)
    assert np.array_equal(describe_many(frames), rows)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8])
def test_any_number_of_threads(describe_many, many, threads, count):
    frames = many[:999]
    threads(1)
    rows = describe_many(frames)
    threads(count)
    assert np.array_equal(describe_many(frames), rows)


def test_the_same_for_patches(camera, threads, monkeypatch):
    rng = np.random.default_rng(1)
    patches = np.stack([camera[i : i + 24, j : j + 24] for i, j in rng.integers(0, 480, (333, 2))])
    threads(1)
    rows = describe_patches(patches, Spec(24))
    order = rng.permutation(len(patches))
    for count, chunk in ((2, 256), (3, 10)):
        threads(count)
        monkeypatch.setattr("kd_cv.parallel.CHUNK", chunk)
        assert np.array_equal(describe_patches(patches[order], Spec(24)), rows[order])
        assert np.array_equal(describe_patches(patches[5:6], Spec(24)), rows[5:6])


def _send_rows(connection, kd, image, frames):
    keypoints = kd_cv.keypoints.to_keypoints(frames)
    connection.send(kd.compute(image, keypoints)[1])
    connection.send(len(kd.detectAndCompute(image, None)[0]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork(photographs, threads):
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system cannot fork")
    threads(2)
    # An image so large that OpenCV shares its own work among threads, before and after the fork.
    image = cv2.resize(photographs["camera"], None, fx=3, fy=3, interpolation=cv2.INTER_LINEAR)
    kd = KDDescriptor()
    keypoints = cv2.SIFT_create(400).detect(image, None)
    expected = kd.compute(image, keypoints)[1]
    context = multiprocessing.get_context("fork")
    workers = []
    for _ in range(2):
        here, there = context.Pipe()
        process = context.Process(
            target=_send_rows, args=(there, kd, image, from_keypoints(keypoints))
        )
        process.start()
        workers.append((process, here))
    try:
        for _, here in workers:
            assert here.poll(60), "a forked process hangs"
            assert np.array_equal(here.recv(), expected)
            assert here.poll(60), "a forked process hangs in detect"
            assert here.recv() > 0
    finally:
        for process, _ in workers:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()


@pytest.mark.slow
def test_in_a_spawned_process(camera, keypoints):
    kd, frames = KDDescriptor(), from_keypoints(keypoints)[:50]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply_async(_rows, (kd, camera, frames)).get(120)
    assert np.array_equal(result, _rows(kd, camera, frames))


def _rows(kd, image, frames):
    return kd.compute(image, kd_cv.keypoints.to_keypoints(frames))[1]


@pytest.mark.parametrize("gain", [1e15, 1e30, 3e38])
def test_patches_of_any_gain(camera, gain):
    patches = camera[:96, :96].reshape(3, 32, 3, 32).swapaxes(1, 2).reshape(-1, 32, 32) / 255.0
    result = kd_cv.describe(patches * gain)
    np.testing.assert_allclose(result, kd_cv.describe(patches), rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="NaN, infinity or values too large for float32"):
        kd_cv.describe(patches * 1e300)


# Without Numba ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scales", [(1.0,), (0.8, 1.2)])
def test_without_numba_neighbours_do_not_matter_either(camera, many, monkeypatch, scales):
    options = {"magnification": 12.0, "scales": scales, "projection": KDDescriptor().projection}
    describe = partial(by_core, monkeypatch, describe_frames, camera, spec=Spec(32), **options)
    rows = describe(many[:200])
    for i in range(0, 200, 20):
        for start in (i, max(0, i - 3)):
            np.testing.assert_allclose(
                describe(many[start : i + 1])[-1], rows[i], rtol=0, atol=1e-5
            )


def test_without_numba_patches_do_not_matter_to_each_other(camera, monkeypatch):
    patches = camera[:96, :96].reshape(3, 32, 3, 32).swapaxes(1, 2).reshape(-1, 32, 32)
    rows = by_core(monkeypatch, describe_patches, patches, Spec(32))
    alone = [by_core(monkeypatch, describe_patches, patch[None], Spec(32))[0] for patch in patches]
    np.testing.assert_allclose(alone, rows, rtol=0, atol=1e-5)

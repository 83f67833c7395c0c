"""The scale space, its extrema and their fit, against closed forms and against each other."""

import tracemalloc

import cv2
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from kd_cv.detector import compiled, detect, orientation
from kd_cv.detector.detect import detect as detect_frames
from kd_cv.detector.detect import extrema, gain_of
from kd_cv.detector.scale_space import (
    CAMERA_BLUR,
    FOR_SIZE,
    IN_SCALE,
    IN_SPACE,
    ScaleSpace,
    derivatives,
    gaussian,
)


def blob(x, y, s, shape=(96, 128), sign=1.0):
    v, u = np.mgrid[: shape[0], : shape[1]]
    return np.float32(0.5 + sign * 0.4 * np.exp(-((u - x) ** 2 + (v - y) ** 2) / (2 * s * s)))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("s", [1.5, 2.2, 3.1, 4.7, 6.3])
def test_a_blob_is_found_where_it_is_and_as_large_as_it_is(s, sign):
    # A blob of variance s^2 blurred to s^2 + sigma^2 has the height s^2 / (s^2 + sigma^2); between
    # sigma and k sigma the difference is largest at sigma^2 = s^2 / k. What the image is taken to
    # be blurred by already counts as part of sigma.
    x, y = 61.37, 44.81
    found = extrema(blob(x, y, s, sign=sign), ScaleSpace())
    strongest = found[found[:, 3].argmax()]
    assert np.abs(strongest[:2] - [x, y]).max() < max(0.02, 0.01 * s)
    k = 2 ** (1 / 3)
    assert strongest[2] == pytest.approx(np.sqrt((s**2 - CAMERA_BLUR**2) / k), rel=0.03)


def test_of_two_blobs_as_bright_the_larger_one_is_stronger():
    # By the heights above |D| of a blob is largest where it is s^2 / (s^2 - 1/4) of a number that
    # is the same for all, k alone deciding it.
    sizes = np.array([1.6, 5.0])
    pair = blob(30.2, 31.4, sizes[0], (96, 160)) + blob(110.3, 50.1, sizes[1], (96, 160)) - 0.5
    space = ScaleSpace()
    large, small = extrema(pair, space, 2)
    assert np.abs([small[:2] - [30.2, 31.4], large[:2] - [110.3, 50.1]]).max() < 0.05
    height = sizes**2 / (sizes**2 - CAMERA_BLUR**2)
    expected = height[1] / height[0] * (large[2] / small[2]) ** FOR_SIZE
    assert large[3] / small[3] == pytest.approx(expected, rel=0.01)
    # What is asked of |D| before the size is known lets every extremum of that strength pass.
    for octave, layer in ((0, 1), (0, 3.9), (2, 2.5)):
        D = np.array([-0.02])
        strength = space.strength(D, octave, layer)
        assert space.smallest(strength.item(), octave) <= 0.02


@pytest.mark.parametrize("compiled", [compiled, None])
def test_levels_are_the_image_blurred_by_their_sigmas(camera, compiled):
    space = ScaleSpace(sigma=1.1)
    following = np.empty((256, 256), np.float32)
    every = slice(0, 512, 2)
    D, top = detect._differences(camera, space, 1 / 255, (128, 256), following, every, compiled)
    image = camera / 255.0
    levels = [
        gaussian_filter(image, np.sqrt(s**2 - CAMERA_BLUR**2), mode="mirror", truncate=6)
        for s in space.sigmas
    ]
    for i, difference in enumerate(D):
        expected = (levels[i + 1] - levels[i])[top : top + D.shape[1]]
        assert np.abs(difference - expected).max() < 2e-3
    assert np.abs(following[64:128] - levels[3][128:256:2, ::2]).max() < 2e-3


@pytest.mark.parametrize("shape", [(16, 16), (17, 40), (40, 5), (130, 33)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_compiled_blurs_are_those_of_opencv(shape, dtype):
    image = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    for sigma in (0.6, 1.3, 4.4):
        taps = gaussian(sigma).astype(np.float32)
        differences = np.empty((2, 5, shape[1]), np.float32)
        blurred = np.empty((2, shape[0] - 5, shape[1]), np.float32)
        for blur, out, D in zip(
            (compiled.blurred, detect._blurred), blurred, differences, strict=True
        ):
            blur(image, taps, 0.01, 2, out, D, 4)
        np.testing.assert_allclose(*blurred, atol=1e-5)
        np.testing.assert_allclose(*differences, rtol=1e-5, atol=1e-5)


def test_polynomials_go_through_their_samples_and_have_their_derivatives():
    for table, reach in ((IN_SPACE, 2), (IN_SCALE, 1)):
        nodes = np.arange(-reach, reach + 1)
        powers = nodes[:, None] ** np.arange(2 * reach + 1)
        np.testing.assert_allclose(powers @ table[0], np.eye(2 * reach + 1), atol=1e-12)
        coefficients = np.random.default_rng(0).normal(size=2 * reach + 1)
        polynomial = np.polynomial.Polynomial(coefficients)
        t = 0.3
        for order in range(3):
            weights = t ** np.arange(2 * reach + 1) @ table[order]
            wanted = polynomial.deriv(order)(t) if order else polynomial(t)
            assert weights @ polynomial(nodes) == pytest.approx(wanted)
    assert derivatives(2).shape == (3, 5, 5)
    assert gaussian(1.7).sum() == pytest.approx(1)


def same(first, second, frames=False):
    """Share of the first rows that have one of the second at 0.01 px, 1 % and 1 degree."""
    near = np.abs(first[:, None, :2] - second[:, :2]).max(2) < 0.01
    near &= np.abs(np.log(first[:, None, 2] / second[:, 2])) < 0.01
    if frames:
        near &= np.abs((first[:, None, 3] - second[:, 3] + 180) % 360 - 180) < 1
    return near.any(1).mean()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["camera", "brick", "rocket"])
def test_the_reference_and_the_compiled_path_find_the_same(photographs, monkeypatch, name):
    gray = photographs[name]
    for space in (ScaleSpace(contrast=0.01), ScaleSpace(1.1, 4, 0.03, 20.0)):
        fast = detect_frames(gray, space)
        with monkeypatch.context() as without:
            for module in (detect, orientation):
                without.setattr(module, "load_compiled_detector", lambda: None)
            slow = detect_frames(gray, space)
        assert len(fast.frames) > 100
        assert abs(len(fast.frames) - len(slow.frames)) <= 0.005 * len(slow.frames)
        assert same(fast.frames, slow.frames, frames=True) > 0.995
        assert same(slow.frames, fast.frames, frames=True) > 0.995


def test_keypoints_are_bit_identical_for_any_number_of_threads(photographs):
    gray = cv2.resize(photographs["brick"], (700, 600))
    threads = cv2.getNumThreads()
    try:
        results = []
        for count in (1, 2, 3, 5):
            cv2.setNumThreads(count)
            results.append(detect_frames(gray, ScaleSpace(contrast=0.01), count=1500))
            assert cv2.getNumThreads() == count
    finally:
        cv2.setNumThreads(threads)
    for result in results[1:]:
        np.testing.assert_array_equal(result.frames, results[0].frames)
        np.testing.assert_array_equal(result.responses, results[0].responses)


@pytest.mark.slow
def test_strips_leave_no_seam(camera, monkeypatch):
    whole = extrema(camera, ScaleSpace(contrast=0.01))
    monkeypatch.setattr(detect, "STRIP", 1 << 20)
    assert same(extrema(camera, ScaleSpace(contrast=0.01)), whole) > 0.999
    monkeypatch.setattr(detect, "STRIP", 16)
    striped = extrema(camera, ScaleSpace(contrast=0.01))
    assert same(whole, striped) > 0.999 and same(striped, whole) > 0.999
    monkeypatch.setattr(detect, "COLUMNS", 64)
    parts = extrema(camera, ScaleSpace(contrast=0.01))
    assert same(whole, parts) > 0.999 and same(parts, whole) > 0.999


def test_a_wide_image_needs_the_memory_of_its_area(camera):
    peaks = []
    for image in (np.tile(camera[:128], (16, 4)), np.tile(camera[:128], (1, 64))):
        tracemalloc.start()
        extrema(image, ScaleSpace(), 1000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0] < 20 * image.size


def test_the_gain_follows_the_deviation_and_not_the_type(camera):
    gain = gain_of(camera)
    assert gain * camera.std() == pytest.approx(0.23)
    assert gain_of(np.float32(camera) / 255) == pytest.approx(255 * gain, rel=1e-5)
    assert gain_of(np.full((20, 20), 7, np.uint8)) * 1e-4 * 7 == pytest.approx(0.23)
    assert gain_of(np.zeros((20, 20), np.float32)) == 0
    assert gain_of(np.zeros((0, 0), np.uint8)) == 0


@pytest.mark.slow
def test_hardly_an_extremum_is_given_twice(photographs):
    # Two candidates may lead to one; between cells and between octaves it can still count twice.
    for gray in photographs.values():
        found = extrema(gray, ScaleSpace(contrast=0.01))
        near = np.abs(found[:, None, :2] - found[:, :2]).max(2) < 0.05
        near &= np.abs(np.log2(found[:, None, 2] / found[:, 2])) < 0.05
        assert near.sum() - len(found) <= 0.005 * len(found)


def test_the_compiled_angles_are_those_of_the_reference():
    V = np.random.default_rng(0).normal(size=(2000, 7)).astype(np.float32)
    V[:, 0] += 4  # f is positive, as a sum of weights is
    V[::50] = 0  # no gradient: one angle, 0
    index, angle, share = compiled.angles(V, orientation.psi_of_angles(), orientation.SECOND)
    whose, expected, height = orientation.angles(V)
    assert np.array_equal(index, whose) and len(index) > len(V)
    assert np.abs((angle - expected + 180) % 360 - 180).max() < 0.05
    np.testing.assert_allclose(share, height, rtol=1e-5)
    assert (
        share.min() >= orientation.SECOND and (share[np.isin(index, range(0, 2000, 50))] == 1).all()
    )

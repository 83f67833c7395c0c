"""Synthetic views: what a view shows, where its keypoints lie, and the same descriptors twice."""

import copy
import pickle

import cv2
import numpy as np
import pytest

from kd_cv import KDDescriptor
from kd_cv.keypoints import views_of
from kd_cv.views import BLUR, VIEWS, affine_of, from_image, repeated, to_image, to_view, view_of


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    columns = rng.uniform(100, 400, (50, 2)), rng.uniform(2, 20, 50), rng.uniform(0, 360, 50)
    return np.column_stack(columns)


def by_hand(gray, view):
    """A view in float64: a Gaussian along the direction, sampled at each pixel of the view."""
    tilt, direction = VIEWS[11][view - 1]
    sigma, turn = BLUR * np.sqrt(tilt**2 - 1), np.deg2rad(direction)
    M = cv2.invertAffineTransform(from_image(gray.shape, view))
    shape = view_of(gray, view).image.shape
    v, u = np.mgrid[: shape[0], : shape[1]]
    x, y = (M[i, 0] * u + M[i, 1] * v + M[i, 2] for i in range(2))
    steps = np.arange(-int(3 * sigma), int(3 * sigma) + 1)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    total = np.zeros(shape)
    for step, weight in zip(steps, weights / weights.sum(), strict=True):
        at = (
            (x + step * np.cos(turn)).astype(np.float32),
            (y + step * np.sin(turn)).astype(np.float32),
        )
        moved = cv2.remap(
            gray.astype(np.float32), *at, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
        )
        total += weight * moved
    inside = (x > 20) & (y > 20) & (x < gray.shape[1] - 21) & (y < gray.shape[0] - 21)
    return total, inside


@pytest.mark.parametrize("view", range(1, 11))
def test_a_view_is_the_image_blurred_and_sampled_along_its_direction(camera, view):
    smooth = cv2.GaussianBlur(camera, (0, 0), 2.0)  # so that interpolation hardly matters
    expected, inside = by_hand(smooth, view)
    difference = np.abs(view_of(smooth, view).image - expected)[inside]
    assert difference.mean() < 0.6 and difference.max() < 8 and inside.mean() > 0.3


@pytest.mark.parametrize("view", range(1, 11))
def test_frames_go_to_a_view_and_back(camera, frames, view):
    seen = view_of(camera, view)
    back = to_image(to_view(frames, camera.shape, view), seen)
    np.testing.assert_allclose(back, frames, atol=1e-9)
    A = affine_of(frames, np.full(len(frames), view))
    np.testing.assert_allclose(np.linalg.det(A), (frames[:, 2] / 2) ** 2)  # never mirrored
    singular = np.linalg.svd(A, compute_uv=False)
    np.testing.assert_allclose(singular[:, 0] / singular[:, 1], VIEWS[11][view - 1][0])


def test_outside_the_image_nothing_is_detected(camera):
    for views in (5, 11):
        points = np.array([k.pt for k in KDDescriptor(3000, views=views).detect(camera)])
        assert points.min() >= 0 and points.max() <= 511


@pytest.mark.parametrize("views, upright", [(3, False), (5, True), (11, False)])
def test_detect_then_compute_equals_detect_and_compute(camera, views, upright):
    kd = KDDescriptor(500, views=views, upright=upright)
    keypoints, descriptors = kd.detectAndCompute(camera, None)
    again, computed = kd.compute(camera, kd.detect(camera))
    assert [k.pt for k in again] == [k.pt for k in keypoints]
    assert np.array_equal(computed, descriptors)
    assert set(views_of(keypoints)) == set(range(views))
    assert 400 < len(keypoints) <= 500


def test_what_several_views_repeat_is_merged(frames):
    twice = np.concatenate([frames, frames + [1.0, 0.5, 0.1, 5.0], frames + [3.0, 0, 0, 0]])
    views = np.repeat([0, 1, 2], len(frames))
    found = repeated(twice, views)
    assert found.tolist() == [False] * 50 + [True] * 50 + [False] * 50
    assert not repeated(twice, views * 0).any()  # one view repeats nothing


def test_the_octave_means_nothing_without_views(camera):
    keypoints = KDDescriptor(200, views=3).detect(camera)
    plain = [
        cv2.KeyPoint(*k.pt, k.size, k.angle, k.response, k.octave & 0xFFFFFF) for k in keypoints
    ]
    kd = KDDescriptor()
    assert np.array_equal(kd.compute(camera, keypoints)[1], kd.compute(camera, plain)[1])


def test_octaves_of_others_are_no_views(camera):
    found = [cv2.KeyPoint(10, 10, 5, 0, 1, octave) for octave in (-1, 0, 3, 255 | 1 << 8, -(2**31))]
    found += cv2.SIFT_create(50).detect(camera) + cv2.ORB_create(50).detect(camera)
    assert not views_of(found).any()


def test_any_number_of_threads_gives_the_same_bits(camera):
    kd, before = KDDescriptor(600, views=5), cv2.getNumThreads()
    found = []
    for count in (1, 2, 5):
        cv2.setNumThreads(count)
        found.append(kd.detectAndCompute(camera, None)[1])
    cv2.setNumThreads(before)
    assert all(np.array_equal(found[0], other) for other in found)


def test_views_see_a_plane_from_the_side(camera):
    """An image compressed 2.5 times: more right matches with views."""
    M = np.float64([[0.4, 0, 0], [0, 1, 0]])
    narrow = cv2.warpAffine(cv2.GaussianBlur(camera, (9, 1), 1.5), M, (205, 512))
    right = []
    for views in (1, 3):
        kd = KDDescriptor(1000, views=views)
        (k0, d0), (k1, d1) = (kd.detectAndCompute(image, None) for image in (camera, narrow))
        matches = cv2.BFMatcher(cv2.NORM_L2, crossCheck=True).match(d0, d1)
        moved = np.array([M[:, :2] @ k0[m.queryIdx].pt for m in matches])
        there = np.array([k1[m.trainIdx].pt for m in matches])
        right.append((np.linalg.norm(moved - there, axis=1) < 3).sum())
    assert right[1] > 2 * right[0]


def test_views_are_a_setting(tmp_path):
    kd = KDDescriptor(views=5)
    kd.write(tmp_path / "kd.yml")
    stored = KDDescriptor()
    stored.read(tmp_path / "kd.yml")
    for other in (copy.deepcopy(kd), pickle.loads(pickle.dumps(kd)), stored):
        assert repr(other) == "KDDescriptor(views=5)"
    assert kd.settings.fingerprint != KDDescriptor().settings.fingerprint
    with pytest.raises(ValueError, match=r"views must be one of \[1, 3, 5, 11\], got 2"):
        KDDescriptor(views=2)

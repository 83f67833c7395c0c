"""The compiled search against NumPy and brute force; the ratio to another place."""

import tracemalloc

import cv2
import numpy as np
import pytest

from kd_cv.matching import neighbours
from kd_cv.matching.neighbours import SAME_PLACE, match_descriptors, nearest, nearest_numpy


def descriptors(count, dim=128, seed=0, kind=np.float32):
    rng = np.random.default_rng(seed)
    if kind == np.uint8:
        return rng.integers(0, 256, (count, dim), np.uint8)
    return rng.normal(size=(count, dim)).astype(np.float32)


@pytest.mark.parametrize(("n0", "n1"), [(1, 1), (5, 3), (6, 16), (7, 256), (400, 257), (1000, 900)])
@pytest.mark.parametrize("dim", [7, 32, 128])
def test_the_compiled_search_finds_what_numpy_finds(n0, n1, dim):
    a, b = descriptors(n0, dim), descriptors(n1, dim, 1)
    columns, back = nearest(a, b)
    expected, expected_back = nearest_numpy(a, b)
    np.testing.assert_array_equal(np.sort(columns, axis=1), np.sort(expected, axis=1))
    np.testing.assert_array_equal(back, expected_back)


@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_results_are_the_same_for_any_number_of_threads_and_without_numba(kind, monkeypatch):
    d0, d1 = descriptors(1500, kind=kind), descriptors(1300, kind=kind, seed=1)
    before, results = cv2.getNumThreads(), []
    try:
        for threads in (1, 2, 5):
            cv2.setNumThreads(threads)
            results.append(match_descriptors(d0, d1))
    finally:
        cv2.setNumThreads(before)
    for matches, ratios in results[1:]:
        np.testing.assert_array_equal(matches, results[0][0])
        np.testing.assert_array_equal(ratios, results[0][1])
    monkeypatch.setattr(neighbours, "_compiled", lambda: None)
    matches, ratios = match_descriptors(d0, d1)
    np.testing.assert_array_equal(matches, results[0][0])
    np.testing.assert_allclose(ratios, results[0][1], rtol=1e-5)


def test_bytes_are_compared_exactly():
    d0, d1 = descriptors(300, kind=np.uint8), descriptors(280, kind=np.uint8, seed=1)
    d1[50:60] = d0[:10]
    d1[50:60, 0] ^= 1  # at distance 1
    squares = ((d0[:, None].astype(np.int64) - d1[None].astype(np.int64)) ** 2).sum(axis=2)
    matches, ratios = match_descriptors(d0, d1, mutual=False)
    np.testing.assert_array_equal(matches[:, 1], squares.argmin(axis=1))
    two = np.sort(squares, axis=1)[:, :2]
    np.testing.assert_allclose(ratios, np.sqrt(two[:, 0] / two[:, 1]), rtol=1e-6)


def test_near_copies_are_told_apart_although_the_product_cannot():
    rng = np.random.default_rng(0)
    d1 = descriptors(50)
    d1 /= np.linalg.norm(d1, axis=1, keepdims=True)
    offset = rng.normal(0, 1, d1.shape).astype(np.float32)
    near, far = d1 + 1e-5 * offset, d1 + 2e-5 * offset
    candidates = np.concatenate([far, near])
    matches, ratios = match_descriptors(d1, candidates, mutual=False)
    np.testing.assert_array_equal(matches[:, 1], np.arange(50) + 50)
    np.testing.assert_allclose(ratios, 0.5, atol=0.02)


def test_memory_does_not_grow_with_the_product():
    d0, d1 = descriptors(6000, 32), descriptors(6000, 32, 1)
    match_descriptors(d0[:100], d1[:100])
    tracemalloc.start()
    match_descriptors(d0, d1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6000 * 6000 * 4 / 4


# Places -------------------------------------------------------------------------------------------


def several(count=40, each=3, noise=0.05):
    """Places with `each` keypoints, a little different in both images; a keypoint has its own."""
    rng = np.random.default_rng(0)
    points = np.repeat(rng.uniform(0, 2000, (count, 2)), each, axis=0)
    d = rng.normal(size=(count, 64)).repeat(each, axis=0)
    d0, d1 = (d + noise * rng.normal(size=d.shape) for _ in range(2))
    return points, d0.astype(np.float32), d1.astype(np.float32)


@pytest.mark.parametrize("each", [1, 2, neighbours.KEPT, 2 * neighbours.KEPT])
def test_keypoints_at_one_place_do_not_spoil_the_ratio(each):
    # With more keypoints at a place than neighbours are kept, the second is searched again.
    points, d0, d1 = several(each=each)
    matches, ratios = match_descriptors(d0, d1, ratio=0.5, points0=points, points1=points)
    place = matches // each
    np.testing.assert_array_equal(place[:, 0], place[:, 1])
    assert sorted(place[:, 0]) == list(range(40))  # one match for a pair of places
    if each > 1:
        assert len(match_descriptors(d0, d1, ratio=0.5)[0]) == 0
    distances = np.linalg.norm(d0[matches[:, 0]][:, None].astype(float) - d1[None], axis=2)
    best = distances.min(axis=1)
    elsewhere = np.linalg.norm(points[matches[:, 1]][:, None] - points[None], axis=2) > SAME_PLACE
    second = np.where(elsewhere, distances, np.inf).min(axis=1)
    np.testing.assert_allclose(ratios, best / second, rtol=1e-5)


def test_points_far_apart_change_nothing():
    d0, d1 = descriptors(300), descriptors(250, seed=1)
    points = [np.column_stack([np.arange(n) * 100.0, np.zeros(n)]) for n in (300, 250)]
    plain = match_descriptors(d0, d1)
    placed = match_descriptors(d0, d1, points0=points[0], points1=points[1])
    np.testing.assert_array_equal(plain[0], placed[0])
    np.testing.assert_array_equal(plain[1], placed[1])


def test_all_at_one_place_have_no_second_neighbour():
    d0, d1 = descriptors(10, 8), descriptors(20, 8, 1)
    _, ratios = match_descriptors(d0, d1, points0=np.zeros((10, 2)), points1=np.zeros((20, 2)))
    assert ratios.tolist() == [0.0]


def test_points_must_fit_the_descriptors():
    d = np.ones((3, 8))
    with pytest.raises(ValueError, match=r"points must be \(3, 2\), one for each descriptor"):
        match_descriptors(d, d, points0=np.zeros((2, 2)), points1=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="must be given together"):
        match_descriptors(d, d, points0=np.zeros((3, 2)))

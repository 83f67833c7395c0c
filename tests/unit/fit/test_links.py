"""Point maps, correspondences and projections: which frames show the same point."""

import cv2
import numpy as np
import pytest

from kd_cv.fit import warps
from kd_cv.fit.scenes import NO_POINT
from kd_cv.fit.warps import candidate_pairs, homography_map, link_to_first, transfer_frames

H_TILTED = np.array([[1.1, 0.2, 5.0], [-0.15, 0.95, -3.0], [2e-4, -1e-4, 1.0]])


def random_frames(rng, n, side=400.0):
    return np.column_stack(
        [rng.uniform(0, side, (n, 2)), rng.uniform(3, 20, n), rng.uniform(0, 360, n)]
    )


def test_homography_map_against_opencv_and_differences():
    xy = np.random.default_rng(0).uniform(0, 400, (50, 2))
    mapped, J = homography_map(H_TILTED)(xy)
    np.testing.assert_allclose(mapped, cv2.perspectiveTransform(xy[:, None], H_TILTED)[:, 0])
    for axis, step in enumerate(1e-4 * np.eye(2)):
        ahead, behind = (homography_map(H_TILTED)(xy + s * step)[0] for s in (1, -1))
        np.testing.assert_allclose(J[:, :, axis], (ahead - behind) / 2e-4, atol=1e-6)


def test_homography_map_ignores_the_sign_of_H_and_hides_what_is_behind():
    H = np.eye(3)
    H[2, 0] = -0.01  # the horizon is x = 100
    xy = np.array([[50.0, 10.0], [100.0, 10.0], [150.0, 10.0]])
    for sign in (1, -1):
        mapped, _ = homography_map(sign * H)(xy)
        np.testing.assert_allclose(mapped[0], [100, 20])
        assert np.isnan(mapped[1:]).all()


def test_transfer_by_a_similarity_is_exact():
    turn, zoom = np.radians(30), 2.5
    H = np.eye(3)
    H[:2] = zoom * np.array([[np.cos(turn), -np.sin(turn), 4], [np.sin(turn), np.cos(turn), -6]])
    frames = random_frames(np.random.default_rng(0), 20)
    moved = transfer_frames(frames, homography_map(H))
    np.testing.assert_allclose(moved[:, 2], zoom * frames[:, 2])
    off = (moved[:, 3] - frames[:, 3] - 30 + 180) % 360 - 180
    np.testing.assert_allclose(off, 0, atol=1e-9)
    assert (moved[:, 3] >= 0).all() and (moved[:, 3] < 360).all()


def test_transfer_leaves_out_mirrors_and_squeezes():
    frames = random_frames(np.random.default_rng(0), 3)
    assert np.isnan(transfer_frames(frames, homography_map(np.diag([-1.0, 1, 1])))).all()
    for squeeze, seen in ((1.9, True), (2.1, False)):
        moved = transfer_frames(frames, homography_map(np.diag([squeeze, 1, 1])), 2.0)
        assert np.isfinite(moved).all() == seen
        assert np.isfinite(moved).any() == seen


@pytest.mark.parametrize(
    ("change", "agrees"),
    [
        ((2.4, 0, 1, 0), True),
        ((2.6, 0, 1, 0), False),
        ((0, -2.4, 1, 0), True),
        ((0, 0, 1.45, 0), True),
        ((0, 0, 1.55, 0), False),
        ((0, 0, 1 / 1.55, 0), False),
        ((0, 0, 1, 29), True),
        ((0, 0, 1, 31), False),
        ((0, 0, 1, -29), True),
        ((0, 0, 1, -31), False),
    ],
)
def test_candidates_hand_placed(change, agrees):
    predicted = np.array([[np.nan] * 4, [50.0, 50, 10, 10]])
    x, y, size, angle = change
    found = np.array([[90.0, 90, 10, 10], [50 + x, 50 + y, 10 * size, (10 + angle) % 360]])
    pairs, cost = candidate_pairs(predicted, found)
    assert pairs.tolist() == ([[1, 1]] if agrees else [])
    assert len(cost) == len(pairs) and (cost <= 3).all()


def test_candidates_of_large_keypoints_may_lie_further(monkeypatch):
    predicted, found = np.array([[50.0, 50, 100, 10]]), np.array([[60.0, 50, 100, 10]])
    assert len(candidate_pairs(predicted, found)[0]) == 1
    monkeypatch.setattr(warps, "MAX_RELATIVE_DISTANCE", 0.05)
    assert len(candidate_pairs(predicted, found)[0]) == 0
    assert candidate_pairs(predicted, np.empty((0, 4)))[0].shape == (0, 2)


def test_links_to_the_first_image_against_the_truth():
    """A true keypoint is linked with itself, though others lie beside it and one is turned."""
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(10), np.arange(10)), -1).reshape(-1, 2) * 30.0 + 20
    first = random_frames(rng, 100)
    first[:, :2] = grid
    second = transfer_frames(first, homography_map(H_TILTED))
    second[:, :2] += rng.uniform(-0.7, 0.7, (100, 2))
    second[:10, 3] += 90
    beside = second[20:40] + [1.5, 0, 0, 0]
    order = rng.permutation(120)
    ids = link_to_first([first, np.concatenate([second, beside])[order]], [np.eye(3), H_TILTED])
    truth = np.concatenate([np.arange(100), np.full(20, NO_POINT)])[order]
    truth[(truth >= 0) & (truth < 10)] = NO_POINT
    known = truth >= 40  # without a rival
    np.testing.assert_array_equal(ids[1][known], truth[known])
    assert (ids[1][np.isin(order, np.arange(10))] == NO_POINT).all()
    linked = ids[1][ids[1] != NO_POINT]
    assert len(linked) == len(np.unique(linked)) == 90
    assert sorted(linked) == sorted(ids[0][ids[0] != NO_POINT])
    empty = link_to_first([first[:0], first[:0]], [np.eye(3)] * 2)
    assert [len(view) for view in empty] == [0, 0]

"""Point maps, correspondences and projections: which frames show the same point."""

import itertools

import cv2
import numpy as np
import pytest

from kd_cv.fit import links
from kd_cv.fit.links import candidate_pairs, homography_map, link_detected, transfer_frames
from kd_cv.fit.scenes import NO_POINT

H_TILTED = np.array([[1.1, 0.2, 5.0], [-0.15, 0.95, -3.0], [2e-4, -1e-4, 1.0]])


def homography_maps(H_1tok):
    return lambda i, j: homography_map(H_1tok[j] @ np.linalg.inv(H_1tok[i]))


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
    monkeypatch.setattr(links, "MAX_RELATIVE_DISTANCE", 0.05)
    assert len(candidate_pairs(predicted, found)[0]) == 0
    assert candidate_pairs(predicted, np.empty((0, 4)))[0].shape == (0, 2)


def noisy_views(rng, n_points=150, n_distractors=100):
    """Frames of four views of a plane: true points, in random order among distractors."""
    turn = np.vstack([cv2.getRotationMatrix2D((200, 150), 70, 0.8), [0, 0, 1]])
    H_1tok = [np.eye(3), H_TILTED, turn, np.linalg.inv(H_TILTED) @ turn]
    grid = np.stack(np.meshgrid(np.arange(15), np.arange(10)), -1).reshape(-1, 2) * 30.0 + 20
    points = random_frames(rng, n_points)
    points[:, :2] = grid[:n_points]
    frames, truth = [], []
    for H in H_1tok:
        seen = transfer_frames(points, homography_map(H))
        seen[:, :2] += rng.uniform(-0.7, 0.7, (n_points, 2))
        seen[:, 2] *= 1.1 ** rng.uniform(-1, 1, n_points)
        seen[:, 3] = (seen[:, 3] + rng.uniform(-8, 8, n_points)) % 360
        # Half of them turned by 90 degrees: at the right place, and yet another point.
        wrong = seen[rng.permutation(n_points)[:n_distractors]]
        wrong[::2, 3] = (wrong[::2, 3] + 90) % 360
        wrong[1::2, :2] += 12
        order = rng.permutation(n_points + n_distractors)
        frames.append(np.concatenate([seen, wrong])[order])
        truth.append(np.concatenate([np.arange(n_points), np.full(n_distractors, -1)])[order])
    return H_1tok, frames, truth


def test_links_against_the_truth():
    H_1tok, frames, truth = noisy_views(np.random.default_rng(0))
    ids = link_detected(frames, homography_maps(H_1tok), itertools.combinations(range(4), 2))
    for view_ids in ids:
        known = view_ids[view_ids != NO_POINT]
        assert len(known) == len(np.unique(known))
    for i, j in itertools.combinations(range(4), 2):
        _, a, b = np.intersect1d(
            np.where(ids[i] == NO_POINT, -2, ids[i]), ids[j], return_indices=True
        )
        true = truth[i][a] >= 0
        # A true point is only ever linked with itself, and nearly all of them are.
        np.testing.assert_array_equal(truth[i][a][true], truth[j][b][true])
        assert (truth[j][b][~true] == -1).all()
        assert true.sum() >= 0.9 * 150


def test_a_chain_that_contradicts_the_map_is_not_closed():
    """a ~ b and b ~ c by 2 pixels each, but a and c are 4 apart: one of the links must go."""
    frames = [np.array([[50.0 + shift, 50, 8, 0]]) for shift in (0, 2, 4)]
    identity = homography_maps([np.eye(3)] * 3)
    ids = np.concatenate(link_detected(frames, identity, itertools.combinations(range(3), 2)))
    assert sorted(ids.tolist()) == [NO_POINT, 0, 0]
    # Without a prediction from a to c there is nothing to contradict.
    ids = np.concatenate(link_detected(frames, identity, [(0, 1), (1, 2)]))
    assert ids.tolist() == [0, 0, 0]


def test_links_of_nothing():
    ids = link_detected([np.empty((0, 4))] * 2, homography_maps([np.eye(3)] * 2), [(0, 1)])
    assert [len(n) for n in ids] == [0, 0]

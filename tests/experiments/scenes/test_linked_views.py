"""Keypoints of many views linked by point maps."""

import itertools

import cv2
import numpy as np
from of_builders import random_frames

from experiments.scenes.links import link_detected
from kd_cv.fit.scenes import NO_POINT
from kd_cv.fit.warps import homography_map, transfer_frames

H_TILTED = np.array([[1.1, 0.2, 5.0], [-0.15, 0.95, -3.0], [2e-4, -1e-4, 1.0]])


def homography_maps(H_1tok):
    return lambda i, j: homography_map(H_1tok[j] @ np.linalg.inv(H_1tok[i]))


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

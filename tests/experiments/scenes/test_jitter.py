"""Keypoints carried from one view into others, and jitter."""

import numpy as np
import pytest
from of_builders import angle_between, random_frames

from experiments.scenes.jitter import (
    JITTER,
    REGION,
    Jitter,
    circle_overlap,
    jittered,
    project_frames,
)
from kd_cv.fit.warps import homography_map, transfer_frames

EXACT = Jitter(0.0, 0.0, 0.0)
H_TILTED = np.array([[1.1, 0.2, 5.0], [-0.15, 0.95, -3.0], [2e-4, -1e-4, 1.0]])


def test_projection_is_exact_and_within_the_images():
    rng = np.random.default_rng(0)
    frames = random_frames(rng, 400)
    H_1tok = [np.eye(3), H_TILTED, np.diag([0.5, 0.5, 1])]
    maps = [homography_map(H) for H in H_1tok[1:]]
    shapes = [(400, 400), (300, 350), (400, 400)]
    for everywhere in (False, True):
        out, ids = project_frames(frames, shapes, maps, rng, EXACT, everywhere=everywhere)
        for j in (1, 2):
            _, a, b = np.intersect1d(ids[0], ids[j], return_indices=True)
            assert len(b) == len(ids[j]) > 10
            expected = transfer_frames(out[0][a], homography_map(H_1tok[j]))
            np.testing.assert_allclose(out[j][b], expected)
        for view, (height, width) in zip(out, shapes, strict=True):
            half = 2.5 * view[:, 2:3]
            assert (view[:, :2] >= half).all()
            assert (view[:, :2] <= np.array([width, height]) - 1 - half).all()
        assert (len(ids[1]) == len(ids[2]) == len(ids[0])) == everywhere


@pytest.mark.parametrize(("level", "median"), [("easy", 0.85), ("hard", 0.72)])
def test_jitter_has_the_overlap_that_hpatches_states(level, median):
    rng = np.random.default_rng(0)
    frames = random_frames(rng, 4000)
    shaken = jittered(frames, JITTER[level], rng)
    d = np.linalg.norm(shaken[:, :2] - frames[:, :2], axis=1)
    half = REGION / 2
    overlap = circle_overlap(half * frames[:, 2], half * shaken[:, 2], d)
    assert abs(np.median(overlap) - median) < 0.01
    turned = angle_between(shaken[:, 3], frames[:, 3])
    assert 0.95 * JITTER[level].angle < turned.max() <= JITTER[level].angle


def test_jitter_is_drawn_afresh_for_each_view():
    rng = np.random.default_rng(0)
    maps = [homography_map(np.eye(3))] * 2
    frames, shapes = random_frames(rng, 100), [(400, 400)] * 3
    out, ids = project_frames(frames, shapes, maps, rng, JITTER["hard"])
    _, a, b = np.intersect1d(ids[1], ids[2], return_indices=True)
    assert len(a) > 20 and (out[1][a] != out[2][b]).all()


def test_circle_overlap_by_counting_pixels():
    y, x = np.mgrid[-200:200, -200:400]
    for r, R, d in [(50, 80, 60), (50, 80, 10), (50, 80, 131), (80, 80, 0), (80, 50, 40)]:
        a, b = np.hypot(x, y) <= r, np.hypot(x - d, y) <= R
        expected = (a & b).sum() / (a | b).sum()
        assert circle_overlap(*np.array([[r], [R], [d]], float))[0] == pytest.approx(
            expected, abs=0.005
        )

"""Scenes of sequences and of single photographs."""

import itertools

import cv2
import numpy as np
import pytest
from of_builders import angle_between

from experiments.protocols.readers import photo_scene
from experiments.scenes.builders import exact_scene, hpatches_scene
from experiments.scenes.detectors import detect_frames
from experiments.scenes.sequences import read_sequence
from kd_cv.fit.warps import (
    homography_map,
    transfer_frames,
)
from kd_cv.io.images import read_gray


@pytest.fixture(scope="module")
def sequence(tmp_path_factory, photo):
    """Three images of a part of the photograph with their homographies, on disk."""
    photo = photo[60:380, 80:400]
    folder = tmp_path_factory.mktemp("v_camera")
    turn = cv2.getRotationMatrix2D((160, 160), 20, 0.8)
    H_1tok = [
        np.eye(3),
        np.vstack([turn, [0, 0, 1]]),
        np.array([[1, 0.1, 0], [0, 1, 9], [1e-4, 0, 1]]),
    ]
    for k, H in enumerate(H_1tok, start=1):
        cv2.imwrite(str(folder / f"{k}.png"), cv2.warpPerspective(photo, H, (320, 320)))
        if k > 1:
            np.savetxt(folder / f"H_1_{k}", H)
    return folder, H_1tok


def test_hpatches_detected(sequence):
    folder, H_1tok = sequence
    scene = hpatches_scene(folder)
    assert scene.name == folder.name and len(scene.views) == 3
    for i, j in itertools.combinations(range(3), 2):
        pairs = scene.pairs(i, j)
        assert len(pairs) > 100
        a, b = scene.views[i].frames[pairs[:, 0]], scene.views[j].frames[pairs[:, 1]]
        expected = transfer_frames(a, homography_map(H_1tok[j] @ np.linalg.inv(H_1tok[i])))
        d = np.linalg.norm(expected[:, :2] - b[:, :2], axis=1)
        assert (d <= np.maximum(2.5, 0.15 * expected[:, 2]) + 1e-9).all()
        assert np.median(d) < 0.7
        assert (np.abs(np.log(expected[:, 2] / b[:, 2])) <= np.log(1.5)).all()
        assert (angle_between(expected[:, 3], b[:, 3]) <= 30).all()
    detected = detect_frames(read_gray(folder / "2.png"), ("dog",))
    assert {tuple(f) for f in scene.views[1].frames} <= {tuple(f) for f in detected}


@pytest.mark.slow
def test_hpatches_projected(sequence):
    folder, H_1tok = sequence
    off = {}
    for level in ("easy", "hard", "tough"):
        scene = exact_scene(read_sequence(folder), level, seed=3)
        rows = scene.pairs(0, 2)
        a, b = scene.views[0].frames[rows[:, 0]], scene.views[2].frames[rows[:, 1]]
        expected = transfer_frames(a, homography_map(H_1tok[2]))
        off[level] = np.median(np.linalg.norm(expected[:, :2] - b[:, :2], axis=1) / b[:, 2])
    assert 0.1 < off["easy"] < off["hard"] < off["tough"] < 1


def test_scenes_repeat_with_their_seed(sequence):
    folder, _ = sequence
    a, b, c = (
        exact_scene(read_sequence(folder), "hard", max_frames=300, seed=seed) for seed in (5, 5, 6)
    )
    for x, y in zip(a.views, b.views, strict=True):
        np.testing.assert_array_equal(x.frames, y.frames)
        np.testing.assert_array_equal(x.point_ids, y.point_ids)
    assert not np.array_equal(a.views[1].frames, c.views[1].frames)


def cut(image, frame, P=24):
    x, y, size, angle = frame
    k, a, c = 6 * size / P, np.radians(angle), (P - 1) / 2
    M = k * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    M = np.column_stack([M, [x, y] - M @ [c, c]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    patch = cv2.warpAffine(cv2.GaussianBlur(image, (0, 0), 1.5), M, (P, P), flags=flags)
    patch = patch.astype(float) - patch.mean()
    return patch / (np.linalg.norm(patch) + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("jitter", [None, "easy"])
def test_pairs_of_warps_look_alike(photo, jitter):
    scene = photo_scene("camera", photo, 3, 0, jitter, 400)
    assert len(scene.views) == 3 and scene.views[0].load() is photo
    pairs = scene.pairs(0, 1)
    assert len(pairs) > 60
    a, b = (
        np.stack([cut(view.load(), frame).ravel() for frame in view.frames[rows]])
        for view, rows in zip(scene.views, pairs.T, strict=False)
    )
    same, other = (a * b).sum(axis=1), (a * np.roll(b, len(b) // 2, axis=0)).sum(axis=1)
    assert np.median(same) > 0.78
    assert np.median(other) < 0.6

"""Scenes and their descriptors."""

import cv2
import numpy as np
import pytest

from kd_cv.fit.scenes import Scene, View

RNG = np.random.default_rng(0)


def textured(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def write(path, image):
    assert cv2.imwrite(str(path), image)


@pytest.fixture
def scene(tmp_path):
    (tmp_path / "images").mkdir()
    image = textured(20, 30)
    write(tmp_path / "images" / "one two.png", image)
    frames = RNG.random((4, 4))
    return Scene(
        "türme",
        (
            View(tmp_path / "images" / "one two.png", frames, np.array([3, 1, 2, 0])),
            View(textured(10, 12), frames[:2] + 1, np.array([2, 3])),
            View(tmp_path / "images" / "one two.png", np.empty((0, 4)), np.empty(0, np.int64)),
        ),
    )


def test_scene_pairs(scene):
    assert scene.pairs(0, 1).tolist() == [[2, 0], [0, 1]]
    assert scene.all_pairs().tolist() == [[2, 4], [0, 5]]

"""Cameras and surfaces that cannot be, and photographs that are not those that were seen."""

import cv2
import numpy as np
import pytest

from kd_cv.fit import builders
from experiments.scenes.surface import Camera, SurfaceMap


def seen_from_behind(shape):
    """A camera at the origin that looks along z, and is said to see a point behind it."""
    behind = np.array([[0.0, 0.0, -1.0]])
    return Camera(shape, lambda x: x, lambda x: x, np.eye(3), np.zeros(3), behind, np.zeros(1, int))


def test_a_point_behind_its_camera():
    with pytest.raises(ValueError, match="a point lies behind a camera"):
        SurfaceMap([seen_from_behind((10, 10))])


def test_a_photograph_that_changed_after_its_reconstruction(tmp_path, monkeypatch):
    for name in "abc":
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.zeros((40, 30), np.uint8))
    camera = seen_from_behind((20, 30))
    monkeypatch.setattr(builders, "reconstruct", lambda *arguments: None)
    monkeypatch.setattr(
        builders, "registered_views", lambda model, folder: ([camera], [folder / "a.png"])
    )
    with pytest.raises(ValueError, match=r"is \(40, 30\), the reconstruction saw \(20, 30\)"):
        builders.sfm_scene(tmp_path, tmp_path / "work")

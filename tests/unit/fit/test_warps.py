"""Random warps of one photograph, and the scene that they make."""

import numpy as np
import pytest

from kd_cv.fit.warps import homography_map, random_homography, warp_scene


def test_a_scene_repeats_with_its_seed(camera):
    a, b, c = (warp_scene(camera, 2, seed=seed, max_keypoints=100) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.views[1].load(), b.views[1].load())
    np.testing.assert_array_equal(a.views[1].frames, b.views[1].frames)
    assert not np.array_equal(a.views[1].load(), c.views[1].load())


def test_illumination_differs_between_the_views(camera):
    scene = warp_scene(camera, 6, seed=0, max_keypoints=50)
    means = [view.load().mean() for view in scene.views]
    assert np.ptp(means) > 20


def test_what_cannot_be_warped(camera):
    with pytest.raises(ValueError, match="n_views"):
        warp_scene(camera, 1)
    with pytest.raises(ValueError, match="gray uint8"):
        warp_scene(camera.astype(np.float32))


def test_random_homographies_keep_the_image_in_front():
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0], [639, 0], [0, 479], [639, 479]])
    for _ in range(200):
        mapped, J = homography_map(random_homography((480, 640), rng))(corners)
        assert np.isfinite(mapped).all()
        assert (np.linalg.det(J) > 0).all()

"""Scenes by structure from motion, and the surface that it gives."""

import cv2
import numpy as np
import pytest
from of_builders import turned
from skimage import data

from experiments.scenes import surface as surfaces
from experiments.scenes.builders import sfm_scene
from experiments.scenes.links import predict_frames
from experiments.scenes.surface import Camera, SurfaceMap, pixels_from_rays, rays_from_pixels
from kd_cv.fit.warps import (
    homography_map,
    transfer_frames,
)

FOCAL, CENTRE = 500.0, np.array([320.0, 240.0])


def pinhole(R, t, points, ids):
    return Camera(
        (480, 640),
        lambda xy: (xy - CENTRE) / FOCAL,
        lambda rays: rays * FOCAL + CENTRE,
        R,
        t,
        points[ids],
        ids,
    )


def pixels(camera, points):
    local = points @ camera.R.T + camera.t
    return camera.pixels_from_rays(local[:, :2] / local[:, 2:])


@pytest.fixture
def slanted_plane():
    """800 points of the plane z = 5 + 0.5 x + 0.2 y and two cameras that see them all."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, (800, 3)) * [1.2, 1, 0]
    points[:, 2] = 5 + 0.5 * points[:, 0] + 0.2 * points[:, 1]
    ids = np.arange(800)
    R = turned(12)
    return [
        pinhole(np.eye(3), np.zeros(3), points, ids),
        pinhole(R, np.array([-1.0, 0.1, 0.3]), points, ids),
    ], points


def test_surface_map_of_a_plane_is_its_homography(slanted_plane):
    cameras, points = slanted_plane
    # n . X = 1 on the plane, so x_2 ~ K (R + t n^T) K^-1 x_1.
    n = np.array([-0.5, -0.2, 1]) / 5
    np.testing.assert_allclose(points @ n, 1)
    K = np.array([[FOCAL, 0, CENTRE[0]], [0, FOCAL, CENTRE[1]], [0, 0, 1]])
    H_0to1 = K @ (cameras[1].R + np.outer(cameras[1].t, n)) @ np.linalg.inv(K)
    xy = np.random.default_rng(1).uniform([200, 150], [440, 330], (100, 2))
    surface = SurfaceMap(cameras)
    mapped, J = surface.point_map(0, 1)(xy)
    expected, expected_J = homography_map(H_0to1)(xy)
    np.testing.assert_allclose(mapped, expected, atol=1e-4)
    np.testing.assert_allclose(J, expected_J, atol=1e-3)
    returned, _ = surface.point_map(1, 0)(mapped)
    np.testing.assert_allclose(returned, xy, atol=1e-3)


def test_surface_map_forgives_single_outliers_and_knows_its_error(slanted_plane):
    cameras, points = slanted_plane
    xy = np.random.default_rng(1).uniform([200, 150], [440, 330], (100, 2))
    exact, _ = SurfaceMap(cameras).point_map(0, 1)(xy)
    rng = np.random.default_rng(2)
    some = points.copy()
    some[rng.permutation(800)[:40]] *= 1.2  # one in twenty at a wrong depth
    mapped, _ = SurfaceMap([c._replace(points=some) for c in cameras]).point_map(0, 1)(xy)
    seen = np.isfinite(mapped[:, 0])
    assert seen.mean() > 0.9
    assert np.linalg.norm(mapped - exact, axis=1)[seen].max() < 1
    rough = points * rng.uniform(0.85, 1.15, (800, 1))  # no surface at all
    mapped, _ = SurfaceMap([c._replace(points=rough) for c in cameras]).point_map(0, 1)(xy)
    assert np.isnan(mapped).all()


def test_surface_map_needs_neighbours_near_and_seen_in_both(slanted_plane, monkeypatch):
    cameras, points = slanted_plane
    xy = pixels(cameras[0], points[:50])
    blind = cameras[1]._replace(points=points[:0], point3d_ids=np.arange(0))
    assert np.isnan(SurfaceMap([cameras[0], blind]).point_map(0, 1)(xy)[0]).all()
    with monkeypatch.context() as patched:
        patched.setattr(surfaces, "SUPPORT", 0)
        assert np.isfinite(SurfaceMap([cameras[0], blind]).point_map(0, 1)(xy)[0]).all()
        mapped, _ = SurfaceMap([cameras[0], blind]).point_map(1, 0)(xy)
    assert np.isnan(mapped).all()  # no points to fit a plane to
    far = np.array([[-2000.0, 100.0]])
    assert np.isnan(SurfaceMap(cameras).point_map(0, 1)(far)[0]).all()
    assert SurfaceMap([cameras[0], blind]).view_pairs() == []
    assert SurfaceMap(cameras).view_pairs() == [(0, 1)]


def test_what_is_hidden_in_the_other_view_is_not_predicted(monkeypatch):
    """A plate before a wall: the second camera, to the side, sees the plate over the wall."""
    rng = np.random.default_rng(0)
    wall = np.column_stack([rng.uniform(-4, 4, (4000, 2)), np.full(4000, 10.0)])
    plate = np.column_stack([rng.uniform(-0.5, 0.5, (600, 2)), np.full(600, 5.0)])
    points = np.concatenate([wall, plate])
    cameras = []
    for x in (0.0, 1.0):  # a camera at (x, 0, 0) sees the plate before part of the wall
        shadow = points[:, :2] - (points[:, :2] - [x, 0]) / 2  # where the ray crosses z = 5
        hidden = (points[:, 2] == 10) & (np.abs(shadow) <= 0.5).all(axis=1)
        cameras.append(pinhole(np.eye(3), np.array([-x, 0, 0]), points, np.flatnonzero(~hidden)))
    monkeypatch.setattr(surfaces, "SUPPORT", 0)
    surface = SurfaceMap(cameras)
    # Wall points at the side of the plate, free in the first view, covered in the second.
    X = np.column_stack([rng.uniform(-1.7, -1.3, 50), rng.uniform(-0.6, 0.6, 50), np.full(50, 10)])
    frames = np.column_stack([pixels(cameras[0], X), np.full(50, 5.0), np.zeros(50)])
    there, back = surface.point_map(0, 1), surface.point_map(1, 0)
    carried = transfer_frames(frames, there)
    np.testing.assert_allclose(carried[:, :2], pixels(cameras[1], X), atol=1e-3)
    assert np.isnan(predict_frames(frames, there, back)).all()


def open_book(side=384, n_views=6):
    """Two textured pages at a right angle, seen from an arc; images and page homographies."""
    pages = [data.brick()[:256, :256], data.gravel()[:256, :256]]
    K = np.array([[1.1 * side, 0, side / 2], [0, 1.1 * side, side / 2], [0, 0, 1.0]])
    images, H_pages = [], []
    for degrees in np.linspace(-18, 18, n_views):
        R = turned(degrees)
        t = np.array([0, 0, 2.6]) + R @ np.zeros(3)
        canvas = np.full((side, side), 128, np.uint8)
        H_view = []
        for page, sign in zip(pages, (-1, 1), strict=True):
            # Page pixels (u, v) -> the page in space: hinge at x = 0, opening towards the camera.
            a = np.sqrt(0.5) / 256
            axis_u = np.array([sign * a, 0, -a])
            corner = np.array([0, -0.5, 0.3])
            to_camera = np.column_stack([R @ axis_u, R @ [0, 1 / 256, 0], R @ corner + t])
            H = K @ to_camera
            H_view.append(H)
            texture = page if sign > 0 else np.ascontiguousarray(page[:, ::-1])
            inside = cv2.warpPerspective(np.full_like(page, 255), H, (side, side))
            seen = cv2.warpPerspective(texture, H, (side, side), flags=cv2.INTER_AREA)
            canvas = np.where(inside == 255, seen, canvas)
        images.append(canvas)
        H_pages.append(H_view)
    return images, H_pages


@pytest.mark.slow
def test_sfm_scene_of_an_open_book(tmp_path):
    """From photographs to correspondences, checked against the pages' own homographies."""
    pytest.importorskip("pycolmap")
    images, H_pages = open_book()
    folder, workspace = tmp_path / "book", tmp_path / "work"
    folder.mkdir()
    for k, image in enumerate(images):
        cv2.imwrite(str(folder / f"{k}.png"), image)
    (folder / "broken.jpg").write_bytes(b"no photograph")

    def build(**options):
        with pytest.warns(UserWarning, match=r"broken\.jpg"):
            return sfm_scene(folder, workspace, max_keypoints=800, **options)

    scene = build()
    assert scene.name == "book" and len(scene.views) == len(images)
    order = [int(view.image.stem) for view in scene.views]
    pairs = scene.pairs(1, 4)
    assert len(pairs) > 80
    a, b = scene.views[1].frames[pairs[:, 0]], scene.views[4].frames[pairs[:, 1]]
    off = []
    for page in range(2):
        H = H_pages[order[4]][page] @ np.linalg.inv(H_pages[order[1]][page])
        off.append(np.linalg.norm(homography_map(H)(a[:, :2])[0] - b[:, :2], axis=1))
    off = np.nanmin(off, axis=0)
    assert np.median(off) < 1
    assert np.mean(off < 4) > 0.97

    # A finished model is read back; other keypoints use the same one, and make another scene.
    (home,) = workspace.glob("reconstruction-*")
    before = (home / "database.db").stat().st_mtime_ns
    again, other = build(), build(detectors=("sift",))
    assert (home / "database.db").stat().st_mtime_ns == before
    np.testing.assert_array_equal(again.views[0].frames, scene.views[0].frames)
    np.testing.assert_array_equal(again.all_pairs(), scene.all_pairs())
    assert not np.array_equal(other.views[0].frames, scene.views[0].frames)


def test_pixels_of_a_reconstruction_are_opencv_s():
    """COLMAP's principal point of a 640 x 480 camera is (320, 240), OpenCV's (319.5, 239.5)."""
    pycolmap = pytest.importorskip("pycolmap")
    lens = pycolmap.Camera(
        model="SIMPLE_RADIAL", width=640, height=480, params=[500.0, 320.0, 240.0, 0.05]
    )
    to_pixels, to_rays = pixels_from_rays(lens), rays_from_pixels(lens)
    rays = np.array([[0.0, 0.0], [0.2, 0.0], [np.nan, 0.0]])
    expected = [[319.5, 239.5], [319.5 + 500 * 0.2 * (1 + 0.05 * 0.2**2), 239.5]]
    np.testing.assert_allclose(to_pixels(rays)[:2], expected)
    assert np.isnan(to_pixels(rays)[2]).all()
    np.testing.assert_allclose(to_rays(to_pixels(rays[:2])), rays[:2], atol=1e-9)


def seen_from_behind(shape):
    """A camera at the origin that looks along z, and is said to see a point behind it."""
    behind = np.array([[0.0, 0.0, -1.0]])
    return Camera(shape, lambda x: x, lambda x: x, np.eye(3), np.zeros(3), behind, np.zeros(1, int))


def test_a_point_behind_its_camera():
    with pytest.raises(ValueError, match="a point lies behind a camera"):
        SurfaceMap([seen_from_behind((10, 10))])

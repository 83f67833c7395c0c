"""A plane, a scene, the pose of two cameras: from points whose truth is known."""

import cv2
import numpy as np
import pytest
from scipy.optimize import minimize

from kd_cv.matching import two_view
from kd_cv.matching.geometry import (
    cross_matrix,
    epipolar_errors,
    in_front,
    reprojection_errors,
    warp_points,
)
from kd_cv.matching.two_view import (
    MODELS,
    believable,
    camera_of,
    estimate,
    find_fundamental,
    find_homography,
    find_pose,
    rays,
)

K0, K1 = camera_of(800, (600, 800)), camera_of(950, (700, 900))
R_0to1 = cv2.Rodrigues(np.array([0.05, 0.2, -0.03]))[0]
T_0TO1 = np.array([1, 0.2, 0.1]) / np.linalg.norm([1, 0.2, 0.1])


def seen(X, K, R=None, t=None):
    x = (X if R is None else X @ R.T + t) @ K.T
    return x[:, :2] / x[:, 2:]


def views(depth, wrong=60, noise=0.3, seed=0):
    """Points (300, 2) of both images; the first `wrong` matches are at random."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-2, 2, (300, 2)), np.zeros(300)])
    X[:, 2] = depth(X, rng)
    points0, points1 = seen(X, K0), seen(X, K1, R_0to1, T_0TO1)
    points1 += rng.normal(0, noise, points1.shape)
    points1[:wrong] = rng.uniform(0, 700, (wrong, 2))
    return points0, points1


def scene(X, rng):
    return rng.uniform(4, 9, len(X))


def plane(X, rng):
    return 6 + 0.3 * X[:, 0]


def angle(a, b):
    return np.degrees(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)))


def test_the_sampson_error_is_the_distance_to_the_nearest_match_that_fits():
    """Against the exact distance, found by a general solver; they agree to first order."""
    F = np.linalg.inv(K1).T @ cross_matrix(T_0TO1) @ R_0to1 @ np.linalg.inv(K0)
    points0, points1 = views(scene, wrong=0, noise=0.5)
    errors = epipolar_errors(points0, points1, F)
    for k in range(5):
        match = np.concatenate([points0[k], points1[k]])

        def fits(x):
            return np.append(x[2:], 1) @ F @ np.append(x[:2], 1) * 1e4

        def moved(x, match=match):
            return ((x - match) ** 2).sum()

        nearest = minimize(moved, match, constraints={"type": "eq", "fun": fits}, tol=1e-14)
        assert errors[k] == pytest.approx(np.sqrt(nearest.fun), rel=2e-3, abs=1e-5)


def test_points_behind_a_camera_are_told_apart():
    rng = np.random.default_rng(0)
    X = rng.uniform([-2, -2, -9], [2, 2, 9], (400, 3))
    there = X @ R_0to1.T + T_0TO1
    rays0, rays1 = X[:, :2] / X[:, 2:], there[:, :2] / there[:, 2:]
    rays1 += rng.normal(0, 1e-6, rays1.shape)
    before = (X[:, 2] > 0) & (there[:, 2] > 0)
    assert 100 < before.sum() < 300
    np.testing.assert_array_equal(in_front(rays0, rays1, R_0to1, T_0TO1), before)


@pytest.fixture(params=["poselib", "opencv"])
def search(request, monkeypatch):
    """With PoseLib, and as if it were not installed."""
    if request.param == "opencv":
        monkeypatch.setattr(two_view, "_poselib", lambda: None)
    else:
        pytest.importorskip("poselib")


@pytest.mark.usefixtures("search")
def test_points_behind_a_camera_are_outliers_of_a_pose():
    points0, points1 = views(scene, wrong=0, noise=0.1)
    rng = np.random.default_rng(1)
    behind = np.column_stack([rng.uniform(-2, 2, (60, 2)), rng.uniform(-9, -4, 60)])
    points0[:60], points1[:60] = seen(behind, K0), seen(behind, K1, R_0to1, T_0TO1)
    found = find_pose(points0, points1, K0, K1)
    assert not found.inliers[:60].any() and found.inliers[60:].all()


@pytest.mark.usefixtures("search")
def test_a_pose_is_found_and_agrees_with_the_fundamental_matrix():
    points0, points1 = views(scene)
    found = find_pose(points0, points1, K0, K1)
    assert found.success and found.model == "essential"
    assert angle(found.t_0to1, T_0TO1) < 0.5
    turn = cv2.Rodrigues(found.R_0to1 @ R_0to1.T)[0]
    assert np.degrees(np.linalg.norm(turn)) < 0.2
    assert found.inliers[60:].all() and found.inliers[:60].sum() < 8
    # X1 = R X0 + t and x1^T E x0 = 0 say the same
    np.testing.assert_allclose(
        found.matrix, cross_matrix(found.t_0to1) @ found.R_0to1, rtol=0, atol=1e-12
    )
    in_pixels = np.linalg.inv(K1).T @ found.matrix @ np.linalg.inv(K0)
    F_0to1, inliers = find_fundamental(points0, points1)
    assert (epipolar_errors(points0, points1, in_pixels)[60:] < 2).all()
    np.testing.assert_array_equal(epipolar_errors(points0, points1, F_0to1) <= 3, inliers)
    assert np.linalg.norm(F_0to1) == pytest.approx(1) and inliers[60:].mean() > 0.98


@pytest.mark.usefixtures("search")
def test_a_pose_is_found_in_front_of_a_plane_too():
    found = find_pose(*views(plane), K0, K1)
    assert found.success and angle(found.t_0to1, T_0TO1) < 2


@pytest.mark.parametrize(
    ("depth", "cameras", "taken"),
    [
        (scene, {}, "fundamental"),
        (scene, {"K0": K0, "K1": K1}, "essential"),
        (plane, {}, "homography"),
        (plane, {"K0": K0, "K1": K1}, "homography"),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_auto_tells_a_plane_from_a_scene(depth, cameras, taken, seed):
    found = estimate(*views(depth, seed=seed), "auto", **cameras)
    assert found.success and found.model == taken
    assert found.inliers[60:].mean() > 0.98


def test_auto_takes_a_wall_with_a_few_things_in_front_of_it_as_a_plane_and_with_many_as_a_scene():
    def wall(share):
        def depth(X, rng):
            near = rng.random(len(X)) < share
            return np.where(near, rng.uniform(3, 5, len(X)), plane(X, rng))

        return depth

    assert estimate(*views(wall(0.03)), "auto").model == "homography"
    assert estimate(*views(wall(0.4)), "auto").model == "fundamental"
    # Of few matches, a few are a large share, and no more than chance.
    few = [points[60:120] for points in views(wall(0.1), seed=1)]
    errors = reprojection_errors(*few, estimate(*few, "homography").matrix)
    assert 4 <= (errors > 6).sum() <= 8
    assert estimate(*few, "auto").model == "homography"


def test_a_camera_that_only_turned_is_a_homography():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-2, 2, (200, 2)), scene(np.zeros((200, 3)), rng)])
    points0, points1 = seen(X, K0), seen(X, K1, R_0to1, np.zeros(3))
    assert estimate(points0, points1, "auto", K0=K0, K1=K1).model == "homography"


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_found_in_random_matches_or_too_few(model):
    rng = np.random.default_rng(0)
    points0, points1 = rng.uniform(0, 700, (2, 200, 2))
    assert not estimate(points0, points1, model, K0=K0, K1=K1).success
    for count in range(9):
        few = estimate(points0[:count], points1[:count], model, K0=K0, K1=K1)
        assert not few.success and few.inliers.shape == (count,)
    same = np.full((30, 2), 7.0)
    assert estimate(same, same, model, K0=K0, K1=K1).inliers.shape == (30,)


def test_a_pose_that_no_match_agrees_with_is_none(monkeypatch):
    monkeypatch.setattr(two_view, "_poselib", lambda: None)
    none = np.zeros((20, 1), np.uint8)
    monkeypatch.setattr(cv2, "findEssentialMat", lambda *args: (np.eye(3), none))
    points0, points1 = np.random.default_rng(0).uniform(0, 700, (2, 20, 2))
    found = estimate(points0, points1, "essential", K0=K0, K1=K1)
    assert found.matrix is None and found.R_0to1 is None and not found.inliers.any()


def test_a_homography_of_fewer_than_four_matches_is_none():
    H, inliers = find_homography(np.zeros((3, 2)), np.zeros((3, 2)))
    assert H is None and inliers.tolist() == [False] * 3


def test_how_many_inliers_are_believable():
    assert not believable(8, 0) and believable(9, 0)
    assert not believable(38, 100) and believable(39, 100)


def test_rays_are_what_the_camera_projects():
    X = np.array([[0.3, -0.2, 1.0], [0.0, 0.5, 1.0]])
    np.testing.assert_allclose(rays(seen(X, K0), K0), X[:, :2], atol=1e-12)
    # The axis meets the middle of the pixels 0 .. 799 and 0 .. 599.
    np.testing.assert_array_equal(K0[:2, 2], [399.5, 299.5])


def test_a_homography_trusts_small_keypoints_more():
    rng = np.random.default_rng(0)
    H_true = np.array([[0.9, -0.1, 30], [0.1, 1.1, -10], [1e-4, 0, 1]])
    errors: dict[bool, list[float]] = {True: [], False: []}
    corners = np.array([[0, 0], [640, 0], [640, 480], [0, 480]])
    for _ in range(20):
        points0, sizes = rng.uniform((0, 0), (640, 480), (80, 2)), np.repeat([2.0, 20.0], 40)
        noise = rng.normal(0, 0.05, points0.shape) * sizes[:, None]
        points1 = warp_points(points0, H_true) + noise
        for sized in errors:
            found = estimate(points0, points1, sizes=sizes if sized else None)
            wrong = reprojection_errors(corners, warp_points(corners, H_true), found.matrix)
            errors[sized].append(wrong.mean())
    assert np.median(errors[True]) < 0.7 * np.median(errors[False])

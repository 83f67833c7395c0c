"""Refined models: Jacobians against finite differences, optima against SciPy's solver."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from kd_cv.matching.geometry import cross_matrix, epipolar_errors, reprojection_errors
from kd_cv.matching.refine import (
    normalisations,
    refine_fundamental,
    refine_homography,
    refine_pose,
    rotation,
    sampson,
    transfer,
    unit,
)

H_TRUE = np.array([[0.9, -0.2, 30.0], [0.15, 1.05, -12.0], [1e-4, -5e-5, 1.0]])
K0 = np.array([[800.0, 0, 400], [0, 820, 300], [0, 0, 1]])
K1 = np.array([[950.0, 3, 450], [0, 940, 350], [0, 0, 1]])
R_TRUE, T_TRUE = rotation(np.array([0.05, 0.2, -0.03])), unit(np.array([1, 0.2, 0.1]))


def plane(noise=0.5, wrong=10):
    rng = np.random.default_rng(0)
    points0 = rng.uniform(0, 600, (200, 2))
    y = np.column_stack([points0, np.ones(200)]) @ H_TRUE.T
    points1 = y[:, :2] / y[:, 2:] + rng.normal(0, noise, (200, 2))
    points1[:wrong] += rng.uniform(2, 8, (wrong, 2))
    return points0, points1


def scene(noise=0.4, wrong=10):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-2, 2, (200, 2)), rng.uniform(4, 9, 200)])
    x0, x1 = X @ K0.T, (X @ R_TRUE.T + T_TRUE) @ K1.T
    points0, points1 = (x[:, :2] / x[:, 2:] + rng.normal(0, noise, (200, 2)) for x in (x0, x1))
    points1[:wrong] += rng.uniform(2, 8, (wrong, 2))
    return points0, points1


def pose_matrix(R, t):
    return np.linalg.inv(K1).T @ cross_matrix(t) @ R @ np.linalg.inv(K0)


@pytest.mark.parametrize("errors", [transfer, sampson])
def test_jacobians_are_those_of_finite_differences(errors):
    rng = np.random.default_rng(1)
    x0, x1 = (np.concatenate([rng.normal(size=(2, 30)), np.ones((1, 30))]) for _ in range(2))
    model, D = np.eye(3) + rng.normal(0, 0.1, (3, 3)), rng.normal(size=(5, 3, 3))
    _, J = errors(model, x0, x1, D)
    step = 1e-6
    for k in range(5):
        ahead, behind = (errors(model + s * D[k], x0, x1, D)[0] for s in (step, -step))
        np.testing.assert_allclose(J[k], (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-7)


def cauchy(errors, scale):
    return np.log1p((errors / scale) ** 2).sum()


def symmetric(H, points0, points1):
    there = reprojection_errors(points0, points1, H)
    return np.hypot(there, reprojection_errors(points1, points0, np.linalg.inv(H)))


@pytest.mark.parametrize("least_scale", [0.5, 0.1])  # the same for all, and not
def test_a_refined_homography_is_the_optimum(least_scale):
    points0, points1 = plane()
    start = H_TRUE * (1 + np.random.default_rng(2).normal(0, 3e-3, (3, 3)))
    scale = np.linspace(least_scale, 0.5, len(points0))
    H = refine_homography(start, points0, points1, scale)

    def errors(h):
        return symmetric(np.append(h, 1).reshape(3, 3), points0, points1)

    first = (H / H[2, 2]).ravel()[:8]
    best = least_squares(
        lambda h: errors(h * first) / scale, np.ones(8), loss="cauchy", xtol=1e-14, ftol=1e-14
    )
    found, least = cauchy(symmetric(H, points0, points1), scale), 2 * best.cost
    assert least <= found < least * (1 + 1e-3)
    assert found < cauchy(symmetric(start, points0, points1), scale) - 10
    assert np.linalg.norm(H) == pytest.approx(1)


def test_a_refined_pose_is_the_optimum():
    points0, points1 = scene()
    start = rotation(np.array([2e-3, 3e-3, -2e-3])) @ R_TRUE, unit(T_TRUE + [0.01, 0.02, -0.01])
    R, t = refine_pose(start, points0, points1, (K0, K1), 0.3)

    def errors(step):
        moved = pose_matrix(R @ rotation(step[:3]), unit(t + step[3:]))
        return epipolar_errors(points0, points1, moved) / 0.3

    best = least_squares(errors, np.zeros(6), loss="cauchy", xtol=1e-14, ftol=1e-14)
    found = cauchy(errors(np.zeros(6)), 1)
    assert 2 * best.cost <= found < 2 * best.cost * (1 + 1e-3)
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
    assert np.linalg.norm(t) == pytest.approx(1)


def test_a_refined_fundamental_matrix_is_the_optimum_of_rank_two():
    points0, points1 = scene()
    start = unit(pose_matrix(rotation(np.array([2e-3, 0, -2e-3])) @ R_TRUE, T_TRUE))
    F = refine_fundamental(start, points0, points1, 0.3)
    values = np.linalg.svd(F)[1]
    assert values[2] < 1e-12 * values[0] and np.linalg.norm(F) == pytest.approx(1)

    # The same in another parametrisation: F = [e]x M in normalised coordinates, 12 numbers.
    T0, T1 = normalisations(points0, points1)
    G = np.linalg.inv(T1).T @ F @ np.linalg.inv(T0)
    e = np.linalg.svd(G.T)[2][2]
    M = -cross_matrix(e) @ G

    def errors(x):
        moved = T1.T @ cross_matrix(e + x[:3]) @ (M + x[3:].reshape(3, 3)) @ T0
        return epipolar_errors(points0, points1, moved) / 0.3

    best = least_squares(errors, np.zeros(12), loss="cauchy", xtol=1e-14, ftol=1e-14)
    found = cauchy(errors(np.zeros(12)), 1)
    assert found == pytest.approx(cauchy(epipolar_errors(points0, points1, F), 0.3))
    assert 2 * best.cost <= found < 2 * best.cost * (1 + 1e-3)


@pytest.mark.parametrize(
    "points", [np.full((20, 2), 7.0), np.repeat(np.arange(20.0)[:, None], 2, 1)]
)
def test_degenerate_points_keep_the_model_finite(points):
    assert np.isfinite(refine_homography(np.eye(3), points, points, 1.0)).all()
    F = cross_matrix([1.0, 0, 0])
    assert np.isfinite(refine_fundamental(F, points, points, 1.0)).all()
    R, t = refine_pose((np.eye(3), np.array([1.0, 0, 0])), points, points, (K0, K1), 1.0)
    assert np.isfinite(R).all() and np.isfinite(t).all()

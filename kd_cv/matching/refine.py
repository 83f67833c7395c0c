"""Refine a two-view model by robust least squares.

Every refinement minimises the Cauchy loss sum_i log(1 + e_i^2 / scale^2) of the errors e_i of the
matches in pixels. Levenberg-Marquardt steps d solve (J^T W J) d = -J^T W e with the weights
W = 1 / (scale^2 + e^2) and the analytic Jacobian J. Each match may have its own scale:

    model        error                                   step d
    homography   |H x0 - x1| and |H^-1 x1 - x0|          8 numbers: H + D, D orthogonal to H
    fundamental  Sampson error of x1^T F x0 = 0          7: F = U exp(u) diag(cos a, sin a, 0)
                                                            exp(-v) V^T, a + d
    pose         Sampson error, F = K1^-T [t]x R K0^-1   5: R exp(w), t + 2 numbers, |t| = 1

In this module points are columns, (3, M), the fastest layout for NumPy.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from kd_cv.matching.geometry import cross_matrix
from kd_cv.types import Float64

Pose = tuple[Float64, Float64]
Model = TypeVar("Model")

STEPS = 20  # of Levenberg-Marquardt, at most
CONVERGED = 1e-4  # relative decrease of the loss after which the steps end
#: Derivatives (3, 3, 3) of a rotation exp([w]x) at w = 0.
TURNS = np.stack([cross_matrix(axis) for axis in np.eye(3)])
_IN_PLANE = np.array([[1.0], [1.0], [0.0]])


def refine_homography(
    H_0to1: Float64, points0: Float64, points1: Float64, scale: float | Float64
) -> Float64:
    """Refine H_0to1 on matches points0, points1 (M, 2); the result has unit norm."""
    T0, T1 = normalisations(points0, points1)
    x0, x1 = T0 @ _columns(points0), T1 @ _columns(points1)

    def linearise(H: Float64) -> tuple[Float64, Float64]:
        D, G = _orthogonal(H.ravel()).reshape(8, 3, 3), np.asarray(np.linalg.inv(H), np.float64)
        there, J_there = transfer(H, x0, x1, D)
        back, J_back = transfer(G, x1, x0, -(G @ D @ G))  # the derivative of H^-1
        return np.concatenate([there, back]), np.concatenate([J_there, J_back], axis=1)

    def move(H: Float64, step: Float64) -> Float64:
        return unit(H + (step @ _orthogonal(H.ravel())).reshape(3, 3))

    H = unit(T1 @ H_0to1 @ np.linalg.inv(T0))
    H = levenberg_marquardt(H, linearise, move, scale * T1[0, 0])
    return unit(np.linalg.inv(T1) @ H @ T0)


def refine_fundamental(
    F_0to1: Float64, points0: Float64, points1: Float64, scale: float
) -> Float64:
    """Refine F_0to1 on matches points0, points1 (M, 2); the result has unit norm and rank 2."""
    T0, T1 = normalisations(points0, points1)
    x0, x1 = T0 @ _columns(points0), T1 @ _columns(points1)
    Factors = tuple[Float64, float, Float64]

    def matrix(model: Factors) -> Float64:
        U, a, Vt = model
        return U @ np.diag([np.cos(a), np.sin(a), 0]) @ Vt

    def linearise(model: Factors) -> tuple[Float64, Float64]:
        U, a, Vt = model
        S, dS = np.diag([np.cos(a), np.sin(a), 0]), np.diag([-np.sin(a), np.cos(a), 0])
        D = U @ np.concatenate([TURNS @ S, -S @ TURNS, dS[None]]) @ Vt
        return sampson(matrix(model), x0, x1, D)

    def move(model: Factors, step: Float64) -> Factors:
        U, a, Vt = model
        return U @ rotation(step[:3]), a + float(step[6]), rotation(step[3:6]).T @ Vt

    U, s, Vt = np.linalg.svd(np.linalg.inv(T1).T @ F_0to1 @ np.linalg.inv(T0))
    start = U, float(np.arctan2(s[1], s[0])), Vt
    F = matrix(levenberg_marquardt(start, linearise, move, scale * T1[0, 0]))
    return unit(T1.T @ F @ T0)


def refine_pose(
    pose: Pose, points0: Float64, points1: Float64, cameras: tuple[Float64, Float64], scale: float
) -> Pose:
    """Refine R_0to1 and t_0to1 on matches points0, points1 (M, 2) of the cameras K0 and K1."""
    K0_inv, K1_inv_T = np.linalg.inv(cameras[0]), np.linalg.inv(cameras[1]).T
    x0, x1 = _columns(points0), _columns(points1)

    def linearise(pose: Pose) -> tuple[Float64, Float64]:
        R, t = pose
        E = cross_matrix(t) @ R
        shifts = np.stack([cross_matrix(direction) for direction in _orthogonal(t)])
        D = K1_inv_T @ np.concatenate([E @ TURNS, shifts @ R]) @ K0_inv
        return sampson(K1_inv_T @ E @ K0_inv, x0, x1, D)

    def move(pose: Pose, step: Float64) -> Pose:
        R, t = pose
        return R @ rotation(step[:3]), unit(t + step[3:] @ _orthogonal(t))

    return levenberg_marquardt((pose[0], unit(pose[1])), linearise, move, scale)


def levenberg_marquardt(
    model: Model,
    linearise: Callable[[Model], tuple[Float64, Float64]],
    move: Callable[[Model, Float64], Model],
    scale: float | Float64,
) -> Model:
    """Minimise the Cauchy loss of the errors of a model.

    linearise  model -> errors (E, M), E coordinates of each match, and Jacobian (P, E, M)
    move       model, step (P,) -> model
    scale      of the errors: one, or (M,), one for each match
    """
    errors, J = linearise(model)
    loss, weights = _cauchy(errors, scale)
    damping = 1e-4
    for _ in range(STEPS):
        J_flat = J.reshape(len(J), -1)
        J_weighted = (J * weights).reshape(len(J), -1)
        normal, gradient = J_weighted @ J_flat.T, J_weighted @ errors.ravel()
        diagonal = normal.diagonal() + 1e-12 * normal.trace()
        if not diagonal.all():
            return model  # no parameter changes any error: all points in one place
        step = np.linalg.solve(normal + np.diag(damping * diagonal), -gradient)
        candidate = move(model, np.asarray(step, np.float64))
        errors_there, J_there = linearise(candidate)
        loss_there, weights_there = _cauchy(errors_there, scale)
        if not loss_there < loss:
            damping *= 100
            if damping > 1:
                break
            continue
        converged = loss - loss_there < CONVERGED * loss
        model, errors, J, loss, weights = (
            candidate,
            errors_there,
            J_there,
            loss_there,
            weights_there,
        )
        damping /= 10
        if converged:
            break
    return model


def transfer(H: Float64, x0: Float64, x1: Float64, D: Float64) -> tuple[Float64, Float64]:
    """Return errors H x0 - x1 (2, M) and their derivatives (P, 2, M) along D (P, 3, 3)."""
    y = H @ x0
    w = np.where(np.abs(y[2]) > 1e-9, y[2], 1e-9)
    there = y[:2] / w
    # d(y / w) = (dy - (y / w) dw) / w with (dy, dw) = D x0
    change = D @ (x0 / w)
    return there - x1[:2], change[:, :2] - there * change[:, 2:]


def sampson(F: Float64, x0: Float64, x1: Float64, D: Float64) -> tuple[Float64, Float64]:
    """Return signed Sampson errors (1, M) and their derivatives (P, 1, M) along D (P, 3, 3)."""
    lines1, lines0 = (F @ x0) * _IN_PLANE, (F.T @ x1) * _IN_PLANE
    steep = np.sqrt((lines1 * lines1).sum(axis=0) + (lines0 * lines0).sum(axis=0))
    steep = np.where(steep > 0, steep, 1)
    errors = (x1 * (F @ x0)).sum(axis=0) / steep
    # d(r / s) = dr / s - (r / s^2) ds, with dr = x1^T D x0, s ds = lines1^T D x0 + x1^T D lines0
    slope = errors / (steep * steep)
    left = x1 / steep - slope * lines1
    by_entry = left[:, None] * x0 - x1[:, None] * (slope * lines0)  # (3, 3, M)
    J = D.reshape(len(D), 9) @ by_entry.reshape(9, -1)
    return errors[None], J[:, None]


def normalisations(points0: Float64, points1: Float64) -> tuple[Float64, Float64]:
    """Return maps (3, 3) of the points of both images to mean 0 and size about 1.

    Both have the same scale, so that a pixel is the same error in both images.
    """
    centred = [points - points.mean(axis=0) for points in (points0, points1)]
    zoom = 1 / (max(float(np.sqrt((x**2).sum(axis=1).mean())) for x in centred) or 1.0)
    x, y = points0.mean(axis=0), points1.mean(axis=0)
    T0, T1 = (
        np.array([[zoom, 0, -zoom * m[0]], [0, zoom, -zoom * m[1]], [0, 0, 1]]) for m in (x, y)
    )
    return T0, T1


def rotation(w: Float64) -> Float64:
    angle = float(np.sqrt(w @ w))
    K = cross_matrix(w)
    if angle < 1e-9:
        return np.eye(3) + K
    return np.eye(3) + np.sin(angle) / angle * K + (1 - np.cos(angle)) / angle**2 * K @ K


def unit(array: Float64) -> Float64:
    return array / np.sqrt((array * array).sum())


def _cauchy(errors: Float64, scale: float | Float64) -> tuple[float, Float64]:
    e2 = (errors * errors).sum(axis=0)
    return float(np.log1p(e2 / scale**2).sum()), 1 / (scale**2 + e2)


def _orthogonal(h: Float64) -> Float64:
    """Return (P - 1, P) orthonormal vectors orthogonal to the unit vector h (P,): a reflection."""
    v = h.copy()
    v[0] += np.copysign(1, v[0])
    return (np.eye(len(h)) - v[:, None] * (2 / (v @ v) * v))[1:]


def _columns(points: Float64) -> Float64:
    return np.concatenate([points.T, np.ones((1, len(points)))])

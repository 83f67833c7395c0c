"""Geometry of two views."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float64 = NDArray[np.float64]


def warp_points(points: ArrayLike, H_0to1: ArrayLike) -> Float64:
    """Map points (N, 2) of image 0 to image 1; points on the horizon become infinite."""
    points, H_0to1 = as_points(points, "points"), as_homography(H_0to1, "H_0to1")
    warped = np.column_stack([points, np.ones(len(points))]) @ H_0to1.T
    w = warped[:, 2:]
    return np.where(w == 0, np.inf, warped[:, :2] / np.where(w == 0, 1, w))


def reprojection_errors(points0: ArrayLike, points1: ArrayLike, H_0to1: ArrayLike) -> Float64:
    """Return distances (M,) in image 1 between warped points0 (M, 2) and points1 (M, 2)."""
    points1 = as_points(points1, "points1")
    warped = warp_points(points0, H_0to1)
    if warped.shape != points1.shape:
        raise ValueError(
            f"expected as many points0 as points1, got {warped.shape[0]} and {points1.shape[0]}"
        )
    return np.linalg.norm(warped - points1, axis=1)


def epipolar_errors(points0: ArrayLike, points1: ArrayLike, F_0to1: ArrayLike) -> Float64:
    """Return Sampson errors (M,) of points0 and points1 (M, 2): zero where x1^T F x0 = 0.

    To first order, the distance that the four coordinates must move to get there:
    |x1^T F x0| / sqrt((F x0)_1^2 + (F x0)_2^2 + (F^T x1)_1^2 + (F^T x1)_2^2).
    """
    points0, points1 = as_points(points0, "points0"), as_points(points1, "points1")
    F_0to1 = as_homography(F_0to1, "F_0to1")
    x0, x1 = (np.column_stack([points, np.ones(len(points))]) for points in (points0, points1))
    lines1, lines0 = x0 @ F_0to1.T, x1 @ F_0to1
    steep = np.sqrt((lines1[:, :2] ** 2).sum(axis=1) + (lines0[:, :2] ** 2).sum(axis=1))
    return np.abs((x1 * lines1).sum(axis=1)) / np.where(steep > 0, steep, 1)


def in_front(rays0: ArrayLike, rays1: ArrayLike, R: ArrayLike, t: ArrayLike) -> NDArray[np.bool_]:
    """Whether the points (M,) seen along rays (M, 2) lie in front of both cameras, X1 = R X0 + t.

    The depths l0, l1 minimise |l0 R x0 + t - l1 x1|.
    """
    R, t = np.asarray(R, np.float64), np.asarray(t, np.float64)
    x0, x1 = (
        np.column_stack([rays, np.ones(len(rays))])
        for rays in (as_points(rays0, "rays0"), as_points(rays1, "rays1"))
    )
    turned = x0 @ R.T
    along0, along1, across = turned @ t, x1 @ t, (turned * x1).sum(axis=1)
    # Both are depths times the same positive number.
    depth0 = across * along1 - (x1**2).sum(axis=1) * along0
    depth1 = (turned**2).sum(axis=1) * along1 - across * along0
    return (depth0 > 0) & (depth1 > 0)


def cross_matrix(t: ArrayLike) -> Float64:
    """[t]x (3, 3), with [t]x v = t x v."""
    x, y, z = np.asarray(t, np.float64)
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])


def as_points(points: ArrayLike, name: str) -> Float64:
    points = np.asarray(points, np.float64)
    if points.size == 0:
        return points.reshape(0, 2)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"{name} must be (N, 2), got shape {points.shape}")
    return points


def as_homography(H: ArrayLike, name: str) -> Float64:
    """Check a (3, 3) matrix."""
    H = np.asarray(H, np.float64)
    if H.shape != (3, 3):
        raise ValueError(f"{name} must be (3, 3), got shape {H.shape}")
    return H

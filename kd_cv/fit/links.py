"""Correspondence by geometry: frames linked between the views of a scene.

A point map says where the points of one view lie in another. Detected frames are linked where it
says that they show the same point. Descriptors are never compared, so the pairs are not only those
that some descriptor can match.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kd_cv.descriptor.frames import radians
from kd_cv.fit.scenes import NO_POINT

Array = NDArray[np.float64]

# Points (N, 2) of one view -> points (N, 2) and Jacobians (N, 2, 2) in another, NaN where unseen.
PointMap = Callable[[Array], tuple[Array, Array]]

# A surface seen much more obliquely in one view than in the other is left out: a frame is a
# similarity and cannot follow. The detector itself drops most of what the first limit lets pass.
MAX_ANISOTROPY = 2.5

# How far a detected frame may lie from the predicted one and still show the same point.
MAX_DISTANCE = 2.5  # pixels
MAX_RELATIVE_DISTANCE = 0.15  # or this part of the keypoint's size, whichever is larger
MAX_SIZE_RATIO = 1.5
MAX_TURN = 30.0  # degrees


def homography_map(H_0to1: Array) -> PointMap:
    """The point map of a homography; a point mapped to or past infinity is unseen."""

    def point_map(xy: Array) -> tuple[Array, Array]:
        X = np.concatenate([xy, np.ones((len(xy), 1))], axis=1) @ H_0to1.T
        # The sign of H is free; inside the image the denominator keeps the sign of the determinant.
        w = X[:, 2:] * np.sign(np.linalg.det(H_0to1))
        w = np.where(w > 1e-12, X[:, 2:], np.nan)
        mapped = X[:, :2] / w
        # d(x/w) = (dx - (x/w) dw) / w
        J = (H_0to1[None, :2, :2] - mapped[:, :, None] * H_0to1[None, 2:, :2]) / w[:, :, None]
        return mapped, J

    return point_map


def transfer_frames(
    frames: Array, point_map: PointMap, max_anisotropy: float = MAX_ANISOTROPY
) -> Array:
    """Carry frames (N, 4) over by a point map: position exactly, size and angle by its Jacobian.

    The Jacobian is replaced by its nearest similarity: size * sqrt(det J), angle + the rotation of
    J's polar decomposition. Rows are NaN where the point is unseen or mirrored, or where the map
    squeezes by more than max_anisotropy.
    """
    xy, J = point_map(frames[:, :2])
    a, b, c, d = J[:, 0, 0], J[:, 0, 1], J[:, 1, 0], J[:, 1, 1]
    det = a * d - b * c
    with np.errstate(invalid="ignore", divide="ignore"):
        # s1 / s2 + s2 / s1 = |J|_F^2 / det
        squeeze = (a * a + b * b + c * c + d * d) / det
        seen = (det > 0) & (squeeze <= max_anisotropy + 1 / max_anisotropy)
    out = np.full(frames.shape, np.nan)
    out[seen, :2] = xy[seen]
    out[seen, 2] = frames[seen, 2] * np.sqrt(det[seen])
    turn = np.arctan2(c - b, a + d)
    out[seen, 3] = np.degrees(radians(frames[:, 3]) + turn)[seen] % 360.0
    return out


def near_pairs(
    points: Array, others: Array, reach: Array
) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Rows i of points (N, 2) and j of others within reach (N,) of them, and their distances."""
    near = cKDTree(others).query_ball_point(points, reach)
    i = np.repeat(np.arange(len(points)), [len(rows) for rows in near])
    j = np.fromiter(itertools.chain.from_iterable(near), np.int64, len(i))
    return i, j, np.linalg.norm(points[i] - others[j], axis=1)


def candidate_pairs(predicted: Array, frames: Array) -> tuple[NDArray[np.int64], Array]:
    """Predicted and detected frames of one view that agree: pairs (M, 2), cost (M,) in [0, 3].

    The cost is the sum of the squares of distance, log size ratio and angle, each as a part of what
    is allowed.
    """
    rows = np.flatnonzero(np.isfinite(predicted).all(axis=1))
    reach = np.maximum(MAX_DISTANCE, MAX_RELATIVE_DISTANCE * predicted[rows, 2])
    near, j, distance = near_pairs(predicted[rows, :2], frames[:, :2], reach)
    i = rows[near]
    size_ratio = predicted[i, 2] / frames[j, 2]
    turn = (predicted[i, 3] - frames[j, 3] + 180.0) % 360.0 - 180.0
    parts = np.stack(
        [
            distance / reach[near],
            np.abs(np.log(size_ratio)) / np.log(MAX_SIZE_RATIO),
            np.abs(turn) / MAX_TURN,
        ]
    )
    good = (parts <= 1).all(axis=0)
    return np.stack([i, j], axis=1)[good], (parts[:, good] ** 2).sum(axis=0)


def link_to_first(frames: Sequence[Array], H_1tok: Array) -> list[NDArray[np.int64]]:
    """Give keypoints detected in images of one plane the row of the same keypoint in image 1.

    frames: per image (N_i, 4). H_1tok: (K, 3, 3), from image 1 to each. Of pairs that agree the
    best are linked first, each keypoint once. Returns per image (N_i,) ids, NO_POINT for a keypoint
    left alone.
    """
    ids = [np.full(len(view), NO_POINT, np.int64) for view in frames]
    for own, view, H in zip(ids[1:], frames[1:], H_1tok[1:], strict=True):
        pairs, cost = candidate_pairs(transfer_frames(frames[0], homography_map(H)), view)
        taken: set[int] = set()
        for i, j in pairs[np.argsort(cost, kind="stable")].tolist():
            if i not in taken and own[j] == NO_POINT:
                own[j] = i
                taken.add(i)
                ids[0][i] = i
    return ids

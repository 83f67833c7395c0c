"""Correspondence by geometry: frames linked or carried over between the views of a scene.

A point map says where the points of one view lie in another. Detected frames are linked where it
says that they show the same point; projected ones are carried over by it. Descriptors are never
compared, so the pairs are not only those that some descriptor can match.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kd_cv.descriptor.frames import radians
from kd_cv.fit.scenes import NO_POINT, Scene, View, seen_twice

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


def predict_frames(frames: Array, there: PointMap, back: PointMap) -> Array:
    """transfer_frames, but NaN too where the way back ends more than MAX_DISTANCE from its start.

    A point hidden in the other view has another surface in front of it, with another way back.
    """
    predicted = transfer_frames(frames, there)
    seen = np.flatnonzero(np.isfinite(predicted[:, 0]))
    returned, _ = back(predicted[seen, :2])
    off = np.linalg.norm(returned - frames[seen, :2], axis=1)
    predicted[seen[~(off <= MAX_DISTANCE)]] = np.nan
    return predicted


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


def link_detected(
    frames: Sequence[Array],
    point_map: Callable[[int, int], PointMap],
    view_pairs: Iterable[tuple[int, int]],
) -> list[NDArray[np.int64]]:
    """Give keypoints detected in several views the ids of the points they show.

    frames: per view (N_i, 4). point_map(i, j): from view i to view j. Pairs that agree are joined,
    the best first; two groups are joined only if they share no view and if no two frames of them
    contradict the point map. Returns per view (N_i,) ids, NO_POINT for a keypoint left alone.
    """
    start = np.cumsum([0, *(len(f) for f in frames)])
    total = int(start[-1])
    view_of = np.repeat(np.arange(len(frames)), np.diff(start))
    expected = np.zeros((total, len(frames)), np.bool_)  # is a frame predicted in a view?
    agreed: set[int] = set()  # pairs a * total + b, a < b
    edges, costs = [np.empty((0, 2), np.int64)], [np.empty(0)]
    for i, j in view_pairs:
        predicted = predict_frames(frames[i], point_map(i, j), point_map(j, i))
        expected[start[i] : start[i + 1], j] = np.isfinite(predicted[:, 0])
        pairs, cost = candidate_pairs(predicted, frames[j])
        pairs = pairs + start[[i, j]]
        agreed.update((pairs.min(axis=1) * total + pairs.max(axis=1)).tolist())
        edges.append(pairs)
        costs.append(cost)

    def contradict(a: int, b: int) -> bool:
        agree = min(a, b) * total + max(a, b) in agreed
        return not agree and bool(expected[a, view_of[b]] or expected[b, view_of[a]])

    group: dict[int, list[int]] = {}  # frame -> members of its group, shared by all of them
    all_edges = np.concatenate(edges)[np.argsort(np.concatenate(costs), kind="stable")]
    for a, b in all_edges.tolist():
        left, right = group.get(a, [a]), group.get(b, [b])
        if left is right or {view_of[m] for m in left} & {view_of[m] for m in right}:
            continue
        if any(contradict(m, n) for m, n in itertools.product(left, right)):
            continue
        merged = left + right
        for member in merged:
            group[member] = merged

    ids = np.full(total, NO_POINT, np.int64)
    for member, members in sorted(group.items()):
        ids[member] = min(members)
    kept = ids != NO_POINT
    ids[kept] = np.unique(ids[kept], return_inverse=True)[1]
    return np.split(ids, start[1:-1])


def scene_of(
    name: str,
    images: Sequence[Path | NDArray[np.uint8]],
    frames: Sequence[Array],
    ids: Sequence[NDArray[np.int64]],
    max_frames: int,
    rng: np.random.Generator,
) -> Scene:
    """A scene of the points seen twice or more; a random choice of them if there are too many."""
    chosen = seen_twice(np.concatenate([n[n != NO_POINT] for n in ids]), max_frames, rng)
    views = []
    for image, view_frames, view_ids in zip(images, frames, ids, strict=True):
        rows = np.isin(view_ids, chosen)
        if rows.any():
            views.append(View(image, view_frames[rows], np.searchsorted(chosen, view_ids[rows])))
    return Scene(name, tuple(views))

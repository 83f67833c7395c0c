"""Keypoints of several views linked by a point map between any two of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kd_cv.fit.scenes import NO_POINT, Scene, View, seen_twice
from kd_cv.fit.warps import MAX_DISTANCE, PointMap, candidate_pairs, transfer_frames
from kd_cv.types import Float64

MAX_FRAMES = 20_000  # of a scene


def predict_frames(frames: Float64, there: PointMap, back: PointMap) -> Float64:
    """transfer_frames, but NaN too where the way back ends more than MAX_DISTANCE from its start.

    A point hidden in the other view has another surface in front of it, with another way back.
    """
    predicted = transfer_frames(frames, there)
    seen = np.flatnonzero(np.isfinite(predicted[:, 0]))
    returned, _ = back(predicted[seen, :2])
    off = np.linalg.norm(returned - frames[seen, :2], axis=1)
    predicted[seen[~(off <= MAX_DISTANCE)]] = np.nan
    return predicted


def link_detected(
    frames: Sequence[Float64],
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
    frames: Sequence[Float64],
    ids: Sequence[NDArray[np.int64]],
    max_frames: int,
    rng: np.random.Generator,
) -> Scene:
    chosen = seen_twice(np.concatenate([n[n != NO_POINT] for n in ids]), max_frames, rng)
    views = []
    for image, view_frames, view_ids in zip(images, frames, ids, strict=True):
        rows = np.isin(view_ids, chosen)
        if rows.any():
            views.append(View(image, view_frames[rows], np.searchsorted(chosen, view_ids[rows])))
    return Scene(name, tuple(views))

"""Relative pose of photographs with known cameras, all candidates at the same keypoints."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from experiments.protocols.cache import NO_CACHE, Cache
from experiments.protocols.cameras import CameraView
from experiments.protocols.candidates import Candidate
from experiments.protocols.pairs import (
    AS_USUAL,
    Float64,
    Measure,
    PointDescriptors,
    Views,
    at_keypoints,
    orders,
)
from experiments.protocols.scores import PairScore, Score
from kd_cv.checks import as_int, as_positive
from kd_cv.io.images import read_gray
from kd_cv.matching.neighbours import match_descriptors
from kd_cv.matching.two_view import find_pose

THRESHOLDS = (5, 10, 20)  # degrees
#: Angles between the viewing directions, in degrees: pairs between two of them are a part.
BASELINES = (0, 15, 30, 60, 90, 180)
MAX_ANGLE = 60.0  # of a pair that is matched

Scenes = Iterable[tuple[str, Sequence[CameraView]]]


def of_cameras(scenes: Scenes, max_angle: float = MAX_ANGLE) -> Iterator[Views]:
    """Every two views of a scene whose viewing directions are at most so many degrees apart."""
    as_positive(max_angle, "max_angle")
    count = 0
    for name, views in scenes:
        pairs = [
            (i, j, (views[i], views[j]))
            for i, j in itertools.combinations(range(len(views)), 2)
            if viewing_angle(views[i], views[j]) <= max_angle
        ]
        count += len(pairs)
        yield Views(name, [read_gray(view.image) for view in views], pairs)
    if not count:
        raise ValueError(
            f"no two views are at most {max_angle:g} degrees apart: there is no pair to match"
        )


def relative_pose(
    scenes: Scenes,
    candidates: Iterable[Candidate],
    measure: Measure = AS_USUAL,
    *,
    max_keypoints: int = 2000,
    max_angle: float = MAX_ANGLE,
    cache: Cache = NO_CACHE,
) -> list[Score]:
    """Estimate the pose between every two views of a scene at most `max_angle` degrees apart.

    Values in percent: "auc5", "auc10", "auc20" of the larger of the two angles by which rotation
    and direction of translation are wrong; "inliers" of a pair, a mean; `summaries` adds intervals,
    gains and "pairs". "auc10 0-15", "auc10 0-15 gain" and so on are those of the pairs whose
    viewing directions are that many degrees apart.
    """
    describe = at_keypoints(candidates, as_int(max_keypoints, "max_keypoints", 5), cache)
    return measure.scores(of_cameras(scenes, max_angle), describe, pose_scores, THRESHOLDS)


def pose_scores(
    image0: PointDescriptors,
    image1: PointDescriptors,
    views: tuple[CameraView, CameraView],
    measure: Measure,
) -> PairScore:
    """Of one pair: by how many degrees the pose is wrong, how many "inliers" it has, and to which
    of the BASELINES it belongs."""
    (points0, rows0), (points1, rows1) = image0, image1
    matches, _ = match_descriptors(
        rows0, rows1, ratio=measure.ratio, points0=points0, points1=points1
    )
    R_true, t_true = relative(*views)
    wrong, agree = [], []
    for order in orders(len(matches), measure.seeds):
        x0, x1 = points0[matches[order, 0]], points1[matches[order, 1]]
        pose = find_pose(x0, x1, views[0].K, views[1].K, measure.threshold)
        agree.append(int(pose.inliers.sum()))
        if pose.R_0to1 is None or pose.t_0to1 is None:
            wrong.append(np.inf)
            continue
        turned = rotation_angle(pose.R_0to1 @ R_true.T)
        wrong.append(max(turned, direction_angle(pose.t_0to1, t_true)))
    inner = np.searchsorted(BASELINES[1:-1], viewing_angle(*views), side="right")
    part = BASELINES[inner], BASELINES[inner + 1]
    return PairScore(wrong, {"inliers": float(np.mean(agree))}, part)


def relative(view0: CameraView, view1: CameraView) -> tuple[Float64, Float64]:
    """R, t with X1 = R X0 + t, between the cameras of two views."""
    R = view1.R @ view0.R.T
    return R, view1.t - R @ view0.t


def viewing_angle(view0: CameraView, view1: CameraView) -> float:
    """Degrees between the directions in which two cameras look."""
    return float(np.degrees(np.arccos(np.clip(view0.R[2] @ view1.R[2], -1, 1))))


def rotation_angle(R: Float64) -> float:
    """By how many degrees a rotation turns.

    >>> round(rotation_angle(np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])))
    90
    """
    return float(np.degrees(np.arccos(np.clip((np.trace(R) - 1) / 2, -1, 1))))


def direction_angle(t0: Float64, t1: Float64) -> float:
    """Degrees between two directions, either of which may be reversed: 0 to 90."""
    cosine = abs(float(t0 @ t1)) / max(float(np.linalg.norm(t0) * np.linalg.norm(t1)), 1e-300)
    return float(np.degrees(np.arccos(min(1.0, float(cosine)))))

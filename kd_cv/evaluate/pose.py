"""Relative pose of photographs with known cameras, all candidates at the same keypoints."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_int, as_positive
from kd_cv.descriptor.frames import from_keypoints
from kd_cv.descriptor.threads import opencv
from kd_cv.evaluate.cache import Cache
from kd_cv.evaluate.cameras import CameraView
from kd_cv.evaluate.candidates import Array32, Candidate
from kd_cv.evaluate.intervals import SEEDS, PairTable, summaries
from kd_cv.evaluate.scores import Progress, Score, tell
from kd_cv.io.images import read_gray
from kd_cv.models import find_pose
from kd_cv.neighbours import RATIO, as_ratio, match_descriptors

Float64 = NDArray[np.float64]

THRESHOLDS = (5, 10, 20)  # degrees
#: Angles between the viewing directions, in degrees: pairs beyond the last are not matched.
BASELINES = (0, 15, 30, 60)


def relative_pose(
    scenes: Iterable[tuple[str, Sequence[CameraView]]],
    candidates: Sequence[Candidate],
    *,
    max_keypoints: int = 2000,
    threshold: float = 3.0,
    ratio: float = RATIO,
    seeds: int = SEEDS,
    against: str | None = None,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> list[Score]:
    """Estimate the pose between every two views of a scene that look the same way, roughly.

    Values in percent: "auc5", "auc10", "auc20" of the larger of the two angles by which rotation
    and direction of translation are wrong; "inliers" of a pair, a mean; `summaries` adds intervals,
    gains and "pairs". "auc10 0-15", "auc10 0-15 gain" and so on are those of the pairs whose
    viewing directions are that many degrees apart.
    """
    detector = cv2.SIFT_create(as_int(max_keypoints, "max_keypoints", 5))
    threshold, ratio = as_positive(threshold, "threshold"), as_ratio(ratio)
    seeds = as_int(seeds, "seeds")
    tables = {candidate.name: PairTable() for candidate in candidates}
    apart: list[float] = []
    dims: dict[str, int] = {}
    for scene, views in scenes:
        pairs = [
            (i, j, angle)
            for i, j in itertools.combinations(range(len(views)), 2)
            if (angle := viewing_angle(views[i], views[j])) <= BASELINES[-1]
        ]
        apart += [angle for _, _, angle in pairs]
        grays = [read_gray(view.image) for view in views]
        with opencv:
            frames = [from_keypoints(detector.detect(gray, None)) for gray in grays]
        for candidate in candidates:
            rows = [
                (cache or Cache()).frames(f"{scene}.{k}", candidate, gray, seen)
                for k, (gray, seen) in enumerate(zip(grays, frames, strict=True))
            ]
            dims[candidate.name] = rows[0].shape[1]
            for i, j, _ in pairs:
                wrong, agree = pose_errors(
                    rows[i], rows[j], frames[i][:, :2], frames[j][:, :2], views[i], views[j],
                    threshold, seeds, ratio,
                )  # fmt: skip
                tables[candidate.name].add(wrong, inliers=agree)
        tell(progress, scene)
    if not apart:
        raise ValueError("no two photographs look the same way: there is no pair to match")
    values = summaries(tables, THRESHOLDS, against)
    for low, high in itertools.pairwise(BASELINES):
        chosen = (np.array(apart) >= low) & ((np.array(apart) < high) | (high == BASELINES[-1]))
        if chosen.any():
            parts = {name: table.part(chosen) for name, table in tables.items()}
            for name, part in summaries(parts, THRESHOLDS, against).items():
                values[name] |= {_of_part(key, f"{low}-{high}"): part[key] for key in part}
    return [Score(c.name, c.kind, dims[c.name], values[c.name]) for c in candidates]


def _of_part(key: str, part: str) -> str:
    """The name of a value of a part of the pairs: "auc10 gain low" is "auc10 0-15 gain low"."""
    first, *rest = key.split()
    return " ".join([first, part, *rest])


def pose_errors(
    rows0: Array32 | None,
    rows1: Array32 | None,
    points0: Float64,
    points1: Float64,
    view0: CameraView,
    view1: CameraView,
    threshold: float = 3.0,
    seeds: int = 1,
    ratio: float = RATIO,
) -> tuple[list[float], float]:
    """By how many degrees the pose is wrong for each seed (infinite without one), and inliers.

    The robust estimator draws by itself; a seed puts the matches in another order.
    """
    matches, _ = match_descriptors(rows0, rows1, ratio=ratio)
    R_true, t_true = relative(view0, view1)
    wrong, agree = [], []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(matches))
        x0, x1 = points0[matches[order, 0]], points1[matches[order, 1]]
        views = find_pose(x0, x1, view0.K, view1.K, threshold)
        agree.append(int(views.inliers.sum()))
        if views.R_0to1 is None or views.t_0to1 is None:
            wrong.append(np.inf)
            continue
        wrong.append(
            max(rotation_angle(views.R_0to1 @ R_true.T), direction_angle(views.t_0to1, t_true))
        )
    return wrong, float(np.mean(agree))


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

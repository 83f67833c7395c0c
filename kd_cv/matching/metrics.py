"""Metrics of matches between two images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid

from kd_cv.matching.geometry import warp_points
from kd_cv.matching.neighbours import match_descriptors
from kd_cv.types import Float64


def average_precision(
    scores: ArrayLike,
    correct: ArrayLike,
    n_positive: int | None = None,
    *,
    ties: Literal["wrong first", "as given"] = "wrong first",
) -> float:
    """Return the area under the precision-recall curve of answers, the highest score first.

    As in HPatches: one point of the curve per answer, starting at recall 0 and precision 1, and
    trapezoids between them. Recall is relative to n_positive, by default the number of correct
    answers. An answer with score -inf counts as missing. Without any positive the result is 0.
    ties: "as given" ranks equal scores in the order of the input, as HPatches does.
    """
    scores, correct = as_labelled(scores, correct)
    n_correct = int(correct.sum())
    if n_positive is None:
        n_positive = n_correct
    if n_positive < n_correct:
        raise ValueError(f"n_positive is {n_positive}, but {n_correct} answers are correct")
    if n_positive == 0:
        return 0.0
    rank = correct if ties == "wrong first" else np.arange(len(scores))
    order = np.lexsort((rank, -scores))  # by descending score
    ranked = correct[order][scores[order] > -np.inf]
    tp = np.concatenate([[0], np.cumsum(ranked)])
    precision = np.concatenate([[1.0], tp[1:] / np.arange(1, len(tp))])
    return float(trapezoid(precision, tp / n_positive))


def match_precision(
    image0: tuple[Float64, NDArray[np.float32]],
    image1: tuple[Float64, NDArray[np.float32]],
    H_0to1: ArrayLike,
    threshold: float = 3.0,
) -> float | None:
    """Return the average precision of nearest neighbours, ranked by ratio.

    image0, image1: points (N, 2) and descriptors (N, D). A match is correct within `threshold`
    pixels; recall is relative to the keypoints of image 0 that have a keypoint of image 1 there.
    None if there is no such keypoint.
    """
    (points0, descriptors0), (points1, descriptors1) = image0, image1
    if not len(points0) or not len(points1):
        return None
    near = near_truth(points0, points1, H_0to1, threshold)
    possible = int(near.any(axis=1).sum())
    if not possible:
        return None
    matches, ratios = match_descriptors(descriptors0, descriptors1, mutual=False)
    return average_precision(-ratios, near[matches[:, 0], matches[:, 1]], possible)


def near_truth(
    points0: Float64, points1: Float64, H_0to1: ArrayLike, threshold: float
) -> NDArray[np.bool_]:
    """Which points1 (M, 2) lie within `threshold` pixels of warped points0 (N, 2): (N, M)."""
    truth = warp_points(points0, H_0to1)
    return np.linalg.norm(truth[:, None] - points1[None], axis=2) <= threshold


def homography_corner_error(
    H_0to1: ArrayLike | None, H_true: ArrayLike, shape: Sequence[int]
) -> float:
    """Return the mean distance, in pixels of image 1, of corners under H_0to1 and H_true.

    shape: (height, width) of image 0. A missing or degenerate estimate has infinite error.
    """
    x, y = shape[1] - 1, shape[0] - 1
    corners = np.array([[0, 0], [x, 0], [x, y], [0, y]], np.float64)
    truth = warp_points(corners, H_true)
    if not np.isfinite(truth).all():
        raise ValueError("H_true sends a corner to infinity")
    if H_0to1 is None or not np.isfinite(np.asarray(H_0to1, np.float64)).all():
        return float("inf")
    return float(np.linalg.norm(warp_points(corners, H_0to1) - truth, axis=1).mean())


def as_scores(values: ArrayLike, name: str) -> Float64:
    values = np.asarray(values, np.float64)
    if values.ndim != 1:
        raise ValueError(f"{name} must be (N,), got shape {values.shape}")
    if np.isnan(values).any():
        raise ValueError(f"{name} has NaN")
    return values


def as_labelled(scores: ArrayLike, labels: ArrayLike) -> tuple[Float64, NDArray[np.bool_]]:
    """Check scores (N,) and labels (N,)."""
    scores, labels = as_scores(scores, "scores"), np.asarray(labels)
    if labels.ndim != 1 or not np.isin(labels, (0, 1)).all():
        raise ValueError("labels must be (N,) of 0 and 1, or of booleans")
    if len(scores) != len(labels):
        raise ValueError(f"expected as many scores as labels, got {len(scores)} and {len(labels)}")
    return scores, labels.astype(bool)

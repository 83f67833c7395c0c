"""Scores of descriptors and matches: pure functions of arrays.

`fpr95` is in percent, as the Phototourism benchmark prints it; all other scores are in [0, 1], and
errors are in pixels. Within a tie, whatever is wrong is ranked first, so that a descriptor which
cannot tell patches apart is not flattered; only HPatches' matching and retrieval take ties in the
order of the input, as that benchmark does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from kd_cv.matching.geometry import warp_points
from kd_cv.matching.metrics import as_labelled, as_scores, average_precision

Float64 = NDArray[np.float64]

_CHUNK = 1024  # queries of a distance matrix computed at a time


# --------------------------------------------------------------------------------------------------
# Ranked decisions


def fpr95(distances: ArrayLike, labels: ArrayLike) -> float:
    """Percentage of non-matching pairs accepted at the threshold that accepts 95 % of the matching.

    distances (N,): small for pairs that look alike (negate similarities). labels (N,): true for
    matching pairs. The threshold is the smallest distance with that recall; it accepts all pairs
    that are at it.
    """
    distances, labels = as_labelled(distances, labels)
    positive, negative = np.sort(distances[labels]), distances[~labels]
    if not len(positive) or not len(negative):
        raise ValueError(
            f"FPR95 needs matching and non-matching pairs, got {len(positive)} and {len(negative)}"
        )
    # 1e-9: 0.95 * 20 must need 19 positives, whatever its rounding
    needed = int(np.ceil(0.95 * len(positive) - 1e-9))
    return 100.0 * float(np.mean(negative <= positive[needed - 1]))


# --------------------------------------------------------------------------------------------------
# The three tasks of HPatches, over arrays of descriptors


def verification(positive: ArrayLike, negative: ArrayLike) -> float:
    """HPatches verification, from the distances of matching (N,) and non-matching (M,) pairs.

    The average precision of the imbalanced task: with the first fifth of the matching pairs only,
    as the benchmark has it (0.2 million matching against 1 million non-matching pairs).
    """
    positive, negative = as_scores(positive, "positive"), as_scores(negative, "negative")
    if len(positive) < 5 or not len(negative):
        raise ValueError(
            "verification needs 5 or more matching pairs and a non-matching one, "
            f"got {len(positive)} and {len(negative)}"
        )
    scores = -np.concatenate([negative, positive[: len(positive) // 5]])
    return average_precision(scores, np.arange(len(scores)) >= len(negative))


def matching(reference: ArrayLike, other: ArrayLike) -> float:
    """HPatches matching of two images: descriptor k of both (N, D) arrays shows the same patch.

    Each reference descriptor answers with its nearest neighbour (the first of several), ranked by
    distance. The average precision of these answers, relative to all N.
    """
    reference, other = _descriptors(reference, "reference"), _descriptors(other, "other")
    if reference.shape != other.shape or not len(reference):
        raise ValueError(
            "matching needs two arrays of one shape with 1 or more descriptors, "
            f"got {reference.shape} and {other.shape}"
        )
    rows = np.arange(len(reference))
    starts = range(0, len(rows), _CHUNK)
    index = np.concatenate(
        [pairwise_distances(reference[s : s + _CHUNK], other).argmin(axis=1) for s in starts]
    )
    distance = pair_distances(reference, other[index])
    return average_precision(-distance, index == rows, len(rows), ties="as given")


def retrieval(
    queries: ArrayLike,
    positives: ArrayLike,
    distractors: ArrayLike,
    query_sequences: ArrayLike,
    distractor_sequences: ArrayLike,
) -> Float64:
    """HPatches retrieval: average precision (Q,) of each query.

    queries (Q, D); positives (Q, n, D): the same patches in the other images; distractors (M, D).
    A query's pool is its positives and the distractors of other sequences.
    """
    queries, positives = _descriptors(queries, "queries"), np.asarray(positives, np.float64)
    query_sequences, distractor_sequences = map(np.asarray, (query_sequences, distractor_sequences))
    near = np.linalg.norm(positives - queries[:, None], axis=2)
    ap = np.empty(len(queries))
    for start in range(0, len(queries), _CHUNK):
        far = pairwise_distances(queries[start : start + _CHUNK], distractors)
        for q, row in enumerate(far, start):
            wrong = row[distractor_sequences != query_sequences[q]]
            scores = -np.concatenate([near[q], wrong])
            right = np.arange(len(scores)) < len(near[q])
            ap[q] = average_precision(scores, right, ties="as given")
    return ap


def pair_distances(X0: ArrayLike, X1: ArrayLike) -> Float64:
    """Euclidean distances (N,) of corresponding descriptors of two (N, D) arrays."""
    return np.linalg.norm(np.subtract(X0, X1, dtype=np.float64), axis=1)


def pairwise_distances(X0: ArrayLike, X1: ArrayLike) -> Float64:
    """Euclidean distances (N, M) of all of (N, D) to all of (M, D).

    From one matrix product, so that unit vectors are right to about 1e-8; integers are exact.
    """
    X0, X1 = _descriptors(X0, "X0"), _descriptors(X1, "X1")
    if X0.shape[1] != X1.shape[1]:
        raise ValueError(f"expected equal dimensions, got {X0.shape} and {X1.shape}")
    squares = (X0**2).sum(axis=1)[:, None] + (X1**2).sum(axis=1)
    return np.sqrt(np.maximum(squares - 2 * (X0 @ X1.T), 0))


# --------------------------------------------------------------------------------------------------
# Matches and homographies


def repeatability(
    points0: ArrayLike,
    points1: ArrayLike,
    H_0to1: ArrayLike,
    shapes: tuple[Sequence[int], Sequence[int]],
    threshold: float = 1.5,
) -> float:
    """Fraction of the places that a detector finds in both of two images.

    Of the keypoints (N, 2), (M, 2) of each image that lie inside the other, those with a keypoint
    of the other within the threshold, in pixels of image 1; over all of them. A place counts once,
    however many keypoints it has. shapes: (height, width) of the images. Nothing in common: 0.
    """
    first, second = (np.unique(np.asarray(p, np.float64), axis=0) for p in (points0, points1))
    if not len(first) or not len(second):
        return 0.0
    moved = warp_points(first, H_0to1)
    back = warp_points(second, np.linalg.inv(np.asarray(H_0to1, np.float64)))
    moved, second = moved[_inside(moved, shapes[1])], second[_inside(back, shapes[0])]
    if not len(moved) or not len(second):
        return 0.0
    again = [
        np.count_nonzero(cKDTree(there).query(here)[0] <= threshold)
        for here, there in ((moved, second), (second, moved))
    ]
    return sum(again) / (len(moved) + len(second))


def _inside(points: Float64, shape: Sequence[int]) -> NDArray[np.bool_]:
    x, y = points.T
    return (x >= 0) & (y >= 0) & (x <= shape[1] - 1) & (y <= shape[0] - 1)


def auc(errors: ArrayLike, threshold: float) -> Any:
    """Area under the curve of recall over error (..., N), up to a threshold and divided by it.

    The convention of SuperGlue and LightGlue: the curve rises linearly from (0, 0) through
    (k-th smallest error, k / N) and is level from the last error below the threshold on. Failures
    are infinite errors. No errors at all have area 0.
    """
    errors = np.sort(np.asarray(errors, np.float64), axis=-1)
    if np.isnan(errors).any():
        raise ValueError("errors has NaN")
    N = errors.shape[-1]
    below = errors < threshold  # the first ones, as they are sorted
    e = np.where(below, errors, 0.0)
    k = np.arange(1, N + 1)
    rising = np.where(below, np.diff(e, axis=-1, prepend=0.0) * (2 * k - 1) / 2, 0.0).sum(axis=-1)
    level = (threshold - e.max(axis=-1, initial=0.0)) * below.sum(axis=-1)
    return (rising + level) / (max(N, 1) * threshold)


# --------------------------------------------------------------------------------------------------
# Input


def _descriptors(X: ArrayLike, name: str) -> Float64:
    X = np.asarray(X, np.float64)
    if X.ndim != 2:
        raise ValueError(f"{name} must be (N, D), got shape {X.shape}")
    return X

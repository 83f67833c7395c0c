"""The nearest neighbours of descriptors: matches, and the ratio that says how certain they are."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.checks import as_float
from kd_cv.types import Array32

RATIO = 0.85  # of the distances to the nearest and to the second nearest, at most
Matches = tuple[NDArray[np.int64], Array32]


def match_descriptors(
    d0: ArrayLike | None,
    d1: ArrayLike | None,
    *,
    ratio: float = 1.0,
    mutual: bool = True,
    chunk: int = 2048,
) -> Matches:
    """Nearest neighbours of d0 (N0, D) in d1 (N1, D): matches (M, 2) and ratios (M,).

    Rows of zeros, which describe nothing, match nothing. With one candidate only there is no
    second neighbour, and the ratio is 0.
    """
    ratio = as_ratio(ratio)
    if d0 is None or d1 is None:
        return no_matches()
    d0, d1 = np.asarray(d0), np.asarray(d1)
    if d0.ndim != 2 or d1.ndim != 2 or d0.shape[1] != d1.shape[1]:
        raise ValueError(f"expected d0 (N0, D) and d1 (N1, D), got {d0.shape} and {d1.shape}")
    if any(d.dtype.kind not in "fiu" or not np.isfinite(d).all() for d in (d0, d1)):
        raise ValueError(f"descriptors must be finite numbers, got {d0.dtype} and {d1.dtype}")
    rows0, rows1 = (np.flatnonzero(np.any(d, axis=1)) for d in (d0, d1))
    if not len(rows0) or not len(rows1):
        return no_matches()
    a, b = (np.asarray(d, dtype=np.float32)[rows] for d, rows in ((d0, rows0), (d1, rows1)))
    b_squares = (b * b).sum(axis=1)
    nearest = np.empty(len(a), dtype=np.int64)
    ratios = np.zeros(len(a), dtype=np.float32)
    back_distance = np.full(len(b), np.inf, dtype=np.float32)
    back = np.zeros(len(b), dtype=np.int64)
    for start in range(0, len(a), chunk):
        block = a[start : start + chunk]
        squares = (block * block).sum(axis=1)[:, None] + b_squares - 2 * block @ b.T
        here = np.arange(len(block))
        nearest[start : start + chunk] = first = squares.argmin(axis=1)
        closest = squares.min(axis=0)
        better = closest < back_distance
        back[better] = start + squares.argmin(axis=0)[better]
        back_distance[better] = closest[better]
        if len(b) > 1:
            squares[here, first] = np.inf
            # From the differences: `squares` of near copies are rounding noise.
            best, second = (
                np.linalg.norm(block - b[i], axis=1) for i in (first, squares.argmin(axis=1))
            )
            # Two copies of the same row are no certain match: 0 / 0 is 1.
            ratio_here = np.divide(best, second, out=np.ones_like(best), where=second > 0)
            ratios[start : start + chunk] = np.minimum(ratio_here, 1)
    keep = ratios <= ratio
    if mutual:
        keep &= back[nearest] == np.arange(len(a))
    matches = np.stack([rows0[keep], rows1[nearest[keep]]], axis=1)
    return matches, ratios[keep]


def no_matches() -> Matches:
    """What two images without anything in common have."""
    return np.zeros((0, 2), np.int64), np.zeros(0, np.float32)


def as_ratio(ratio: float, name: str = "ratio") -> float:
    """Check a ratio of distances: above 0, at most 1."""
    number = as_float(ratio, name)
    if not 0 < number <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {ratio}")
    return number

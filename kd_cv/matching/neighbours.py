"""Nearest neighbours of descriptors, and the ratio test.

-|a - b|^2 / 2 = a . b - |a|^2 / 2 - |b|^2 / 2, so a matrix product finds the nearest. Of each strip
only the `KEPT` best columns of each row and the best row of each column are stored, so memory does
not grow with N0 x N1. Their distances are recomputed from differences, without the rounding errors
of the product.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.checks import as_float
from kd_cv.parallel import in_parallel
from kd_cv.types import Array32

#: Largest ratio of KD, whose whitening spreads unrelated descriptors evenly, and of SIFT.
RATIO, SIFT_RATIO = 0.85, 0.8
#: Keypoints within this many pixels are at one place: another orientation, scale or view.
SAME_PLACE = 5.0
SAME_CELL = 1.5  # pixels: matches whose ends lie in the same cells are one
JOBS, JOB = 64, 384  # of the compiled search at most; rows of a job at least, a multiple of 6
TILE = 2**22  # values of the product that NumPy stores at a time
KEPT = 6  # neighbours of a row: the nearest, the nearest at another place, and some between
LOWEST = np.float32(-3e38)
Matches = tuple[NDArray[np.int64], Array32]
Indices = NDArray[np.int64]


def match_descriptors(
    d0: ArrayLike | None,
    d1: ArrayLike | None,
    *,
    ratio: float = 1.0,
    mutual: bool = True,
    points0: ArrayLike | None = None,
    points1: ArrayLike | None = None,
) -> Matches:
    """Match d0 (N0, D) to nearest neighbours in d1 (N1, D): matches (M, 2) and ratios (M,).

    The ratio is the distance of the nearest neighbour over that of the second nearest, or 0 without
    a second. Zero descriptors match nothing.

    With positions points0 (N0, 2) and points1 (N1, 2), the second neighbour is the nearest at
    another place, more than `SAME_PLACE` pixels from the first; a match is mutual if the neighbour
    of the neighbour is at the same place; and of several matches between the same two places only
    the one with the smallest ratio is returned.
    """
    ratio = as_ratio(ratio)
    if d0 is None or d1 is None:
        return no_matches()
    d0, d1 = np.asarray(d0), np.asarray(d1)
    if d0.ndim != 2 or d1.ndim != 2 or d0.shape[1] != d1.shape[1]:
        raise ValueError(f"expected d0 (N0, D) and d1 (N1, D), got {d0.shape} and {d1.shape}")
    if any(d.dtype.kind not in "fiu" or not np.isfinite(d).all() for d in (d0, d1)):
        raise ValueError(f"descriptors must be finite numbers, got {d0.dtype} and {d1.dtype}")
    if (points0 is None) != (points1 is None):
        raise ValueError("points0 and points1 must be given together")
    rows0, rows1 = (np.flatnonzero(np.any(d, axis=1)) for d in (d0, d1))
    if not len(rows0) or not len(rows1):
        return no_matches()
    a, b = (d[rows].astype(np.float32, copy=False) for d, rows in ((d0, rows0), (d1, rows1)))
    places = None
    if points0 is not None and points1 is not None:
        places = _places(points0, d0)[rows0], _places(points1, d1)[rows1]

    columns, back = nearest(a, b)
    first, ratios = _ratios(a, b, columns, None if places is None else places[1])
    keep = ratios <= ratio
    if mutual:
        keep &= _is_mutual(a, b, first, back[first], None if places is None else places[0])
    if places is not None:
        keep[keep] = _best_of_places(places[0][keep], places[1][first[keep]], ratios[keep])
    return np.stack([rows0[keep], rows1[first[keep]]], axis=1), ratios[keep]


def nearest(a: Array32, b: Array32) -> tuple[Indices, Indices]:
    """Return the nearest b of each a, (N0, min(KEPT, N1)), and the nearest a of each b, (N1,).

    Up to the rounding errors of the product; columns in any order.
    """
    compiled = _compiled()
    if compiled is None:
        return nearest_numpy(a, b)
    rows_of_six, panels = _packed(a, b, compiled)
    scores = np.full((len(a), min(KEPT, len(b))), LOWEST)
    columns = np.zeros(scores.shape, np.int64)
    # Every job writes to its own best rows.
    size = max(JOB, -(-len(a) // (JOBS * JOB)) * JOB)
    starts = range(0, len(a), size)
    best = np.full((len(starts), panels.shape[0] * panels.shape[2]), LOWEST)
    rows = np.zeros(best.shape, np.int32)

    def work(start: int) -> None:
        job, stop = start // size, min(start + size, len(a))
        compiled.search_rows(
            rows_of_six, panels, start, stop, scores, columns, best[job], rows[job]
        )

    in_parallel(starts, work)
    back = np.take_along_axis(rows, best.argmax(axis=0)[None], axis=0)[0]
    return columns, back[: len(b)].astype(np.int64)


def _packed(a: Array32, b: Array32, compiled: Any) -> tuple[Array32, Array32]:
    left = np.zeros((-(-len(a) // compiled.ROWS) * compiled.ROWS, a.shape[1] + 1), np.float32)
    left[: len(a), :-1], left[: len(a), -1] = a, _half_squares(a)
    wide = -(-len(b) // compiled.STRIP) * compiled.STRIP
    right = np.zeros((b.shape[1] + 2, wide), np.float32)
    right[0] = LOWEST
    right[0, : len(b)], right[1:-1, : len(b)], right[-1] = _half_squares(b), b.T, 1
    panels = right.reshape(len(right), -1, compiled.COLUMNS).swapaxes(0, 1)
    return left, np.ascontiguousarray(panels)


def _half_squares(x: Array32) -> Array32:
    """-|x|^2 / 2 of each descriptor."""
    return np.float32(-0.5) * np.einsum("nd,nd->n", x, x)


def nearest_numpy(a: Array32, b: Array32) -> tuple[Indices, Indices]:
    """Do the same as `nearest` without Numba, slower."""
    halves0, halves1 = _half_squares(a)[:, None], _half_squares(b)
    kept = min(KEPT, len(b))
    columns = np.zeros((len(a), kept), np.int64)
    best, rows = np.full(len(b), LOWEST), np.zeros(len(b), np.int64)
    size = max(1, TILE // len(b))
    for start in range(0, len(a), size):
        here = slice(start, start + size)
        scores = a[here] @ b.T + halves0[here] + halves1
        top = scores.argmax(axis=0)
        values = scores[top, np.arange(len(b))]
        better = values > best
        best[better], rows[better] = values[better], start + top[better]
        columns[here] = np.argpartition(scores, len(b) - kept, axis=1)[:, len(b) - kept :]
    return columns, rows


def _ratios(
    a: Array32, b: Array32, columns: Indices, places1: Array32 | None
) -> tuple[Indices, Array32]:
    """Return the nearest b (N0,) of each a and its ratio (N0,), from candidates (N0, K)."""
    columns, distances = _ranked(a, b, columns)
    first, best = columns[:, 0], distances[:, 0]
    if places1 is None:
        second = distances[:, 1] if columns.shape[1] > 1 else np.full_like(best, np.inf)
    else:
        apart = _apart(places1[columns], places1[first][:, None])
        second = np.where(apart, distances, np.inf).min(axis=1)
        if columns.shape[1] < len(b):
            crowded = np.flatnonzero(~apart.any(axis=1))
            second[crowded] = _elsewhere(a[crowded], b, places1, first[crowded])
    # Two copies of one descriptor are no certain match: 0 / 0 is 1.
    ratios = np.divide(best, second, out=np.ones_like(best), where=second > 0)
    return first, np.minimum(ratios, 1)


def _elsewhere(a: Array32, b: Array32, places1: Array32, first: Indices) -> Array32:
    """Return distances (N,) of a (N, D) to the nearest b at another place than b[first], or inf."""
    second = np.full(len(a), np.inf, np.float32)
    halves = _half_squares(b)
    for i in range(0, len(a), JOB):
        here = slice(i, i + JOB)
        scores = a[here] @ b.T + halves
        scores[~_apart(places1[None], places1[first[here]][:, None])] = LOWEST
        column = scores.argmax(axis=1)
        there = scores.max(axis=1) > LOWEST
        second[here] = np.where(there, _distances(a[here], b, column), np.inf)
    return second


def _is_mutual(
    a: Array32, b: Array32, first: Indices, back: Indices, places0: Array32 | None
) -> NDArray[np.bool_]:
    """Whether no a is nearer to b[first] (N0,); back: the nearest row by the product.

    With places: no a at another place.
    """
    rows = np.arange(len(a))
    mine = _distances(a, b, first)
    nearest_one = _distances(a[back], b, first)
    mutual = (back == rows) | (mine < nearest_one)
    if places0 is not None:
        return mutual | ~_apart(places0[back], places0)
    # Of several rows that the product cannot tell apart, the nearest.
    order = np.lexsort((rows, mine, first))
    order = order[mutual[order]]
    taken = np.zeros(len(a), bool)
    taken[order[np.unique(first[order], return_index=True)[1]]] = True
    return taken


def _best_of_places(places0: Array32, places1: Array32, ratios: Array32) -> NDArray[np.bool_]:
    """Which matches (M,) have the smallest ratio between the same two places."""
    order = np.argsort(ratios, kind="stable")
    cells = np.floor(np.concatenate([places0, places1], axis=1)[order] / SAME_CELL)
    kept = np.zeros(len(ratios), bool)
    kept[order[np.unique(cells, axis=0, return_index=True)[1]]] = True
    return kept


def _apart(x: Array32, y: Array32) -> NDArray[np.bool_]:
    return ((x - y) ** 2).sum(axis=-1) > SAME_PLACE**2


def _ranked(a: Array32, b: Array32, columns: Indices) -> tuple[Indices, Array32]:
    """Sort columns (N, K) by the distances |a - b[columns]|; return both.

    From differences: the product rounds the distances of near copies to 0.
    """
    columns, distances = columns.copy(), np.empty(columns.shape, np.float32)
    compiled = _compiled()
    if compiled is not None:
        compiled.rank(a, b, columns, distances)
        return columns, distances
    for k, column in enumerate(columns.T):
        distances[:, k] = np.linalg.norm(a - b[column], axis=1)
    order = np.lexsort((columns, distances))
    return np.take_along_axis(columns, order, axis=1), np.take_along_axis(distances, order, axis=1)


def _distances(a: Array32, b: Array32, column: Indices) -> Array32:
    return _ranked(a, b, column[:, None])[1][:, 0]


@lru_cache(maxsize=1)
def _compiled() -> Any:
    try:
        from kd_cv.matching import compiled
    except ImportError:
        return None
    return compiled


def _places(points: ArrayLike, d: NDArray[Any]) -> Array32:
    places = np.asarray(points, np.float32)
    if places.shape != (len(d), 2):
        raise ValueError(
            f"points must be ({len(d)}, 2), one for each descriptor; got {places.shape}"
        )
    return places


def no_matches() -> Matches:
    return np.zeros((0, 2), np.int64), np.zeros(0, np.float32)


def as_ratio(ratio: float, name: str = "ratio") -> float:
    number = as_float(ratio, name)
    if not 0 < number <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {ratio}")
    return number

"""Sufficient statistics of descriptors: mean, covariance, and covariance of matching pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.checks import as_int
from kd_cv.io.archive import read_archive, write_archive
from kd_cv.io.files import PathLike
from kd_cv.types import Float64

_CHUNK = 8192  # descriptors converted to float64 at a time


class Statistics:
    """Mean, covariance C and intra-class covariance C_M of a stream of descriptors.

    Memory does not grow with the stream, and two halves merged equal the whole to rounding.
    """

    def __init__(self, dim: int) -> None:
        self.dim = as_int(dim, "dim")
        self.count = 0
        self.pair_count = 0
        self.mean: Float64 = np.zeros(self.dim)
        self._scatter: Float64 = np.zeros((self.dim, self.dim))  # sum of (x - mean)(x - mean)^T
        self._pair_scatter: Float64 = np.zeros((self.dim, self.dim))  # sum of (x0 - x1)(x0 - x1)^T

    @property
    def C(self) -> Float64:
        """(D, D) covariance about the mean, divided by the count."""
        if self.count == 0:
            raise ValueError("no descriptors were given: there is no covariance")
        return self._scatter / self.count

    @property
    def C_M(self) -> Float64:
        """(D, D) mean outer product of the differences of matching pairs.

        The paper sums instead. The factor cancels when the projected descriptor is normalised, and
        the mean keeps the scale of A independent of the number of pairs.
        """
        if self.pair_count == 0:
            raise ValueError("no matching pairs were given: there is no intra-class covariance")
        return self._pair_scatter / self.pair_count

    def update(self, X: ArrayLike, pairs: ArrayLike | None = None) -> Statistics:
        """Add descriptors X (N, D) and the indices (M, 2) of matching pairs.

        Drop the zero descriptors of patches that could not be described before.
        """
        X = self._checked(X)
        pairs = _checked_pairs([] if pairs is None else pairs, len(X))
        for start in range(0, len(X), _CHUNK):
            chunk = X[start : start + _CHUNK].astype(np.float64)
            mean = chunk.mean(axis=0)
            chunk -= mean
            self._combine(len(chunk), mean, chunk.T @ chunk)
        for start in range(0, len(pairs), _CHUNK):
            i0, i1 = pairs[start : start + _CHUNK].T
            differences = X[i0].astype(np.float64) - X[i1]
            self._pair_scatter = self._pair_scatter + differences.T @ differences
        self.pair_count += len(pairs)
        return self

    def merge(self, other: Statistics) -> Statistics:
        """Add the statistics of other descriptors, in place."""
        if other.dim != self.dim:
            raise ValueError(f"cannot merge statistics of {self.dim} and {other.dim} dimensions")
        self._combine(other.count, other.mean, other._scatter)
        self.pair_count += other.pair_count
        self._pair_scatter = self._pair_scatter + other._pair_scatter
        return self

    def __repr__(self) -> str:
        return f"Statistics(dim={self.dim}, count={self.count}, pair_count={self.pair_count})"

    def save(self, path: PathLike) -> None:
        """Write one .npz file, whole or not at all."""
        scatters = {"scatter": self._scatter, "pair_scatter": self._pair_scatter}
        meta = {"dim": self.dim, "count": self.count, "pair_count": self.pair_count}
        write_archive(path, "statistics", {"mean": self.mean, **scatters}, meta)

    @classmethod
    def load(cls, path: PathLike) -> Statistics:
        """Read a file written by `save`."""
        arrays, meta = read_archive(path, "statistics")
        statistics = cls(meta["dim"])
        statistics.count, statistics.pair_count = meta["count"], meta["pair_count"]
        statistics.mean, statistics._scatter, statistics._pair_scatter = (
            arrays[name].astype(np.float64) for name in ("mean", "scatter", "pair_scatter")
        )
        return statistics

    def _checked(self, X: ArrayLike) -> NDArray[Any]:
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.dim:
            raise ValueError(f"X must be (N, {self.dim}), got shape {X.shape}")
        if X.dtype.kind not in "fiu":
            raise TypeError(f"X must be an array of real numbers, got dtype {X.dtype}")
        if not np.isfinite(X).all():
            raise ValueError("X has NaN or infinity")
        return X

    def _combine(self, count: int, mean: Float64, scatter: Float64) -> None:
        # Chan, Golub, LeVeque: scatter of a union from the scatters about the two means.
        if count == 0:
            return
        total = self.count + count
        delta = mean - self.mean
        between = np.outer(delta, delta) * (self.count * count / total)
        self._scatter = self._scatter + scatter + between
        self.mean = self.mean + delta * (count / total)
        self.count = total


def _checked_pairs(pairs: ArrayLike, count: int) -> NDArray[np.int64]:
    pairs = np.asarray(pairs)
    if pairs.size == 0:
        return np.zeros((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(f"pairs must be (M, 2) integers, got {pairs.dtype} of shape {pairs.shape}")
    if pairs.min() < 0 or pairs.max() >= count:
        raise ValueError(f"pairs must be 0 to {count - 1}, got {pairs.min()} to {pairs.max()}")
    return pairs.astype(np.int64)

"""Whitening: sufficient statistics, the paper's projections, and the file that holds them.

A raw descriptor v becomes ``A^T (v - mu)``, L2-normalised. The matrix A follows from the mean mu
and the covariance C of the raw descriptors of a set of patches and, with supervision, from the
intra-class covariance C_M of its matching pairs:

==========  ======================================================  ==========================
variant     A                                                       paper
==========  ======================================================  ==========================
"w"         U diag(lam^-1/2)                                        W, PCA whitening
"wua"       U diag(lam^-t/2)                                        W_UA, attenuated
"wus"       U diag(((1 - beta) lam + beta)^-1/2)                    W_US, shrinkage
"ws"        C_M^-1/2 eig(C_M^-1/2 C C_M^-1/2)                       W_S, supervised
"pcasqrt"   U, and a signed square root after the projection        baseline of BTJ15
==========  ======================================================  ==========================

with U = eig(C), lam its eigenvalues in descending order (for W_US divided by the largest), and
beta = lam_i. Indices of eigenvalues (``beta_index``, ``shrink_index``) count from 1.

Everything is fitted in float64; what is kept, shipped and applied are the float32 projections.
"""

from __future__ import annotations

import io
import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.io.archive import canonical_json, read_archive, write_archive
from kd_cv.io.files import read_bytes

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]
Key = tuple[str, int]  # (kernel, patch size): what an entry of a file is for

VARIANTS = ("w", "wua", "wus", "ws", "pcasqrt")
ALIASES = {"lw": "ws", "pcaws": "wus", "pcawt": "wua", "pca": "pcasqrt"}  # Kornia's names

T = 0.7  # attenuation of W_UA
BETA_INDEX = 40  # beta of W_US is the 40th eigenvalue

# Eigenvalues below this fraction of the largest are raised to it: a direction without variance in
# the fitting set would otherwise be divided by zero.
FLOOR = 1e-10

SAFE_TORCH = (2, 6)  # the first release whose weights_only holds what it promises

_MAX_PTH_BYTES = 1 << 28
_MAX_ENTRIES = 1 << 22  # of a matrix in a .pth file; the authors' largest has 238 x 238
_CHUNK = 8192  # rows converted to float64 at a time


def variant_name(name: str) -> str:
    """The canonical name of a variant; Kornia's names are understood."""
    canonical = ALIASES.get(name, name) if isinstance(name, str) else name
    if canonical not in VARIANTS:
        known = ", ".join(VARIANTS)
        raise ValueError(f"unknown whitening {name!r}: expected one of {known} (or {_aliases()})")
    return canonical


def needs_sqrt(variant: str) -> bool:
    """Whether the variant takes a signed square root between projection and normalisation."""
    return variant_name(variant) == "pcasqrt"


def _aliases() -> str:
    return ", ".join(f"{alias} = {name}" for alias, name in ALIASES.items())


# --------------------------------------------------------------------------------------------------
# Sufficient statistics


class Statistics:
    """Mean, covariance C and intra-class covariance C_M of a stream of descriptors.

    Memory does not grow with the stream, and two halves merged equal the whole to rounding.
    """

    def __init__(self, dim: int) -> None:
        if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)) or dim < 1:
            raise ValueError(f"dim must be a positive integer, got {dim!r}")
        self.dim = int(dim)
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
        """Add descriptors X (N, D) and matching pairs of their rows (M, 2).

        All rows count as they are: drop the zero rows of patches that could not be described.
        """
        X = self._checked(X, "X")
        pairs = None if pairs is None else _checked_pairs(pairs, len(X))
        for start in range(0, len(X), _CHUNK):
            rows = X[start : start + _CHUNK].astype(np.float64)
            mean = rows.mean(axis=0)
            rows -= mean
            self._combine(len(rows), mean, rows.T @ rows)
        if pairs is not None:
            for start in range(0, len(pairs), _CHUNK):
                i0, i1 = pairs[start : start + _CHUNK].T
                self._add_differences(X[i0].astype(np.float64) - X[i1])
        return self

    def update_pairs(self, X0: ArrayLike, X1: ArrayLike) -> Statistics:
        """Add matching pairs (X0[k], X1[k]), both (M, D), to C_M only."""
        X0, X1 = self._checked(X0, "X0"), self._checked(X1, "X1")
        if len(X0) != len(X1):
            raise ValueError(f"X0 and X1 must have one row per pair, got {len(X0)} and {len(X1)}")
        for start in range(0, len(X0), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            self._add_differences(X0[chunk].astype(np.float64) - X1[chunk])
        return self

    def merge(self, other: Statistics) -> Statistics:
        """Add the statistics of other descriptors, in place."""
        if not isinstance(other, Statistics):
            raise TypeError(f"can merge Statistics only, got {type(other).__name__}")
        if other.dim != self.dim:
            raise ValueError(f"cannot merge statistics of {self.dim} and {other.dim} dimensions")
        self._combine(other.count, other.mean, other._scatter)
        self.pair_count += other.pair_count
        self._pair_scatter = self._pair_scatter + other._pair_scatter
        return self

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        return Statistics(self.dim).merge(self).merge(other)

    def __repr__(self) -> str:
        return f"Statistics(dim={self.dim}, count={self.count}, pair_count={self.pair_count})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz file, whole or not at all."""
        arrays = {
            "mean": self.mean,
            "scatter": self._scatter,
            "pair_scatter": self._pair_scatter,
        }
        meta = {"dim": self.dim, "count": self.count, "pair_count": self.pair_count}
        write_archive(path, "statistics", arrays, meta)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Statistics:
        """Read a file written by `save`."""
        arrays, meta = read_archive(path, "statistics")
        try:
            for name in ("dim", "count", "pair_count"):
                if type(meta[name]) is not int or meta[name] < 0:
                    raise ValueError(f"{name} is {meta[name]!r}")
            D = meta["dim"]
            expected = {"mean": (D,), "scatter": (D, D), "pair_scatter": (D, D)}
            shapes = {name: array.shape for name, array in arrays.items()}
            if shapes != expected or not all(np.isfinite(a).all() for a in arrays.values()):
                raise ValueError(f"expected finite arrays {expected}, got {shapes}")
            statistics = cls(D)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)}: damaged statistics: {error}") from error
        statistics.count, statistics.pair_count = meta["count"], meta["pair_count"]
        statistics.mean = arrays["mean"].astype(np.float64)
        statistics._scatter = arrays["scatter"].astype(np.float64)
        statistics._pair_scatter = arrays["pair_scatter"].astype(np.float64)
        return statistics

    def _checked(self, X: ArrayLike, name: str) -> NDArray[Any]:
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.dim:
            raise ValueError(f"{name} must be (N, {self.dim}), got shape {X.shape}")
        if X.dtype.kind not in "fiu":
            raise TypeError(f"{name} must be an array of real numbers, got dtype {X.dtype}")
        bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
        if len(bad):
            raise ValueError(f"{name} has NaN or infinity in {len(bad)} rows, first in {bad[0]}")
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

    def _add_differences(self, differences: Float64) -> None:
        self._pair_scatter = self._pair_scatter + differences.T @ differences
        self.pair_count += len(differences)


def balanced(statistics: Sequence[Statistics]) -> Statistics:
    """Statistics in which each of the given ones counts the same, however many descriptors it saw.

    The total counts are kept, up to rounding.
    """
    if not statistics:
        raise ValueError("no statistics were given to balance")
    count, pair_count = (
        sum(getattr(s, name) for s in statistics) // len(statistics)
        for name in ("count", "pair_count")
    )
    result = Statistics(statistics[0].dim)
    for s in statistics:
        result._combine(count, s.mean, s.C * count)
        if pair_count:
            result._pair_scatter = result._pair_scatter + s.C_M * pair_count
            result.pair_count += pair_count
    return result


def _checked_pairs(pairs: ArrayLike, count: int) -> NDArray[np.int64]:
    pairs = np.asarray(pairs)
    if pairs.size == 0:
        return np.zeros((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(f"pairs must be (M, 2) integers, got {pairs.dtype} of shape {pairs.shape}")
    if pairs.min() < 0 or pairs.max() >= count:
        raise ValueError(
            f"pairs must be rows 0..{count - 1} of X, got indices {pairs.min()} to {pairs.max()}"
        )
    return pairs.astype(np.int64)


# --------------------------------------------------------------------------------------------------
# Projections


def eig(C: ArrayLike) -> tuple[Float64, Float64]:
    """Eigenvectors U (D, D), in columns, and eigenvalues lam (D,) of a covariance, descending.

    The largest component of each eigenvector is positive, so that a fit can be repeated;
    eigenvalues below FLOOR * lam[0] (a rank-deficient C) are raised to it.
    """
    C = np.asarray(C, np.float64)
    if C.ndim != 2 or C.shape[0] != C.shape[1] or C.shape[0] == 0:
        raise ValueError(f"a covariance must be (D, D), got shape {C.shape}")
    if not np.isfinite(C).all():
        raise ValueError("the covariance has NaN or infinity")
    lam, U = np.linalg.eigh((C + C.T) / 2)
    lam, U = lam[::-1], U[:, ::-1]
    if not lam[0] > 0:
        raise ValueError("the covariance has no positive eigenvalue: the descriptors do not vary")
    largest = U[np.abs(U).argmax(axis=0), np.arange(U.shape[1])]
    return U * np.where(largest < 0, -1.0, 1.0), np.maximum(lam, FLOOR * lam[0])


def attenuation(lam: ArrayLike, t: float = T) -> Float64:
    """Column scales lam^(-t/2) of W_UA: t = 1 whitens, t = 0 only rotates."""
    return np.asarray(lam, np.float64) ** (-_checked_t(t) / 2)


def _checked_t(t: float) -> float:
    if not 0 <= t <= 1:
        raise ValueError(f"t must be in [0, 1], got {t!r}")
    return t


def shrinkage(lam: ArrayLike, beta_index: int = BETA_INDEX) -> Float64:
    """Column scales ((1 - beta) lam + beta)^(-1/2) of W_US with beta = lam_i, i counted from 1.

    lam (D,) is a spectrum normalised to a maximum of 1.
    """
    lam = np.asarray(lam, np.float64)
    beta = lam[_eigenvalue_index(beta_index, len(lam), "beta_index")]
    return ((1 - beta) * lam + beta) ** -0.5


def pca_whitening(C: ArrayLike, dim: int | None = None) -> Float64:
    """W: A (D, dim) = eig(C) diag(lam^-1/2)."""
    return attenuated(C, t=1.0, dim=dim)


def attenuated(C: ArrayLike, t: float = T, dim: int | None = None) -> Float64:
    """W_UA: A (D, dim) = eig(C) diag(lam^-t/2)."""
    U, lam = eig(C)
    return _first(U * attenuation(lam, t), dim)


def shrunk(C: ArrayLike, beta_index: int = BETA_INDEX, dim: int | None = None) -> Float64:
    """W_US: A (D, dim) = eig(C) diag(((1 - beta) lam + beta)^-1/2), lam normalised."""
    U, lam = eig(C)
    return _first(U * shrinkage(lam / lam[0], beta_index), dim)


def supervised(
    C: ArrayLike,
    C_M: ArrayLike,
    shrink_index: int | None = None,
    dim: int | None = None,
    t: float = 1.0,
) -> Float64:
    """W_S: A (D, dim) = C_M^-1/2 eig(C_M^-1/2 C C_M^-1/2).

    Beyond the paper, C_M can be regularised as C is for the unsupervised variants: shrink_index
    first replaces it, normalised to a largest eigenvalue of 1, by (1 - beta) C_M + beta I with beta
    its i-th eigenvalue; t attenuates it to C_M^-t/2. The defaults are the paper's W_S.
    """
    _checked_t(t)
    C, C_M = np.asarray(C, np.float64), np.asarray(C_M, np.float64)
    if C.ndim != 2 or C.shape[0] != C.shape[1] or C.shape != C_M.shape:
        raise ValueError(f"C and C_M must both be (D, D), got {C.shape} and {C_M.shape}")
    if not C_M.any():
        raise ValueError("the matching pairs are identical: there is no intra-class covariance")
    # The paper's appendix proves that W_S absorbs any weights of the dimensions. So the weights are
    # chosen for accuracy: a C_M of unit diagonal, which also makes FLOOR mean the same for all of
    # them. Regularisation is not invariant to weights; it acts on the dimensions as they are.
    weights = np.ones(len(C))
    if shrink_index is None and t == 1:
        diagonal = np.diag(C_M)
        diagonal = np.where(diagonal > FLOOR * np.diag(C), diagonal, np.diag(C))
        weights = np.where(diagonal > 0, diagonal, 1.0) ** -0.5
    E, scale = _whiten_pairs(C_M * np.outer(weights, weights), shrink_index)
    half = (E * scale**t) @ E.T  # C_M^-t/2
    V, _ = eig(half @ (C * np.outer(weights, weights)) @ half)
    return _first(weights[:, None] * (half @ V), dim)


def _whiten_pairs(C_M: Float64, shrink_index: int | None) -> tuple[Float64, Float64]:
    E, lam = eig(C_M)
    if shrink_index is None:
        return E, lam**-0.5
    _eigenvalue_index(shrink_index, len(lam), "shrink_index")
    return E, shrinkage(lam / lam[0], shrink_index) * lam[0] ** -0.5


def pca_sqrt(C: ArrayLike, dim: int | None = None) -> Float64:
    """PCA of the baseline BTJ15: A (D, dim) = eig(C); `project` with sqrt=True does the rest."""
    return attenuated(C, t=0.0, dim=dim)


def project(raw: ArrayLike, mu: ArrayLike, A: ArrayLike, sqrt: bool = False) -> NDArray[Any]:
    """Subtract mu (D,), multiply by A (D, K), L2-normalise: (N, D) -> (N, K).

    With sqrt, a signed square root comes before the normalisation. A zero row (a patch that could
    not be described) stays a zero row.
    """
    raw, mu, A = np.asarray(raw), np.asarray(mu), np.asarray(A)
    if A.ndim != 2 or mu.shape != A.shape[:1] or raw.ndim != 2 or raw.shape[1] != A.shape[0]:
        raise ValueError(
            "expected raw (N, D), mu (D,) and A (D, K), "
            f"got shapes {raw.shape}, {mu.shape} and {A.shape}"
        )
    y = (raw - mu) @ A
    if sqrt:
        y = np.sign(y) * np.sqrt(np.abs(y))
    y /= np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-12)
    y[~raw.any(axis=1)] = 0
    return y


def _first(A: Float64, dim: int | None) -> Float64:
    return A if dim is None else A[:, : _checked_dim(dim, A.shape[1])]


def _checked_dim(dim: int, columns: int) -> int:
    if isinstance(dim, bool) or not isinstance(dim, (int, np.integer)) or not 1 <= dim <= columns:
        raise ValueError(f"dim must be an integer from 1 to {columns}, got {dim!r}")
    return int(dim)


def _eigenvalue_index(index: int, count: int, name: str) -> int:
    integer = isinstance(index, (int, np.integer)) and not isinstance(index, bool)
    if not integer or not 1 <= index <= count:
        raise ValueError(f"{name} must be an integer from 1 to {count}, got {index!r}")
    return int(index) - 1


# --------------------------------------------------------------------------------------------------
# The fitted object


@dataclass(frozen=True, eq=False)
class Whitening:
    """Fitted projections of a D-dimensional descriptor, to K <= D dimensions.

    W, W_UA, W_US and PCA + square root are column scalings of the same U, so that t and beta can
    be chosen at projection time and nothing is decomposed when a file is loaded.
    """

    mu: Float32  # (D,)
    U: Float32  # (D, K) first eigenvectors of C
    lam: Float64  # (D,) all eigenvalues of C, descending
    A_s: Float32 | None = None  # (D, K) W_S, if matching pairs were given
    mu_s: Float32 | None = None  # (D,) mean of W_S, if it is not mu
    t: float = T
    beta_index: int = BETA_INDEX
    lam_scale: float = 1.0  # lam / lam_scale is the spectrum that W_US shrinks
    shrink_index: int | None = None  # how A_s was fitted
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        D = len(np.atleast_1d(self.mu))
        K = np.shape(self.U)[1] if np.ndim(self.U) == 2 else 0
        _freeze(self, "mu", np.float32, (D,))
        _freeze(self, "U", np.float32, (D, K))
        _freeze(self, "lam", np.float64, (D,))
        if not 1 <= K <= D:
            raise ValueError(f"U must have 1 to {D} columns, got shape {np.shape(self.U)}")
        if not (self.lam > 0).all():
            raise ValueError("lam must be positive")
        if self.A_s is not None:
            _freeze(self, "A_s", np.float32, (D, K))
        if self.mu_s is not None:
            if self.A_s is None:
                raise ValueError("mu_s is the mean of A_s, which is missing")
            _freeze(self, "mu_s", np.float32, (D,))
        attenuation(self.lam, self.t)
        _eigenvalue_index(self.beta_index, D, "beta_index")
        if self.shrink_index is not None:
            _eigenvalue_index(self.shrink_index, D, "shrink_index")
        if not (np.isfinite(self.lam_scale) and self.lam_scale > 0):
            raise ValueError(f"lam_scale must be positive, got {self.lam_scale!r}")
        if not isinstance(self.provenance, Mapping):
            raise TypeError(f"provenance must be a dict, got {type(self.provenance).__name__}")
        object.__setattr__(self, "provenance", json.loads(canonical_json(self.provenance)))

    @property
    def dim(self) -> int:
        """D, the dimension of the raw descriptor."""
        return len(self.mu)

    @property
    def max_dim(self) -> int:
        """K, the largest output dimension."""
        return self.U.shape[1]

    @classmethod
    def fit(
        cls,
        statistics: Statistics,
        *,
        max_dim: int | None = None,
        t: float = T,
        beta_index: int = BETA_INDEX,
        shrink_index: int | None = None,
        supervised_t: float = 1.0,
        provenance: Mapping[str, Any] | None = None,
    ) -> Whitening:
        """Fit all variants; W_S only if the statistics have matching pairs.

        max_dim: columns to keep (all by default). beta_index: the last eigenvalue is taken where
        the descriptor has fewer. shrink_index and supervised_t (its t): see `supervised`.
        provenance: what the matrices were fitted on, any JSON; the counts and supervised_t are
        added to it.

        Fewer patches than dimensions leave C rank-deficient: it is fitted with a warning, and the
        columns beyond the rank carry no information. The same holds for pairs and C_M.
        """
        if not isinstance(statistics, Statistics):
            raise TypeError(f"expected Statistics, got {type(statistics).__name__}")
        D = statistics.dim
        columns = D if max_dim is None else _checked_dim(max_dim, D)
        if statistics.count < 2:
            raise ValueError(f"a covariance needs 2 or more descriptors, got {statistics.count}")
        C, C_M, mean = statistics.C, None, statistics.mean
        if np.trace(C) <= 1e-20 * (mean @ mean):
            raise ValueError(
                f"the {statistics.count} descriptors are all the same: there is nothing to whiten"
            )
        if statistics.count <= D:
            _warn_few("patches", statistics.count, D)
        if statistics.pair_count:
            C_M = statistics.C_M
            if statistics.pair_count < D:
                _warn_few("matching pairs", statistics.pair_count, D)
        U, lam = eig(C)
        return cls(
            mu=mean.astype(np.float32),
            U=U[:, :columns].astype(np.float32),
            lam=lam,
            A_s=None
            if C_M is None
            else _float32(supervised(C, C_M, shrink_index, columns, supervised_t)),
            t=t,
            beta_index=min(beta_index, D),
            lam_scale=float(lam[0]),
            shrink_index=None if C_M is None else shrink_index,
            provenance={
                **(provenance or {}),
                "patches": statistics.count,
                "pairs": statistics.pair_count,
                "supervised_t": supervised_t,
            },
        )

    def has(self, variant: str) -> bool:
        """Whether the variant was fitted: W_S needs matching pairs."""
        return variant_name(variant) != "ws" or self.A_s is not None

    def projection(
        self,
        variant: str,
        dim: int | None = None,
        *,
        t: float | None = None,
        beta_index: int | None = None,
    ) -> tuple[Float32, Float32]:
        """mu (D,) and A (D, dim) of a variant, for `project`; dim is max_dim if not given.

        t and beta_index replace the fitted settings of W_UA and W_US. For "pcasqrt" (`needs_sqrt`)
        the square root after the projection is the caller's.
        """
        name = variant_name(variant)
        columns = self.max_dim if dim is None else _checked_dim(dim, self.max_dim)
        if t is not None and name != "wua":
            raise ValueError(f't is a setting of "wua", not of {name!r}')
        if beta_index is not None and name != "wus":
            raise ValueError(f'beta_index is a setting of "wus", not of {name!r}')
        if name == "ws":
            if self.A_s is None:
                raise ValueError(
                    'these matrices were fitted without matching pairs: "ws" is missing; '
                    'use "wus", "wua", "w" or "pcasqrt", or fit with pairs'
                )
            mu = self.mu if self.mu_s is None else self.mu_s
            return mu, np.ascontiguousarray(self.A_s[:, :columns])
        if name == "wus":
            index = self.beta_index if beta_index is None else beta_index
            scale = shrinkage(self.lam / self.lam_scale, index)
        else:
            exponent = {"w": 1.0, "wua": self.t if t is None else t, "pcasqrt": 0.0}[name]
            scale = attenuation(self.lam, exponent)
        with np.errstate(over="ignore", invalid="ignore"):
            A = _float32(self.U[:, :columns] * scale[:columns])
        if not np.isfinite(A).all():
            raise ValueError(f"the spectrum of these matrices leaves no finite {name!r}")
        return self.mu, A

    def apply(
        self, raw: ArrayLike, variant: str, dim: int | None = None, **settings: Any
    ) -> NDArray[Any]:
        """Project raw (N, D) -> (N, dim); settings as in `projection`."""
        mu, A = self.projection(variant, dim, **settings)
        return project(raw, mu, A, sqrt=needs_sqrt(variant))

    def save(self, path: str | os.PathLike[str], kernel: str, patch_size: int) -> None:
        """Write a file with this one entry."""
        save(path, {(kernel, patch_size): self})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Whitening:
        """Read a file with one entry."""
        entries = load(path)
        if len(entries) != 1:
            raise ValueError(
                f"{os.fspath(path)} has {len(entries)} entries {sorted(entries)}: use load()"
            )
        return next(iter(entries.values()))


def _freeze(whitening: Whitening, name: str, dtype: type, shape: tuple[int, ...]) -> None:
    array: NDArray[Any] = np.array(getattr(whitening, name), dtype=dtype, order="C")
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has NaN or infinity")
    array.setflags(write=False)
    object.__setattr__(whitening, name, array)


def _float32(A: NDArray[Any]) -> Float32:
    return np.ascontiguousarray(A, dtype=np.float32)


def _warn_few(what: str, count: int, dim: int) -> None:
    warnings.warn(
        f"only {count} {what} for {dim} dimensions: the covariance is rank-deficient and its "
        f"smallest eigenvalues are set to {FLOOR:g} of the largest",
        stacklevel=3,
    )


# --------------------------------------------------------------------------------------------------
# Files: several entries of one fit, keyed by (kernel, patch size)


def save(path: str | os.PathLike[str], entries: Mapping[Key, Whitening]) -> None:
    """Write the entries as one .npz file, whole or not at all; equal entries give equal bytes."""
    arrays, settings = {}, {}
    for key, whitening in entries.items():
        prefix = _key_name(key)
        for name in ("mu", "U", "lam", "A_s", "mu_s"):
            if getattr(whitening, name) is not None:
                arrays[f"{prefix}/{name}"] = getattr(whitening, name)
        settings[prefix] = {
            "t": float(whitening.t),
            "beta_index": int(whitening.beta_index),
            "lam_scale": float(whitening.lam_scale),
            "shrink_index": whitening.shrink_index,
            "provenance": whitening.provenance,
        }
    if not settings:
        raise ValueError("there is no entry to save")
    write_archive(path, "whitening", arrays, {"entries": settings})


def load(path: str | os.PathLike[str]) -> dict[Key, Whitening]:
    """Read a file written by `save`; a damaged or foreign file is a ValueError."""
    arrays, meta = read_archive(path, "whitening")
    entries: dict[Key, Whitening] = {}
    try:
        for prefix, settings in meta["entries"].items():
            own: dict[str, Any] = {
                name.removeprefix(prefix + "/"): arrays.pop(name)
                for name in list(arrays)
                if name.startswith(prefix + "/")
            }
            entries[_key_from_name(prefix)] = Whitening(**own, **settings)
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"{os.fspath(path)}: damaged matrices: {error}") from error
    if arrays or not entries:
        raise ValueError(f"{os.fspath(path)}: its entries and its arrays do not agree")
    return entries


def _key_name(key: Key) -> str:
    kernel, patch_size = key
    name = f"{kernel}-{patch_size}"
    _key_from_name(name)
    return name


def _key_from_name(name: str) -> Key:
    match = re.fullmatch(r"([a-z][a-z0-9_]{0,31})-([1-9][0-9]{0,4})", name)
    if match is None:
        raise ValueError(f"an entry is (kernel, patch size) such as ('concat', 32), got {name!r}")
    return match[1], int(match[2])


def load_pth(path: str | os.PathLike[str], training_set: str = "liberty") -> Whitening:
    """Read the matrices of the authors' package and of Kornia (mkd-concat-64.pth and the like).

    Projections equal those of `kornia.feature.mkd.Whitening`: its W_US takes the spectrum as stored
    and counts keval = 40 from 0.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"reading {os.fspath(path)} needs torch: pip install kd-cv[torch]"
        ) from error
    if _release(torch.__version__) < SAFE_TORCH:
        raise ImportError(
            f"reading {os.fspath(path)} needs torch {'.'.join(map(str, SAFE_TORCH))} or newer, "
            f"not {torch.__version__}: a file can make older ones run any code (CVE-2025-32434)"
        )
    # Not from the file itself, of which torch would ask, in vain, for gigabytes at a time.
    data = io.BytesIO(read_bytes(path, _MAX_PTH_BYTES))
    try:
        models = torch.load(data, map_location="cpu", weights_only=True)
    except Exception as error:  # torch does not say what a damaged file makes it raise
        raise ValueError(f"{os.fspath(path)} is not a file of torch tensors: {error}") from error
    if not isinstance(models, dict) or training_set not in models:
        found = sorted(map(str, models)) if isinstance(models, dict) else type(models).__name__
        raise ValueError(f"{os.fspath(path)} has no training set {training_set!r}, but {found}")
    try:
        pca = models[training_set]["pca"]
        lw = models[training_set].get("lw")
        lam = _from_tensor(pca["eigvals"]).astype(np.float64)
        return Whitening(
            mu=_from_tensor(pca["mean"]).reshape(-1),
            U=_from_tensor(pca["eigvecs"]),
            lam=np.maximum(lam, FLOOR * lam.max()),
            A_s=None if lw is None else _from_tensor(lw["eigvecs"]),
            mu_s=None if lw is None else _from_tensor(lw["mean"]).reshape(-1),
            beta_index=min(BETA_INDEX + 1, len(lam)),
            provenance={"file": Path(path).name, "training_set": training_set},
        )
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{os.fspath(path)}: expected mean, eigvecs, eigvals in 'pca' and 'lw' "
            f"of {training_set!r}: {error}"
        ) from error


def _from_tensor(tensor: Any) -> NDArray[Any]:
    # A tensor of any size may be a view of one number: look before it is copied.
    if tensor.numel() > _MAX_ENTRIES:
        raise ValueError(f"a matrix of {tensor.numel()} entries, at most {_MAX_ENTRIES} are read")
    return np.asarray(tensor)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])

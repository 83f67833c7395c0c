"""`Whitening`: the fitted matrices of all variants, from which a projection is made."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.checks import as_int
from kd_cv.descriptor.projection import Projection
from kd_cv.io.archive import canonical_json
from kd_cv.types import Array32, Float64
from kd_cv.whitening.variants import (
    ATTENUATION,
    BEST,
    BETA_INDEX,
    FLOOR,
    SUPERVISED_T,
    VARIANTS,
    attenuation,
    eig,
    shrink_index,
    shrinkage,
    supervised,
    variant_name,
)

if TYPE_CHECKING:
    from kd_cv.whitening.statistics import Statistics
    from kd_cv.whitening.trained import Sample


@dataclass(frozen=True, eq=False)
class Whitening:
    """Fitted projections of a D-dimensional descriptor, to K <= D dimensions.

    W, W_UA, W_US and PCA + square root scale the columns of the same U.
    """

    mu: Array32  # (D,)
    U: Array32  # (D, K) first eigenvectors of C
    lam: Float64  # (D,) all eigenvalues of C, descending
    A_s: Array32 | None = None  # (D, K) W_S, if matching pairs were given
    mu_s: Array32 | None = None  # (D,) mean of W_S, if it is not mu
    A_m: Array32 | None = None  # (D, K) W_M, if it was trained
    mu_m: Array32 | None = None  # (D,) its mean
    t: float = ATTENUATION
    beta_index: int = BETA_INDEX
    lam_scale: float = 1.0  # lam / lam_scale is the spectrum that W_US shrinks
    shrink_index: int | None = None  # how A_s was fitted
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        D = len(np.atleast_1d(self.mu))
        K = np.shape(self.U)[1] if np.ndim(self.U) == 2 else 0
        _freeze(self, "lam", np.float64, (D,))
        for names, shape in ((("mu", "mu_s", "mu_m"), (D,)), (("U", "A_s", "A_m"), (D, K))):
            for name in names:
                if getattr(self, name) is not None:
                    _freeze(self, name, np.float32, shape)
        if not 1 <= K <= D:
            raise ValueError(f"U must have 1 to {D} columns, got shape {np.shape(self.U)}")
        if not (self.lam > 0).all():
            raise ValueError("lam must be positive")
        if self.mu_s is not None and self.A_s is None:
            raise ValueError("mu_s is the mean of A_s, which is missing")
        if (self.A_m is None) != (self.mu_m is None):
            raise ValueError("A_m and mu_m belong together, one of them is missing")
        attenuation(self.lam, self.t)
        as_int(self.beta_index, "beta_index", 1, D)
        if self.shrink_index is not None:
            as_int(self.shrink_index, "shrink_index", 1, D)
        if not (np.isfinite(self.lam_scale) and self.lam_scale > 0):
            raise ValueError(f"lam_scale must be positive, got {self.lam_scale!r}")
        object.__setattr__(self, "provenance", json.loads(canonical_json(dict(self.provenance))))

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
        samples: Sequence[Sample] = (),
        provenance: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Whitening:
        """Fit all variants; W_S only if the statistics have matching pairs.

        max_dim: columns to keep (all by default). samples: descriptors of scenes to train W_M on
        (see `train`, also for progress). provenance: JSON that is stored with the counts.

        C_M of W_S is shrunk by `shrink_index` and attenuated by SUPERVISED_T. Fewer patches or
        pairs than dimensions give a warning: columns beyond the rank carry no information.
        """
        from kd_cv.whitening.trained import train  # needed for fitting only

        D, count, pair_count = statistics.dim, statistics.count, statistics.pair_count
        columns = D if max_dim is None else as_int(max_dim, "max_dim", 1, D)
        if count < 2:
            raise ValueError(f"a covariance needs 2 or more descriptors, got {count}")
        C, mean = statistics.C, statistics.mean
        if np.trace(C) <= 1e-20 * (mean @ mean):
            raise ValueError(
                f"the {count} descriptors are all the same: there is nothing to whiten"
            )
        if count <= D:
            _warn_few("patches", count, D)
        if 0 < pair_count < D:
            _warn_few("matching pairs", pair_count, D)
        index = shrink_index(pair_count, D) if pair_count else None
        A = supervised(C, statistics.C_M, index, t=SUPERVISED_T) if pair_count else None
        counts: dict[str, Any] = {
            "patches": count, "pairs": pair_count, "supervised_t": SUPERVISED_T
        }  # fmt: skip
        A_m = mu_m = None
        if samples:
            if A is None:
                raise ValueError("W_M starts at W_S, which needs matching pairs: none were given")
            mu_m, A_m = train(samples, mean, A, columns, progress=progress)
            # Only the span of the columns matters: rotate them by descending variance.
            A_m = _float32(A_m @ eig(A_m.T @ C @ A_m)[0])
            patches = sum(len(sample.X) for sample in samples)
            counts["trained_on"] = {"scenes": len(samples), "patches": patches}
        U, lam = eig(C)
        return cls(
            mu=mean.astype(np.float32),
            U=U[:, :columns].astype(np.float32),
            lam=lam,
            A_s=None if A is None else _float32(A[:, :columns]),
            A_m=A_m,
            mu_m=None if mu_m is None else _float32(mu_m),
            beta_index=min(BETA_INDEX, D),
            lam_scale=float(lam[0]),
            shrink_index=index,
            provenance={**(provenance or {}), **counts},
        )

    def has(self, variant: str) -> bool:
        """Return whether the variant was fitted."""
        return {"ws": self.A_s, "wm": self.A_m}.get(variant_name(variant), self.U) is not None

    def variants(self) -> tuple[str, ...]:
        """Return the variants that were fitted."""
        return tuple(name for name in VARIANTS if self.has(name))

    def variant(self, name: str) -> str:
        """Return the canonical name of a variant; "best" is W_M, else W_S, else W_UA."""
        if name != BEST:
            return variant_name(name)
        return next(best for best in ("wm", "ws", "wua") if self.has(best))

    def projection(
        self,
        variant: str,
        dim: int | None = None,
        *,
        t: float | None = None,
        beta_index: int | None = None,
    ) -> Projection:
        """Return the projection to `dim` dimensions (all by default) by a variant, or the "best".

        t and beta_index replace the fitted settings of W_UA and W_US.
        """
        name = self.variant(variant)
        columns = self.max_dim if dim is None else as_int(dim, "dim", 1, self.max_dim)
        if t is not None and name != "wua":
            raise ValueError(f't is a setting of "wua", not of {name!r}')
        if beta_index is not None and name != "wus":
            raise ValueError(f'beta_index is a setting of "wus", not of {name!r}')
        if not self.has(name):
            lack = {"ws": "fitted without matching pairs", "wm": "not trained"}[name]
            there = ", ".join(f'"{other}"' for other in self.variants())
            raise ValueError(f'these matrices were {lack}: "{name}" is missing; there are {there}')
        if name in ("ws", "wm"):
            mu, A_whole = (self.mu_s, self.A_s) if name == "ws" else (self.mu_m, self.A_m)
            assert A_whole is not None
            return Projection(self.mu if mu is None else mu, _float32(A_whole[:, :columns]))
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
        return Projection(self.mu, A, power=0.5 if name == "pcasqrt" else 1.0)

    def apply(
        self, raw: ArrayLike, variant: str, dim: int | None = None, **settings: Any
    ) -> NDArray[Any]:
        """Project raw (N, D) -> (N, dim); settings as in `projection`."""
        return self.projection(variant, dim, **settings)(np.asarray(raw))


def _freeze(whitening: Whitening, name: str, dtype: type, shape: tuple[int, ...]) -> None:
    array: NDArray[Any] = np.array(getattr(whitening, name), dtype=dtype, order="C")
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has NaN or infinity")
    array.setflags(write=False)
    object.__setattr__(whitening, name, array)


def _float32(A: NDArray[Any]) -> Array32:
    return np.ascontiguousarray(A, dtype=np.float32)


def _warn_few(what: str, count: int, dim: int) -> None:
    warnings.warn(
        f"only {count} {what} for {dim} dimensions: the covariance is rank-deficient and its "
        f"smallest eigenvalues are set to {FLOOR:g} of the largest",
        stacklevel=3,
    )

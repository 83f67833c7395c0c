"""The paper's whitening matrices, as functions of covariances.

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
"wm"        trained, beginning with W_S, with its own mean          none: see `trained`
==========  ======================================================  ==========================

with U = eig(C), lam its eigenvalues in descending order (for W_US divided by the largest), and
beta = lam_i. Indices of eigenvalues (``beta_index``, ``shrink_index``) count from 1.
"""

import numpy as np
from numpy.typing import ArrayLike

from kd_cv.checks import as_int
from kd_cv.types import Float64

VARIANTS = ("w", "wua", "wus", "ws", "wm", "pcasqrt")
BEST = "best"  # the best of those that were fitted: trained, supervised, attenuated
ALIASES = {"lw": "ws", "pcaws": "wus", "pcawt": "wua", "pca": "pcasqrt"}  # Kornia's names

ATTENUATION = 0.7  # t of W_UA
BETA_INDEX = 40  # beta of W_US is the 40th eigenvalue

# Attenuation of C_M in a fitted W_S; the paper has 1. In image matching 0.9 gains up to 0.7 points
# of average precision where pairs are few, and loses 0.1 at most where they are many.
SUPERVISED_T = 0.9

# Eigenvalues below this fraction of the largest are raised to it: a direction without variance in
# the fitting set would otherwise be divided by zero.
FLOOR = 1e-10


def variant_name(name: str) -> str:
    """The canonical name of a variant; Kornia's names and the paper's, as "W_S", are understood."""
    canonical = name
    if isinstance(name, str):
        plain = name.lower().replace("_", "")
        canonical = ALIASES.get(plain, plain)
    if canonical not in VARIANTS:
        known = ", ".join(VARIANTS)
        aliases = ", ".join(f"{alias} = {name}" for alias, name in ALIASES.items())
        raise ValueError(
            f"unknown whitening {name!r}: expected {BEST}, or one of {known} (or {aliases})"
        )
    return canonical


def eig(C: ArrayLike) -> tuple[Float64, Float64]:
    """Compute eigenvectors U (D, D), in columns, and eigenvalues lam (D,), descending.

    The largest component of each eigenvector is positive; eigenvalues are at least FLOOR * lam[0].
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


def attenuation(lam: ArrayLike, t: float = ATTENUATION) -> Float64:
    """Compute the column scales lam^(-t/2) of W_UA: t = 1 whitens, t = 0 only rotates."""
    return np.asarray(lam, np.float64) ** (-_in_unit_interval(t) / 2)


def _in_unit_interval(t: float) -> float:
    if not 0 <= t <= 1:
        raise ValueError(f"t must be in [0, 1], got {t!r}")
    return t


def shrinkage(lam: ArrayLike, beta_index: int = BETA_INDEX) -> Float64:
    """Compute the column scales ((1 - beta) lam + beta)^(-1/2) of W_US with beta = lam_i.

    lam (D,) is a spectrum normalised to a maximum of 1.
    """
    lam = np.asarray(lam, np.float64)
    beta = lam[as_int(beta_index, "beta_index", 1, len(lam)) - 1]
    return ((1 - beta) * lam + beta) ** -0.5


def supervised(
    C: ArrayLike,
    C_M: ArrayLike,
    shrink_index: int | None = None,
    dim: int | None = None,
    t: float = 1.0,
) -> Float64:
    """Compute W_S: A (D, dim) = C_M^-1/2 eig(C_M^-1/2 C C_M^-1/2).

    Beyond the paper, C_M can be regularised as C is for the unsupervised variants: shrink_index
    first replaces it, normalised to a largest eigenvalue of 1, by (1 - beta) C_M + beta I with beta
    its i-th eigenvalue; t attenuates it to C_M^-t/2. The defaults are the paper's W_S.
    """
    _in_unit_interval(t)
    C, C_M = np.asarray(C, np.float64), np.asarray(C_M, np.float64)
    if C.ndim != 2 or C.shape[0] != C.shape[1] or C.shape != C_M.shape:
        raise ValueError(f"C and C_M must both be (D, D), got {C.shape} and {C_M.shape}")
    if not C_M.any():
        raise ValueError("the matching pairs are identical: there is no intra-class covariance")
    # W_S absorbs any weights of the dimensions (the paper's appendix). A C_M of unit diagonal is
    # accurate, and makes FLOOR mean the same for all. Regularisation depends on weights: none then.
    weights = np.ones(len(C))
    if shrink_index is None and t == 1:
        diagonal = np.diag(C_M)
        diagonal = np.where(diagonal > FLOOR * np.diag(C), diagonal, np.diag(C))
        weights = np.where(diagonal > 0, diagonal, 1.0) ** -0.5
    E, lam = eig(C_M * np.outer(weights, weights))
    scale = lam**-0.5
    if shrink_index is not None:
        scale = shrinkage(lam / lam[0], shrink_index) * lam[0] ** -0.5
    half = (E * scale**t) @ E.T  # C_M^-t/2
    V, _ = eig(half @ (C * np.outer(weights, weights)) @ half)
    A = weights[:, None] * (half @ V)
    return A if dim is None else A[:, : as_int(dim, "dim", 1, len(A))]


def shrink_index(pairs: int, dim: int) -> int | None:
    """Choose the eigenvalue of C_M that shrinks it: i = D n / (n + 2 D) for n pairs; None for D.

    The smallest eigenvalues of a C_M of few pairs are too small by chance, and W_S divides by them.

    >>> [shrink_index(n, 238) for n in (238, 476, 2380, 250_000)]
    [79, 119, 198, None]
    """
    index = round(dim * pairs / (pairs + 2 * dim))
    return None if index >= dim else max(1, index)

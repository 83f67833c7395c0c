"""`Spec` describes one raw descriptor; `Constants` follow from it.

The descriptor of a patch is V = sum over pixels of g sqrt(m) psi(position) (x) psi(angle).
Its angle part has seven terms: 1, cos k theta, sin k theta for k = 1..3 ("planes"). By the
product-to-sum rules its position part needs only 64 functions:

    g psi_rho,j cos(m phi), m = 0..5  and  g psi_rho,j sin(m phi), m = 1..5   (5 radial terms: 55)
    g psi_x,a psi_y,b                                                         (9)

so V = sum over planes k of (plane_k @ Phi) @ T[k], with constant Phi and a very sparse T.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from kd_cv.checks import as_int
from kd_cv.descriptor.kernels import (
    PHI,
    RHO,
    THETA,
    Array,
    Grid,
    X,
    Y,
    correlation_matrix,
    gaussian_taps,
)

KERNELS = ("concat", "polar", "cart")
MIN_PATCH_SIZE, MAX_PATCH_SIZE = 16, 128
PLANES = THETA.dim  # 1, cos theta .. cos 3 theta, sin theta .. sin 3 theta
HARMONICS = THETA.N + PHI.N  # cos k(theta - phi) times psi_phi reaches cos 5 phi
POLAR_DIM = PLANES * PHI.dim * RHO.dim
CART_DIM = PLANES * X.dim * Y.dim


@dataclass(frozen=True)
class Spec:
    """A raw descriptor: side of the patch, and parametrisation of the pixels.

    >>> Spec(patch_size=32, kernel="concat").dim
    238
    """

    patch_size: int = 32
    kernel: str = "concat"

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise ValueError(f"unknown kernel {self.kernel!r}: expected one of {list(KERNELS)}")
        as_int(self.patch_size, "patch_size", MIN_PATCH_SIZE, MAX_PATCH_SIZE)

    @property
    def parts(self) -> tuple[slice, ...]:
        """The separately normalised parts of the vector: polar first."""
        if self.kernel == "polar":
            return (slice(0, POLAR_DIM),)
        if self.kernel == "cart":
            return (slice(0, CART_DIM),)
        return (slice(0, POLAR_DIM), slice(POLAR_DIM, POLAR_DIM + CART_DIM))

    @property
    def dim(self) -> int:
        """Length of the raw vector: 238, 175 or 63."""
        return self.parts[-1].stop

    @property
    def constants(self) -> "Constants":
        return _constants(self)


@dataclass(frozen=True)
class Constants:
    """Constants of steps 1 to 3, float64.

    smooth, diff   (P, P): Gaussian smoothing, and smoothing followed by differences, of a row
    Phi            (P * P, F): spatial functions
    T              (7, F, D): recombination of the F sums of each plane into the raw vector
    parts          (D, number of parts): indicator of the parts
    """

    spec: Spec
    smooth: Array
    diff: Array
    Phi: Array
    T: Array
    parts: Array

    @cached_property
    def taps(self) -> Array:
        return smoothing_taps(self.spec.patch_size)


def smoothing_taps(P: int) -> Array:
    """Return the 5 taps that smooth a patch before its gradient."""
    return gaussian_taps(sigma=1.4 * P / 64)


def smoothing(P: int) -> tuple[Array, Array]:
    """Return `smooth` and `diff` of `Constants`."""
    # Minus the usual difference: theta points from bright to dark, as in the authors' code.
    smooth = correlation_matrix(smoothing_taps(P), P)
    return smooth, correlation_matrix(np.array([1.0, 0.0, -1.0]), P) @ smooth


@lru_cache(maxsize=32)
def _constants(spec: Spec) -> Constants:
    smooth, diff = smoothing(spec.patch_size)
    grid = Grid.of_size(spec.patch_size)
    blocks = {"polar": [_polar], "cart": [_cart], "concat": [_polar, _cart]}[spec.kernel]
    Phis, Ts = zip(*(block(grid) for block in blocks), strict=True)
    T = np.zeros((PLANES, sum(p.shape[1] for p in Phis), spec.dim))
    row = 0
    for block_T, part in zip(Ts, spec.parts, strict=True):
        T[:, row : row + block_T.shape[1], part] = block_T
        row += block_T.shape[1]
    parts = np.zeros((spec.dim, len(spec.parts)))
    for i, part in enumerate(spec.parts):
        parts[part, i] = 1.0
    return Constants(spec, smooth, diff, np.concatenate(Phis, axis=1), T, parts)


def _cart(grid: Grid) -> tuple[Array, Array]:
    """Phi (P * P, 9) and T (7, 9, 63) of V_xy,theta."""
    Phi = np.einsum(
        "h w, h w a, h w b -> h w a b", grid.g, X.psi(grid.x_angle), Y.psi(grid.y_angle)
    )
    F = X.dim * Y.dim
    T = np.einsum("k c, f e -> k f c e", np.diag(THETA.psi_weights), np.eye(F))
    return Phi.reshape(-1, F), T.reshape(PLANES, F, CART_DIM)


def _polar(grid: Grid) -> tuple[Array, Array]:
    """Phi (P * P, 55) and T (7, 55, 175) of V_phi,rho,theta_rel, by product-to-sum."""
    # Spatial functions, harmonic h first: h = 0..5 is cos(h phi), h = 6..10 is sin((h - 5) phi).
    m = np.arange(HARMONICS + 1)
    angles = np.multiply.outer(grid.phi, m)
    harmonics = np.concatenate([np.cos(angles), np.sin(angles[..., 1:])], axis=-1)
    Phi = np.einsum("h w, h w f, h w j -> h w f j", grid.g, harmonics, RHO.psi(grid.rho_angle))

    theta_weights, phi_weights = THETA.psi_weights, PHI.psi_weights
    H = 2 * HARMONICS + 1
    T = np.zeros((PLANES, H, PLANES, PHI.dim))
    for c in range(PLANES):
        for plane, position in _relative_angle(c):
            for a in range(PHI.dim):
                for h, value in _product(position, _term(a, PHI.N)):
                    T[plane, h, c, a] += value * theta_weights[c] * phi_weights[a]
    full = np.einsum("k h c a, j b -> k h j c a b", T, np.eye(RHO.dim))
    return Phi.reshape(grid.phi.size, -1), full.reshape(PLANES, H * RHO.dim, POLAR_DIM)


# A trigonometric term: (coefficient, "cos" or "sin", frequency).
Term = tuple[float, str, int]


def _term(index: int, N: int) -> Term:
    """The index-th term of a feature map: 1, cos 1 .. cos N, sin 1 .. sin N."""
    return (1.0, "cos", index) if index <= N else (1.0, "sin", index - N)


def _relative_angle(c: int) -> list[tuple[int, Term]]:
    """The c-th term in theta - phi, as a sum of (plane in theta) * (term in phi)."""
    _, trig, k = _term(c, THETA.N)
    if k == 0:
        return [(0, (1.0, "cos", 0))]
    cos_plane, sin_plane = k, k + THETA.N
    if trig == "cos":
        return [(cos_plane, (1.0, "cos", k)), (sin_plane, (1.0, "sin", k))]
    return [(sin_plane, (1.0, "cos", k)), (cos_plane, (-1.0, "sin", k))]


def _product(first: Term, second: Term) -> list[tuple[int, float]]:
    """Product of two terms in phi as (index of the spatial harmonic, coefficient) pairs."""
    (c0, trig0, k0), (c1, trig1, k1) = first, second
    half = c0 * c1 / 2
    if trig0 == trig1:  # cos cos, sin sin
        sign = 1.0 if trig0 == "cos" else -1.0
        return [(abs(k0 - k1), half), (k0 + k1, sign * half)]
    if trig0 == "cos":  # cos sin
        k0, k1 = k1, k0
    # sin(k0) cos(k1) = (sin(k0 + k1) + sin(k0 - k1)) / 2; sin 0 has no spatial function.
    total, difference = k0 + k1, k0 - k1
    terms = [(HARMONICS + total, half)]
    if difference:
        terms.append((HARMONICS + abs(difference), np.sign(difference) * half))
    return terms

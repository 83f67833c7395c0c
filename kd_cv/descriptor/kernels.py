"""The paper's kernels, feature maps and pixel grids, in NumPy float64.

Glossary, after the paper:

| name      | meaning                                                                   |
|-----------|---------------------------------------------------------------------------|
| P         | side of the square patch, in pixels                                       |
| x, y      | position in the patch, each from -1 to 1; y points down                   |
| rho, phi  | the same position in polar coordinates; phi = atan2(y, x)                 |
| m, theta  | magnitude and angle of the gradient                                       |
| theta_rel | theta - phi, the angle relative to the position                           |
| g         | Gaussian mask, exp(-(rho / rho_max)^2)                                    |
| kappa, N  | concentration of a von Mises kernel, number of frequencies kept           |
| gamma     | Fourier coefficients of the kernel                                        |
| psi       | feature map: psi(a) . psi(b) is the truncated kernel k(a - b)             |
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class VonMises:
    """A von Mises kernel of concentration `kappa`, cut after `N` frequencies.

    k(d) = (exp(kappa cos d) - exp(-kappa)) / (2 sinh kappa), so that k(0) = 1 and k(pi) = 0.
    """

    kappa: float
    N: int

    @property
    def dim(self) -> int:
        return 2 * self.N + 1

    @property
    def gamma(self) -> Array:
        """Fourier coefficients gamma_0 .. gamma_N, as means of samples over a period.

        They fall so fast that the mean is the integral to the last digit; the closed form would
        import scipy.special.
        """
        samples = 64 + 4 * int(self.kappa)
        delta = 2.0 * np.pi * np.arange(samples) / samples
        gamma = 2.0 * np.fft.rfft(self.exact(delta)).real[: self.N + 1] / samples
        gamma[0] /= 2.0
        return gamma

    def exact(self, delta: Array) -> Array:
        """The kernel itself, before the series is cut."""
        # Both sides of the fraction times exp(-kappa), against overflow.
        floor = np.exp(-2.0 * self.kappa)
        return (np.exp(self.kappa * (np.cos(delta) - 1.0)) - floor) / (1.0 - floor)

    def __call__(self, delta: Array) -> Array:
        """The truncated kernel, sum_i gamma_i cos(i delta)."""
        i = np.arange(self.N + 1)
        return np.cos(np.multiply.outer(delta, i)) @ self.gamma

    def psi(self, angle: Array) -> Array:
        """Feature map (eq. 7): angles of any shape (...) to (..., 2N + 1)."""
        multiples = np.multiply.outer(angle, np.arange(self.N + 1))
        return self.psi_weights * np.concatenate(
            [np.cos(multiples), np.sin(multiples[..., 1:])], axis=-1
        )

    @property
    def psi_weights(self) -> Array:
        """Factors (2N + 1,) of 1, cos 1 .. cos N, sin 1 .. sin N in psi."""
        root = np.sqrt(self.gamma)
        return np.concatenate([root, root[1:]])


THETA = VonMises(kappa=8.0, N=3)
RHO = PHI = VonMises(kappa=8.0, N=2)
X = Y = VonMises(kappa=1.0, N=1)


@dataclass(frozen=True)
class Grid:
    """Pixel coordinates of a P x P patch, each (P, P); corner pixels sit at -1 and 1 exactly."""

    x: Array
    y: Array
    rho: Array
    phi: Array

    @classmethod
    def of_size(cls, P: int) -> "Grid":
        axis = np.linspace(-1.0, 1.0, P)
        axis = (axis - axis[::-1]) / 2  # exactly antisymmetric, whatever linspace rounds
        y, x = np.meshgrid(axis, axis, indexing="ij")
        return cls(x=x, y=y, rho=np.hypot(x, y), phi=np.arctan2(y, x))

    @property
    def g(self) -> Array:
        return np.exp(-((self.rho / np.sqrt(2.0)) ** 2))

    @property
    def rho_angle(self) -> Array:
        """rho mapped to [0, pi]."""
        return self.rho * np.pi / np.sqrt(2.0)

    @property
    def x_angle(self) -> Array:
        """x mapped to an interval of length pi."""
        return self.x * np.pi / 2

    @property
    def y_angle(self) -> Array:
        return self.y * np.pi / 2


def gaussian_taps(sigma: float, radius: int = 2) -> Array:
    """Normalised samples of a Gaussian at -radius .. radius."""
    i = np.arange(-radius, radius + 1)
    taps = np.exp(-(i**2) / (2.0 * sigma**2))
    return taps / taps.sum()


def correlation_matrix(taps: Array, P: int) -> Array:
    """Return the (P, P) matrix that correlates a signal with `taps`, its ends replicated."""
    radius = len(taps) // 2
    matrix = np.zeros((P, P))
    rows = np.arange(P)
    for offset, tap in zip(range(-radius, radius + 1), taps, strict=True):
        np.add.at(matrix, (rows, np.clip(rows + offset, 0, P - 1)), tap)
    return matrix

"""The frozen description of the detector, and the constants that follow from it.

Level i of octave o is the image blurred to sigma * 2^(o + i / n), n = layers of an octave, on a
grid of every 2^o-th pixel. An image blurred by 0.9 of its pixels is well sampled at its own grid,
so the image is not doubled first: a quarter of the pixels of Lowe's scale space, and the first
octave lies where nothing was interpolated. D_i is level i + 1 minus level i; its extrema in space
and scale, i = 1..n, are the keypoints.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

#: Blur that an image has of itself, in its pixels, as cv2.SIFT assumes it.
CAMERA_BLUR = 0.5
#: The taps of a blur reach this many sigmas to either side.
TAPS_REACH = 3.0
#: How much stronger an extremum is for being larger: by this power of its sigma. Large ones are
#: found again more often; with more of it they crowd out the small ones, which lie more exactly.
FOR_SIZE = 0.1
#: An octave has at least this many pixels a side.
MIN_SIDE = 16
#: The fit looks at this many pixels to either side of an extremum; none lies nearer to a border.
REACH = 2
#: Steps of Newton's method, and how far from its pixel and layer an extremum may end.
STEPS = 4
FARTHEST = 0.95
#: Where fewer extrema have the contrast that is asked for, so many may have less.
FEW = 500
#: A pixel has at least this share of the D of the extremum that it is a candidate for.
CANDIDATE = 0.75

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ScaleSpace:
    """Blur of the first level in pixels, layers an octave, weakest contrast, longest edge.

    contrast   of an extremum: n times its `strength`, for an image whose values have a standard
               deviation of 0.23, as photographs in the range 0..1 have
    edge       largest ratio of the two curvatures of D
    faint      weakest contrast of the `FEW` strongest, where an image has fewer of more; None: they
               need that of all

    >>> ScaleSpace().sigmas.round(2)
    array([0.9 , 1.13, 1.43, 1.8 , 2.27, 2.86])
    """

    sigma: float = 0.9
    layers: int = 3
    contrast: float = 0.04
    edge: float = 10.0
    faint: float | None = None

    @cached_property
    def sigmas(self) -> Array:
        """Blur of the levels of an octave in its pixels: (n + 3,)."""
        return self.sigma * np.exp2(np.arange(self.layers + 3) / self.layers)

    @cached_property
    def taps(self) -> tuple[Array, ...]:
        """What makes level 0 of the image, and each further level of the one before: n + 3."""
        before = np.concatenate([[min(CAMERA_BLUR, 0.99 * self.sigma)], self.sigmas[:-1]])
        return tuple(gaussian(s) for s in np.sqrt(self.sigmas**2 - before**2))

    def strength(self, D, octave, layer):  # type: ignore[no-untyped-def]
        """|D| (sigma / 2 sigma_0)^0.1 of extrema, by which they are ranked."""
        return abs(D) * 2.0 ** (FOR_SIZE * (octave + layer / self.layers - 1))

    def smallest(self, strength: float, octave: int) -> float:
        """|D| that no extremum of an octave is below that has this strength."""
        return float(strength / self.strength(1.0, octave, self.layers + 1))

    @property
    def threshold(self) -> float:
        """Smallest strength of a keypoint, but for the `FEW` strongest."""
        return self.contrast / self.layers

    @property
    def least(self) -> float:
        """Smallest strength of any keypoint."""
        return (self.contrast if self.faint is None else self.faint) / self.layers

    @property
    def roundness(self) -> float:
        """Largest (a + b)^2 / (a b) of the curvatures a, b."""
        return (self.edge + 1) ** 2 / self.edge

    def octaves(self, shape: tuple[int, ...]) -> int:
        """How many octaves an image (H, W) has."""
        count, side = 0, min(shape)
        while side >= MIN_SIDE:
            count, side = count + 1, (side + 1) // 2
        return count


def gaussian(sigma: float) -> Array:
    """Taps of a sampled Gaussian, of sum 1."""
    reach = int(np.ceil(TAPS_REACH * sigma))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    return np.asarray(taps / taps.sum())


def interpolation(reach: int) -> Array:
    """Lagrange's polynomials through samples at -r..r: (2r + 1, 2r + 1).

    The weight of sample i at t is the sum over p of t^p interpolation[p, i].
    """
    nodes = np.arange(-reach, reach + 1, dtype=np.float64)
    return np.asarray(np.linalg.inv(np.vander(nodes, increasing=True)), np.float64)


def derivatives(reach: int) -> Array:
    """`interpolation` with its first and second derivative by t: (3, 2r + 1, 2r + 1)."""
    value = interpolation(reach)
    powers = np.arange(len(value))[:, None]
    lowered = [value]
    for _ in range(2):
        lowered.append(np.roll(powers * lowered[-1], -1, axis=0))
    return np.stack(lowered)


#: In space and in scale, where there is only one layer to either side.
IN_SPACE, IN_SCALE = derivatives(REACH), derivatives(1)

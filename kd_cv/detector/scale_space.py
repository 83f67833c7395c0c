"""The parameters and constants of the detector.

Level i of octave o is the image blurred to sigma * 2^(o + i / n), n = layers of an octave, on a
grid of every 2^o-th pixel. An image blurred by 0.9 of its pixels is well sampled at its own grid,
so the image is not doubled first: a quarter of the pixels of Lowe's scale space. D_i is level i + 1
minus level i; its extrema in space and scale, i = 1..n, are the keypoints.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

#: Blur of an input image in pixels, as in cv2.SIFT.
CAMERA_BLUR = 0.5
#: The taps of a blur reach this many sigmas to either side.
TAPS_REACH = 3.0
#: Power of sigma in the strength of an extremum. Large ones are more repeatable, but a higher power
#: crowds out the small ones, which are located more exactly.
FOR_SIZE = 0.1
#: An octave has at least this many pixels a side.
MIN_SIDE = 16
#: Pixels at either side of an extremum that the fit uses; none lies nearer to a border.
REACH = 2
#: Steps of Newton's method, and how far from its pixel and layer an extremum may end.
STEPS = 4
FARTHEST = 0.95
#: Number of extrema that may have less contrast, if fewer have enough.
FEW = 500
#: Smallest D of a candidate, relative to that of its extremum.
CANDIDATE = 0.75

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ScaleSpace:
    """Blur of the first level in pixels, layers an octave, weakest contrast, longest edge.

    contrast   of an extremum: n times its `strength`, for an image whose values have a standard
               deviation of 0.23, as photographs in the range 0..1 have
    edge       largest ratio of the two curvatures of D
    faint      weakest contrast of the `FEW` strongest, where an image has fewer above `contrast`;
               None: no exception

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
        """Taps that make level 0 from the image, and each level from the one before: n + 3."""
        before = np.concatenate([[min(CAMERA_BLUR, 0.99 * self.sigma)], self.sigmas[:-1]])
        return tuple(gaussian(s) for s in np.sqrt(self.sigmas**2 - before**2))

    def strength(self, D, octave, layer):  # type: ignore[no-untyped-def]
        """|D| (sigma / 2 sigma_0)^0.1 of extrema, by which they are ranked."""
        return abs(D) * 2.0 ** (FOR_SIZE * (octave + layer / self.layers - 1))

    def smallest(self, strength: float, octave: int) -> float:
        """Lower bound on |D| in an octave at this strength."""
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
        count, side = 0, min(shape)
        while side >= MIN_SIDE:
            count, side = count + 1, (side + 1) // 2
        return count


def gaussian(sigma: float) -> Array:
    reach = int(np.ceil(TAPS_REACH * sigma))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    return np.asarray(taps / taps.sum())


def interpolation(reach: int) -> Array:
    """Return Lagrange's polynomials through samples at -r..r: (2r + 1, 2r + 1).

    The weight of sample i at t is the sum over p of t^p interpolation[p, i].
    """
    nodes = np.arange(-reach, reach + 1, dtype=np.float64)
    return np.asarray(np.linalg.inv(np.vander(nodes, increasing=True)), np.float64)


def derivatives(reach: int) -> Array:
    """Return `interpolation` with its first and second derivative by t: (3, 2r + 1, 2r + 1)."""
    value = interpolation(reach)
    powers = np.arange(len(value))[:, None]
    lowered = [value]
    for _ in range(2):
        lowered.append(np.roll(powers * lowered[-1], -1, axis=0))
    return np.stack(lowered)


#: In space and in scale, where there is only one layer to either side.
IN_SPACE, IN_SCALE = derivatives(REACH), derivatives(1)

"""The angles of keypoints, in the terms of the descriptor.

Around a keypoint the gradients have angles theta and weights w = sqrt(m), and g is a Gaussian.
With psi the feature map of the descriptor's angle kernel k,

    V = sum of g w psi(theta),    f(alpha) = psi(alpha) . V = sum of g w k(theta - alpha)

is how much gradient points along alpha. f is a trigonometric polynomial of degree 3, and V is what
`describe_frames` makes with one spatial function, g, in place of 64. The angles of the keypoint are
the maxima of f.
"""

from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.describer import describe_frames, load_compiled
from kd_cv.descriptor.frames import Frames
from kd_cv.descriptor.kernels import THETA
from kd_cv.descriptor.patches import Pyramid
from kd_cv.descriptor.spec import PLANES, Constants, Spec, smoothing

#: Side of the patch in keypoint sizes, and deviation of g in sigmas: Lowe's.
WINDOW, DEVIATION = 4.5, 1.5
#: A maximum counts if it reaches this share of the highest.
SECOND = 0.8
#: The response of a keypoint turned to a lower maximum is less by this power of its share of the
#: highest: a weak second angle gives way to another place.
YIELDING = 4
#: f is looked at every 10 degrees, and a parabola laid through a maximum and its neighbours.
ANGLES = 36
DEGREES = 360.0 / ANGLES

#: Whose angle it is, the angle in degrees, and its share of the highest maximum, each (M,).
Angles = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float32]]


@dataclass(frozen=True)
class Orientation(Spec):
    """V of a patch of P x P samples, as a raw descriptor of seven dimensions."""

    patch_size: int = 12

    def __post_init__(self) -> None:
        """So few samples are enough for an angle, though not for a descriptor."""

    @property
    def parts(self) -> tuple[slice, ...]:
        return (slice(0, PLANES),)

    @property
    def constants(self) -> Constants:
        return _constants(self)


@lru_cache(maxsize=4)
def _constants(spec: Orientation) -> Constants:
    P = spec.patch_size
    u = (np.arange(P) - (P - 1) / 2) * 2 * WINDOW / P  # in sigmas
    g = np.exp(-(u[:, None] ** 2 + u**2) / (2 * DEVIATION**2))
    T = np.diag(THETA.psi_weights)[:, None]
    parts = np.ones((PLANES, 1))
    return Constants(spec, *smoothing(P), g.reshape(-1, 1), T, parts)


@lru_cache(maxsize=1)
def psi_of_angles() -> NDArray[np.float32]:
    """psi(alpha) at `ANGLES` angles: (7, ANGLES).

    theta points from bright to dark, the angle of a keypoint from dark to bright, as cv2.SIFT's.
    """
    alpha = np.deg2rad(DEGREES * np.arange(ANGLES)) + np.pi
    return THETA.psi(alpha).T.astype(np.float32)


def maxima(f, least=SECOND):  # type: ignore[no-untyped-def]
    """Maxima of f (N, ANGLES): which of the angles, how many steps beside them, and f as a share of
    the highest, 1 where there is no gradient.

    All (N, ANGLES), for NumPy arrays and torch tensors alike. A maximum counts if its share is at
    least `least`.
    """
    if isinstance(f, np.ndarray):
        left, right, highest = np.roll(f, 1, 1), np.roll(f, -1, 1), f.max(1)[:, None]
    else:
        left, right, highest = f.roll(1, 1), f.roll(-1, 1), f.amax(1)[:, None]
    bend, flat = left - 2 * f + right, highest <= 0
    peak = (f > left) & (f >= right) & (f > 0) & (f >= least * highest)
    return peak, 0.5 * (left - right) / (bend + (bend == 0)), f / (highest + flat) + flat


def oriented(
    gray: NDArray[np.generic] | Pyramid, frames: Frames
) -> tuple[NDArray[np.int64], Frames, NDArray[np.float32]]:
    """Frames (N, 4) turned to their angles: which of the N each is, (M,), the frames (M, 4), and
    the share of the highest maximum that their angle has, (M,).

    A frame has one angle or more; 0 where there is no gradient.
    """
    index, angle, share = _angles_of(gray, frames, SECOND)
    turned = frames[index]
    turned[:, 3] = angle
    return index, turned, share


def dominant_angles(gray: NDArray[np.generic], frames: Frames) -> NDArray[np.float64]:
    """The strongest angle of each of frames (N, 4), in degrees: (N,); 0 where there is no gradient.

    That of `oriented` where it has one alone; of several, the highest.
    """
    index, angle, _ = _angles_of(gray, frames, 1.0)
    return angle[np.unique(index, return_index=True)[1]]


def _angles_of(gray: NDArray[np.generic] | Pyramid, frames: Frames, least: float) -> Angles:
    """The angles of frames (N, 4) that reach a share of the highest."""
    V = describe_frames(gray, frames, Orientation(), magnification=WINDOW)
    compiled = load_compiled_detector()
    return compiled.angles(V, psi_of_angles(), least) if compiled else angles(V, least)


def angles(V: NDArray[np.float32], least: float = SECOND) -> Angles:
    """The angles of all rows of V (N, 7)."""
    # Not as a product of matrices: BLAS sums in an order that depends on the number of rows.
    f = sum(V[:, k, None] * row for k, row in enumerate(psi_of_angles()))
    peak, beside, share = maxima(f, least)
    peak[~peak.any(axis=1), 0] = True
    index, step = np.nonzero(peak)
    return index, (step + beside[index, step]) * DEGREES % 360.0, share[index, step]


@lru_cache(maxsize=1)
def load_compiled_detector() -> ModuleType | None:
    """The compiled parts of the detector, or None where Numba cannot be imported."""
    if not load_compiled():
        return None
    from kd_cv.detector import compiled

    return compiled

"""The angles of keypoints, from the angle kernel of the descriptor.

Around a keypoint the gradients have angles theta and weights w = sqrt(m), and g is a Gaussian.
With psi the feature map of the descriptor's angle kernel k,

    V = sum of g w psi(theta),    f(alpha) = psi(alpha) . V = sum of g w k(theta - alpha)

measures the gradient along alpha. f is a trigonometric polynomial of degree 3; its maxima are the
angles of the keypoint. `describe_frames` computes V with one spatial function, g, in place of 64.
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
#: Smallest height of a maximum, relative to the highest.
SECOND = 0.8
#: Responses are multiplied by this power of the relative height: weak second angles rank lower.
YIELDING = 4
#: f is sampled every 10 degrees; a parabola through a maximum and its neighbours refines it.
ANGLES = 36
DEGREES = 360.0 / ANGLES

#: Index of the keypoint, angle in degrees, and height relative to the highest, each (M,).
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
    """Return psi(alpha) at `ANGLES` angles: (7, ANGLES).

    theta points from bright to dark, the angle of a keypoint from dark to bright, as in cv2.SIFT.
    """
    alpha = np.deg2rad(DEGREES * np.arange(ANGLES)) + np.pi
    return THETA.psi(alpha).T.astype(np.float32)


def maxima(f, least=SECOND):  # type: ignore[no-untyped-def]
    """Find maxima of f (N, ANGLES): flags, offsets in steps, and f relative to the highest.

    All (N, ANGLES), for NumPy arrays and torch tensors. A maximum needs a relative height of
    `least`. Relative heights are 1 where there is no gradient.
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
    """Rotate frames (N, 4) to their angles: indices (M,), frames (M, 4), relative heights (M,).

    A frame has one angle or more; 0 where there is no gradient.
    """
    index, angle, height = _angles_of(gray, frames, SECOND)
    turned = frames[index]
    turned[:, 3] = angle
    return index, turned, height


def dominant_angles(gray: NDArray[np.generic], frames: Frames) -> NDArray[np.float64]:
    """Return the strongest angle of frames (N, 4), in degrees: (N,); 0 without a gradient."""
    index, angle, _ = _angles_of(gray, frames, 1.0)
    return angle[np.unique(index, return_index=True)[1]]


def _angles_of(gray: NDArray[np.generic] | Pyramid, frames: Frames, least: float) -> Angles:
    V = describe_frames(gray, frames, Orientation(), magnification=WINDOW)
    compiled = load_compiled_detector()
    return compiled.angles(V, psi_of_angles(), least) if compiled else angles(V, least)


def angles(V: NDArray[np.float32], least: float = SECOND) -> Angles:
    """Find the angles of V (N, 7) by NumPy."""
    # No matrix product: BLAS sums in an order that depends on the number of rows.
    f = sum(V[:, k, None] * row for k, row in enumerate(psi_of_angles()))
    peak, beside, height = maxima(f, least)
    peak[~peak.any(axis=1), 0] = True
    index, step = np.nonzero(peak)
    return index, (step + beside[index, step]) * DEGREES % 360.0, height[index, step]


@lru_cache(maxsize=1)
def load_compiled_detector() -> ModuleType | None:
    if not load_compiled():
        return None
    from kd_cv.detector import compiled

    return compiled

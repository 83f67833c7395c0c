"""Frames: keypoints as arrays, with all rules of sizes, angles and pixel centres.

A frame is (x, y, size, angle) in OpenCV's convention:

- (x, y) in pixels, the centre of the top-left pixel at (0, 0), y down;
- size is the diameter of the keypoint, 2 sigma for SIFT;
- angle in degrees, clockwise on the screen; -1 means upright (0 degrees);
- the octave is ignored: the size alone sets the level of detail.

The patch region of a frame is a square of side magnification * size, rotated by the angle. Samples
are the centres of P x P equal cells: pitch side / P, symmetric about (x, y).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_positive
from kd_cv.gray import MAX_SIDE

#: Side of the patch in keypoint sizes, chosen by cross-validation over planar and 3-D scenes.
MAGNIFICATION = 15.0
#: The same, by the name of the convention that uses it.
MAGNIFICATIONS = {"sift": 6.0, "extract_patches": 10.0, "kornia": 12.0}

#: OpenCV's angle of a keypoint that has none.
UPRIGHT = -1.0

Frames = NDArray[np.float64]
PatchRegions = NDArray[np.float64]


def as_magnification(magnification: float | str) -> float:
    if isinstance(magnification, str):
        if magnification not in MAGNIFICATIONS:
            raise ValueError(
                f"unknown magnification {magnification!r}: expected a number or one of "
                f"{list(MAGNIFICATIONS)}"
            )
        return MAGNIFICATIONS[magnification]
    return as_positive(magnification, "magnification")


def as_frames(frames: Any) -> Frames:
    frames = np.asarray(frames, dtype=np.float64)
    if frames.ndim != 2 or frames.shape[1] != 4:
        raise ValueError(
            f"frames must have shape (N, 4) with columns x, y, size, angle, got {frames.shape}"
        )
    return frames


def upright_frames(frames: Frames) -> Frames:
    frames = frames.copy()
    frames[:, 3] = UPRIGHT
    return frames


def radians(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert OpenCV angles to radians; -1 means upright."""
    return np.deg2rad(np.where(angle == UPRIGHT, 0.0, angle))


def degrees(turn: NDArray[Any]) -> NDArray[np.float64]:
    """Convert radians to OpenCV angles."""
    return np.rad2deg(np.asarray(turn, dtype=np.float64))


def sigma_from_size(size: NDArray[Any]) -> NDArray[Any]:
    return size / 2


def size_from_sigma(sigma: NDArray[Any]) -> NDArray[Any]:
    return 2.0 * sigma


def from_corner(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert positions (..., 2) from COLMAP, where the centre of the first pixel is (0.5, 0.5)."""
    return points - 0.5


def to_corner(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return points + 0.5


def resized_points(points: NDArray[Any], ratio: NDArray[np.float64] | float) -> NDArray[Any]:
    """Map points (..., 2) to the image resized by `ratio`, one number or (x, y).

    >>> resized_points(np.array([[0.0, 0.0], [9.0, 4.0]]), 2)
    array([[ 0.5,  0.5],
           [18.5,  8.5]])
    """
    return from_corner(to_corner(points) * ratio)


def resized_frames(frames: Frames, ratio: NDArray[np.float64]) -> Frames:
    """Map frames (N, 4) to the image resized by `ratio` (x, y), which are nearly equal.

    >>> resized_frames(np.array([[9.0, 4.0, 5.0, 90.0]]), np.array([2.0, 2.0]))
    array([[18.5,  8.5, 10. , 90. ]])
    """
    sizes = frames[:, 2:3] * np.sqrt(ratio.prod())
    return np.hstack([resized_points(frames[:, :2], ratio), sizes, frames[:, 3:]])


def resizing(before: Sequence[float], after: Sequence[float]) -> NDArray[np.float64]:
    """Return the (3, 3) map from pixels of an image to its resized copy, by their shapes.

    >>> resizing((480, 640), (240, 320))
    array([[ 0.5 ,  0.  , -0.25],
           [ 0.  ,  0.5 , -0.25],
           [ 0.  ,  0.  ,  1.  ]])
    """
    ratio = np.array([after[1] / before[1], after[0] / before[0]])
    H = np.diag([*ratio, 1.0])
    H[:2, 2] = resized_points(np.zeros(2), ratio)
    return H


def patch_regions(
    frames: Frames, shape: tuple[int, int], magnification: float, scales: Sequence[float] = (1.0,)
) -> PatchRegions:
    """Return the regions (N, S, 4), x, y, side and angle in radians, of frames (N, 4).

    The side is 0 where an image of `shape` (H, W) has no patch.
    """
    regions = np.zeros((len(frames), len(scales), 4))
    for s, scale in enumerate(scales):
        good = describable(frames, shape, magnification * scale)
        x, y, size, angle = frames[good].T
        side = magnification * scale * size
        regions[good, s] = np.stack([x, y, side, radians(angle)], axis=1)
    return regions


def describable(frames: Frames, shape: tuple[int, int], magnification: float) -> NDArray[np.bool_]:
    """Which frames have a patch that overlaps an image of `shape` (H, W): (N,).

    The side of a patch must be from 1 / MAX_SIDE to MAX_SIDE pixels.
    """
    height, width = shape
    finite = np.asarray(np.isfinite(frames).all(axis=1))
    x, y, size, angle = np.where(finite[:, None], frames, 0.0).T
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # any float may come
        side = magnification * size
    sensible = finite & (side >= 1 / MAX_SIDE) & (side <= MAX_SIDE) & (height * width > 0)
    outside = (x <= -0.5) | (y <= -0.5) | (x >= width - 0.5) | (y >= height - 0.5)
    rows = np.flatnonzero(sensible & outside)  # few: only their corners need a look
    x, y, turn = x[rows], y[rows], radians(angle[rows])
    reach = 0.5 * side[rows] * (np.abs(np.cos(turn)) + np.abs(np.sin(turn)))
    sensible[rows] = (
        (x + reach > -0.5)
        & (y + reach > -0.5)
        & (x - reach < width - 0.5)
        & (y - reach < height - 0.5)
    )
    return sensible

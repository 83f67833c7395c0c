"""Images and keypoints as arrays: the only home of the size, angle and pixel-centre rules.

A frame is a row (x, y, size, angle) in OpenCV's convention:

- (x, y) in pixels, the centre of the top-left pixel at (0, 0), y down;
- size is the diameter of the keypoint, 2 sigma for SIFT;
- angle in degrees, clockwise on the screen; -1 means upright (0 degrees);
- the octave is ignored: the size alone says how much detail is seen.

The patch of a frame is a square of side magnification * size, turned by the angle, sampled at
P x P points that are the centres of P x P equal cells: pitch side / P, symmetric about (x, y).
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_positive
from kd_cv.descriptor.threads import opencv

#: Side of the patch in keypoint sizes, chosen by cross-validation over planar and 3-D scenes.
MAGNIFICATION = 15.0
#: The same, by the name of the convention that uses it.
MAGNIFICATIONS = {"sift": 6.0, "extract_patches": 10.0, "kornia": 12.0}
#: cv2.SIFT's own first blur, in the pixels of a doubled image.
SIFT_SIGMA = 1.6
#: Longest side of an image, and of a patch, in pixels: float32, in which OpenCV's keypoints and the
#: samples of a patch have their positions, tells no more pixels apart.
MAX_SIDE = 2**24
#: Largest value of a float image that is taken as it is.
MAX_VALUE = 2**16

#: OpenCV's angle of a keypoint that has none.
UPRIGHT = -1.0

Frames = NDArray[np.float64]
Squares = NDArray[np.float64]


def as_magnification(magnification: float | str) -> float:
    """The number behind a preset name; a positive number stays as it is."""
    if isinstance(magnification, str):
        if magnification not in MAGNIFICATIONS:
            raise ValueError(
                f"unknown magnification {magnification!r}: expected a number or one of "
                f"{list(MAGNIFICATIONS)}"
            )
        return MAGNIFICATIONS[magnification]
    return as_positive(magnification, "magnification")


def as_gray(image: Any) -> NDArray[Any]:
    """One-channel image (H, W), C-contiguous: uint8 as it is, all else as float32.

    Takes (H, W), (H, W, 1), BGR and BGRA of type uint8, uint16 or float, and cv2.UMat. 16-bit
    values are divided by 65535. Float values may be 0..1 or 0..255, or any other: the descriptor
    does not depend on gain.
    """
    image = out_of_umat(image)
    if not isinstance(image, np.ndarray):
        raise TypeError(f"an image must be a NumPy array or cv2.UMat, got {type(image).__name__}")
    image = np.asarray(image)  # the pixels of a masked array too: its mask would hide its NaN
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)):
        raise ValueError(
            f"an image must have shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), got {image.shape}"
        )
    if max(image.shape[:2]) > MAX_SIDE:
        raise ValueError(f"a side of an image must be at most {MAX_SIDE}, got {image.shape}")
    if image.dtype.kind == "u" and image.dtype.itemsize == 2:  # in either byte order
        image = image.astype(np.float32) / np.float32(65535)
    elif image.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite
            image = image.astype(np.float32, copy=False)
        image = in_range(image, "a float image")
    elif image.dtype != np.uint8:
        raise TypeError(f"an image must be uint8, uint16 or float, got {image.dtype}")
    if image.size == 0:
        return np.zeros((0, 0), dtype=image.dtype)
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    elif image.ndim == 3:
        code = cv2.COLOR_BGR2GRAY if image.shape[2] == 3 else cv2.COLOR_BGRA2GRAY
        with opencv:
            image = cv2.cvtColor(np.ascontiguousarray(image), code)
    return np.ascontiguousarray(image)


def out_of_umat(image: Any) -> Any:
    """The array in a cv2.UMat, (0, 0) if it has no pixels; any other image as it is."""
    if not isinstance(image, cv2.UMat):
        return image
    pixels = image.get()
    return np.zeros((0, 0), dtype=np.uint8) if pixels is None else pixels


def in_range(values: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    """Finite values, divided by a power of 2 if their squares might leave the range of float32."""
    if not values.size:
        return values
    largest = np.maximum(values.max(), -values.min())  # NaN if there is one
    if not np.isfinite(largest):
        raise ValueError(f"{name} must not contain NaN, infinity or values too large for float32")
    if largest <= MAX_VALUE:
        return values
    return values * np.float32(np.exp2(-np.ceil(np.log2(largest / MAX_VALUE))))


def as_detectable(gray: NDArray[Any]) -> NDArray[np.uint8]:
    """What an 8-bit detector sees of a gray image; float images count as 0..1 or 0..255."""
    if gray.dtype == np.uint8:
        return gray
    scale = 255.0 if gray.max(initial=0.0) <= 1.0 else 1.0
    return np.clip(np.rint(gray * scale), 0, 255).astype(np.uint8)


def from_keypoints(keypoints: Sequence[cv2.KeyPoint]) -> Frames:
    """Frames (N, 4) of OpenCV keypoints."""
    frames = np.empty((len(keypoints), 4))
    if len(keypoints):
        frames[:, :2] = cv2.KeyPoint.convert(keypoints)
        frames[:, 2] = np.fromiter(map(attrgetter("size"), keypoints), np.float64, len(keypoints))
        frames[:, 3] = np.fromiter(map(attrgetter("angle"), keypoints), np.float64, len(keypoints))
    return frames


def to_keypoints(
    frames: Frames, responses: NDArray[Any] | None = None, last: int = MAX_SIDE
) -> tuple[cv2.KeyPoint, ...]:
    """OpenCV keypoints of frames (N, 4), which show by their octave that sizes are SIFT's.

    responses (N,), 0 if not given; last: see `sift_octave`.
    """
    frames = as_frames(frames)
    responses = np.zeros(len(frames)) if responses is None else responses
    columns = (*frames.T, responses, sift_octave(frames, last))
    return tuple(map(cv2.KeyPoint, *(column.tolist() for column in columns)))


def sift_octave(frames: Frames, last: int = MAX_SIDE) -> NDArray[np.int64]:
    """The octave that cv2.SIFT packs into a keypoint of this size: (N,).

    octave | layer << 8 | fraction << 16, of its own scale space: 1.6 pixels, three layers. `last`
    is the last octave that there is.
    """
    sizes = np.where(np.isfinite(frames[:, 2]), frames[:, 2], 1.0)
    scale = 3 * np.log2(np.clip(sizes, 1.0, MAX_SIDE) / (2 * SIFT_SIGMA))
    nearest = np.maximum(np.rint(scale), -2)  # the first that it searches
    octave = np.minimum((nearest - 1) // 3, last)
    layer = np.minimum(nearest - 3 * octave, 3)
    fraction = np.clip(np.rint((scale - nearest + 0.5) * 255), 0, 255)
    packed = [part.astype(np.int64) for part in (octave, layer, fraction)]
    return (packed[0] & 255) | packed[1] << 8 | packed[2] << 16


def of_sift(keypoints: Sequence[cv2.KeyPoint]) -> NDArray[np.bool_]:
    """Which keypoints hold a layer in the second byte of their octave, as SIFT's and ours: (N,)."""
    octaves = np.fromiter(map(attrgetter("octave"), keypoints), np.int64, len(keypoints))
    return octaves >= 256


def as_frames(frames: Any) -> Frames:
    """Check the shape of an array of frames."""
    frames = np.asarray(frames, dtype=np.float64)
    if frames.ndim != 2 or frames.shape[1] != 4:
        raise ValueError(
            f"frames must have shape (N, 4) with columns x, y, size, angle, got {frames.shape}"
        )
    return frames


def upright_frames(frames: Frames) -> Frames:
    """The same frames without their angles."""
    frames = frames.copy()
    frames[:, 3] = UPRIGHT
    return frames


def radians(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """OpenCV angles in radians; -1 means upright."""
    return np.deg2rad(np.where(angle == UPRIGHT, 0.0, angle))


def degrees(turn: NDArray[Any]) -> NDArray[np.float64]:
    """Radians as OpenCV's angles: the inverse of `radians`."""
    return np.rad2deg(np.asarray(turn, dtype=np.float64))


def sigma_from_size(size: NDArray[Any]) -> NDArray[Any]:
    """The scale of keypoints of a size."""
    return size / 2


def size_from_sigma(sigma: NDArray[Any]) -> NDArray[Any]:
    """The size of keypoints of a scale."""
    return 2.0 * sigma


def from_corner(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positions (..., 2) as COLMAP counts them, from the corner of the image, as ours.

    The centre of the top-left pixel is (0.5, 0.5) there.
    """
    return points - 0.5


def to_corner(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse of `from_corner`."""
    return points + 0.5


def resized_points(points: NDArray[Any], ratio: NDArray[np.float64] | float) -> NDArray[Any]:
    """Where points (..., 2) are in the image after its resizing by `ratio`, one or (x, y).

    >>> resized_points(np.array([[0.0, 0.0], [9.0, 4.0]]), 2)
    array([[ 0.5,  0.5],
           [18.5,  8.5]])
    """
    return from_corner(to_corner(points) * ratio)


def resized_frames(frames: Frames, ratio: NDArray[np.float64]) -> Frames:
    """Frames (N, 4) after the resizing of their image by `ratio` (x, y), which hardly differ.

    >>> resized_frames(np.array([[9.0, 4.0, 5.0, 90.0]]), np.array([2.0, 2.0]))
    array([[18.5,  8.5, 10. , 90. ]])
    """
    sizes = frames[:, 2:3] * np.sqrt(ratio.prod())
    return np.hstack([resized_points(frames[:, :2], ratio), sizes, frames[:, 3:]])


def resizing(before: Sequence[float], after: Sequence[float]) -> NDArray[np.float64]:
    """(3, 3) from the pixels of an image to those of its resized copy, by their shapes.

    >>> resizing((480, 640), (240, 320))
    array([[ 0.5 ,  0.  , -0.25],
           [ 0.  ,  0.5 , -0.25],
           [ 0.  ,  0.  ,  1.  ]])
    """
    ratio = np.array([after[1] / before[1], after[0] / before[0]])
    H = np.diag([*ratio, 1.0])
    H[:2, 2] = resized_points(np.zeros(2), ratio)
    return H


def squares_of(
    frames: Frames, shape: tuple[int, int], magnification: float, scales: Sequence[float] = (1.0,)
) -> Squares:
    """The square of each frame (N, 4) at each scale: (N, S, 4) with columns x, y, side, turn.

    The turn is in radians. The side is 0 where an image of `shape` (H, W) has no patch.
    """
    squares = np.zeros((len(frames), len(scales), 4))
    for s, scale in enumerate(scales):
        good = describable(frames, shape, magnification * scale)
        x, y, size, angle = frames[good].T
        side = magnification * scale * size
        squares[good, s] = np.stack([x, y, side, radians(angle)], axis=1)
    return squares


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

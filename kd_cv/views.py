"""Synthetic views: the image as seen from the side (ASIFT, Morel and Yu 2009).

A view compresses the image by a tilt t along a direction, as a plane looks from the side. So
keypoints of views match where round patches of the image do not.

    view pixel = M image pixel,  |det M| = 1 / t

A keypoint of a view is an ellipse in the image. Interfaces of circles get its centre, the diameter
of the circle of equal area, the direction of its angle, and the number of the view.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import Frames, degrees, radians
from kd_cv.types import Float64, Mask

#: (tilt, direction in degrees) of the views after the image itself, by the number of all views.
_TWO = ((2.0, 0.0), (2.0, 90.0))
_FOUR = (*_TWO, (2.0, 45.0), (2.0, 135.0))
TEN = (*_FOUR, *((4.0, 30.0 * i) for i in range(6)))
VIEWS: dict[int, tuple[tuple[float, float], ...]] = {1: (), 3: _TWO, 5: _FOUR, 11: TEN}
#: Blur along the direction before the copy is compressed, in pixels: BLUR sqrt(t^2 - 1).
BLUR = 0.8
#: Keypoints nearer than this to the border of a turned view are left out, in pixels.
MARGIN = 8
#: Keypoints of two views are one if they are so near, in pixels, octaves and degrees.
SAME_PLACE, SAME_SIZE, SAME_ANGLE = 2.0, 0.3, 15.0


class View(NamedTuple):
    """A view of an image.

    image     (h, w) gray
    mask      (h, w) uint8, 0 outside the image; None if there is no outside
    to_image  (2, 3) from pixels of the view to those of the image
    """

    image: NDArray[Any]
    mask: NDArray[np.uint8] | None
    to_image: Float64


def count_for(nfeatures: int, views: int) -> list[int]:
    """Return the number of keypoints to detect in each view; the image itself gets twice as many.

    With several views a quarter more than `nfeatures`, because some will be merged.

    >>> count_for(2000, 1), count_for(2000, 3)
    ([2000], [1250, 625, 625])
    """
    if views == 1:
        return [nfeatures]
    each = -(-nfeatures * 5 // (4 * (views + 1)))
    return [2 * each] + [each] * (views - 1)


def repeated(frames: Frames, views: NDArray[np.int64]) -> Mask:
    """Which keypoints (N,) repeat a stronger one of another view; the strongest come first.

    A repeated one lies within SAME_PLACE pixels, with nearly the same size and angle.
    """
    from scipy.spatial import cKDTree  # 0.2 s that plain images need not pay

    pairs = cKDTree(frames[:, :2]).query_pairs(SAME_PLACE, output_type="ndarray")
    stronger, weaker = np.sort(pairs, axis=1).T
    size = np.abs(np.log2(frames[stronger, 2] / frames[weaker, 2])) < SAME_SIZE
    turn = np.abs((frames[stronger, 3] - frames[weaker, 3] + 180) % 360 - 180) < SAME_ANGLE
    same = size & turn & (views[stronger] != views[weaker])
    found = np.zeros(len(frames), bool)
    found[weaker[same]] = True
    return found


def view_of(gray: NDArray[Any], view: int, mask: NDArray[np.uint8] | None = None) -> View:
    """Return view 0 (the image itself) to 10 of a gray image, and of its mask."""
    if view == 0:
        return View(gray, mask, np.eye(2, 3))
    tilt, direction = TEN[view - 1]
    turned, seen = gray, mask
    if direction not in (0.0, 90.0):
        M = rotation(direction, gray.shape)
        size = bounds(M, gray.shape)
        turned = cv2.warpAffine(gray, M, size, borderMode=cv2.BORDER_REPLICATE)
        inside = np.zeros(gray.shape, np.uint8)
        inside[MARGIN:-MARGIN, MARGIN:-MARGIN] = 1
        inside = inside if mask is None else inside * (mask != 0)
        seen = cv2.warpAffine(inside, M, size, flags=cv2.INTER_NEAREST)
    # No warp along the axes: a blur in one dimension, and every t-th row or column.
    sigma, step = BLUR * np.sqrt(tilt**2 - 1), int(tilt)
    taps, down = 2 * int(3 * sigma) + 1, direction == 90.0
    kept = np.s_[::step] if down else np.s_[:, ::step]
    blurred = cv2.GaussianBlur(turned, (1, taps) if down else (taps, 1), sigma)
    return View(
        np.ascontiguousarray(blurred[kept]),
        None if seen is None else np.ascontiguousarray(seen[kept]),
        cv2.invertAffineTransform(from_image(gray.shape, view)),
    )


def to_image(frames: Frames, view: View) -> Frames:
    """Map frames (N, 4) of a view to circles in the image."""
    return _mapped(frames, view.to_image)


def to_view(frames: Frames, shape: tuple[int, int], view: int) -> Frames:
    """Map frames (N, 4) of circles in an image of `shape` (H, W) to a view."""
    return frames if view == 0 else _mapped(frames, from_image(shape, view))


def affine_of(frames: Frames, views: NDArray[np.int64]) -> Float64:
    """Return the affine shapes (N, 2, 2) of frames (N, 4) found in `views` (N,): ellipses.

    Columns are half axes of the circle in the view, mapped to the image: along the angle of the
    keypoint, and across it.
    """
    shapes = np.empty((len(frames), 2, 2))
    for view in np.unique(views):
        those = views == view
        in_view = to_view(frames[those], (1, 1), view)  # the shape of an image moves centres only
        turn, half = radians(in_view[:, 3]), in_view[:, 2] / 2
        circle = np.stack([np.cos(turn), -np.sin(turn), np.sin(turn), np.cos(turn)], axis=1)
        back = np.eye(2) if view == 0 else np.linalg.inv(from_image((1, 1), view)[:, :2])
        shapes[those] = back @ (circle * half[:, None]).reshape(-1, 2, 2)
    return shapes


def _mapped(frames: Frames, M: Float64) -> Frames:
    """Map frames (N, 4) by an affine map (2, 3): centre, size by area, direction of the angle."""
    turn = radians(frames[:, 3])
    along = np.stack([np.cos(turn), np.sin(turn)], axis=1) @ M[:, :2].T
    angle = degrees(np.arctan2(along[:, 1], along[:, 0])) % 360.0
    size = frames[:, 2] * np.sqrt(abs(np.linalg.det(M[:, :2])))
    return np.column_stack([frames[:, :2] @ M[:, :2].T + M[:, 2], size, angle])


@lru_cache(maxsize=64)
def from_image(shape: tuple[int, int], view: int) -> Float64:
    """Return the map (2, 3) from pixels of an image of `shape` to those of a view."""
    tilt, direction = TEN[view - 1]
    if direction == 90.0:
        return np.diag([1.0, 1 / tilt]) @ np.eye(2, 3)
    return np.diag([1 / tilt, 1.0]) @ rotation(direction, shape)


def rotation(direction: float, shape: tuple[int, int]) -> Float64:
    """Return the rotation (2, 3) of a view's direction to the x axis, all pixels positive."""
    if direction == 0.0:
        return np.eye(2, 3)
    c, s = np.cos(np.deg2rad(direction)), np.sin(np.deg2rad(direction))
    R = np.array([[c, s], [-s, c]])
    return np.column_stack([R, -(_corners(shape) @ R.T).min(axis=0)])


def bounds(M: Float64, shape: tuple[int, int]) -> tuple[int, int]:
    """Return width and height of an image of `shape` after an affine map."""
    width, height = np.ceil((_corners(shape) @ M[:, :2].T + M[:, 2]).max(axis=0)).astype(int) + 1
    return int(width), int(height)


def _corners(shape: tuple[int, int]) -> Float64:
    height, width = shape
    return np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)

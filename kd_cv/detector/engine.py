"""From an image to frames and responses: octave by octave, in strips of rows.

A strip is blurred level by level, its differences scanned and its extrema fitted while they are in
the cache; then it is forgotten, but for the rows that make the next octave. So the memory is that
of a few strips, whatever the size of the image.
"""

from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.engine import in_parallel, load_fused
from kd_cv.descriptor.forks import opencv
from kd_cv.descriptor.frames import Frames
from kd_cv.detector import core
from kd_cv.detector.orientation import oriented
from kd_cv.detector.scale_space import CANDIDATE, IN_SCALE, IN_SPACE, REACH, Array, ScaleSpace

#: Rows of a strip: the rows around it that it needs too would else cost more than it does itself.
STRIP = 128
#: The standard deviation that images are brought to, and the smallest share of their root mean
#: square that is more than the rounding of float32.
DEVIATION, ROUNDING = 0.2, 1e-4

Array32 = NDArray[np.float32]


class Detected(NamedTuple):
    """Keypoints of an image, the strongest first: frames (N, 4) and responses (N,)."""

    frames: Frames
    responses: Array


def detect_frames(
    gray: NDArray[Any],
    space: ScaleSpace,
    *,
    count: int = 0,
    mask: NDArray[np.uint8] | None = None,
    upright: bool = False,
) -> Detected:
    """The `count` strongest keypoints of a gray image, uint8 or float32; all if `count` is 0.

    Only where the mask (H, W) is not 0. A keypoint with several angles counts several times; with
    `upright` they have none, -1.

    >>> frames, responses = detect_frames(gray, ScaleSpace(), count=2000)
    """
    x, y, sigma, contrast = extrema(gray, space).T
    keep = np.argsort(-contrast, kind="stable")
    if mask is not None:
        keep = keep[mask[np.rint(y[keep]).astype(int), np.rint(x[keep]).astype(int)] != 0]
    if count:
        keep = keep[:count]
    frames = np.stack([x, y, 2 * sigma, np.full(len(x), -1.0)], axis=1)[keep]
    responses = contrast[keep]
    if not upright and len(frames):
        index, frames = oriented(gray, frames)
        frames, responses = frames[: count or None], responses[index][: count or None]
    # As OpenCV's keypoints hold them: arrays and keypoints then have the same descriptors.
    return Detected(frames.astype(np.float32).astype(np.float64), responses)


def extrema(gray: NDArray[Any], space: ScaleSpace) -> Array:
    """Extrema (N, 4) of the scale space of an image: x, y, sigma, |D|."""
    found = [np.empty((0, 4))]
    level, gain = gray, gain_of(gray)
    for octave in range(space.octaves(gray.shape) if gain else 0):
        rows, level = _of_octave(level, space, gain if octave == 0 else None)
        x, y, layer, value = rows.T * [[2**octave], [2**octave], [1], [1]]
        sigma = space.sigma * np.exp2(octave + layer / space.layers)
        found.append(np.stack([x, y, sigma, abs(value)], axis=1))
    return np.concatenate(found)


def _of_octave(image: NDArray[Any], space: ScaleSpace, gain: float | None) -> tuple[Array, Array32]:
    """Extrema (N, 4) of an octave, x, y, layer, D, and the first level of the next octave.

    `image` is the first level, or, with a gain, the image that it is made of.
    """
    height, width = image.shape
    starts = range(0, height, STRIP)
    found: list[Any] = [None] * len(starts)
    following = np.empty(((height + 1) // 2, (width + 1) // 2), np.float32)

    def strip(start: int) -> None:
        stop = min(start + STRIP, height)
        D, top = _differences(image, space, gain, start, stop, following)
        inside = max(start, REACH) - top, min(stop, height - REACH) - top
        fused = load_fused_extrema()
        rows = (fused.extrema if fused else _by_core)(D, *inside, space)
        rows[:, 1] += top
        found[start // STRIP] = rows

    in_parallel(starts, strip)
    return _distinct(np.concatenate(found), image.shape), following


def _differences(
    image: NDArray[Any],
    space: ScaleSpace,
    gain: float | None,
    start: int,
    stop: int,
    following: Array32,
) -> tuple[Array32, int]:
    """D (n + 2, rows, W) of rows start..stop and REACH more, and where they begin.

    Every second pixel of level n in these rows goes to the next octave.
    """
    height, width = image.shape
    taps = [t.astype(np.float32) for t in space.taps]
    reaches = [len(t) // 2 for t in taps]

    def rows(level: int) -> tuple[int, int]:
        """Rows of a level that the levels after it need."""
        around = REACH + sum(reaches[level + 1 :])
        return max(0, start - around), min(height, stop + around)

    above, below = rows(0)
    if gain is None:
        before = image[above:below]
    else:
        top, bottom = max(0, above - reaches[0]), min(height, below + reaches[0])
        blurred = _blurred(image[top:bottom], taps[0], gain)
        before = blurred[above - top : below - top]
    first, last = rows(len(taps) - 1)
    D = np.empty((space.layers + 2, last - first, width), np.float32)
    for level in range(1, len(taps)):
        top, bottom = rows(level)
        after = _blurred(before, taps[level])[top - above : bottom - above]
        inner, outer = after[first - top : last - top], before[first - above : last - above]
        np.subtract(inner, outer, out=D[level - 1])
        if level == space.layers:
            even = start + start % 2
            following[even // 2 : (stop + 1) // 2] = after[even - top : stop - top : 2, ::2]
        before, above = after, top
    return D, first


def _blurred(image: NDArray[Any], taps: Array32, gain: float = 1.0) -> Array32:
    """An image times its gain, blurred both ways; it is mirrored at its borders."""
    with opencv:
        return cv2.sepFilter2D(image, cv2.CV_32F, taps * np.float32(gain), taps)


def _by_core(D: Array32, top: int, bottom: int, space: ScaleSpace) -> Array:
    """Extrema (N, 4) of D (n + 2, rows, W) in rows top..bottom: x, y, layer, value of D."""
    wanted = D[:, top - REACH : bottom + REACH]
    layer, y, x = np.nonzero(core.candidates(wanted, CANDIDATE * space.threshold))
    around = np.arange(2 * REACH + 1)
    cubes = wanted[
        layer[:, None, None, None] + np.arange(3)[:, None, None],
        y[:, None, None, None] + around[:, None],
        x[:, None, None, None] + around,
    ]
    t, value, good = core.fitted(
        cubes.astype(np.float64), IN_SPACE, IN_SCALE, space.threshold, space.roundness
    )
    rows = np.stack([x + REACH + t[:, 0], y + top + t[:, 1], layer + 1 + t[:, 2], value], axis=1)
    return rows[good]


def _distinct(rows: Array, shape: tuple[int, ...]) -> Array:
    """Extrema (N, 4) of one octave without those that another candidate led to as well."""
    x, y, layer = np.rint(rows[:, :3]).astype(np.int64).T
    cell = (layer * shape[0] + y) * shape[1] + x
    order = np.lexsort((-abs(rows[:, 3]), cell))
    first = np.diff(cell[order], prepend=-1) != 0
    return rows[np.sort(order[first])]


@lru_cache(maxsize=1)
def load_fused_extrema() -> ModuleType | None:
    """The compiled extrema, or None where Numba cannot be imported."""
    if not load_fused():
        return None
    from kd_cv.detector import fused

    return fused


def gain_of(gray: NDArray[Any]) -> float:
    """What brings the standard deviation of an image to 0.2; 0 if it has none.

    So a keypoint does not depend on the gain of its image, nor on its type.
    """
    if not gray.size:
        return 0.0
    with opencv:
        mean, deviation = (float(value.item()) for value in cv2.meanStdDev(gray))
    deviation = max(deviation, ROUNDING * abs(mean))
    return DEVIATION / deviation if deviation > 0 else 0.0

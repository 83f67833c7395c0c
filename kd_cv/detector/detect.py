"""Detect keypoints octave by octave, in strips of rows.

A strip is blurred level by level, its differences scanned and its extrema fitted while they are in
the cache. Only the rows that make the next octave are stored, so a few strips bound the memory.
"""

from threading import Lock
from types import ModuleType
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import UPRIGHT, Frames, size_from_sigma
from kd_cv.descriptor.patches import Pyramid
from kd_cv.detector import reference
from kd_cv.detector.orientation import YIELDING, load_compiled_detector, oriented
from kd_cv.detector.scale_space import CANDIDATE, FEW, REACH, Array, ScaleSpace
from kd_cv.parallel import in_parallel

#: Rows of a strip: in thinner ones the overlap would cost more than the strip.
STRIP = 128
#: Columns of a strip, an even number: bounds the memory for wide images.
COLUMNS = 4096
#: Standard deviation of normalised images: contrast 0.04 then gives about as many keypoints as
#: cv2.SIFT's. And the smallest deviation, relative to the root mean square, above float32 rounding.
DEVIATION, ROUNDING = 0.23, 1e-4

Array32 = NDArray[np.float32]


class Detections(NamedTuple):
    """Keypoints of an image, the strongest first: frames (N, 4) and responses (N,)."""

    frames: Frames
    responses: Array


def detect(
    gray: NDArray[Any],
    space: ScaleSpace,
    *,
    count: int = 0,
    mask: NDArray[np.uint8] | None = None,
    upright: bool = False,
    pyramid: Pyramid | None = None,
) -> Detections:
    """Detect the `count` strongest keypoints of a gray image, uint8 or float32; all if 0.

    Only where the mask (H, W) is not 0. A keypoint with several angles counts several times; with
    `upright` the angle is -1. pyramid: of the image, if it exists already.

    >>> frames, responses = detect(gray, ScaleSpace(), count=2000)
    """
    x, y, sigma, responses = extrema(gray, space, count, mask).T
    frames = np.stack([x, y, size_from_sigma(sigma), np.full(len(x), UPRIGHT)], axis=1)
    if not upright and len(frames):
        index, frames, heights = oriented(pyramid or gray, frames)
        responses = responses[index] * heights**YIELDING
        strongest = np.argsort(-responses, kind="stable")[: count or None]
        frames, responses = frames[strongest], responses[strongest]
    # Rounded like OpenCV's keypoints: arrays and keypoints then give the same descriptors.
    return Detections(frames.astype(np.float32).astype(np.float64), responses)


def extrema(
    gray: NDArray[Any],
    space: ScaleSpace,
    count: int = 0,
    mask: NDArray[np.uint8] | None = None,
) -> Array:
    """Find the `count` strongest extrema (N, 4) of an image, in order: x, y, sigma, strength."""
    octaves = [np.empty((0, 5))]
    level, gain = gray, gain_of(gray, mask)
    weakest = Weakest(space, count)
    for octave in range(space.octaves(gray.shape) if gain else 0):
        of_image = gain if octave == 0 else None
        rows, level = _of_octave(level, octave, space, of_image, mask, weakest)
        x, y, layer, strength, _ = rows.T
        # No two extrema lie in one cell.
        cell = (np.rint(layer) * level.shape[0] * 2 + np.rint(y)) * level.shape[1] * 2 + np.rint(x)
        step = 2.0**octave
        sigma = step * space.sigma * np.exp2(layer / space.layers)
        octaves.append(np.stack([x * step, y * step, sigma, strength, cell * 64 + octave], axis=1))
    every = np.concatenate(octaves)
    every = every[every[:, 3] >= space.least]
    order = np.argsort(-every[:, 3], kind="stable")
    # Several candidates may lead to one extremum.
    strongest = _distinct(every[order[: 2 * count or None]])
    strongest = strongest if len(strongest) >= count else _distinct(every[order])
    enough = max(FEW, np.count_nonzero(strongest[:, 3] >= space.threshold))
    return strongest[: min(count or enough, enough), :4]


def masked(rows: Array, mask: NDArray[np.uint8] | None, step: int) -> Array:
    """Keep places, with x and y in units of `step` pixels, where the mask is not 0."""
    if mask is None:
        return rows
    x, y = np.rint(rows[:, :2] * step).astype(np.int64).T
    height, width = mask.shape
    return rows[mask[np.minimum(y, height - 1), np.minimum(x, width - 1)] != 0]


class Weakest:
    """The strength below which extrema need no fit, given the `count` strongest so far, or `FEW`.

    It only rises towards that of the whole image. So the order of threads changes which weak
    extrema are skipped, but not the strongest.
    """

    def __init__(self, space: ScaleSpace, count: int) -> None:
        self.value = space.least
        ranks = {FEW: space.threshold} if space.least < space.threshold else {}
        self._ranks = ranks | ({count: np.inf} if count else {})
        self._strongest = np.empty(0)
        self._lock = Lock()

    def update(self, values: Array) -> None:
        """Add extrema, all of them different."""
        if not self._ranks:
            return
        with self._lock:
            values = np.concatenate([self._strongest, values])
            for rank, most in self._ranks.items():
                if len(values) >= rank:
                    weakest = np.partition(values, -rank)[-rank]
                    self.value = max(self.value, min(weakest, most))
            self._strongest = values[values >= self.value]


def _of_octave(
    image: NDArray[Any],
    octave: int,
    space: ScaleSpace,
    gain: float | None,
    mask: NDArray[np.uint8] | None,
    weakest: Weakest,
) -> tuple[Array, Array32]:
    """Find extrema (N, 5) of an octave, x, y, layer, strength, sole; and the next octave's image.

    `image` is the first level, or, with a gain, the image that it is made of.
    """
    height, width = image.shape
    parts = [(y, x) for y in range(0, height, STRIP) for x in range(0, width, COLUMNS)]
    strips: list[Any] = [None] * len(parts)
    margin = 2 * REACH + 2 + sum(len(taps) // 2 for taps in space.taps)
    following = np.empty(((height + 1) // 2, (width + 1) // 2), np.float32)
    compiled = load_compiled_detector()

    def strip(part: int) -> None:
        start, first = parts[part]
        stop, last = min(start + STRIP, height), min(first + COLUMNS, width)
        left = max(0, first - margin)
        columns, even = image[:, left : last + margin], slice(first - left, last - left, 2)
        next_columns = following[:, first // 2 : (last + 1) // 2]
        least = space.smallest(weakest.value, octave)
        D, top = _differences(columns, space, gain, (start, stop), next_columns, even, compiled)
        inside = max(start, REACH) - top, min(stop, height - REACH) - top
        rows = (compiled.extrema if compiled else _by_reference)(D, *inside, least, space.roundness)
        rows[:, 0] += left
        rows[:, 1] += top
        rows = rows[(rows[:, 0] >= first) & (rows[:, 0] < last)]  # the rest belongs to another part
        rows[:, 3] = space.strength(rows[:, 3], octave, rows[:, 2])
        strips[part] = rows = masked(rows, mask, 2**octave)
        weakest.update(rows[rows[:, 4] > 0, 3])

    in_parallel(range(len(parts)), strip)
    return np.concatenate(strips), following


def _differences(
    image: NDArray[Any],
    space: ScaleSpace,
    gain: float | None,
    strip: tuple[int, int],
    following: Array32,
    even: slice,
    compiled: ModuleType | None,
) -> tuple[Array32, int]:
    """Return D (n + 2, rows, W) of a strip and REACH rows more, and its first row and column.

    Every second pixel of level n in these rows goes to the next octave, of the columns `even`.
    """
    (height, width), (start, stop) = image.shape, strip
    taps = [t.astype(np.float32) for t in space.taps]
    reaches = [len(t) // 2 for t in taps]

    def rows(level: int) -> tuple[int, int]:
        around = REACH + sum(reaches[level + 1 :])
        return max(0, start - around), min(height, stop + around)

    blurred = compiled.blurred if compiled else _blurred
    above, below = rows(0)
    if gain is None:
        before = image[above:below]
    else:
        top, bottom = max(0, above - reaches[0]), min(height, below + reaches[0])
        before = np.empty((below - above, width), np.float32)
        blurred(image[top:bottom], taps[0], gain, above - top, before, None, 0)
    first, last = rows(len(taps) - 1)
    D = np.empty((space.layers + 2, last - first, width), np.float32)
    for level in range(1, len(taps)):
        top, bottom = rows(level)
        after = np.empty((bottom - top, width), np.float32)
        blurred(before, taps[level], 1.0, top - above, after, D[level - 1], first - above)
        if level == space.layers:
            row = start + start % 2
            following[row // 2 : (stop + 1) // 2] = after[row - top : stop - top : 2, even]
        before, above = after, top
    return D, first


def _blurred(
    image: NDArray[Any],
    taps: Array32,
    gain: float,
    top: int,
    out: Array32,
    difference: Array32 | None,
    first: int,
) -> None:
    """`compiled.blurred` without Numba."""
    blurred = cv2.sepFilter2D(image, cv2.CV_32F, taps * np.float32(gain), taps)
    if difference is not None:
        rows = slice(first, first + len(difference))
        np.subtract(blurred[rows], image[rows], out=difference)
    out[:] = blurred[top : top + len(out)]


def _by_reference(D: Array32, top: int, bottom: int, weakest: float, roundness: float) -> Array:
    """`compiled.extrema` without Numba."""
    wanted = D[:, top - REACH : bottom + REACH]
    layer, y, x = np.nonzero(reference.candidates(wanted, CANDIDATE * weakest))
    around = np.arange(2 * REACH + 1)
    cubes = wanted[
        layer[:, None, None, None] + np.arange(3)[:, None, None],
        y[:, None, None, None] + around[:, None],
        x[:, None, None, None] + around,
    ]
    cubes = np.moveaxis(cubes, 0, -1).astype(np.float64)
    t, value, good = reference.fitted(cubes, reference.FIT, weakest, roundness)
    sole = (abs(t) < 0.5).all(axis=0)
    columns = [x + REACH + t[0], y + top + t[1], layer + 1 + t[2], value, sole]
    return np.stack(columns, axis=1)[good]


def _distinct(rows: Array) -> Array:
    """Keep the first of the places (N, 5) that have the same last column, the cell."""
    _, first = np.unique(rows[:, 4], return_index=True)
    return rows[np.sort(first)]


def gain_of(gray: NDArray[Any], mask: NDArray[np.uint8] | None = None) -> float:
    """Return the factor that brings the standard deviation of an image to 0.23; 0 if it is flat.

    So keypoints do not depend on the gain or type of the image. A constant border and masked pixels
    do not count: they would change the keypoints elsewhere.
    """
    if not gray.size:
        return 0.0
    mean = deviation = 0.0
    for part in (_content(gray), np.s_[:, :]):  # all of it, if the content is one flat shape
        if deviation == 0 and gray[part].size:
            seen = None if mask is None else mask[part]
            mean, deviation = (float(v.item()) for v in cv2.meanStdDev(gray[part], mask=seen))
    deviation = max(deviation, ROUNDING * abs(mean))
    return DEVIATION / deviation if deviation > 0 else 0.0


def _content(gray: NDArray[Any]) -> tuple[slice, slice]:
    slices: list[slice] = []
    for axis in range(2):
        lines = gray if axis == 0 else gray[slices[0]].T
        ends = lines[[0, -1]] if len(lines) else lines
        if (ends == ends[:, :1]).all(axis=1).any():  # else nothing to look for
            varied = np.flatnonzero((lines != lines[:, :1]).any(axis=1))
            slices.append(slice(varied[0], varied[-1] + 1) if len(varied) else slice(0, 0))
        else:
            slices.append(slice(0, len(lines)))
    return slices[0], slices[1]

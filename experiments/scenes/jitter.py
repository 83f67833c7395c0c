"""Exact frames with jitter: keypoints of one view carried into the others, as in HPatches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kd_cv.fit.warps import PointMap, near_pairs, transfer_frames
from kd_cv.types import Float64

JitterLevel = Literal["easy", "hard", "tough"]

REGION = 5.0  # side of HPatches' measurement region in keypoint sizes
OVERLAP = 0.5  # intersection over union of two keypoints that count as one
MAX_ANISOTROPY_PROJECTED = 1.7


class Jitter(NamedTuple):
    """Half ranges of uniform noise on a frame."""

    angle: float  # degrees
    log2_size: float
    shift: float  # in half sides of the measurement region


# The description of HPatches states the median overlap of a region with its jittered self: 0.85
# (easy) and 0.72 (hard). Size and shift are set to give these on the measurement region; their
# ratio, the angles, and tough (the same step further, 0.62) are chosen here.
JITTER: dict[str, Jitter] = {
    "easy": Jitter(angle=10.0, log2_size=0.14, shift=0.14),
    "hard": Jitter(angle=20.0, log2_size=0.27, shift=0.27),
    "tough": Jitter(angle=30.0, log2_size=0.40, shift=0.40),
}


def project_frames(
    frames: Float64,
    shapes: Sequence[tuple[int, ...]],
    maps: Sequence[PointMap],
    rng: np.random.Generator,
    jitter: Jitter,
    *,
    everywhere: bool = False,
) -> tuple[list[Float64], list[NDArray[np.int64]]]:
    """Carry keypoints (N, 4) of the first view into the others, by a point map to each of them.

    Only regions that lie within the image are kept, with everywhere only those that do so in all
    views; where the map squeezes by more than MAX_ANISOTROPY_PROJECTED, that view is left out. Of
    keypoints that overlap one is kept. Jitter is put on the frame before it is carried over, afresh
    for each view. Returns frames and ids per view.
    """
    first = frames[_within(frames, shapes[0])]
    first = first[distinct(first, rng)]
    carried, inside = [], []
    for there, shape in zip(maps, shapes[1:], strict=True):
        inside.append(_within(transfer_frames(first, there, np.inf), shape))
        shaken = jittered(first, jitter, rng)
        carried.append(transfer_frames(shaken, there, MAX_ANISOTROPY_PROJECTED))
        carried[-1][~inside[-1]] = np.nan
    seen = [np.isfinite(view[:, 0]) for view in carried]
    kept = np.any(seen, axis=0) & (np.all(inside, axis=0) | (not everywhere))
    ids, rows = np.cumsum(kept) - 1, [kept, *(kept & one for one in seen)]
    views = zip([first, *carried], rows, strict=True)
    return [view[chosen] for view, chosen in views], [ids[chosen] for chosen in rows]


def distinct(frames: Float64, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Of frames whose circles overlap by more than OVERLAP keep one at random: a mask (N,)."""
    # Circles of radii r <= R overlap by at most (r/R)^2, and not at all beyond r + R.
    reach = frames[:, 2] * (1 + np.sqrt(1 / OVERLAP)) / 2
    i, j, d = near_pairs(frames[:, :2], frames[:, :2], reach)
    clash = (circle_overlap(frames[i, 2] / 2, frames[j, 2] / 2, d) > OVERLAP) & (i != j)
    rivals = np.split(j[clash], np.searchsorted(i[clash], np.arange(1, len(frames))))
    keep = np.zeros(len(frames), np.bool_)
    for k in rng.permutation(len(frames)).tolist():
        keep[k] = not keep[rivals[k]].any()
    return keep


def circle_overlap(r: Float64, R: Float64, d: Float64) -> Float64:
    """Intersection over union of circles of radii r and R whose centres are d apart."""
    d = np.maximum(d, 1e-12)
    alpha = np.arccos(np.clip((d * d + r * r - R * R) / (2 * d * r), -1, 1))
    beta = np.arccos(np.clip((d * d + R * R - r * r) / (2 * d * R), -1, 1))
    # Two circular segments; the angles are 0 or pi when one circle holds the other or they part.
    common = r * r * (alpha - np.sin(2 * alpha) / 2) + R * R * (beta - np.sin(2 * beta) / 2)
    return common / (np.pi * (r * r + R * R) - common)


def jittered(frames: Float64, jitter: Jitter, rng: np.random.Generator) -> Float64:
    """Frames (N, 4) with random noise."""
    noise = rng.uniform(-1.0, 1.0, frames.shape)
    out = frames.copy()
    out[:, :2] += noise[:, :2] * jitter.shift * (REGION / 2) * frames[:, 2:3]
    out[:, 2] *= 2.0 ** (noise[:, 2] * jitter.log2_size)
    out[:, 3] = np.mod(out[:, 3] + noise[:, 3] * jitter.angle, 360.0)
    return out


def _within(frames: Float64, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Frames whose measurement region (a circle REGION sizes wide) lies in the image."""
    height, width = shape[:2]
    x, y, half = frames[:, 0], frames[:, 1], frames[:, 2] * REGION / 2
    return (x >= half) & (y >= half) & (x <= width - 1 - half) & (y <= height - 1 - half)

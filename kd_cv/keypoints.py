"""OpenCV's keypoints: conversion to frames and back, copies, the strongest."""

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import Frames, as_frames
from kd_cv.gray import MAX_SIDE
from kd_cv.types import KeyPoints
from kd_cv.views import VIEWS

SIFT_SIGMA = 1.6  # cv2.SIFT's first blur, in pixels of a doubled image
VIEW_BITS = 24  # the view of a keypoint is stored in its octave above the bits of cv2.SIFT


def from_keypoints(keypoints: Sequence[cv2.KeyPoint]) -> Frames:
    """Convert OpenCV keypoints to frames (N, 4)."""
    frames = np.empty((len(keypoints), 4))
    if len(keypoints):
        frames[:, :2] = cv2.KeyPoint.convert(keypoints)
        for column, name in ((2, "size"), (3, "angle")):
            frames[:, column] = list(map(attrgetter(name), keypoints))
    return frames


def to_keypoints(
    frames: Frames,
    responses: NDArray[Any] | None = None,
    views: NDArray[np.int64] | None = None,
    last: int = MAX_SIDE,
) -> tuple[cv2.KeyPoint, ...]:
    """Convert frames (N, 4) to OpenCV keypoints with the octaves of SIFT.

    responses (N,) and views (N,), 0 by default; last: see `sift_octave`.
    """
    frames = as_frames(frames)
    responses = np.zeros(len(frames)) if responses is None else responses
    octaves = sift_octave(frames, last)
    if views is not None:
        octaves |= views << VIEW_BITS
    columns = (*frames.T, responses, octaves)
    return tuple(map(cv2.KeyPoint, *(column.tolist() for column in columns)))


def sift_octave(frames: Frames, last: int = MAX_SIDE) -> NDArray[np.int64]:
    """Compute octave | layer << 8 | fraction << 16, as cv2.SIFT packs them: (N,).

    `last` is the last octave.
    """
    sizes = np.where(np.isfinite(frames[:, 2]), frames[:, 2], 1.0)
    scale = 3 * np.log2(np.clip(sizes, 1.0, MAX_SIDE) / (2 * SIFT_SIGMA))
    nearest = np.maximum(np.rint(scale), -2)  # the first that it searches
    octave = np.minimum((nearest - 1) // 3, last)
    layer = np.minimum(nearest - 3 * octave, 3)
    fraction = np.clip(np.rint((scale - nearest + 0.5) * 255), 0, 255)
    packed = [part.astype(np.int64) for part in (octave, layer, fraction)]
    return (packed[0] & 255) | packed[1] << 8 | packed[2] << 16


def views_of(keypoints: Sequence[cv2.KeyPoint]) -> NDArray[np.int64]:
    """Return the view (N,) that `to_keypoints` stored in each octave; 0 for other keypoints."""
    octaves = np.fromiter(map(attrgetter("octave"), keypoints), np.int64, len(keypoints))
    views = np.where(octaves > 0, octaves >> VIEW_BITS, 0)
    return np.where(views < max(VIEWS), views, 0)


def of_sift(keypoints: Sequence[cv2.KeyPoint]) -> NDArray[np.bool_]:
    """Return which keypoints hold a layer in the second byte of their octave, as SIFT's: (N,)."""
    octaves = np.fromiter(map(attrgetter("octave"), keypoints), np.int64, len(keypoints))
    return octaves >= 256


def copy_keypoints(keypoints: Sequence[cv2.KeyPoint] | None) -> KeyPoints:
    """Copy KeyPoint objects; () for None."""
    if keypoints is None:
        return ()
    try:
        # OpenCV hands back copies of the keypoints when the image is empty: no Python loop.
        copies, _ = _copier().compute(None, keypoints)
    except (cv2.error, TypeError, SystemError) as error:  # SystemError: a sequence that raises
        kind = type(keypoints).__name__
        raise TypeError(f"keypoints must be a sequence of cv2.KeyPoint, got {kind}") from error
    if None in keypoints:  # to OpenCV, a keypoint of size 0
        raise TypeError("keypoints must be a sequence of cv2.KeyPoint, got None among them")
    return tuple(copies)


@lru_cache(maxsize=1)
def _copier() -> cv2.Feature2D:
    return cv2.FastFeatureDetector_create()


def strongest(keypoints: Sequence[cv2.KeyPoint], count: int) -> list[cv2.KeyPoint]:
    """Select the `count` keypoints of the largest response, in their order."""
    if len(keypoints) <= count:
        return list(keypoints)
    responses = np.array([keypoint.response for keypoint in keypoints])
    kept = np.sort(np.argsort(-responses, kind="stable")[:count])
    return [keypoints[i] for i in kept]

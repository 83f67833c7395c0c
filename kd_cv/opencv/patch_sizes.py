"""The patch size of a keypoint, in sizes of the keypoint, by its detector.

    kind     detectors                 `size` is              a keypoint shows it by
    blob     SIFT                      2 sigma                a layer in the octave's second byte
             KAZE                      as large               nothing
             AKAZE                     as large               size 4.8 x 2^(class_id / 4), an angle
             Star                      as large               no angle, octave 0, a response of 1 or
                                                              more, a whole size from 4 on
    corner   ORB                       31 s                   size 31 x 1.2^octave, or 1.1, 1.25
             BRISK                     12 s                   size 12 s, s near that of its layer
             FAST, AGAST               7                      size 7, no angle, octave 0
             GFTT                      its block, 3           size 3, no angle, octave 0
    region   MSER, SimpleBlob          diameter               no angle, octave or response, and a
                                                              size that is not a whole number

The patch of a blob is 15 times its size, as the shipped matrices were fitted (AKAZE: 13, Star: 12,
AffineFeature: 19 if given as the detector); of a corner 45 pixels of the reduced image in which it
was found; of a region 4 diameters and 15 pixels. A rule looks at one keypoint alone: a descriptor
does not depend on other keypoints.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import cv2
import numpy as np

from kd_cv.descriptor.frames import MAGNIFICATION, UPRIGHT, Frames
from kd_cv.keypoints import from_keypoints, of_sift
from kd_cv.settings import Settings
from kd_cv.types import Detector, Float64, KeyPoints

AFFINE = "AffineFeature"
CORNER = 45.0  # pixels of the image in which it was found
DIAMETERS, AROUND = 4.0, 15.0  # of a region: diameters, and pixels around
#: Patch size in sizes of the keypoint, by the class of OpenCV's detector.
WINDOWS = {
    "ORB": CORNER / 31,
    "BRISK": CORNER / 12,
    "FastFeatureDetector": CORNER / 7,
    "AgastFeatureDetector": CORNER / 7,
    "GFTTDetector": CORNER / 3,
    "StarDetector": 12.0,
    "AKAZE": 13.0,
    AFFINE: 19.0,
}
REGIONS = ("MSER", "SimpleBlobDetector")

_FIELDS = attrgetter("size", "angle", "response", "octave", "class_id")


def frames_of(keypoints: KeyPoints, settings: Settings, detector: Detector | None = None) -> Frames:
    """Return frames (N, 4) of keypoints, scaled to the patch sizes of their detectors.

    detector  of keypoints that do not show their detector
    """
    frames = from_keypoints(keypoints)
    if settings.magnification is not None:
        return frames
    others = np.flatnonzero(~of_sift(keypoints) | (type(detector).__name__ == AFFINE))
    if len(others):
        sides = windows([keypoints[i] for i in others], detector)
        frames[others, 2] *= sides / MAGNIFICATION
    return frames


def windows(keypoints: Sequence[cv2.KeyPoint], detector: Any = None) -> Float64:
    """Return the patch size of each keypoint in its own sizes: (N,).

    detector  of keypoints that do not show their detector; SIFT by default

    >>> windows([cv2.KeyPoint(40, 30, 31, 90, 0.01), cv2.KeyPoint(40, 30, 4, 90)])
    array([ 1.4516129, 15.       ])
    """
    fields = np.array([_FIELDS(keypoint) for keypoint in keypoints]).reshape(-1, 5)
    sides = _sides(fields, detector)
    # the keypoints of AffineFeature are those of another detector in simulated views
    affine = type(detector).__name__ == AFFINE
    sides[of_sift(keypoints)] = WINDOWS[AFFINE] if affine else MAGNIFICATION
    return sides


def _sides(fields: Float64, detector: Any) -> Float64:
    """Return patch sizes in keypoint sizes, (N,), from `_FIELDS` (N, 5)."""
    size, angle, response, octave, class_id = fields.T
    bare = (angle == UPRIGHT) & (octave == 0)
    whole = size == np.rint(size)
    detected = (angle >= 0) & (octave >= 0) & (octave < 32) & (response != 0)  # not made by hand
    octave = np.where(detected, octave, 0)
    with np.errstate(all="ignore"):  # any float may come
        factor = (size / 31) ** (1 / np.maximum(octave, 1))  # of ORB: 1.2, or another round number
        level = (factor >= 1) & (factor <= np.where(octave > 0, 2, 1))
        level &= np.abs(100 * factor - np.rint(100 * factor)) < 1e-4
        layer = np.where(octave % 2 == 0, 1.0, 1.5) * np.exp2(octave // 2)  # of BRISK
        between = np.abs(np.log2(size / (12 * layer))) < 0.6  # no farther than the next layers
        step = np.abs(4 * np.log2(size / 4.8) - class_id) < 1e-3  # of AKAZE
        region = DIAMETERS + AROUND / size
    made_by = {
        "AKAZE": detected & (class_id >= 0) & step,
        "BRISK": detected & (response >= 1) & between,
        "ORB": detected & level,
        "StarDetector": bare & whole & (size >= 4) & (np.abs(response) >= 1),
        "FastFeatureDetector": bare & (size == 7) & ((response == 0) | (response >= 1)),
        "GFTTDetector": bare & (size == 3),
    }
    kind = type(detector).__name__
    side = WINDOWS.get(kind, MAGNIFICATION)
    if kind == "ORB":
        side = CORNER / detector.getPatchSize()
    elif kind == "GFTTDetector":
        side = CORNER / detector.getBlockSize()
    sides = np.full(len(size), side)
    regions = (size > 0) & ((kind in REGIONS) | (bare & (response == 0) & ~whole))
    sides[regions] = region[regions]
    for name, those in made_by.items():
        sides[those] = WINDOWS[name]
    return sides

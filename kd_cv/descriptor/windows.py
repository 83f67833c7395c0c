"""How wide the window of a keypoint is, in sizes of the keypoint: each detector has its own sizes.

    kind     detectors                 `size` is              a keypoint shows it by
    blob     SIFT                      2 sigma                a layer in the octave's second byte
             KAZE, AKAZE, Star         as large               nothing
    corner   ORB                       31 s                   size 31 x 1.2^octave, or 1.1, 1.25
             BRISK                     12 s                   size 12 s, s near that of its layer
             FAST, AGAST               7                      size 7, no angle, octave 0
             GFTT                      its block, 3           size 3, no angle, octave 0
    region   MSER, SimpleBlob          diameter               no angle, octave or response, and a
                                                              size that is not a whole number

A blob has 15 times its size, as the shipped matrices were fitted; a corner 51 pixels of the image,
reduced s times, in which it was found (45 of GFTT); a region 6.5 diameters (5 of MSER, where the
detector is known). A rule looks at one keypoint alone, so that a descriptor does not depend on its
neighbours.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import MAGNIFICATION, UPRIGHT, of_sift

#: Side of the window of a corner in pixels of the image in which it was found, of a region in
#: diameters.
CORNER, GFTT, REGION = 51.0, 45.0, 6.5
#: The same in sizes of the keypoint, by the class of OpenCV's detector.
WINDOWS = {
    "ORB": CORNER / 31,
    "BRISK": CORNER / 12,
    "FastFeatureDetector": CORNER / 7,
    "AgastFeatureDetector": CORNER / 7,
    "GFTTDetector": GFTT / 3,
    "MSER": 5.0,
    "SimpleBlobDetector": REGION,
}
REGIONS = ("MSER", "SimpleBlobDetector")

_FIELDS = attrgetter("size", "angle", "response", "octave")
Float64 = NDArray[np.float64]


def windows(keypoints: Sequence[cv2.KeyPoint], detector: Any = None) -> Float64:
    """Side of the window of each keypoint in its own sizes: (N,).

    detector  of one that shows nothing by itself; else it counts as SIFT's

    >>> windows([cv2.KeyPoint(40, 30, 31, 90, 0.01), cv2.KeyPoint(40, 30, 4, 90)])
    array([ 1.64516129, 15.        ])
    """
    fields = np.array([_FIELDS(keypoint) for keypoint in keypoints]).reshape(-1, 4)
    sides = _sides(fields, detector)
    sides[of_sift(keypoints)] = MAGNIFICATION
    return sides


def window_of(detector: Any) -> float:
    """Side of the window, in sizes of its keypoints, of one of OpenCV's detectors."""
    name = type(detector).__name__
    # The keypoints of these stay what they are when a parameter changes their size.
    if name == "ORB":
        return CORNER / detector.getPatchSize()
    if name == "GFTTDetector":
        return GFTT / detector.getBlockSize()
    return WINDOWS.get(name, MAGNIFICATION)


def _sides(fields: Float64, detector: Any) -> Float64:
    """Side of the window in sizes, (N,), from size, angle, response and octave (N, 4)."""
    size, angle, response, octave = fields.T
    bare = (angle == UPRIGHT) & (octave == 0)
    detected = (angle >= 0) & (octave >= 0) & (octave < 32) & (response != 0)  # not made by hand
    octave = np.where(detected, octave, 0)
    with np.errstate(all="ignore"):  # any float may come
        factor = (size / 31) ** (1 / np.maximum(octave, 1))  # of ORB: 1.2, or another round number
        level = (factor >= 1) & (factor <= np.where(octave > 0, 2, 1))
        level &= np.abs(100 * factor - np.rint(100 * factor)) < 1e-4
        layer = np.where(octave % 2 == 0, 1.0, 1.5) * np.exp2(octave // 2)  # of BRISK
        between = np.abs(np.log2(size / (12 * layer))) < 0.6  # no farther than the next layers
    made_by = {
        "BRISK": detected & (response >= 1) & between,
        "ORB": detected & level,
        "FastFeatureDetector": bare & (size == 7) & ((response == 0) | (response >= 1)),
        "GFTTDetector": bare & (size == 3),
    }
    sides = np.full(len(size), window_of(detector))
    for name, those in made_by.items():
        sides[those] = WINDOWS[name]
    if type(detector).__name__ not in REGIONS:  # which of the two it is, is not to be seen
        sides[bare & (response == 0) & (size != np.rint(size))] = REGION
    return sides

"""Frames, cameras and comparisons that the tests of builders share."""

import numpy as np

from kd_cv.fit.links import (
    homography_map,
)


def angle_between(a, b):
    return np.abs((a - b + 180) % 360 - 180)


def homography_maps(H_1tok):
    return lambda i, j: homography_map(H_1tok[j] @ np.linalg.inv(H_1tok[i]))


def turned(degrees):
    """A rotation about the vertical axis."""
    a = np.radians(degrees)
    return np.array([[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]])

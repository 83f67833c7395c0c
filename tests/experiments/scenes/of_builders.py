"""Frames, cameras and comparisons that the tests of builders share."""

import numpy as np


def random_frames(rng, n, side=400.0):
    return np.column_stack(
        [rng.uniform(0, side, (n, 2)), rng.uniform(3, 20, n), rng.uniform(0, 360, n)]
    )


def angle_between(a, b):
    return np.abs((a - b + 180) % 360 - 180)


def turned(degrees):
    """A rotation about the vertical axis."""
    a = np.radians(degrees)
    return np.array([[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]])

"""Keypoints and frames that cannot be described, and what is no keypoint at all."""

import cv2
import numpy as np
import pytest

from hostile import IMAGE, POINTS, has_none, has_rows
from kd_cv import KDDescriptor
from kd_cv.descriptor.describer import describe_frames
from kd_cv.descriptor.frames import as_frames
from kd_cv.descriptor.patches import extract_patches
from kd_cv.descriptor.spec import Spec

NAN, INF, HUGE = np.nan, np.inf, 3.4e38
HOPELESS = {
    "all NaN": (NAN, NAN, NAN, NAN), "x NaN": (NAN, 9, 3, 0), "x inf": (INF, 9, 3, 0),
    "y -inf": (9, -INF, 3, 0), "size NaN": (9, 9, NAN, 0), "size inf": (9, 9, INF, 0),
    "size 0": (9, 9, 0, 0), "size -0": (9, 9, -0.0, 0), "size < 0": (9, 9, -3, 0),
    "size subnormal": (9, 9, 1e-45, 0), "size largest": (9, 9, HUGE, 0),
    "all largest": (HUGE, HUGE, HUGE, HUGE), "angle NaN": (9, 9, 3, NAN),
    "angle inf": (9, 9, 3, INF), "far away": (HUGE, 9, 3, 0), "just outside": (200, 9, 3, 0),
    "size 2^24": (9, 9, 2.0**24, 0),
}  # fmt: skip
DESCRIBED = {
    "angle 1e38": (9, 9, 3, 1e38), "angle -7200": (9, 9, 3, -7200), "corner": (0, 0, 3, 45),
    "outside, but its patch is not": (-9, -9, 3, 0), "larger than the image": (9, 9, 99, 10),
    "1e4": (9, 9, 1e4, 10),
}  # fmt: skip


class Broken:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise RuntimeError("broken")


class Endless(list):
    def __len__(self):
        return 2**40


WRONG = {
    "a generator": (point for point in POINTS), "a set": set(POINTS), "a dict": {}, "3": 3,
    "a string": "ab", "numbers": [1, 2], "None inside": [None], "a list inside": [POINTS],
    "an array of frames": np.zeros((3, 4)), "one keypoint": POINTS[0],
    "matches": [cv2.DMatch()], "raising": Broken(), "2^40 of them": Endless(POINTS),
    "classes": [cv2.KeyPoint],
}  # fmt: skip
NONE = {"[]": [], "()": (), "None": None, "array of none": np.zeros((0,))}


@pytest.fixture(scope="module")
def kd():
    return KDDescriptor()


@pytest.mark.parametrize("row", HOPELESS.values(), ids=HOPELESS)
@pytest.mark.parametrize("image", [IMAGE, IMAGE[:1], IMAGE[:, :1]], ids=["", "row", "column"])
def test_a_hopeless_keypoint_has_a_zero_row(kd, image, row):
    assert has_rows(kd.compute(image, [cv2.KeyPoint(*map(float, row))]), 1, zero=True)


@pytest.mark.parametrize("row", DESCRIBED.values(), ids=DESCRIBED)
def test_an_odd_keypoint_is_described(kd, row):
    assert has_rows(kd.compute(IMAGE, [cv2.KeyPoint(*map(float, row))]), 1)


@pytest.mark.parametrize("octave", [-(2**31), -1, 255, 2**31 - 1])
def test_octave_and_response_may_be_anything(kd, octave):
    point = cv2.KeyPoint(20.0, 20.0, 3.0, 0.0, np.nan, octave, -(2**31))
    assert has_rows(kd.compute(IMAGE, [point]), 1, zero=False)


def test_frames_of_double_floats():
    frames = [[1e300, 1, 1, 0], [1, 1, 1e300, 0], [1, 1, 5e-324, 0], [9, 9, 3, 1e300]]
    rows = describe_frames(IMAGE, np.array(frames, float), Spec(), magnification=12.0)
    assert np.isfinite(rows).all() and not rows[:3].any() and rows[3].any()


def test_patches_of_no_size():
    assert not extract_patches(IMAGE, [[9, 9, 0, 0]], 32).any()


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_what_is_no_sequence_of_keypoints(kd, value):
    with pytest.raises(TypeError, match=r"keypoints must be a sequence of cv2\.KeyPoint, got "):
        kd.compute(IMAGE, value)


@pytest.mark.parametrize("value", NONE.values(), ids=NONE)
def test_no_keypoints(kd, value):
    assert has_none(kd.compute(IMAGE, value), 0)


@pytest.mark.slow
def test_the_same_keypoint_100_000_times(kd):
    assert has_rows(kd.compute(IMAGE, POINTS[:1] * 100_000), 100_000, zero=False)


@pytest.mark.parametrize("value", [np.zeros((3, 5)), np.zeros(4), 3.0, [[]]], ids=repr)
def test_what_is_no_array_of_frames(value):
    with pytest.raises(ValueError, match=r"frames must have shape \(N, 4\)"):
        as_frames(value)

"""What `match` and `match_descriptors` are handed instead of images, numbers and rows."""

import numpy as np
import pytest

from hostile import IMAGE
from kd_cv import KDDescriptor, match
from kd_cv.matching.neighbours import match_descriptors

WITHOUT_KEYPOINTS = {
    "empty": np.zeros((0, 0), np.uint8), "1 x 1": np.zeros((1, 1), np.uint8),
    "one row": IMAGE[:1], "one column": IMAGE[:, :1], "flat": np.zeros((60, 80), np.uint8),
}  # fmt: skip
WRONG = {
    "max_keypoints": [0, -1, 1.5, "3", True, np.nan], "ratio": [0, -1, 2, "x", None, np.nan],
    "threshold": [0, -1, "x", None, np.nan, np.inf, [3]], "detector": [3, "sift"],
    "descriptor": [None, 3, "surf", KDDescriptor, np.zeros(2), []],
}  # fmt: skip
ONES = np.ones((3, 4))
NO_ROWS = [
    np.full((3, 4), np.nan), np.full((3, 4), None), ONES * 1j, np.ones((3, 5)), np.ones(4),
    "rows", 3,
]  # fmt: skip


@pytest.mark.parametrize("image", WITHOUT_KEYPOINTS.values(), ids=WITHOUT_KEYPOINTS)
def test_an_image_without_keypoints_has_no_match(image):
    found = match(image, IMAGE)
    assert found.success is False and found.H_0to1 is None and not len(found.matches)


@pytest.mark.parametrize("value", [None, [IMAGE], np.zeros(3), 3], ids="{!r:.20}".format)
def test_what_is_no_image(value):
    with pytest.raises((TypeError, ValueError), match="image"):
        match(IMAGE, value)


def test_a_path_without_a_file():
    with pytest.raises(FileNotFoundError, match=r"a\.png"):
        match(IMAGE, "a.png")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, id=f"{name}={value!r:.20}")
        for name, values in WRONG.items()
        for value in values
    ],
)
def test_a_wrong_argument_is_named(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        match(IMAGE, IMAGE, **{name: value})


@pytest.mark.parametrize("value", NO_ROWS, ids=lambda v: f"{np.asarray(v).dtype} {np.shape(v)}")
def test_what_is_no_table_of_descriptors(value):
    with pytest.raises(ValueError, match=r"descriptors must be finite|expected d0"):
        match_descriptors(ONES, value)


@pytest.mark.parametrize("value", [None, ONES[:0], 0 * ONES], ids=["None", "no rows", "zeros"])
def test_descriptors_that_match_nothing(value):
    pairs, ratios = match_descriptors(ONES, value)
    assert pairs.shape == (0, 2) and ratios.shape == (0,)

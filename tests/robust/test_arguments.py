"""Settings, options, images and descriptors that are none: each is refused by its name."""

import cv2
import numpy as np
import pytest
from small_image import IMAGE

from kd_cv import KDDescriptor, match
from kd_cv.matching.neighbours import match_descriptors

# setting: (values, the errors they may raise, the words that they have)
WRONG = {
    "magnification": (
        [[1], np.nan, np.inf, 0, -1, 1j, "12", 10**400],
        (TypeError, ValueError), "magnification",
    ),
    "scales": (
        [None, "abc", 2.5, True, 0, -1, (), [np.nan], [0], ["a"], [[1]], 10**9, [1] * 101],
        (TypeError, ValueError), "scales must|factor of scales must",
    ),
    "patch_size": (
        [True, "32", None, 15, 129, -32, 10**30, 32.0, np.array(32)],
        (TypeError, ValueError), "patch_size must be",
    ),
    "dim": ([True, 0, -1, 1.5, "128", None], (TypeError, ValueError), "dim must be"),
    "kernel": ([None, "", b"concat", ["concat"]], ValueError, "unknown kernel"),
    "whitening": (["", 3, True, ["ws"], b"ws"], ValueError, "unknown whitening"),
    "weights": (
        [None, "", ".", "/", b"multiview", 3, ["multiview"], np.zeros((3, 3)), {}, "no.npz",
         "\0.npz", "x" * 5000 + ".npz", "/dev/zero", "/dev/zero.npz", "http://host/w.npz"],
        (TypeError, ValueError, OSError), "weights|entries|too long",
    ),
    "descriptor_type": (
        [None, "f", np.float32, 1, np.zeros(2)], ValueError, "descriptor_type must",
    ),
    "detector": ([3, "sift", cv2.SIFT_create], TypeError, "detector must"),
    "nonsense": ([1], TypeError, "nonsense"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        pytest.param(name, value, error, words, id=f"{name}={value!r:.30}")
        for name, (values, error, words) in WRONG.items()
        for value in values
    ],
)
def test_a_wrong_setting_is_named(name, value, error, words):
    with pytest.raises(error, match=words):
        KDDescriptor(**{name: value})


WRONG_OPTIONS = {
    "max_keypoints": [0, -1, 1.5, "3", True, np.nan], "ratio": [0, -1, 2, "x", np.nan],
    "threshold": [0, -1, "x", None, np.nan, np.inf, [3]], "detector": [3, "sift"],
    "descriptor": [None, 3, "surf", KDDescriptor, np.zeros(2), []],
}  # fmt: skip
ONES = np.ones((3, 4))
NO_ROWS = [
    np.full((3, 4), np.nan), np.full((3, 4), None), ONES * 1j, np.ones((3, 5)), np.ones(4),
    "rows", 3,
]  # fmt: skip


@pytest.mark.parametrize("value", [None, [IMAGE], np.zeros(3), 3], ids="{!r:.20}".format)
def test_what_is_no_image(value):
    with pytest.raises((TypeError, ValueError), match="image"):
        match(IMAGE, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, id=f"{name}={value!r:.20}")
        for name, values in WRONG_OPTIONS.items()
        for value in values
    ],
)
def test_a_wrong_option_is_named(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        match(IMAGE, IMAGE, **{name: value})


@pytest.mark.parametrize("value", NO_ROWS, ids=lambda v: f"{np.asarray(v).dtype} {np.shape(v)}")
def test_what_is_no_table_of_descriptors(value):
    with pytest.raises(ValueError, match=r"descriptors must be finite|expected d0"):
        match_descriptors(ONES, value)

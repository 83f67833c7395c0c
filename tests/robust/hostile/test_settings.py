"""Settings of KDDescriptor: wrong ones are refused by name, extreme ones give zero rows."""

import cv2
import numpy as np
import pytest

from hostile import IMAGE, POINTS, has_rows
from kd_cv import KDDescriptor

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
EXTREME = [
    {"magnification": 1e60}, {"magnification": 1e308, "scales": (10.0,)},
    {"magnification": 5e-324}, {"scales": (1e300,)}, {"scales": (1e-300,)},
    {"scales": (1e-300, 1e300)},
]  # fmt: skip


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


@pytest.mark.parametrize("given", EXTREME, ids=str)
@pytest.mark.parametrize("image", [IMAGE, IMAGE[:1], IMAGE[:, :1]], ids=["", "row", "column"])
def test_an_extreme_setting_gives_zero_rows(given, image):
    assert has_rows(KDDescriptor(**given, drop=False).compute(image, POINTS), zero=True)


def test_a_hundred_scales():
    assert has_rows(KDDescriptor(scales=100).compute(IMAGE, POINTS), zero=False)

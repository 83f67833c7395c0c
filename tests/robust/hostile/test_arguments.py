"""Masks, buffers, lists and detectors."""

import cv2
import numpy as np
import pytest

from hostile import IMAGE, POINTS, RNG, has_none, has_rows
from kd_cv import KDDescriptor

MASKS = {
    "float": np.ones((60, 80)),
    "bool": np.ones((60, 80), bool),
    "another size": np.ones((6, 8), np.uint8),
    "empty": np.zeros((0, 0), np.uint8),
    "3 channels": np.ones((60, 80, 3), np.uint8),
    "a path": "mask.png",
    "a list": [IMAGE],
}
BUFFERS = {
    "strided": np.zeros((2, 256), np.float32)[:, ::2],
    "another type": np.zeros((2, 128)),
    "another shape": np.zeros(3, np.float32),
    "empty": np.zeros((0, 0), np.float32),
    "UMat": cv2.UMat(np.zeros((2, 128), np.float32)),
    "a string": "rows",
}
ENDLESS: list = []
ENDLESS.append(ENDLESS)
NO_LISTS = {"nested": [[IMAGE]], "endless": ENDLESS, "of numbers": [[1], [2]]}


class Detector:
    def __init__(self, answer):
        self.answer = answer

    def detect(self, image, mask):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def detected(answer):
    return KDDescriptor(detector=Detector(answer)).detectAndCompute(IMAGE, None)


@pytest.fixture(scope="module")
def kd():
    return KDDescriptor()


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_what_is_no_mask(kd, mask):
    with pytest.raises((TypeError, ValueError), match="a mask must"):
        kd.detect(IMAGE, mask)


def test_a_buffer_that_cannot_be_written(kd):
    frozen = np.zeros((2, 128), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kd.compute(IMAGE, POINTS, frozen)


@pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS)
def test_a_buffer_that_does_not_fit_is_replaced(kd, buffer):
    assert has_rows(kd.compute(IMAGE, POINTS, buffer), zero=False)


def test_the_image_as_its_own_buffer(kd):
    image = RNG.random((2, 128)).astype(np.float32)
    assert has_rows(kd.compute(image, POINTS, image))


@pytest.mark.parametrize("value", NO_LISTS.values(), ids=NO_LISTS)
def test_what_is_no_list_of_images(kd, value):
    with pytest.raises((TypeError, ValueError), match=r"an? .*image must"):
        kd.detect(value)
    with pytest.raises((TypeError, ValueError), match=r"an? .*image must"):
        kd.compute(value, [POINTS] * len(value))


def test_lists_of_different_lengths(kd):
    for call in (
        lambda: kd.compute([IMAGE] * 2, [POINTS]),
        lambda: kd.compute([IMAGE], None),
        lambda: kd.detect([IMAGE] * 2, [None] * 3),
    ):
        with pytest.raises(ValueError, match="need as many"):
            call()


def test_lists_of_nothing(kd):
    assert kd.compute([], []) == ((), ())
    assert kd.detect([None, None]) == ((), ())


@pytest.mark.parametrize("value", [None, [IMAGE]], ids=["None", "a list"])
def test_detect_and_compute_takes_one_image(kd, value):
    with pytest.raises(TypeError, match="takes one image"):
        kd.detectAndCompute(value, None)


def test_arguments_that_are_not_taken(kd):
    with pytest.raises(ValueError, match="call compute"):
        kd.detectAndCompute(IMAGE, None, None, True)
    with pytest.raises(TypeError, match="missing 2"):
        kd.compute()


def test_what_a_detector_may_answer():
    assert has_none(detected(None), 0)
    assert has_rows(detected([cv2.KeyPoint()] * 2), zero=True)
    with pytest.raises(TypeError, match=r"cv2\.KeyPoint"):
        detected([1])
    with pytest.raises(KeyError, match="own"):
        detected(KeyError("own"))


def test_into_the_hands_of_cpp(kd):
    with pytest.raises((TypeError, cv2.error)):
        cv2.AffineFeature_create(kd)


def test_an_object_that_was_never_made():
    with pytest.raises(AttributeError):
        KDDescriptor.__new__(KDDescriptor).compute(IMAGE, POINTS)

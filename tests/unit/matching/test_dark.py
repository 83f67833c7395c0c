"""Photographs of few values, or few of the values that there are, are matched like others."""

import cv2
import numpy as np
import pytest
from skimage import data

import kd_cv
from kd_cv.matching.metrics import homography_corner_error

H = np.array([[0.9, 0.12, 20], [-0.1, 0.95, 30], [1e-4, 0, 1]])


def dark(image):
    """Values 0 to 12 of 255."""
    return np.uint8(np.rint(image * (12 / 255)))


def of_12_bits(image):
    """Values 0 to 4095 of 65,535."""
    return np.uint16(np.rint(image * (4095 / 255)))


@pytest.fixture(scope="module")
def pair():
    photograph = cv2.cvtColor(data.astronaut(), cv2.COLOR_RGB2GRAY)
    return photograph, cv2.warpPerspective(photograph, H, photograph.shape[::-1])


@pytest.mark.parametrize("made", [dark, of_12_bits])
def test_a_dark_pair_and_one_of_12_bits_are_matched(pair, made):
    usual = kd_cv.match(*pair)
    found = kd_cv.match(*(made(image) for image in pair))
    assert found.inliers.sum() > 0.85 * usual.inliers.sum() > 300
    assert homography_corner_error(found.H_0to1, H, pair[0].shape) < 0.5


def test_tiff_files_of_12_bits_are_matched(pair, tmp_path):
    paths = [tmp_path / name for name in ("first.tif", "second.tif")]
    for path, image in zip(paths, pair, strict=True):
        cv2.imwrite(str(path), of_12_bits(image))
    found = kd_cv.match(*paths)
    assert found.inliers.sum() > 300
    assert homography_corner_error(found.H_0to1, H, pair[0].shape) < 0.5

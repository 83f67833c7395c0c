"""What the tests of the contract ask."""

import cv2
import pytest

from kd_cv import KDDescriptor


@pytest.fixture(scope="module")
def kd():
    return KDDescriptor()


@pytest.fixture(scope="module")
def sift():
    return cv2.SIFT_create(300)


@pytest.fixture(params=["kd", "sift"])
def both(request, kd, sift):
    """The test runs on KDDescriptor and on cv2.SIFT: what it asserts holds for both."""
    return kd if request.param == "kd" else sift


@pytest.fixture(scope="module")
def pairs(photographs, similarity):
    """Photographs and their turned copies, each with its keypoints."""
    turned, _ = similarity
    images = [photographs[n] for n in ("camera", "gravel", "astronaut", "grass", "rocket")]
    pairs = [(image, turned(image, degrees=20, scale=0.8)[0]) for image in images]
    detector = cv2.SIFT_create(500)
    return [[(image, detector.detect(image, None)) for image in pair] for pair in pairs]

"""OpenCV's own test of a descriptor under rotation, with its bound for SIFT.

A photograph is turned on black ground, its keypoints with it, and a nearest neighbour is right if
its circle covers half of the area that it shares with the right one. The windows of many keypoints
leave the photograph: to one side there is nothing, to the other black ground.
"""

import cv2
import numpy as np
import pytest

from kd_cv import KDDescriptor

INLIERS, COMMON = 0.98, 0.5


@pytest.fixture(scope="module")
def photograph():
    """A scene in depth of about the size of OpenCV's."""
    data = pytest.importorskip("skimage.data")
    left, _, _ = data.stereo_motorcycle()
    gray = cv2.cvtColor(left, cv2.COLOR_RGB2GRAY)
    return cv2.resize(gray, (384, 288), interpolation=cv2.INTER_AREA)


def turned(image, keypoints, angle):
    """The image on black ground as wide as its diagonal, and the keypoints there."""
    height, width = image.shape
    side = round(np.hypot(height, width))
    c, s = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    M = np.array([[c, -s, 0.0], [s, c, 0.0]])
    M[:, 2] = side / 2 - M[:, :2] @ [width / 2, height / 2]
    points = np.array([k.pt for k in keypoints]) @ M[:, :2].T + M[:, 2]
    moved = [
        cv2.KeyPoint(x, y, k.size, (k.angle + angle) % 360, k.response, k.octave, k.class_id)
        for (x, y), k in zip(points.tolist(), keypoints, strict=True)
    ]
    return cv2.warpAffine(image, M, (side, side)), moved


def common_area(a, b):
    """Intersection of two circles over their union."""
    r, R, d = a.size / 2, b.size / 2, np.hypot(a.pt[0] - b.pt[0], a.pt[1] - b.pt[1])
    if d >= r + R:
        return 0.0
    if d <= abs(r - R):
        shared = np.pi * min(r, R) ** 2
    else:
        u = np.arccos((d * d + r * r - R * R) / (2 * d * r))
        v = np.arccos((d * d + R * R - r * r) / (2 * d * R))
        shared = r * r * (u - np.sin(2 * u) / 2) + R * R * (v - np.sin(2 * v) / 2)
    return shared / (np.pi * (r * r + R * R) - shared)


@pytest.mark.parametrize("angle", [15, 45, 90, 150, 210, 285, 345])
@pytest.mark.parametrize("detector", [cv2.SIFT_create(), None], ids=["SIFT", "ours"])
def test_a_turned_photograph_has_the_right_nearest_neighbours(photograph, detector, angle):
    kd = KDDescriptor(detector=detector)
    keypoints, rows = kd.detectAndCompute(photograph, None)
    assert len(keypoints) > 600
    there, moved = turned(photograph, keypoints, angle)
    matches = cv2.BFMatcher(kd.defaultNorm()).match(rows, kd.compute(there, moved)[1])
    right = [common_area(moved[m.queryIdx], moved[m.trainIdx]) >= COMMON for m in matches]
    assert np.mean(right) >= INLIERS

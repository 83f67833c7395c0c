"""Keypoints of the detectors that scenes are built with."""

import cv2
import numpy as np
import pytest

from experiments.scenes.detectors import detect_frames
from kd_cv.fit import warps
from kd_cv.fit.warps import candidate_pairs, homography_map, transfer_frames


def blob_and_corner():
    y, x = np.mgrid[:200, :300].astype(float)
    image = 60 + 150 * np.exp(-((x - 80) ** 2 + (y - 90) ** 2) / (2 * 6.0**2))
    image[100:, 200:] = 200
    return cv2.GaussianBlur(image, (0, 0), 1).astype(np.uint8)


def test_hessian_finds_the_blob_at_its_scale():
    frames = detect_frames(blob_and_corner(), ("hessian",), 1)
    np.testing.assert_allclose(frames[0, :2], [80, 90], atol=1)
    # det H of a Gaussian of deviation s is greatest at scale s.
    assert 6 / 2 ** (1 / 3) <= frames[0, 2] / 2 <= 6 * 2 ** (1 / 3)


def test_harris_finds_the_corner():
    frames = detect_frames(blob_and_corner(), ("harris",), 50)
    assert np.linalg.norm(frames[:, :2] - [200, 100], axis=1).min() < 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dog", "hessian", "harris"])
def test_detectors_turn_with_the_image(photo, kind, monkeypatch):
    limits = {
        "MAX_DISTANCE": 1, "MAX_RELATIVE_DISTANCE": 0, "MAX_SIZE_RATIO": 1.05, "MAX_TURN": 3
    }  # fmt: skip
    for name, limit in limits.items():
        monkeypatch.setattr(warps, name, limit)
    image = photo[:300, 100:400]
    turned = np.ascontiguousarray(np.rot90(image, -1))  # clockwise: (x, y) -> (299 - y, x)
    H = np.array([[0, -1, 299.0], [1, 0, 0], [0, 0, 1]])
    predicted = transfer_frames(detect_frames(image, (kind,), 300), homography_map(H))
    pairs, _ = candidate_pairs(predicted, detect_frames(turned, (kind,), 300))
    assert len(np.unique(pairs[:, 0])) > 0.8 * len(predicted) > 50

"""OpenCV's stitching pipeline takes our features."""

import cv2
import numpy as np
import pytest

from kd_cv import KDDescriptor
from kd_cv.opencv.stitching import image_features


def test_the_matcher_of_the_pipeline_finds_how_two_parts_overlap(photographs):
    image = photographs["astronaut"]
    parts = image[:, :350], image[:, 150:]
    features = [image_features(KDDescriptor(500), part, k) for k, part in enumerate(parts)]
    matcher = cv2.detail_BestOf2NearestMatcher(False, 0.15)
    pairs = matcher.apply2(features)
    matcher.collectGarbage()
    there = next(pair for pair in pairs if (pair.src_img_idx, pair.dst_img_idx) == (0, 1))
    assert there.num_inliers > 50
    # The pipeline counts from the middle of each image: these are 350 and 362 wide.
    np.testing.assert_allclose(there.H[:2, 2], [-150 + (350 - 362) / 2, 0], atol=1)


def test_what_it_holds_is_what_the_feature_gave(camera):
    kd = KDDescriptor(200)
    keypoints, rows = kd.detectAndCompute(camera, None)
    features = image_features(kd, camera, 3)
    assert features.img_idx == 3 and features.img_size == (512, 512)
    assert [k.pt for k in features.getKeypoints()] == [k.pt for k in keypoints]
    np.testing.assert_array_equal(features.descriptors.get(), rows)


def test_an_image_without_keypoints_is_named():
    with pytest.raises(ValueError, match="image 2 has no keypoints"):
        image_features(KDDescriptor(), np.zeros((50, 50), np.uint8), 2)

"""Features for OpenCV's stitching pipeline."""

import cv2
import numpy as np

from kd_cv.gray import as_gray
from kd_cv.types import Feature, Image


def image_features(feature: Feature, image: Image, index: int = 0) -> cv2.detail.ImageFeatures:
    """Compute the features that cv2.detail.computeImageFeatures2 computes, with any descriptor.

    OpenCV's stitching pipeline does not accept descriptors written in Python. index: of the image
    in the list of the matcher.

    >>> from kd_cv import KDDescriptor
    >>> features = image_features(KDDescriptor(500), image)
    >>> features.img_size == image.shape[1::-1]
    True
    """
    keypoints, descriptors = feature.detectAndCompute(image, None)
    if descriptors is None or not len(keypoints):
        raise ValueError(f"image {index} has no keypoints to stitch it by")
    # Not cv2.detail.ImageFeatures(): in OpenCV 4 setting its uninitialised descriptors crashes.
    empty = np.zeros((8, 8), np.uint8)
    features = cv2.detail.computeImageFeatures2(cv2.ORB_create(), empty)
    features.img_idx = index
    features.img_size = as_gray(image).shape[::-1]
    features.keypoints = keypoints
    features.descriptors = (
        descriptors if isinstance(descriptors, cv2.UMat) else cv2.UMat(descriptors)
    )
    return features

"""The strongest keypoints of a list, and OpenCV's detectors where this OpenCV has them."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np


def opencv_factory(name: str) -> Any:
    """What makes a feature of OpenCV, say "AKAZE_create", where this one has it; None if nowhere.

    The AKAZE family, BRISK and AGAST went to the contributed modules with version 5.
    """
    homes = (cv2, getattr(cv2, "xfeatures2d", None))
    return next((getattr(home, name) for home in homes if hasattr(home, name)), None)


def strongest(keypoints: Sequence[cv2.KeyPoint], count: int) -> list[cv2.KeyPoint]:
    """The `count` keypoints of the largest response, in their order."""
    if len(keypoints) <= count:
        return list(keypoints)
    responses = np.array([keypoint.response for keypoint in keypoints])
    kept = np.sort(np.argsort(-responses, kind="stable")[:count])
    return [keypoints[i] for i in kept]

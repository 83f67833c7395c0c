"""What holds of keypoints and rows that any feature hands out."""

import cv2
import numpy as np

OPENCV = int(cv2.__version__.split(".")[0])


def values(keypoint):
    k = keypoint
    return (*k.pt, k.size, k.angle, k.response, k.octave, k.class_id)


def unchanged(kept, given):
    """The same keypoints in the same order, as new objects."""
    assert isinstance(kept, tuple) and len(kept) == len(given)
    assert all(type(k) is cv2.KeyPoint for k in kept)
    assert [values(k) for k in kept] == [values(k) for k in given]
    assert not {id(k) for k in kept} & {id(k) for k in given}
    return True


def is_table(rows, count, feature, dtype=np.float32):
    """One C-contiguous row of the promised size and type for each keypoint."""
    assert type(rows) is np.ndarray and rows.dtype == dtype and rows.flags.c_contiguous
    assert rows.shape == (count, feature.descriptorSize())
    return True


OF_SIFT = ["nfeatures", "nOctaveLayers", "contrastThreshold", "edgeThreshold", "sigma"]


VARIED = {
    "patch_size": 24,
    "kernel": "polar",
    "whitening": None,
    "magnification": 8.3,
    "scales": (0.7, 1 / 3, 1.5),
    "descriptor_type": cv2.CV_8U,
    "upright": True,
    "drop": False,
}

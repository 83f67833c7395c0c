"""Traps: borders and masks, faint images, copies, subclasses, the arguments of cv2.SIFT."""

import copy
import pickle
import shutil

import cv2
import numpy as np
import pytest

from kd_cv import DoG, KDDescriptor
from kd_cv.whitening.registry import folder


def frames(keypoints, shift=0.0):
    return np.array([(k.pt[0] - shift, k.pt[1] - shift, k.size) for k in keypoints])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("value", [0, 128, 255])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_constant_border_changes_no_keypoint_inside(camera, value, masked, dtype):
    pad = 128  # a multiple of the coarsest pixels
    padded = cv2.copyMakeBorder(camera, *[pad] * 4, cv2.BORDER_CONSTANT, value=value)
    mask = np.zeros(padded.shape, np.uint8)
    mask[pad:-pad, pad:-pad] = 1
    before = frames(KDDescriptor().detect(camera.astype(dtype)))
    after = frames(KDDescriptor().detect(padded.astype(dtype), mask if masked else None), pad)

    def inside(found):
        x, y, size = found.T
        reach = 12 * size
        near = np.minimum(np.minimum(x, y), np.minimum(511 - x, 511 - y))
        return {tuple(row) for row in found[near > reach].round(2).tolist()}

    assert len(inside(before)) > 200
    assert len(inside(before) ^ inside(after)) <= 0.01 * len(inside(before))


def test_what_the_mask_hides_does_not_change_the_contrast(camera):
    mask = np.zeros_like(camera)
    mask[:, :256] = 1
    left = KDDescriptor().detect(camera, mask)
    hidden = camera.copy()
    hidden[:, 320:] = np.random.default_rng(0).integers(0, 256, (512, 192))
    again = KDDescriptor().detect(hidden, mask)
    there = [
        {(k.pt, k.size) for k in found if k.pt[0] + 12 * k.size < 256} for found in (left, again)
    ]
    assert len(there[0]) > 50 and there[0] == there[1]


@pytest.mark.parametrize("gain", [1e-3, 1e-5, 1e-20, 1e-38])
def test_faint_images_have_the_same_keypoints_and_descriptors(camera, gain):
    image = camera.astype(np.float32) / 255
    keypoints, expected = KDDescriptor(200).detectAndCompute(image, None)
    faint, descriptors = KDDescriptor(200).detectAndCompute(image * np.float32(gain), None)
    assert abs(len(faint) - len(keypoints)) <= 2
    best = (descriptors @ expected.T).max(axis=1)
    assert np.median(best) > 0.999


def test_copies_share_the_matrices_even_if_their_file_changes(camera, keypoints, tmp_path):
    path = tmp_path / "m.npz"
    shutil.copy(folder() / "liberty.npz", path)
    kd = KDDescriptor(weights=path, whitening="wua")
    expected, data = kd.compute(camera, keypoints)[1], pickle.dumps(kd)
    shutil.copy(folder() / "hpatches.npz", path)
    for other in (kd, copy.copy(kd), copy.deepcopy(kd), kd.with_settings(orient=False),
                  pickle.loads(data)):  # fmt: skip
        assert np.array_equal(other.compute(camera, keypoints)[1], expected)
    fresh = KDDescriptor(weights=path, whitening="wua")
    assert not np.array_equal(fresh.compute(camera, keypoints)[1], expected)


def test_the_class_of_a_subclass_makes_instances_of_it():
    class Mine(KDDescriptor):
        pass

    for kd in (Mine(300), KDDescriptor(300)):
        again = kd.__class__(nfeatures=7)
        assert type(again) is type(kd) and again.getNFeatures() == 7
        assert isinstance(again, cv2.Feature2D) and kd.__class__.__name__ == type(kd).__name__
    assert type(DoG().__class__(5)) is DoG


def test_a_bool_mask_is_a_mask(camera):
    mask = np.zeros(camera.shape, bool)
    mask[100:300, 200:400] = True
    expected = KDDescriptor().detect(camera, mask.astype(np.uint8))
    assert [k.pt for k in KDDescriptor().detect(camera, mask)] == [k.pt for k in expected] != []


def test_the_arguments_of_sift_that_differ_get_a_hint():
    assert KDDescriptor(descriptorType=cv2.CV_8U).descriptorType() == cv2.CV_8U
    with pytest.raises(TypeError, match="give the sixth by name, descriptor_type=5"):
        KDDescriptor(0, 3, 0.04, 10, 1.6, cv2.CV_32F)
    with pytest.raises(TypeError, match="enable_precise_upscale is not needed"):
        KDDescriptor(enable_precise_upscale=True)


def test_a_parameter_that_another_detector_has_is_refused():
    kd = KDDescriptor(detector=cv2.ORB_create())
    with pytest.raises(ValueError, match="keypoints come from ORB: set its parameters"):
        kd.setNFeatures(50)
    with pytest.raises(ValueError, match="keypoints come from ORB"):
        kd.with_settings(nfeatures=50)
    assert kd.with_settings(upright=True).settings.upright


@pytest.mark.parametrize("name", ["upright", "orient", "drop"])
def test_a_word_is_no_truth_value(name):
    with pytest.raises(TypeError, match=f"{name} must be True or False, got 'no'"):
        KDDescriptor(**{name: "no"})

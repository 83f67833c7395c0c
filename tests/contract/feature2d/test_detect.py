"""`detect` and `detectAndCompute` as cv2.Feature2D has them; cv2.SIFT is asked too."""

import copy
import pickle

import cv2
import numpy as np
import pytest
from of_feature2d import is_table, unchanged, values

from kd_cv import DoG, KDDescriptor


def test_detect_gives_a_tuple(both, camera):
    found = both.detect(camera)
    assert type(found) is tuple and len(found) > 100
    assert all(type(k) is cv2.KeyPoint for k in found)
    for again in (both.detect(camera, None), both.detect(image=camera, mask=None)):
        assert [values(k) for k in again] == [values(k) for k in found]


@pytest.mark.slow
def test_the_default_detector_is_our_own_and_sift_is_a_choice(kd, camera):
    for feature, detector in (
        (kd, DoG()),
        (KDDescriptor(300), DoG(300)),
        (KDDescriptor(detector=DoG(edgeThreshold=20)), DoG(edgeThreshold=20)),
        (KDDescriptor(detector=cv2.SIFT_create(300)), cv2.SIFT_create(300)),
    ):
        expected = [values(k) for k in detector.detect(camera, None)]
        assert [values(k) for k in feature.detect(camera)] == expected
        assert [values(k) for k in feature.detectAndCompute(camera, None)[0]] == expected


def test_the_first_five_parameters_are_those_of_sift(camera):
    arguments = dict(
        nfeatures=200, nOctaveLayers=4, contrastThreshold=0.03, edgeThreshold=8.0, sigma=1.7
    )
    named, placed = KDDescriptor(**arguments), KDDescriptor(*arguments.values())
    sift = cv2.SIFT_create(*arguments.values())
    for feature in (named, placed, copy.copy(named), pickle.loads(pickle.dumps(named))):
        for name in ("NFeatures", "NOctaveLayers", "ContrastThreshold", "EdgeThreshold", "Sigma"):
            assert getattr(feature, f"get{name}")() == getattr(sift, f"get{name}")()
        assert len(feature.detect(camera)) == 200
    assert repr(placed) == f"KDDescriptor({', '.join(f'{k}={v}' for k, v in arguments.items())})"
    placed.setNFeatures(50)
    assert len(placed.detectAndCompute(camera, None)[0]) == 50
    assert len(placed.with_settings(nfeatures=20, upright=True).detect(camera)) == 20
    with pytest.raises(ValueError, match="nfeatures must be from 0"):
        KDDescriptor(-5)
    with pytest.raises(ValueError, match="give them to ORB"):
        KDDescriptor(500, detector=cv2.ORB_create())


def test_upright_keypoints_are_found_once_and_without_an_angle(camera):
    kept, rows = KDDescriptor(upright=True).detectAndCompute(camera, None)
    assert {k.angle for k in kept} == {-1.0}
    places = {(k.pt, k.size) for k in kept}
    assert len(places) == len(kept) == len(rows) < len(KDDescriptor().detect(camera))
    assert places == {(k.pt, k.size) for k in KDDescriptor().detect(camera)}


def test_detect_and_compute_is_detect_then_compute(both, camera):
    kept, rows = both.detectAndCompute(camera, None)
    found = both.detect(camera)
    assert unchanged(kept, found) and is_table(rows, len(found), both)
    if isinstance(both, KDDescriptor):  # SIFT builds another pyramid for compute
        assert np.array_equal(rows, both.compute(camera, found)[1])


def test_the_mask_is_a_mandatory_argument(both, camera):
    with pytest.raises((cv2.error, TypeError)):
        both.detectAndCompute(camera)


def test_use_provided_keypoints(kd, sift, camera):
    assert sift.detectAndCompute(camera, None, None, True) == ((), None)  # a trap
    with pytest.raises(ValueError, match=r"useProvidedKeypoints.*call compute\(image, keypoints\)"):
        kd.detectAndCompute(camera, None, useProvidedKeypoints=True)


def test_nothing_found(both):
    flat = np.full((60, 80), 128, np.uint8)
    assert both.detect(flat) == () and both.detectAndCompute(flat, None) == ((), None)


@pytest.mark.slow
def test_mask(both, camera):
    mask = np.zeros_like(camera)
    mask[100:300, 200:400] = 255
    for m in (mask, mask[:, :, None]):
        found = both.detect(camera, m)
        assert found and all(199 <= k.pt[0] <= 400 and 99 <= k.pt[1] <= 300 for k in found)
        kept, rows = both.detectAndCompute(camera, m)
        assert unchanged(kept, found) and is_table(rows, len(found), both)
    assert both.detect(camera, np.zeros_like(camera)) == ()
    assert both.detectAndCompute(camera, np.zeros_like(camera)) == ((), None)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint16])
def test_masks_of_other_types_raise(both, camera, dtype):
    with pytest.raises((cv2.error, TypeError)):
        both.detect(camera, np.ones(camera.shape, dtype))


@pytest.mark.parametrize(
    "mask, error, message",
    [
        ("mask.png", TypeError, "a mask must be a uint8 or bool array, got str"),
        (np.ones((10, 10), np.uint8), ValueError, r"\(512, 512\), got \(10, 10\)"),
        (np.ones((512, 511), np.uint8), ValueError, r"\(512, 512\), got \(512, 511\)"),
        (np.ones((512, 512, 3), np.uint8), ValueError, r"\(512, 512\), got \(512, 512, 3\)"),
        (np.ones(512 * 512, np.uint8), ValueError, r"\(512, 512\), got \(262144,\)"),
    ],
)
def test_a_wrong_mask_is_refused_with_a_reason(kd, sift, camera, mask, error, message):
    for call in (kd.detect, kd.detectAndCompute):
        with pytest.raises(error, match=message):
            call(camera, mask)
    if isinstance(mask, np.ndarray) and mask.shape == (10, 10):
        assert isinstance(sift.detect(camera, mask), tuple)  # a trap: silently accepted


@pytest.mark.slow
def test_any_object_with_detect_is_a_detector(camera):
    for detector in (cv2.ORB_create(100), cv2.FastFeatureDetector_create(50), cv2.MSER_create()):
        feature = KDDescriptor(detector=detector)
        kept, rows = feature.detectAndCompute(camera, None)
        assert unchanged(kept, detector.detect(camera, None))
        assert is_table(rows, len(kept), feature) and rows.any(axis=1).mean() > 0.95

    class Corners:
        def detect(self, image, mask):
            assert image.dtype == np.uint8 and image.ndim == 2
            return [cv2.KeyPoint(float(x), 100.0, 8.0) for x in (100, 200, 300)]

    kept, rows = KDDescriptor(detector=Corners()).detectAndCompute(camera / 255.0, None)
    assert type(kept) is tuple and rows.shape[0] == 3
    with pytest.raises(TypeError, match=r"detector must have a method detect.*got str"):
        KDDescriptor(detector="sift")

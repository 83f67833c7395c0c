"""The window of a keypoint fits the detector that made it."""

import re
from pathlib import Path

import cv2
import numpy as np
import pytest

import kd_cv
from kd_cv import KDDescriptor
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.keypoints import from_keypoints, to_keypoints
from kd_cv.opencv.patch_sizes import CORNER, windows

BLOB = MAGNIFICATION
# What each detector's keypoints get, in sizes. Not every OpenCV has every detector.
SIDES = {
    "SIFT": BLOB,
    "KAZE": BLOB,
    "AKAZE": 13,
    "StarDetector": 12,
    "ORB": CORNER / 31,
    "BRISK": CORNER / 12,
    "FastFeatureDetector": CORNER / 7,
    "AgastFeatureDetector": CORNER / 7,
    "GFTTDetector": CORNER / 3,
}
# Of these: so many sizes, and 15 pixels.
REGIONS = {"MSER": 4, "SimpleBlobDetector": 4}
# Keypoints of OpenCV 5.0 and 4.14 with all of contrib: size, angle, response, octave, class_id.
SEEN = {
    "SIFT": [(2.599, 31.7, 0.0181, 10748159, -1), (4.52, 280.1, 0.024, 65795, -1)],
    "KAZE": [(3.2359319, 0.0, 0.0011, 0, 1), (39.03, 0.0, 0.0107, 3, 13)],
    "AKAZE": [(4.8000002, 0.432, 0.00966, 0, 0), (45.669, 12.5, 0.001, 3, 13)],
    "StarDetector": [(4.0, -1, 30.0, 0, -1), (32.0, -1, 63.4, 0, -1)],
    "ORB": [(31.0, 0.0137, 3.97e-5, 0, -1), (111.07863617, 200.0, -3.14e-5, 7, 12)],
    "BRISK": [(8.3999996, 0.0375, 16.1, 0, -1), (72.0, 90.0, 116.0, 5, -1)],
    "FastFeatureDetector": [(7.0, -1, 10.0, 0, -1), (7.0, -1, 0.0, 0, -1)],
    "GFTTDetector": [(3.0, -1, 0.0106, 0, -1)],
    "MSER": [(7.479018, -1, 0.0, 0, -1), (126.17, -1, 0.0, 0, -1)],
    "SimpleBlobDetector": [(6.0835814, -1, 0.0, 0, -1)],
}


def create(name: str, *arguments):
    for home in (cv2, getattr(cv2, "xfeatures2d", None)):
        if hasattr(home, f"{name}_create"):
            return getattr(home, f"{name}_create")(*arguments)
    pytest.skip(f"this OpenCV has no {name}")


def expected(name, keypoints):
    """Sides of the windows in sizes, (N,)."""
    sizes = np.array([keypoint.size for keypoint in keypoints])
    if name in REGIONS:
        return (REGIONS[name] * sizes + 15) / sizes
    return np.full(len(sizes), SIDES[name])


@pytest.mark.parametrize("name", [*SIDES, *REGIONS])
def test_keypoints_show_which_detector_made_them(name, camera):
    detector = create(name)
    keypoints = detector.detect(camera, None)
    assert len(keypoints) > 1
    for known in (None, detector):
        np.testing.assert_allclose(windows(keypoints, known), expected(name, keypoints), rtol=1e-12)


@pytest.mark.parametrize("name", SEEN)
def test_what_was_seen_of_every_detector_is_known_again(name):
    keypoints = [
        cv2.KeyPoint(40, 30, size, angle, response, octave, class_id)
        for size, angle, response, octave, class_id in SEEN[name]
    ]
    np.testing.assert_allclose(windows(keypoints), expected(name, keypoints), rtol=1e-12)


def test_the_table_of_the_documentation_says_the_same():
    page = Path(kd_cv.__file__).parents[1] / "docs/keypoints.md"
    if not page.exists():
        pytest.skip("not in the source tree")
    rows = re.findall(
        r"^\| (.+?) \| .+? \| ([\d.]+) sizes(?: and ([\d.]+) pixels)?", page.read_text(), re.M
    )
    said = {
        name: (float(sizes), float(pixels or 0))
        for names, sizes, pixels in rows
        for name in re.split(", |; ", names)
    }
    short = {
        "FastFeatureDetector": "FAST",
        "AgastFeatureDetector": "AGAST",
        "GFTTDetector": "GFTT",
        "SimpleBlobDetector": "SimpleBlob",
    }
    for name in (*SIDES, *REGIONS):
        sizes, pixels = said[short.get(name, name)]
        for size in (8.5, 40.5):
            side = expected(name, [cv2.KeyPoint(40, 30, size)])[0] * size
            assert sizes * size + pixels == pytest.approx(side, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "known"), [("SIFT", 19), ("ORB", CORNER / 31)])
def test_simulated_views_keep_the_window_of_the_detector_inside(name, known, camera):
    views = cv2.AffineFeature_create(create(name), 1)
    keypoints = views.detect(camera, None)
    np.testing.assert_array_equal(windows(keypoints), SIDES[name])
    np.testing.assert_array_equal(windows(keypoints, views), known)  # wider: sizes are of the views
    kd = KDDescriptor(detector=views)
    sizes = np.array([keypoint.size for keypoint in keypoints])
    np.testing.assert_allclose(kd.settings.side * kd.frames(keypoints)[:, 2], known * sizes)


def test_frames_become_keypoints_that_become_the_same_frames():
    frames = np.array([[40, 30, 2.5, -1], [9, 9, 31, 20], [9, 9, 7, -1], [5, 6, 300.5, 7]])
    np.testing.assert_allclose(KDDescriptor().frames(to_keypoints(frames)), frames, rtol=1e-6)
    assert len(to_keypoints(np.array([[0, 0, -1, 0], [0, 0, np.nan, 0], [0, 0, np.inf, 0]]))) == 3


def test_keypoints_made_by_hand_count_as_sifts():
    made = [
        cv2.KeyPoint(40, 30, 31, 20),
        cv2.KeyPoint(40, 30, 16),
        cv2.KeyPoint(40, 30, 2.5, 0),
        cv2.KeyPoint(40, 30, 4.8, 10),
        cv2.KeyPoint(40, 30, 0.0),
        cv2.KeyPoint(40, 30, float("nan"), 0, 2.0),
        cv2.KeyPoint(40, 30, float("inf"), 0, 2.0, 3),
        cv2.KeyPoint(40, 30, -12.0, 0, 2.0),
    ]
    np.testing.assert_array_equal(windows(made), BLOB)
    assert windows([]).shape == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("detector", ["ORB", "SIFT", "FastFeatureDetector", "MSER"])
def test_a_keypoint_is_described_the_same_in_any_company(detector, camera):
    kd = KDDescriptor()
    others = cv2.GFTTDetector_create(20).detect(camera, None) + cv2.SIFT_create(20).detect(camera)
    keypoints = create(detector).detect(camera, None)[:20]
    alone = kd.compute(camera, keypoints)[1]
    among = kd.compute(camera, others + keypoints)[1][len(others) :]
    np.testing.assert_array_equal(alone, among)


def test_the_window_is_that_of_a_number_where_one_is_given(camera):
    keypoints = cv2.FastFeatureDetector_create(40).detect(camera, None)[:50]
    as_found = KDDescriptor().compute(camera, keypoints)[1]
    np.testing.assert_array_equal(
        as_found, KDDescriptor(magnification=CORNER / 7).compute(camera, keypoints)[1]
    )
    literal = KDDescriptor(magnification=15).compute(camera, keypoints)[1]
    assert np.abs(as_found - literal).max() > 0.1
    np.testing.assert_array_equal(
        KDDescriptor(magnification=15).frames(keypoints), from_keypoints(keypoints)
    )
    np.testing.assert_array_equal(
        as_found, KDDescriptor(magnification="auto").compute(camera, keypoints)[1]
    )


def test_sifts_keypoints_have_the_window_of_fifteen_sizes_to_the_bit(camera):
    keypoints = cv2.SIFT_create(300).detect(camera, None)
    np.testing.assert_array_equal(
        KDDescriptor().compute(camera, keypoints)[1],
        KDDescriptor(magnification=15).compute(camera, keypoints)[1],
    )


@pytest.mark.parametrize(
    "detector",
    [
        lambda: cv2.ORB_create(300, patchSize=15),
        lambda: cv2.GFTTDetector_create(300, blockSize=7),
        lambda: cv2.GFTTDetector_create(300, blockSize=5),
    ],
    ids=["orb", "gftt7", "gftt5"],
)
def test_a_known_detector_of_other_sizes_has_the_same_window(detector, camera):
    kd = KDDescriptor(detector=detector())
    keypoints, rows = kd.detectAndCompute(camera, None)
    pixels = kd.settings.side * kd.frames(keypoints)[:, 2]
    scale = np.array([1.2**keypoint.octave for keypoint in keypoints])
    np.testing.assert_allclose(pixels, CORNER * scale, rtol=1e-5)
    np.testing.assert_array_equal(rows, kd.compute(camera, keypoints)[1])
    # but what shows that SIFT made it does not become the detector's own
    sift = cv2.SIFT_create(50).detect(camera, None)
    np.testing.assert_array_equal(kd.frames(sift), from_keypoints(sift))


def test_settings_of_either_kind_are_written_and_read(tmp_path):
    for magnification in (None, 8.5):
        KDDescriptor(magnification=magnification).write(tmp_path / "kd.yml")
        read = KDDescriptor(magnification=3)
        read.read(tmp_path / "kd.yml")
        assert read.settings.magnification == magnification

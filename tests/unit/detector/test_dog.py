"""`DoG`: what it takes and gives, as a detector of OpenCV, and what happens at the edges."""

import copy
import pickle

import cv2
import numpy as np
import pytest

import kd_cv
from kd_cv import DoG
from kd_cv.descriptor.describer import load_compiled
from kd_cv.detector.detect import extrema
from kd_cv.detector.orientation import SECOND, YIELDING
from kd_cv.detector.scale_space import FEW, ScaleSpace
from kd_cv.keypoints import from_keypoints, sift_octave


def rows(keypoints):
    return [(k.pt, k.size, k.angle, k.response, k.octave, k.class_id) for k in keypoints]


def test_keypoints_are_those_of_opencv(camera):
    keypoints = DoG().detect(camera, None)
    assert isinstance(keypoints, tuple) and len(keypoints) > 300
    assert all(type(keypoint) is cv2.KeyPoint for keypoint in keypoints)
    responses = [keypoint.response for keypoint in keypoints]
    assert responses == sorted(responses, reverse=True)
    frames = from_keypoints(keypoints)
    assert (frames[:, 2] > 1.5).all() and (frames[:, 3] >= 0).all() and (frames[:, 3] < 360).all()
    assert {keypoint.class_id for keypoint in keypoints} == {-1}
    detected = DoG().detect_frames(camera)
    np.testing.assert_allclose(detected.frames, frames, rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(detected.responses, responses, rtol=1e-6)


def test_sift_describes_them_at_their_own_scale(camera):
    # cv2.SIFT takes the blur from the octave; it packs its own as `sift_octave` does.
    sift = cv2.SIFT_create()
    own = sift.detect(camera, None)
    packed = sift_octave(from_keypoints(own))
    assert packed.tolist() == [keypoint.octave for keypoint in own]
    ours = DoG(300).detect(camera)
    _, described = sift.compute(camera, ours)
    assert described.shape == (300, 128) and described.any(axis=1).all()


@pytest.mark.slow
def test_about_as_many_as_sift_and_the_strongest_of_them(photographs):
    ratios = []
    for gray in photographs.values():
        every = DoG().detect_frames(gray)
        ratios.append(len(every.frames) / len(cv2.SIFT_create().detect(gray, None)))
        some = DoG(100, contrastThreshold=0.04).detect_frames(gray)
        np.testing.assert_array_equal(some.frames, every.frames[:100])
    assert 0.6 < np.median(ratios) < 1.7


def test_a_number_of_keypoints_is_reached_where_the_default_contrast_has_fewer(photographs):
    gray = photographs["rocket"]
    found = len(DoG().detect(gray))
    wanted = found + 50
    assert len(DoG(wanted).detect(gray)) == wanted
    assert len(DoG(wanted, contrastThreshold=0.04).detect(gray)) == found


def test_weak_extrema_fill_up_to_500_and_no_further(photographs):
    gray = photographs["rocket"]
    usual, weak = ScaleSpace(), ScaleSpace(contrast=0.01)
    both = ScaleSpace(faint=0.01)
    every, strong = extrema(gray, weak), extrema(gray, usual)
    assert len(strong) < FEW < len(every)
    np.testing.assert_array_equal(extrema(gray, both, 5000), every[:FEW])
    np.testing.assert_array_equal(extrema(gray, both, 200), every[:200])
    # where there are enough, only those with the contrast count
    rich = photographs["brick"]
    strong = extrema(rich, usual)
    assert len(strong) > FEW
    np.testing.assert_array_equal(extrema(rich, both, 5000), strong)


def test_a_number_of_keypoints_asks_for_less_contrast_and_a_contrast_for_no_less(photographs):
    gray = photographs["brick"]
    found, more = (len(DoG(contrastThreshold=t).detect(gray)) for t in (0.04, 0.03))
    assert FEW < found < more
    assert len(DoG().detect(gray)) == found
    assert rows(DoG(more + 100).detect(gray)) == rows(DoG(contrastThreshold=0.03).detect(gray))
    assert len(DoG(more + 100, contrastThreshold=0.04).detect(gray)) == found


def test_a_weaker_angle_has_less_response_and_gives_way_to_another_place(photographs):
    gray = photographs["brick"]
    every = DoG().detect_frames(gray)
    first, whose = np.unique(every.frames[:, :3], axis=0, return_inverse=True)
    strongest = np.zeros(len(first))
    np.maximum.at(strongest, whose.ravel(), every.responses)
    shares = every.responses / strongest[whose.ravel()]
    assert (shares >= SECOND**YIELDING - 1e-6).all() and 0.05 < (shares < 1).mean() < 0.5
    # so the strongest 500 are at more places than the first 500 by contrast alone
    by_contrast = every.frames[np.argsort(-strongest[whose.ravel()], kind="stable")[:500], :3]
    places = len(np.unique(every.frames[:500, :3], axis=0))
    assert places > 1.02 * len(np.unique(by_contrast, axis=0))


def test_types_of_images_agree(camera, bgr):
    gray = cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY)
    expected = rows(DoG(200).detect(gray))
    assert rows(DoG(200).detect(bgr)) == expected
    assert rows(DoG(200).detect(gray[..., None])) == expected
    assert rows(DoG(200).detect(cv2.UMat(gray))) == expected
    frames = from_keypoints(DoG(200).detect(gray))
    for image in (np.uint16(gray) * 257, np.float32(gray), np.float64(gray) / 255):
        other = from_keypoints(DoG(200).detect(image))
        apart = np.abs(other[:, None, :3] - frames[:, :3]).max(2).min(1)
        assert (apart < 0.01).mean() >= 0.995


def test_a_dark_image_and_one_of_12_bits_have_as_many_keypoints(photographs):
    gray = photographs["coffee"]
    expected = len(DoG().detect(gray))
    dark = np.uint8(np.rint(gray * (12 / 255)))
    assert dark.max() <= 12
    assert len(DoG().detect(dark)) > 0.7 * expected
    assert len(DoG(1000).detect(dark)) > 0.9 * len(DoG(1000).detect(gray))
    twelve = np.uint16(np.rint(gray * (4095 / 255)))
    assert len(DoG().detect(twelve)) == pytest.approx(expected, rel=0.02)


def test_16_bits_are_not_rounded_to_8(camera):
    smooth = cv2.GaussianBlur(np.float32(camera), (0, 0), 3) / 255
    faint = np.uint16(30000 + 300 * smooth)  # one step of 8 bits
    assert np.ptp(faint >> 8) <= 2
    assert len(DoG(100).detect(faint)) > 50


@pytest.mark.parametrize("value", [0, 7, 128, 255])
def test_a_flat_image_has_none(value):
    assert DoG(100).detect(np.full((200, 300), value, np.uint8)) == ()
    assert DoG(100).detect(np.full((200, 300), value / 255, np.float32)) == ()
    assert DoG(100, contrastThreshold=0.0).detect(np.full((99, 64), value, np.uint8)) == ()


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (1, 500), (500, 1), (3, 3), (15, 400)])
def test_an_image_of_less_than_16_pixels_a_side_has_none(shape):
    noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert DoG().detect(noise) == ()


def test_the_smallest_image_with_a_keypoint():
    image = np.zeros((16, 16), np.uint8)
    image[6:10, 5:9] = 255
    (strongest, *_) = DoG().detect(image)
    assert np.hypot(strongest.pt[0] - 6.5, strongest.pt[1] - 7.5) < 0.1


def test_a_mask_says_where(camera):
    """What it hides does not count for the contrast: so the threshold moves a little."""
    mask = np.zeros_like(camera)
    mask[:, 200:] = 255
    found = rows(DoG().detect(camera, mask))
    points = np.array([row[0] for row in found])
    assert len(found) > 100 and points[:, 0].min() >= 199.5
    every = np.array([row[0] for row in rows(DoG(contrastThreshold=0.01).detect(camera))])
    nearest = np.linalg.norm(points[:, None] - every, axis=2).min(axis=1)
    assert nearest.max() < 1e-3
    # the strongest of those in the mask, not those in the mask of the strongest
    assert rows(DoG(50, contrastThreshold=0.04).detect(camera, mask)) == found[:50]
    assert DoG().detect(camera, np.zeros_like(camera)) == ()
    assert rows(DoG().detect(camera, cv2.UMat(mask))) == found
    assert rows(DoG().detect(camera, mask != 0)) == found
    assert rows(DoG().detect(camera, np.ones_like(camera))) == rows(DoG().detect(camera))


def test_lists_of_images_and_masks(camera, bgr):
    mask = np.zeros_like(camera)
    mask[:200] = 1
    first, second = DoG(50).detect([camera, bgr], [mask, None])
    assert rows(first) == rows(DoG(50).detect(camera, mask))
    assert rows(second) == rows(DoG(50).detect(bgr))
    assert len(DoG(50).detect((camera,))) == 1
    with pytest.raises(ValueError, match="2 images need as many masks, got 1"):
        DoG().detect([camera, bgr], [mask])


def test_settings_are_those_of_sift():
    dog, sift = DoG(7, 3, 0.02, 12, 1.7), cv2.SIFT_create(7, 3, 0.02, 12, 1.7)
    for name in ("NFeatures", "NOctaveLayers", "ContrastThreshold", "EdgeThreshold", "Sigma"):
        assert getattr(dog, f"get{name}")() == getattr(sift, f"get{name}")()
        getattr(dog, f"set{name}")(5)
        assert getattr(dog, f"get{name}")() == 5
    assert DoG().getContrastThreshold() == sift.create().getContrastThreshold() == 0.04
    assert DoG(10).getContrastThreshold() == 0.04
    assert repr(dog) == (
        "DoG(nfeatures=5, nOctaveLayers=5, contrastThreshold=5.0, edgeThreshold=5.0, sigma=5.0)"
    )
    assert repr(DoG.create(5)) == "DoG(nfeatures=5)" and repr(DoG()) == "DoG()"
    assert isinstance(dog, cv2.Feature2D) and dog.empty() and dog.clear() is None
    assert dog.getDefaultName() == "Feature2D.DoG"


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"nfeatures": -1}, "nfeatures must be from 0"),
        ({"nfeatures": 2.5}, "nfeatures must be an int"),
        ({"nfeatures": "10"}, "nfeatures must be an int"),
        ({"nfeatures": True}, "nfeatures must be an int"),
        ({"nOctaveLayers": 0}, "nOctaveLayers must be from 1 to 16"),
        ({"contrastThreshold": -0.1}, "contrastThreshold must be from 0"),
        ({"contrastThreshold": np.nan}, "contrastThreshold must be from 0"),
        ({"edgeThreshold": 0.5}, "edgeThreshold must be from 1"),
        ({"sigma": 0.1}, "sigma must be from 1 to 16"),
        ({"sigma": "wide"}, "sigma must be a number"),
    ],
)
def test_wrong_settings(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        DoG(**wrong)
    dog = DoG(5)
    for name, value in wrong.items():
        setter = {"nfeatures": "NFeatures", "nOctaveLayers": "NOctaveLayers"}
        with pytest.raises((ValueError, TypeError), match=message):
            getattr(dog, "set" + setter.get(name, name[0].upper() + name[1:]))(value)
    assert dog == DoG(5)


def test_copies_and_pickles_find_the_same(camera):
    dog = DoG(50, edgeThreshold=12)
    for other in (pickle.loads(pickle.dumps(dog)), copy.copy(dog), copy.deepcopy(dog)):
        assert type(other) is DoG and other == dog and hash(other) == hash(dog)
        assert rows(other.detect(camera)) == rows(dog.detect(camera))
    assert dog != DoG(51) and dog != "dog"


@pytest.mark.parametrize("suffix", [".yml", ".xml", ".json"])
@pytest.mark.parametrize("dog", [DoG(), DoG(123, 5, 0.025, 7.5, 2.25)])
def test_settings_in_files(tmp_path, dog, suffix):
    path = tmp_path / f"dog{suffix}"
    dog.write(path)
    other = DoG(9)
    other.read(path)
    assert other == dog
    dog.save(path)
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
    other = DoG(9)
    other.read(storage.getNode("feature2d"))
    assert other == dog


def test_without_numba_the_keypoints_are_the_same(camera, monkeypatch):
    expected = DoG(300).detect_frames(camera).frames
    for module in (kd_cv.detector.detect, kd_cv.detector.orientation):
        monkeypatch.setattr(module, "load_compiled_detector", lambda: None)
    monkeypatch.setattr(kd_cv.descriptor.describer, "load_compiled", lambda: None)
    frames = DoG(300).detect_frames(camera).frames
    assert (np.abs(frames - expected).max(1) < 0.01).mean() >= 0.995
    assert load_compiled() is not None


@pytest.mark.slow
def test_400_megapixels_in_bounded_memory():
    resource = pytest.importorskip("resource")
    rng = np.random.default_rng(0)
    tile = cv2.resize(rng.integers(0, 256, (125, 125), dtype=np.uint8), (2000, 2000))
    image = np.tile(tile, (10, 10))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    frames, _ = DoG(1000).detect_frames(image)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert len(frames) == 1000
    assert grown < 3 * image.nbytes  # the next octave as float, a quarter of the pixels, and strips

"""Matches as files and in JSON, for other programs."""

import json

import cv2
import numpy as np
import pytest

import kd_cv
from kd_cv import KDDescriptor
from kd_cv.cli import main
from kd_cv.matching.pipeline import MAX_KEYPOINTS, _limited
from kd_cv.matching.result import MatchResult, named_failure


@pytest.fixture(scope="module")
def pair(camera):
    M = cv2.getRotationMatrix2D((256, 256), 10, 0.95)
    return camera, cv2.warpAffine(camera, M, (512, 512))


@pytest.mark.parametrize("suffix", [".npz", ".txt"])
def test_matches_are_saved(pair, tmp_path, suffix):
    result = kd_cv.match(*pair, max_keypoints=200)
    path = tmp_path / f"matches{suffix}"
    result.save(path)
    if suffix == ".npz":
        with np.load(path) as saved:
            saved = dict(saved)
        assert list(saved) == ["points0", "points1", "ratios", "inliers"]
        for name, array in saved.items():
            np.testing.assert_array_equal(array, getattr(result, name))
    else:
        saved = np.loadtxt(path)
        np.testing.assert_allclose(saved[:, :2], result.points0, rtol=1e-7)
        np.testing.assert_allclose(saved[:, 2:4], result.points1, rtol=1e-7)
        np.testing.assert_allclose(saved[:, 4], result.ratios, rtol=1e-5)
        np.testing.assert_array_equal(saved[:, 5], result.inliers)
        assert path.read_text().startswith("# x0 y0 x1 y1 ratio inlier\n")


def test_matches_from_the_command_line(pair, tmp_path, capsys):
    photos = [str(tmp_path / name) for name in ("a.png", "b.png")]
    for photo, image in zip(photos, pair, strict=True):
        cv2.imwrite(photo, image)
    path = tmp_path / "matches.npz"
    assert main(["match", *photos, "--matches", str(path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    with np.load(path) as saved:
        np.testing.assert_allclose(saved["points0"], printed["points0"], atol=1e-3)
        np.testing.assert_allclose(saved["points1"], printed["points1"], atol=1e-3)
        np.testing.assert_allclose(saved["ratios"], printed["ratios"], atol=1e-5)
        np.testing.assert_array_equal(saved["inliers"], printed["is_inlier"])
    assert len(printed["points0"]) == printed["matches"]
    assert sum(printed["is_inlier"]) == printed["inliers"]
    assert main(["match", *photos, "--matches", str(path)]) == 0
    assert f"matches: {path}" in capsys.readouterr().out
    assert main(["match", *photos, "--matches", str(tmp_path / "m.csv")]) != 0
    assert "expected .npz, .txt" in capsys.readouterr().err


# Which keypoints are matched ----------------------------------------------------------------------


def test_max_keypoints_is_an_upper_limit(pair):
    assert len(kd_cv.match(*pair, KDDescriptor(200), max_keypoints=1000).keypoints0) <= 201
    assert len(kd_cv.match(*pair, KDDescriptor(1000), max_keypoints=100).keypoints0) == 100
    for feature in (cv2.SIFT_create(), cv2.ORB_create(500)):
        assert len(kd_cv.match(*pair, feature, max_keypoints=100).keypoints0) == 100


def test_the_default_limit_leaves_ordinary_images_as_they_are(pair):
    limited = _limited(KDDescriptor(), None)
    assert limited.getNFeatures() == MAX_KEYPOINTS
    mine = kd_cv.match(*pair).keypoints0
    usual = KDDescriptor().detect(pair[0])
    assert [k.pt for k in mine] == [k.pt for k in usual]


@pytest.mark.parametrize("made", [lambda x: x / np.float32(255), lambda x: x * np.uint16(257)])
def test_eight_bit_features_take_images_of_more(pair, made):
    deep = [made(image.astype(np.uint16)) for image in pair]
    for options in ({"detector": cv2.ORB_create(300)}, {"descriptor": "sift"}):
        usual, found = kd_cv.match(*pair, **options), kd_cv.match(*deep, **options)
        assert found.success and abs(len(found.matches) - len(usual.matches)) < 10


@pytest.mark.parametrize("shift", [0, -128])
def test_a_reduced_image_keeps_its_precision(pair, shift):
    whole = [image.astype(np.float32) + shift for image in pair]
    eight, found = kd_cv.match(*pair, max_size=300), kd_cv.match(*whole, max_size=300)
    assert found.success and found.inliers.sum() > 0.9 * eight.inliers.sum() > 50


def test_only_the_image_itself_is_named_in_a_failure():
    nothing = kd_cv.match(np.zeros((64, 64), np.uint8), np.zeros((64, 64), np.uint8))
    assert isinstance(nothing, MatchResult)
    names = "my image 1 copy.jpg", "b.jpg"
    assert (
        named_failure(nothing, names)
        == "my image 1 copy.jpg has no keypoints: " + (nothing.failure.partition(": ")[2])
    )

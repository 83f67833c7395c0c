"""Settings: what they know of themselves, and that nothing that changes a row escapes them."""

import copy
import pickle

import cv2
import numpy as np
import pytest

from kd_cv.extractor import Extractor
from kd_cv.keypoints import from_keypoints
from kd_cv.settings import Settings
from kd_cv.whitening import save
from kd_cv.whitening.registry import resolve

CHANGED = [
    {"patch_size": 40},
    {"kernel": "polar"},
    {"whitening": "wus"},
    {"whitening": None},
    {"weights": "hpatches"},
    {"dim": 64},
    {"magnification": 10.0},
    {"scales": 3},
    {"descriptor_type": cv2.CV_8U},
    {"upright": True},
    {"drop": False},
]


def test_every_setting_changes_the_fingerprint():
    found = [Settings(**changes).fingerprint for changes in ({}, *CHANGED)]
    assert len(set(found)) == len(found)


def test_the_same_rows_by_other_names_have_the_same_fingerprint(tmp_path, fitted):
    save(tmp_path / "a.npz", {("concat", 32): fitted})
    save(tmp_path / "b.npz", {("concat", 32): fitted})
    given = [fitted, tmp_path / "a.npz", str(tmp_path / "b.npz"), {("concat", 32): fitted}]
    assert len({Settings(weights=weights).fingerprint for weights in given}) == 1
    assert Settings(whitening="lw").fingerprint == Settings(whitening="ws").fingerprint
    assert Settings(scales=3).fingerprint == Settings(scales=(0.625, 1.0, 1.6)).fingerprint
    assert Settings(magnification="sift").fingerprint == Settings(magnification=6).fingerprint
    raw = [Settings(whitening=None, weights=weights, dim=dim) for weights, dim in
           (("multiview", 128), ("hpatches", 64))]  # fmt: skip
    assert raw[0].fingerprint == raw[1].fingerprint


def test_a_file_that_holds_other_matrices_has_another_fingerprint(tmp_path, fitted):
    save(tmp_path / "w.npz", {("concat", 32): fitted})
    before = Settings(whitening="wus", weights=tmp_path / "w.npz")
    save(tmp_path / "w.npz", {("concat", 32): resolve("multiview", "concat", 32)})
    after = Settings(whitening="wus", weights=tmp_path / "w.npz")
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_copies_are_equal_and_small(duplicate):
    settings = Settings(scales=3, upright=True)
    again = duplicate(settings)
    assert again == settings and again.fingerprint == settings.fingerprint
    assert len(pickle.dumps(settings)) < 1000  # the name of the matrices, not the matrices


def test_patches_are_what_is_described(camera, keypoints):
    frames = from_keypoints(keypoints)
    for settings in (Settings(), Settings(upright=True), Settings(patch_size=24)):
        extractor = Extractor(settings)
        patches = extractor.patches(camera, frames)
        assert patches.shape == (len(frames), 1, settings.patch_size, settings.patch_size)
        rows = extractor.describe_patches(np.ascontiguousarray(patches[:, 0]))
        assert np.allclose(rows, extractor.describe(camera, frames), atol=2e-4)

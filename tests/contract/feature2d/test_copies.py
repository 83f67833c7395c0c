"""Copies, pickles and files of settings."""

import copy
import pickle

import cv2
import numpy as np
import pytest
from of_feature2d import VARIED

from kd_cv import DoG, KDDescriptor
from kd_cv.collection import Extraction
from kd_cv.explain import explain
from kd_cv.whitening import save


def equal(a, b, image, keypoints):
    """The same settings and the same descriptors."""
    assert a.settings == b.settings and a.descriptorSize() == b.descriptorSize()
    return np.array_equal(a.compute(image, keypoints)[1], b.compute(image, keypoints)[1])


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))]
)
def test_pickle_and_copies(camera, keypoints, fitted, duplicate):
    for feature in (KDDescriptor(), KDDescriptor(**VARIED)):
        assert type(duplicate(feature)) is KDDescriptor
        assert equal(duplicate(feature), feature, camera, keypoints)
    whitened = KDDescriptor(whitening="ws", weights=fitted, dim=64)
    again = duplicate(whitened)
    assert again.descriptorSize() == 64
    assert np.array_equal(
        again.compute(camera, keypoints)[1], whitened.compute(camera, keypoints)[1]
    )


class Named(KDDescriptor):
    """A subclass with an argument of its own."""

    def __init__(self, name, **settings):
        super().__init__(**settings)
        self.name = name


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))]
)
def test_copies_of_a_subclass_are_of_the_subclass(camera, keypoints, duplicate):
    feature = Named("mine", patch_size=24)
    assert isinstance(feature, KDDescriptor) and isinstance(feature, cv2.Feature2D)
    again = duplicate(feature)
    assert type(again) is Named and again.name == "mine"
    assert equal(again, feature, camera, keypoints)
    assert type(feature.with_settings(upright=True)) is Named
    assert repr(again) == "Named(patch_size=24)"


def test_subclasses_are_explained_and_extracted(camera, keypoints):
    feature, plain = Named("mine", patch_size=24), KDDescriptor(patch_size=24)
    why = explain(camera, keypoints[0], camera, keypoints[1], feature)
    assert why.similarity == explain(camera, keypoints[0], camera, keypoints[1], plain).similarity
    rows, expected = (Extraction(kd).features(camera).descriptors for kd in (feature, plain))
    assert type(Extraction(feature).feature) is Named and np.array_equal(rows, expected)
    assert Extraction(feature).settings == Extraction(plain).settings


def test_opencv_itself_cannot_be_pickled(sift):
    with pytest.raises(TypeError):
        pickle.dumps(sift)


def test_a_descriptor_with_a_detector(camera):
    feature = KDDescriptor(detector=cv2.ORB_create(50))
    for again in (copy.copy(feature), copy.deepcopy(feature)):
        assert len(again.detect(camera)) == len(feature.detect(camera)) <= 50
    with pytest.raises(TypeError, match=r"own detector \(ORB\) cannot be pickled"):
        pickle.dumps(feature)
    ours = KDDescriptor(detector=DoG(50))
    assert len(pickle.loads(pickle.dumps(ours)).detect(camera)) == 50


def test_settings_of_the_detector_are_written_and_read(tmp_path):
    for feature in (KDDescriptor(), KDDescriptor(77, 4, 0.02, 12.5, 2.5)):
        feature.write(tmp_path / "kd.yml")
        other = KDDescriptor(5, patch_size=16)
        other.read(tmp_path / "kd.yml")
        assert repr(other) == repr(feature)
    text = (tmp_path / "kd.yml").read_text()
    (tmp_path / "bad.yml").write_text(text.replace("sigma: 2.5", "sigma: 99."))
    with pytest.raises(ValueError, match="sigma must be from 1 to 16"):
        other.read(tmp_path / "bad.yml")
    assert repr(other) == repr(feature)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kd.yml", "kd.yaml", "kd.xml", "kd.json"])
@pytest.mark.parametrize("method", ["write", "save"])
def test_write_and_read(tmp_path, camera, keypoints, name, method):
    for feature in (KDDescriptor(), KDDescriptor(**VARIED)):
        for path in (tmp_path / name, str(tmp_path / name)):
            assert getattr(feature, method)(path) is None
            other = KDDescriptor(patch_size=16, kernel="cart", whitening=None)
            assert other.read(path) is None
            assert equal(other, feature, camera, keypoints)
    assert "Feature2D.KD" in (tmp_path / name).read_text()
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_write_and_read_with_weights(tmp_path, camera, keypoints, fitted):
    save(tmp_path / "w.npz", {("concat", 32): fitted})
    for weights in (str(tmp_path / "w.npz"), tmp_path / "w.npz"):
        feature = KDDescriptor(whitening="wus", weights=weights, dim=80)
        feature.write(tmp_path / "kd.yml")
        other = KDDescriptor(whitening=None)
        other.read(tmp_path / "kd.yml")
        assert other.descriptorSize() == 80 and equal(other, feature, camera, keypoints)


def test_write_and_read_through_file_storage(tmp_path, camera, keypoints):
    path, feature = str(tmp_path / "all.yml"), KDDescriptor(**VARIED)
    storage = cv2.FileStorage(path, cv2.FILE_STORAGE_WRITE)
    cv2.SIFT_create(77).write(storage, "sift")
    feature.write(storage, "kd")
    storage.release()
    storage = cv2.FileStorage(path, cv2.FILE_STORAGE_READ)
    other = KDDescriptor()
    other.read(storage.getNode("kd"))
    assert equal(other, feature, camera, keypoints)
    with pytest.raises(ValueError, match=r"no settings of Feature2D\.KD"):
        other.read(storage.getNode("sift"))
    with pytest.raises(ValueError, match=r"no settings of Feature2D\.KD"):
        other.read(storage.getNode("nothing"))
    assert equal(other, feature, camera, keypoints)


def test_a_read_that_fails_changes_nothing(tmp_path, camera, keypoints):
    feature = KDDescriptor(**VARIED)
    feature.write(tmp_path / "kd.yml")
    text = (tmp_path / "kd.yml").read_text()
    for good, bad in (("patch_size: 24", "patch_size: 7"), ('whitening: ""', 'whitening: "zca"')):
        assert good in text
        (tmp_path / "bad.yml").write_text(text.replace(good, bad))
        other = KDDescriptor()
        with pytest.raises(ValueError):
            other.read(tmp_path / "bad.yml")
        assert equal(other, KDDescriptor(), camera, keypoints)


def test_more_dimensions_than_the_matrices_have():
    # All there are, for every kernel alike.
    assert KDDescriptor(dim=500).descriptorSize() == 128
    assert KDDescriptor(kernel="cart", dim=500).descriptorSize() == 63

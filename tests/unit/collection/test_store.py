"""The feature file: what is written is read; what is damaged or of others is refused."""

import json

import numpy as np
import pytest

from kd_cv.collection import ImageFeatures, reading
from kd_cv.collection.store import DTYPES, as_arrays, as_features, write_image

h5py = pytest.importorskip("h5py")

SETTINGS = json.dumps({"descriptor": "sift"})


def features(n=3, dim=8):
    rng = np.random.default_rng(0)
    frames = np.column_stack([rng.uniform(0, 30, (n, 2)), rng.uniform(2, 9, n), np.arange(n) * 9.0])
    rows = rng.normal(size=(n, dim)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scores = rng.random(n).astype(np.float32)
    return ImageFeatures(frames, rows, scores, (40, 30), 1.5, np.arange(n) % 3)


def written(path, *names, dtype="float32"):
    with h5py.File(path, "w") as file:
        file.attrs["kd_cv"] = SETTINGS
        for name in names:
            write_image(file, name, features(), dtype)
    return path


@pytest.mark.parametrize("dtype", DTYPES)
def test_features_survive_the_file(tmp_path, dtype):
    own = features()
    with reading(written(tmp_path / "f.h5", "a", dtype=dtype)) as stored:
        read = stored["a"]
        assert stored.count("a") == 3
    np.testing.assert_allclose(read.frames, own.frames, atol=1e-4)
    np.testing.assert_array_equal(read.scores, own.scores)
    np.testing.assert_array_equal(read.views, own.views)
    tolerance = {"float32": 0, "float16": 1e-3, "uint8": 0.05}[dtype]
    np.testing.assert_allclose(read.descriptors, own.descriptors, rtol=0, atol=tolerance)
    assert (read.image_size, read.uncertainty) == ((40, 30), 1.5)


def test_without_views_there_is_no_dataset_of_them():
    own = features()
    own.views[:] = 0
    arrays = as_arrays(own, "float32")
    assert "views" not in arrays
    np.testing.assert_array_equal(as_features(arrays).views, own.views)


def test_zero_descriptors_stay_zero_as_bytes():
    own = features()
    own.descriptors[1] = 0
    read = as_features(as_arrays(own, "uint8"))
    np.testing.assert_allclose(np.linalg.norm(read.descriptors, axis=1), [1, 0, 1], atol=1e-5)


def test_folders_may_have_the_names_of_datasets(tmp_path):
    names = ["a.png", "keypoints/b.png", "scales/image_size/c.png", "trip/scores/d.png"]
    with reading(written(tmp_path / "f.h5", *names)) as stored:
        assert list(stored) == names and len(stored) == 4
        assert all(name in stored and stored.count(name) == 3 for name in names)
        for name in ("trip", "trip/scores", "keypoints", "a.png/scores", "none", ""):
            assert name not in stored
            with pytest.raises(KeyError):
                stored[name]


def test_damage_is_named(tmp_path):
    path = written(tmp_path / "f.h5", "a.png")
    with h5py.File(path, "r+") as file:
        del file["a.png/scores"]
    with reading(path) as stored, pytest.raises(ValueError, match=r"f\.h5: 'a\.png' is damaged"):
        stored["a.png"]
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(ValueError, match=r"f\.h5 cannot be read as an HDF5 file"), reading(path):
        pass
    with pytest.raises(FileNotFoundError, match="no feature file"), reading(tmp_path / "none.h5"):
        pass


def test_zero_descriptors_stay_zero_in_bytes():
    features = ImageFeatures(
        np.zeros((1, 4)), np.zeros((1, 128), np.float32), np.zeros(1, np.float32), (1, 1)
    )
    stored = as_features(as_arrays(features, "uint8"))
    assert not stored.descriptors.any() and stored.views.tolist() == [0]

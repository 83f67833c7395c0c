"""Pipes and endless devices where a file is expected: refused at once by every reader."""

import os
import sys

import numpy as np
import pytest

from experiments.protocols.cache import Cache
from experiments.protocols.candidates import sift_candidate
from experiments.protocols.patch_sets import read_m50, read_phototourism
from experiments.protocols.tasks import read_tasks
from experiments.scenes.sequences import read_homography
from kd_cv import KDDescriptor
from kd_cv.io.images import read_gray
from kd_cv.whitening import load
from kd_cv.whitening.statistics import Statistics

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")


def read_pth(path):
    pytest.importorskip("torch")
    from kd_cv.whitening.files import load_pth

    load_pth(path)


def read_features(path):
    pytest.importorskip("h5py")
    from kd_cv.collection import reading

    with reading(path):
        pass


def extract_onto(path):
    pytest.importorskip("h5py")
    from kd_cv.collection import extract

    (path.parent / "images").mkdir()
    (path.parent / "images" / "a.png").write_bytes(b"")
    extract(path.parent / "images", path)


def read_pairs(path):
    from kd_cv.collection.database import read_pairs

    read_pairs(path)


def read_index(path):
    pytest.importorskip("faiss")
    from kd_cv.collection.retrieval import Index

    Index.load(path)


def list_images(path):
    from kd_cv.collection import Collection

    Collection.of(path)


def read_table_of_tasks(path):
    (path.parent / "splits").mkdir()
    (path.parent / "splits" / "splits.json").write_text('{"a": {"test": ["v_wall"]}}')
    read_tasks(path.parent, "a")


def read_splits(path):
    (path.parent / "splits").mkdir()
    path.rename(path.parent / "splits" / path.name)
    read_tasks(path.parent, "a")


READERS = {
    "matrices.npz": load,
    "statistics.npz": Statistics.load,
    "weights.npz": lambda path: KDDescriptor(weights=path),
    "weights.pth": read_pth,
    "settings.yml": lambda path: KDDescriptor().read(path),
    "image.png": read_gray,
    "H_1_2": read_homography,
    "m50_1.txt": lambda path: read_m50(path, []),
    "patches0000.bmp": lambda path: read_phototourism(path.parent),
    "features.h5": read_features,
    "output.h5": extract_onto,
    "pairs.txt": read_pairs,
    "index.npz": read_index,
    "list.txt": list_images,
    "splits.json": read_splits,
    "verif_pos_split-a.csv": read_table_of_tasks,
}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_is_neither_waited_for_nor_read(tmp_path, name, kind):
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    elif sys.platform == "linux":
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        pytest.skip("no endless device")
    with pytest.raises((ValueError, OSError)):
        READERS[name](tmp_path / name)


def test_a_pipe_in_the_folder_of_a_cache_is_replaced(tmp_path):
    path = tmp_path / "patches.SIFT.npz"
    os.mkfifo(path)
    patches = np.zeros((3, 32, 32), np.uint8)
    rows = Cache(tmp_path).patches("patches", sift_candidate(), patches)
    assert path.is_file()
    assert np.array_equal(Cache(tmp_path).patches("patches", sift_candidate(), patches), rows)

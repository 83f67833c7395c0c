"""Feature files of others: nothing is read before its type, size and place are looked at."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from kd_cv.collection import Features, hdf5, reading
from kd_cv.collection import store as store_module
from kd_cv.collection.names import MAX_DEPTH
from kd_cv.collection.store import as_arrays, as_features, names_in, write_image

h5py = pytest.importorskip("h5py")

SETTINGS = json.dumps({"descriptor": "sift"})


def features(n=3, dim=8):
    rng = np.random.default_rng(0)
    frames = np.column_stack([rng.uniform(0, 30, (n, 2)), rng.uniform(2, 9, n), np.arange(n) * 9.0])
    rows = rng.normal(size=(n, dim)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Features(frames, rows, rng.random(n).astype(np.float32), (40, 30), 1.5)


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.attrs["kd_cv"] = SETTINGS
        write_image(file, "a/b.png", features(), "float32")
    return tmp_path / "f.h5"


def opaque():
    """A type that h5py takes for Python objects; numbers of it would be pointers."""
    kind = h5py.h5t.create(h5py.h5t.OPAQUE, 8)
    kind.set_tag(b"NUMPY:|O")
    return kind


def make_opaque_dataset(path, key):
    with h5py.File(path, "r+") as file:
        group = file["a/b.png"]
        shape = group[key].shape
        del group[key]
        space = h5py.h5s.create_simple(shape)
        made = h5py.h5d.create(group.id, key.encode(), opaque(), space)
        pointers = np.full(shape, 0x4141414141414141, np.uint64).view("V8")
        made.write(space, space, pointers, opaque())


def make_opaque_attribute(item, name):
    if name in item.attrs:
        del item.attrs[name]
    space = h5py.h5s.create(h5py.h5s.SCALAR)
    made = h5py.h5a.create(item.id, name.encode(), opaque(), space)
    made.write(np.array(0x4141414141414141, np.uint64).view("V8"), mtype=opaque())


def in_a_process(program, *arguments):
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, (run.returncode, run.stderr[-500:])
    return run.stdout


READ = """
    import gc, sys
    from kd_cv.collection import reading
    try:
        with reading(sys.argv[1]) as stored:
            for name in stored:
                stored[name]
    except ValueError as error:
        print(error)
    gc.collect()
"""


@pytest.mark.slow
@pytest.mark.parametrize("key", store_module.KEYS)
def test_a_dataset_of_python_objects_is_refused_and_not_read(path, key):
    make_opaque_dataset(path, key)
    assert f"{key} must be numbers, and has another type" in in_a_process(READ, path)


@pytest.mark.slow
def test_settings_of_python_objects_are_refused_and_not_read(path):
    with h5py.File(path, "r+") as file:
        make_opaque_attribute(file, "kd_cv")
    assert "was not written by kd_cv" in in_a_process(READ, path)
    program = """
        import sys
        from kd_cv.collection import extract
        try:
            extract(sys.argv[1], sys.argv[2])
        except ValueError as error:
            print(error)
    """
    (path.parent / "images").mkdir()
    (path.parent / "images" / "a.png").write_bytes(b"")
    assert "was not written by kd_cv" in in_a_process(program, path.parent / "images", path)


@pytest.mark.slow
def test_an_uncertainty_of_python_objects_is_refused(path):
    with h5py.File(path, "r+") as file:
        make_opaque_attribute(file["a/b.png/keypoints"], "uncertainty")
    assert "uncertainty must be a number" in in_a_process(READ, path)


def test_groups_nested_very_deep_are_refused_at_once(tmp_path, monkeypatch):
    path = tmp_path / "deep.h5"
    with h5py.File(path, "w") as file:
        file.attrs["kd_cv"] = SETTINGS
        group = file
        for _ in range(5000):
            group = group.create_group("g")
    opened = []
    place = hdf5.place
    monkeypatch.setattr(hdf5, "place", lambda item: opened.append(item) or place(item))
    with (
        reading(path) as stored,
        pytest.raises(ValueError, match=f"damaged: its groups are nested more than {MAX_DEPTH}"),
    ):
        len(stored)
    assert len(opened) <= 2 * MAX_DEPTH + 3  # each costs more than the one before


@pytest.mark.slow
def test_what_is_packed_a_thousandfold_is_refused_before_it_is_unpacked(path):
    with h5py.File(path, "r+") as file:
        del file["a/b.png/descriptors"]
        whole = file.create_dataset(
            "a/b.png/descriptors", (128, 2_000_000), "f4", compression="gzip", chunks=(128, 20_000)
        )
        for k in range(0, 2_000_000, 20_000):
            whole[:, k : k + 20_000] = 0
        assert file.id.get_filesize() < 3e6
    with reading(path) as stored, pytest.raises(ValueError, match="unpacked, at most"):
        stored["a/b.png"]


def test_what_is_claimed_and_not_stored_is_refused(path):
    with h5py.File(path, "r+") as file:
        group = file["a/b.png"]
        n = 5_000_000
        for key, shape in (("keypoints", (n, 2)), ("descriptors", (50, n)), ("scores", (n,))):
            del group[key]
            group.create_dataset(key, shape, "f4", compression="gzip", chunks=True)[:1] = 0
    with reading(path) as stored, pytest.raises(ValueError, match="which is not stored"):
        stored["a/b.png"]


def test_a_piece_larger_than_its_dataset_counts_in_full(path):
    with h5py.File(path, "r+") as file:
        del file["a/b.png/scores"]
        file.create_dataset(
            "a/b.png/scores", (3,), "f4", maxshape=(None,), chunks=(2**28,), compression="gzip"
        )
    with reading(path) as stored, pytest.raises(ValueError, match="which is not stored"):
        stored["a/b.png"]


def test_groups_that_hold_each_other_are_listed_once(path):
    with h5py.File(path, "r+") as file:
        file["a/again"] = file["a"]
        file["a/b.png/loop"] = file["/"]
        file["z"] = h5py.SoftLink("/a")
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/")
    with h5py.File(path) as file:
        assert list(names_in(file)) == ["a/b.png"]


@pytest.mark.parametrize("link", ["soft", "external"])
def test_links_are_not_followed(path, link):
    os.link(path, path.with_name("other.h5"))
    with h5py.File(path, "r+") as file:
        target = {"soft": h5py.SoftLink("/a"), "external": h5py.ExternalLink("other.h5", "/a")}
        file["l"] = target[link]
    with reading(path) as stored:
        assert "a/b.png" in stored and "l/b.png" not in stored
        with pytest.raises(KeyError):
            stored["l/b.png"]
        with pytest.raises(KeyError):
            stored.count("/a/b.png")


@pytest.mark.parametrize("dtype", store_module.DTYPES)
def test_features_survive_the_file(tmp_path, dtype):
    own = features()
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.attrs["kd_cv"] = SETTINGS
        write_image(file, "a", own, dtype)
    with reading(tmp_path / "f.h5") as stored:
        read = stored["a"]
    np.testing.assert_allclose(read.frames, own.frames, atol=1e-4)
    np.testing.assert_array_equal(read.scores, own.scores)
    tolerance = {"float32": 0, "float16": 1e-3, "uint8": 0.05}[dtype]
    np.testing.assert_allclose(read.descriptors, own.descriptors, rtol=0, atol=tolerance)
    assert (read.image_size, read.uncertainty) == ((40, 30), 1.5)


def test_arrays_that_do_not_fit_together_are_refused():
    arrays = as_arrays(features(), "float32")
    for key in ("scores", "descriptors", "image_size"):
        with pytest.raises(ValueError, match=f"{key} must be numbers of shape"):
            as_features({**arrays, key: arrays[key][..., :1]})


def test_what_is_listed_but_not_found_is_damaged(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file.attrs["kd_cv"] = json.dumps({"descriptor": "kd"})
        file["a.png"] = [1, 2]  # a dataset where a group belongs
    monkeypatch.setattr(store_module, "names_in", lambda file: ["a.png"])
    with reading(tmp_path / "f.h5") as features:
        with pytest.raises(ValueError, match=r"'a.png' is damaged: listed, but not found"):
            features["a.png"]
        with pytest.raises(KeyError):
            features["b.png"]

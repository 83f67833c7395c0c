"""Archives: what is damaged, of another kind or too large is refused; nothing is unpickled."""

import zipfile

import numpy as np
import pytest

from kd_cv.io.archive import read_archive, write_archive


def test_arrays_and_content_survive_with_the_same_bytes(tmp_path):
    arrays = {"x": np.arange(6.0).reshape(2, 3), "n": np.array([1, 2], np.int64)}
    for name in ("a.npz", "b.npz"):
        write_archive(tmp_path / name, "test", arrays, {"who": "ä"})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    read, content = read_archive(tmp_path / "a.npz", "test")
    assert content == {"who": "ä"} and read.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
    with pytest.raises(ValueError, match=r"must end in \.npz"):
        write_archive(tmp_path / "a.zip", "test", arrays, {})


def test_what_is_not_sound_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    write_archive(path, "test", {"x": np.zeros(1000)}, {})
    whole = path.read_bytes()
    with pytest.raises(ValueError, match="it is not a whitening file of version 1"):
        read_archive(path, "whitening")
    for damaged in (b"", b"no zip", whole[:5000], whole[:4000] + b"\1" + whole[4001:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.npz is not a sound kd_cv test file"):
            read_archive(path, "test")


def test_objects_are_refused_and_not_unpickled(tmp_path):
    path = tmp_path / "a.npz"
    write_archive(path, "test", {"x": np.zeros(3)}, {})
    with zipfile.ZipFile(path, "a") as file, file.open("y.npy", "w") as member:
        np.lib.format.write_array(member, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        read_archive(path, "test")


def test_a_header_that_claims_more_than_there_is_takes_no_memory(tmp_path):
    path = tmp_path / "a.npz"
    write_archive(path, "test", {"x": np.zeros((2, 3))}, {})
    path.write_bytes(path.read_bytes().replace(b"(2, 3), }         ", b"(2000000000, 3), }"))
    with pytest.raises(ValueError, match="not a sound"):
        read_archive(path, "test")

"""Archives: what is out of proportion is refused before it is unpacked."""

import zipfile

import numpy as np
import pytest

from kd_cv.io import archive
from kd_cv.io.archive import write_archive


def test_archives_out_of_proportion(tmp_path, monkeypatch):
    write_archive(tmp_path / "a.npz", "test", {"x": np.zeros(3), "y": np.zeros(3)}, {})
    with zipfile.ZipFile(tmp_path / "packed.npz", "w", zipfile.ZIP_BZIP2) as packed:
        packed.writestr("x.npy", b"")
    with pytest.raises(ValueError, match="packed in another way than such files are"):
        archive.read_archive(tmp_path / "packed.npz", "test")
    monkeypatch.setattr(archive, "_MAX_MEMBERS", 2)
    with pytest.raises(ValueError, match="3 members, more than 2"):
        archive.read_archive(tmp_path / "a.npz", "test")
    with pytest.raises(ValueError, match="bytes, at most 100 are read"):
        archive.read_archive(tmp_path / "a.npz", "test", 100)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_repeated_members_and_those_that_claim_too_much_are_refused(tmp_path):
    path = tmp_path / "twice.npz"
    with zipfile.ZipFile(path, "w") as file:
        for _ in range(2):
            file.writestr("a.npy", b"")
    with pytest.raises(ValueError, match="repeated members"):
        archive.read_archive(path, "whitening")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.npy", bytes(100))
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\1\2") + 24  # its size, in the list of the members
    data[at : at + 4] = (10**6).to_bytes(4, "little")
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="bytes unpacked, more than"):
        archive.read_archive(path, "whitening")

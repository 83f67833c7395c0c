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
    with pytest.raises(ValueError, match="packed in another way than NumPy does"):
        archive.read_npz(tmp_path / "packed.npz", 1000)
    monkeypatch.setattr(archive, "_MAX_MEMBERS", 2)
    with pytest.raises(ValueError, match="3 members, more than 2"):
        archive.read_npz(tmp_path / "a.npz", 1000)
    with pytest.raises(ValueError, match="3 members, more than 2"):
        archive.read_archive(tmp_path / "a.npz", "test")
    monkeypatch.setattr(archive, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="bytes, at most 100 are read"):
        archive.read_archive(tmp_path / "a.npz", "test")

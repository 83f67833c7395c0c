"""Files are read up to a limit, and written whole or not at all."""

import errno
import os

import pytest

from kd_cv.io.files import as_folder, naming, printable, read_bytes, read_text, replacing


def test_a_file_longer_than_its_kind(tmp_path):
    (tmp_path / "long.txt").write_bytes(bytes(10))
    with pytest.raises(ValueError, match="has more than 9 bytes"):
        read_bytes(tmp_path / "long.txt", 9)
    assert read_bytes(tmp_path / "long.txt", 10) == bytes(10)


def test_a_directory_is_no_file_and_a_file_no_directory(tmp_path):
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path, 9)
    (tmp_path / "a").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="is not a folder"):
        as_folder(tmp_path / "a")
    with pytest.raises(ValueError, match="is not a text file"):
        read_text(tmp_path / "a", 9)


def test_an_error_leaves_the_earlier_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("earlier")
    path.chmod(0o640)
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "earlier" and os.listdir(tmp_path) == ["a.txt"]
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(FileNotFoundError, match="no directory"), replacing(tmp_path / "b" / "c"):
        pass
    with pytest.raises(IsADirectoryError, match="expected a file"), replacing(tmp_path):
        pass


def test_an_error_of_the_disk_names_what_is_written_and_others_stay_as_they_are(tmp_path):
    target = tmp_path / "file"
    with pytest.raises(OSError, match="No space left on device") as caught, naming(target):
        raise OSError(errno.ENOSPC, "said otherwise", "draft")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(target))
    with pytest.raises(FileNotFoundError) as caught, naming(target):
        (tmp_path / "absent").unlink()
    assert caught.value.filename == str(tmp_path / "absent")


def test_control_characters_are_not_printed():
    assert printable("a\x1b]0;title\x07\n b") == "a?]0;title? b"

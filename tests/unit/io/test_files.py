"""Files of others: what is not a file is not opened, what is too large is not read."""

import errno
import math
import os
import sys
import threading

import pytest

from kd_cv.io.files import as_folder, naming, opened, read_bytes, read_text


def test_a_file_longer_than_its_kind(tmp_path):
    (tmp_path / "long.txt").write_bytes(bytes(10))
    with pytest.raises(ValueError, match="has 10 bytes, at most 9 are read"):
        read_bytes(tmp_path / "long.txt", 9)
    assert read_bytes(tmp_path / "long.txt", 10) == bytes(10)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
def test_a_pipe_is_neither_waited_for_nor_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="pipe is not a file, but a pipe or device"):
        read_bytes(pipe, 100)
    writer = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_RDWR)))
    writer.start()
    writer.join()
    (tmp_path / "endless").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="is not a file, but a pipe or device"):
        read_bytes(tmp_path / "endless", 100)


def test_a_directory_is_no_file_and_a_file_no_directory(tmp_path):
    with pytest.raises(ValueError, match="is not a file, but a directory"), opened(tmp_path):
        pass
    (tmp_path / "a").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="is not a folder"):
        as_folder(tmp_path / "a")
    with pytest.raises(ValueError, match="is not a text file"):
        read_text(tmp_path / "a", 9)
    with pytest.raises(FileNotFoundError), opened(tmp_path / "absent"):
        pass


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_bytes(b"four")

    class Grown:
        st_size = 2

    original = os.fstat

    def smaller(number):
        asked_by = sys._getframe(1).f_code.co_name
        return Grown() if asked_by == "read_bytes" else original(number)

    monkeypatch.setattr("kd_cv.io.files.os.fstat", smaller)
    with pytest.raises(ValueError, match="grew while it was read"):
        read_bytes(path, 100)


def test_an_error_of_the_disk_names_what_is_written_and_others_stay_as_they_are(tmp_path):
    target = tmp_path / "file"
    with pytest.raises(OSError, match="No space left on device") as caught, naming(target):
        raise OSError(errno.ENOSPC, "said otherwise", "draft")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(target))
    with pytest.raises(FileNotFoundError) as caught, naming(target):
        (tmp_path / "absent").unlink()
    assert caught.value.filename == str(tmp_path / "absent")


def test_what_a_library_says_is_a_full_disk_only_where_there_is_no_room(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="write failed"), naming(tmp_path / "file"):
        raise RuntimeError("write failed")
    monkeypatch.setattr("kd_cv.io.files.FULL", math.inf)
    with pytest.raises(OSError, match="No space left") as caught, naming(tmp_path / "file"):
        raise RuntimeError("write failed")
    assert caught.value.filename == str(tmp_path / "file")

"""The folder of partial files: one run at a time, nothing of others, no other settings."""

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import cv2
import pytest
from collections_of_photographs import RAW, SMALL, photographs

from kd_cv.collection import Collection, Extraction, extract, partial, reading
from kd_cv.collection.batches import batches, finished, run_batch
from kd_cv.collection.partial import owned, remove

h5py = pytest.importorskip("h5py")

OTHER = Extraction(RAW, 200, dtype="float16")


@pytest.fixture
def folder(tmp_path):
    return photographs(tmp_path / "images")


def held_by_another_process(output):
    """A process that owns an output until it is killed."""
    program = f"""
        import time
        from pathlib import Path
        from kd_cv.collection.partial import owned
        with owned(Path({str(output)!r})):
            print("has it", flush=True)
            time.sleep(300)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "has it\n"
    return process


@pytest.mark.slow
def test_one_run_at_a_time_has_an_output(folder, tmp_path):
    output = tmp_path / "f.h5"
    other = held_by_another_process(output)
    try:
        for overwrite in (False, True):
            with pytest.raises(BlockingIOError, match="another run is writing it") as caught:
                extract(folder, output, SMALL, overwrite=overwrite)
            assert caught.value.filename == str(output)
    finally:
        other.kill()  # the lock ends with it
        other.wait()
    assert extract(folder, output, SMALL).done == 6


def test_two_runs_of_one_process_keep_apart_too(folder, tmp_path):
    output = tmp_path / "f.h5"
    begun, go_on = threading.Event(), threading.Event()

    def slow(plan, extraction):
        begun.set()
        go_on.wait(60)
        for batch in plan:
            yield run_batch(batch, extraction)

    run = threading.Thread(target=extract, args=(folder, output, SMALL), kwargs={"runner": slow})
    run.start()
    assert begun.wait(60)
    with pytest.raises(BlockingIOError, match="another run is writing it"):
        extract(folder, output, OTHER, overwrite=True)
    go_on.set()
    run.join()
    with reading(output) as features:
        assert features.settings_text == SMALL.settings_text and len(features) == 6


def test_a_run_that_comes_as_another_ends_takes_over(tmp_path):
    """The folder that it has opened may have been removed under its hands."""
    output = tmp_path / "f.h5"
    for _ in range(20):
        with owned(output) as own:
            remove(own)
        with owned(output) as own:
            assert own.is_dir()


def test_parts_of_other_settings_are_not_taken(folder, tmp_path):
    collection = Collection.of(folder)
    (mine,) = batches(collection, collection.names[:1], tmp_path, SMALL.settings_text)
    (theirs,) = batches(collection, collection.names[:1], tmp_path, OTHER.settings_text)
    assert mine.part != theirs.part
    run_batch(theirs, OTHER)
    assert finished(theirs) and not finished(mine)
    os.rename(theirs.part, mine.part)  # of the right name, but not the right content
    assert not finished(mine)
    report = run_batch(mine, SMALL)
    assert report.done == 1
    with h5py.File(mine.part) as part:
        assert part[mine.names[0]]["descriptors"].dtype == "float32"


def test_a_part_that_changed_in_between_ends_the_run(folder, tmp_path):
    output = tmp_path / "f.h5"

    def careless(plan, extraction):
        for batch in plan:
            yield run_batch(batch, extraction)
        with h5py.File(plan[0].part, "r+") as part:
            part.attrs["kd_cv"] = OTHER.settings_text

    with pytest.raises(ValueError, match="was made with other settings"):
        extract(folder, output, SMALL, runner=careless)
    assert not output.exists()


@pytest.mark.skipif(os.name != "posix", reason="links as POSIX has them")
class TestLinks:
    def test_a_file_among_the_parts_that_is_a_link(self, folder, tmp_path):
        theirs = tmp_path / "theirs"
        theirs.write_text("theirs")
        partial = tmp_path / "f.h5.partial"
        for name in ("whole.h5", "settings.json", "lock", "0" * 24 + ".h5", ".f-" + "0" * 16):
            partial.mkdir()
            (partial / name).symlink_to(theirs)
            for overwrite in (False, True):
                with pytest.raises(ValueError, match="not a file of an extraction of yours"):
                    extract(folder, tmp_path / "f.h5", SMALL, overwrite=overwrite)
            assert (partial / name).is_symlink() and theirs.read_text() == "theirs"
            (partial / name).unlink()
            partial.rmdir()
        assert not (tmp_path / "f.h5").exists()

    @pytest.mark.parametrize("target", ["elsewhere", "nowhere", "file"])
    def test_a_folder_that_is_a_link(self, folder, tmp_path, target):
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "keep").write_text("")
        (tmp_path / "file").write_text("theirs")
        (tmp_path / "f.h5.partial").symlink_to(tmp_path / target)
        for overwrite in (False, True):
            with pytest.raises(ValueError, match="not a folder of an extraction of yours"):
                extract(folder, tmp_path / "f.h5", SMALL, overwrite=overwrite)
        assert os.listdir(tmp_path / "elsewhere") == ["keep"]
        assert (tmp_path / "file").read_text() == "theirs"
        assert not (tmp_path / "nowhere").exists()

    def test_a_folder_of_something_else_is_not_cleared_away(self, folder, tmp_path):
        partial = tmp_path / "f.h5.partial"
        (partial / "thesis").mkdir(parents=True)
        with pytest.raises(ValueError, match="thesis is not a file of an extraction"):
            extract(folder, tmp_path / "f.h5", SMALL, overwrite=True)
        assert (partial / "thesis").is_dir()

    def test_a_folder_of_another_user(self, folder, tmp_path, monkeypatch):
        (tmp_path / "f.h5.partial").mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(ValueError, match="not a folder of an extraction of yours"):
            extract(folder, tmp_path / "f.h5", SMALL)

    @pytest.mark.slow
    def test_an_output_that_is_a_link_is_replaced(self, folder, tmp_path):
        extract(folder, tmp_path / "theirs.h5", SMALL)
        before = (tmp_path / "theirs.h5").read_bytes()
        (tmp_path / "f.h5").symlink_to("theirs.h5")
        (folder / "01.jpg").rename(folder / "new.jpg")
        extract(folder, tmp_path / "f.h5", SMALL)
        assert not (tmp_path / "f.h5").is_symlink()
        assert (tmp_path / "theirs.h5").read_bytes() == before

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
    @pytest.mark.parametrize("name", ["f.h5", "f.h5.partial", "f.h5.partial/settings.json"])
    def test_a_pipe_in_the_way(self, folder, tmp_path, name):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match="is not a f"):
            extract(folder, tmp_path / "f.h5", SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["[1]", "3", "{", "null", '"kd"', "[" * 100_000])
def test_settings_that_are_none(folder, tmp_path, text):
    partial = tmp_path / "f.h5.partial"
    partial.mkdir()
    (partial / "settings.json").write_text(text)
    with pytest.raises(ValueError, match="was not written by kd_cv"):
        extract(folder, tmp_path / "f.h5", SMALL)
    assert extract(folder, tmp_path / "f.h5", SMALL, overwrite=True).done == 6


@pytest.mark.slow
def test_the_threads_of_opencv_are_not_touched(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(cv2, "setNumThreads", None)
    runs = [
        threading.Thread(target=extract, args=(folder, tmp_path / f"{k}.h5", SMALL))
        for k in range(2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert (tmp_path / "0.h5").read_bytes() == (tmp_path / "1.h5").read_bytes()


@pytest.mark.slow
def test_killed_while_the_output_is_put_together(folder, tmp_path):
    output = tmp_path / "f.h5"
    extract(folder, tmp_path / "whole.h5", SMALL)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_killed_at_the_end, args=(folder, output))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    left = os.listdir(tmp_path / "f.h5.partial")
    assert any(name.startswith(".f-") for name in left) and not output.exists()
    assert sorted(os.listdir(tmp_path)) == ["f.h5.partial", "images", "whole.h5"]
    summary = extract(folder, output, SMALL)
    assert (summary.done, summary.kept) == (0, 6)
    assert output.read_bytes() == (tmp_path / "whole.h5").read_bytes()
    assert not (tmp_path / "f.h5.partial").exists()


def _killed_at_the_end(folder, output):
    os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
    extract(folder, output, SMALL)
    time.sleep(60)


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def none(number, flags):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    message = "no lock can be had there: No locks available"
    with pytest.raises(OSError, match=message), owned(tmp_path / "f.h5"):
        pass


def test_a_lock_that_its_last_owner_removed_is_taken_anew(tmp_path, monkeypatch):
    """Between the opening of the file and the lock on it another run may end."""
    output, lock, gone = tmp_path / "f.h5", partial._locked, []

    def late(folder, target):
        number = lock(folder, target)
        if not gone:
            gone.append(number)
            remove(folder)
        return number

    monkeypatch.setattr(partial, "_locked", late)
    with owned(output) as folder:
        assert gone and (folder / partial.LOCK).is_file()


def test_a_folder_removed_while_it_is_opened_is_made_again(tmp_path, monkeypatch):
    check, gone = partial._check_ours, []

    def late(folder):
        check(folder)
        if not gone:
            gone.append(folder)
            folder.rmdir()

    monkeypatch.setattr(partial, "_check_ours", late)
    with owned(tmp_path / "f.h5") as folder:
        assert gone and folder.is_dir()


def test_the_folder_stays_if_another_run_has_come(tmp_path):
    with owned(tmp_path / "f.h5") as folder:
        unlink = os.unlink
        try:
            os.unlink = lambda path: (unlink(path), (folder / "settings.json").touch())
            remove(folder)
        finally:
            os.unlink = unlink
    assert (folder / "settings.json").exists()

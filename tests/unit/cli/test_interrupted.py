"""Control-C ends every command with one line and the code 130."""

import os
import signal
import subprocess
import sys
import time

import pytest
from collections_of_photographs import photographs, whole_parts

from kd_cv.cli import main

pytest.importorskip("typer")


@pytest.fixture(autouse=True)
def not_in_the_background():
    """What a shell starts in the background ignores Control-C, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_while_a_command_runs(tmp_path, monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("kd_cv.collection.names.find_photos", interrupted)
    code = main(["extract", str(tmp_path), "-o", str(tmp_path / "f.h5")])
    assert (code, capsys.readouterr().err) == (130, "kd-cv: error: interrupted\n")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["threads", "processes"])
def test_by_a_signal(tmp_path, workers):
    pytest.importorskip("h5py")
    folder = photographs(tmp_path / "images", count=200, side=256)
    run = subprocess.Popen(
        [sys.executable, "-m", "kd_cv", "extract", folder, "-o", tmp_path / "f.h5", *workers],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while run.poll() is None and not whole_parts(tmp_path / "f.h5"):  # until it is at work
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does, to all processes of the command
    _, errors = run.communicate(timeout=60)
    assert (run.returncode, errors) == (130, "kd-cv: error: interrupted\n")

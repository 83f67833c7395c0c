"""Control-C ends every command with one line and the code 130."""

import builtins
import os
import signal
import subprocess
import sys
import time

import pytest

from kd_cv.cli import main

pytest.importorskip("typer")


def test_while_a_command_runs(tmp_path, monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("kd_cv.collection.names.find_photos", interrupted)
    code = main(["extract", str(tmp_path), "-o", str(tmp_path / "f.h5")])
    assert (code, capsys.readouterr().err) == (130, "kd-cv: error: interrupted\n")


def test_while_a_command_is_loaded(monkeypatch, capsys):
    original = builtins.__import__

    def interrupted(name, *arguments, **options):
        if name == "kd_cv.cli.app":
            raise KeyboardInterrupt
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    assert main(["weights"]) == 130
    assert capsys.readouterr().err == "kd-cv: error: interrupted\n"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_by_a_signal(tmp_path):
    program = "import sys; from kd_cv.cli import main; print(1, flush=True); sys.exit(main())"
    run = subprocess.Popen(
        [sys.executable, "-c", program, "figures", "-o", str(tmp_path / "figures")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdout.readline() == "1\n"
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert (run.returncode, errors.strip().splitlines()[-1]) == (130, "kd-cv: error: interrupted")
    assert "Traceback" not in errors

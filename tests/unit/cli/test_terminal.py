"""The command line beside other programs: pipes, terminals, warnings of others."""

import os
import subprocess
import sys

import cv2
import pytest
from collections_of_photographs import photographs


def started(*arguments, **options):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "kd_cv", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


@pytest.fixture
def pair(camera, tmp_path):
    for name, start in (("a.png", 0), ("b.png", 30)):
        cv2.imwrite(str(tmp_path / name), camera[100:350, start : start + 300])
    return tmp_path / "a.png", tmp_path / "b.png"


@pytest.mark.slow
def test_what_head_leaves_unread_is_no_error(pair):
    """As a shell joins `kd-cv match a b | head -1`."""
    matching = started("match", *pair, "--max-keypoints", 300, stderr=subprocess.PIPE)
    head = subprocess.run(
        ["head", "-1"], stdin=matching.stdout, capture_output=True, text=True, check=True
    )
    matching.stdout.close()
    error = matching.stderr.read()
    assert (matching.wait(timeout=600), error) == (0, "")
    assert head.stdout.strip() == "KD"  # the title of the table, and no more


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("weights", "--json"), ("--help",)])
def test_a_reader_that_has_gone_before_the_first_line_is_no_error(arguments):
    run = started(*arguments, stderr=subprocess.PIPE)
    run.stdout.close()
    error = run.stderr.read()
    assert (run.wait(timeout=600), error) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
def test_progress_goes_to_a_terminal_only(tmp_path):
    pytest.importorskip("h5py")
    folder = photographs(tmp_path / "images", count=3)
    arguments = ("extract", folder, "--max-keypoints", 50, "-o")
    into_a_pipe = started(*arguments, tmp_path / "a.h5", stderr=subprocess.PIPE)
    out, error = into_a_pipe.communicate(timeout=600)
    assert into_a_pipe.returncode == 0 and "3 images" in out and error == ""
    reader, writer = os.openpty()
    on_a_terminal = started(*arguments, tmp_path / "b.h5", stderr=writer)
    out, _ = on_a_terminal.communicate(timeout=600)
    os.close(writer)
    assert on_a_terminal.returncode == 0 and "3 images" in out
    assert b"3/3 images, " in os.read(reader, 100_000)
    os.close(reader)

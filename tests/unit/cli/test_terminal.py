"""The command line beside other programs: pipes, terminals, warnings of others."""

import json
import os
import subprocess
import sys

import cv2
import pytest
from collections_of_photographs import photographs

from kd_cv.cli import main


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


def test_other_settings_name_the_option_that_begins_anew(tmp_path, capsys):
    pytest.importorskip("h5py")
    folder = photographs(tmp_path / "images", count=2)
    command = ["extract", str(folder), "-o", str(tmp_path / "f.h5"), "--max-keypoints"]
    assert main([*command, "50"]) == 0
    capsys.readouterr()
    assert main([*command, "60"]) == 2
    error = capsys.readouterr().err
    assert "max_keypoints 50 there and 60 here" in error and "--overwrite it" in error
    assert main([*command, "60", "--overwrite"]) == 0


@pytest.mark.slow
def test_an_export_says_nothing_of_others(tmp_path):
    for module in ("torch", "onnxscript", "onnxruntime"):
        pytest.importorskip(module)
    path = tmp_path / "kd.onnx"
    arguments = ("export", "-o", path, "--patch-size", 16, "--kernel", "cart")
    export = started(*arguments, "--whitening", "none", stderr=subprocess.PIPE)
    out, error = export.communicate(timeout=600)
    assert export.returncode == 0 and error == ""
    assert out.splitlines()[-1] == f"file: {path}" and "arning" not in out


def test_the_help_says_which_readers_take_which_type(capsys):
    assert main(["extract", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "which hloc reads" in out and "which only kd_cv can use" in out


def test_an_explanation_says_how_far_it_is_from_where_it_was_asked_for(pair, capsys):
    pytest.importorskip("matplotlib")
    assert main(["explain", *map(str, pair), "--at", "150", "-5000"]) == 0
    away = next(
        line for line in capsys.readouterr().out.splitlines() if "px from 150 -5000" in line
    )
    assert float(away.split()[0]) > 5000


def test_orbs_corners_find_an_object_in_another_view(tmp_path, capsys):
    """As `box.png` in `box_in_scene.png`: the tank of a motorcycle, turned, in the other view."""
    data = pytest.importorskip("skimage.data")
    left, right, _ = data.stereo_motorcycle()
    thing = cv2.rotate(left[60:330, 250:560], cv2.ROTATE_90_CLOCKWISE)
    for name, image in (("thing.png", thing), ("scene.png", right)):
        cv2.imwrite(str(tmp_path / name), cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))
    files = [str(tmp_path / name) for name in ("thing.png", "scene.png")]
    assert main(["match", *files, "--detector", "orb", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["success"] and found["inliers"] > 50

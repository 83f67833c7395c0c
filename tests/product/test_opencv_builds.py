"""A machine on which cv2 cannot be loaded, and an environment with two builds of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kd_cv

ROOT = Path(kd_cv.__file__).parents[1]
FAILS = "raise ImportError('libxcb.so.1: cannot open shared object file: No such file')"


def run(folder, *arguments):
    """A new interpreter that finds its modules in `folder` first."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def installs(folder, *builds):
    """The traces of builds that pip would have installed in a folder."""
    for name, version in builds:
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture
def bare(tmp_path):
    """A folder with an opencv-python that does not load."""
    (tmp_path / "cv2").mkdir()
    (tmp_path / "cv2/__init__.py").write_text(FAILS)
    installs(tmp_path, ("opencv-python", "5.0.0.93"))
    return tmp_path


def test_the_import_says_in_one_line_what_is_missing_and_two_ways_to_mend_it(bare):
    child = run(bare, "-c", "from kd_cv import KDDescriptor")
    last = child.stderr.splitlines()[-1]
    assert child.returncode == 1 and "During handling" not in child.stderr
    assert last.startswith("ImportError: OpenCV cannot be loaded (libxcb.so.1: cannot open")
    assert "apt-get install libgl1" in last and "pip install opencv-python-headless" in last


@pytest.mark.parametrize("way", ["kd-cv", "-m"])
def test_a_command_says_it_without_a_traceback(bare, way):
    (bare / "kd-cv").write_text("import sys; from kd_cv.cli import main; sys.exit(main())")
    child = run(bare, *(["-m", "kd_cv"] if way == "-m" else [bare / way]), "match")
    assert (child.returncode, child.stdout, child.stderr.count("\n")) == (2, "", 1)
    assert child.stderr.startswith("kd-cv: error: OpenCV cannot be loaded (libxcb.so.1: cannot")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("builds", "kept"),
    [
        ([("opencv-python", "5.0.0.93"), ("opencv-contrib-python", "4.12.0.88")], 1),
        ([("opencv-python", "5.0.0.93"), ("opencv-python-headless", "4.12.0.88")], 1),
        ([("opencv-contrib-python", "5.0.0.93"), ("opencv-python-headless", "4.12.0.88")], 0),
    ],
)
def test_two_builds_in_one_folder_are_warned_of_once(tmp_path, builds, kept):
    installs(tmp_path, *builds)
    program = (
        f"import cv2; cv2.__file__ = '{tmp_path}/cv2/__init__.py'; from kd_cv import DoG, match"
    )
    child = run(tmp_path, "-c", program)
    assert child.returncode == 0 and child.stderr.count("UserWarning") == 1
    names = " ".join(sorted(name for name, _ in builds))
    said = f"pip uninstall -y {names} && pip install {builds[kept][0]}=={builds[kept][1]}"
    assert said in child.stderr

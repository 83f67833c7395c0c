"""The examples of all docstrings run, and give what they say.

Each sees `np`, `cv2` and the names of `names`, and stands in an empty folder that has
photographs in `photographs`. What needs a package that is not installed is skipped.
"""

import doctest
import importlib
import io
import os
from pathlib import Path

import cv2
import numpy as np
import pytest

import kd_cv

data = pytest.importorskip("skimage.data")

ROOT = Path(kd_cv.__file__).parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SLOW = {"collection", "draw", "fit", "nn", "paper"}  # rooms


def modules():
    """The names of all modules with an example."""
    for path in sorted(ROOT.rglob("*.py")):
        if ">>>" in path.read_text(encoding="utf-8"):
            parts = path.relative_to(ROOT.parent).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            yield pytest.param(name, marks=pytest.mark.slow if SLOW & set(parts) else ())


def crops(image):
    """Two views, shifted by 24 and 16 pixels."""
    return image[16:336, 24:424].copy(), image[0:320, 0:400].copy()


@pytest.fixture(scope="module")
def names():
    """What the examples may use without making it."""
    image0, image1 = crops(data.camera())
    return {
        "np": np,
        "cv2": cv2,
        "image": image0,
        "gray": image0,
        "keypoints": cv2.SIFT_create(100).detect(image0, None),
        "image0": image0,
        "image1": image1,
        "result": kd_cv.match(image0, image1),
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder but for photographs/{a,b,c}.jpg."""
    (tmp_path / "photographs").mkdir()
    for name, photo in zip("abc", (data.camera(), data.gravel(), data.brick()), strict=True):
        cv2.imwrite(str(tmp_path / "photographs" / f"{name}.jpg"), photo[:300, :400])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def wrong_examples(module, names):
    """What the examples of a module gave that they do not say; and how many there are."""
    said = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    for test in doctest.DocTestFinder().find(module, extraglobs=names):
        runner.run(test, out=said.write)
    return said.getvalue(), runner.summarize(verbose=False).attempted


def imported(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if "kd-cv[" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(modules()))
def test_examples_run(name, names, folder):
    module = imported(name)
    said, _ = wrong_examples(module, names)
    if "kd-cv[" in said:
        pytest.skip("needs an extra")
    assert not said, said


def test_a_wrong_example_is_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wrong_example.py").write_text('"""Adds.\n\n>>> 1 + 1\n3\n"""\n')
    said, attempted = wrong_examples(importlib.import_module("wrong_example"), {})
    assert attempted == 1 and "Expected:\n    3\nGot:\n    2\n" in said
    assert os.fspath(tmp_path) in said

"""Every demo ends with a picture that shows something."""

import subprocess
import sys
from pathlib import Path

import cv2
import pytest

pytest.importorskip("skimage")

pytestmark = pytest.mark.slow

DEMOS = [
    path
    for path in sorted((Path(__file__).parents[2] / "demos").glob("*.py"))
    if path.stem != "onnx_pipeline"  # which needs an exported model
]
LONG = {"finetune_whitening"}
#: What a demo needs beyond the core and scikit-image.
NEEDS = {"kornia_pipeline": "kornia", "finetune_whitening": "torch", "retrieval": "faiss"}


@pytest.mark.parametrize(
    "demo",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.nightly if path.stem in LONG else ())
        for path in DEMOS
    ],
)
def test_demo_draws_a_picture(demo, tmp_path):
    if demo.stem in NEEDS:
        pytest.importorskip(NEEDS[demo.stem])
    path = tmp_path / "picture.png"
    done = subprocess.run(
        [sys.executable, demo, "--out", path], cwd=tmp_path, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout, "the last line says where the picture is"
    picture = cv2.imread(str(path))
    assert picture is not None and min(picture.shape[:2]) > 200
    assert picture.std() > 10, "blank"


def test_replacing_sift_is_one_line(tmp_path):
    """The program as it was before, with cv2.SIFT in the place of KDDescriptor, runs too."""
    source = (DEMOS[0].parent / "replace_sift.py").read_text()
    line = "\nfeature = KDDescriptor()\n"
    assert source.count(line) == 1
    before = source.replace(line, "\nfeature = cv2.SIFT_create()\n")
    script = tmp_path / "with_sift.py"
    script.write_text(before)
    done = subprocess.run(
        [sys.executable, script, "--out", tmp_path / "sift.png"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sift.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "name, missing",
    [
        ("replace_sift", "skimage"),
        ("explain_match", "matplotlib"),
        ("finetune_whitening", "torch"),
        ("retrieval", "faiss"),
        ("kornia_pipeline", "kornia"),
    ],
)
def test_a_missing_package_is_named_in_one_line(name, missing, tmp_path):
    program = f"""
import runpy, sys
sys.modules[{missing!r}] = None
sys.argv = ["demo", "--out", "picture.png"]
runpy.run_path({str(DEMOS[0].parent / f"{name}.py")!r}, run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and not (tmp_path / "picture.png").exists()
    (line,) = done.stderr.splitlines()
    assert "pip install" in line

"""Every demo is short, uses public names, and ends with a picture that shows something."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import cv2
import pytest

pytest.importorskip("skimage")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEMOS = [path for path in sorted((ROOT / "demos").glob("*.py")) if path.stem != "photographs"]
DRAWING = [
    pytest.param(demo, marks=pytest.mark.nightly if demo.stem == "finetune_whitening" else ())
    for demo in DEMOS
    if demo.stem != "onnx_pipeline"  # which takes an exported file
]
#: What a demo needs beyond the core and scikit-image.
NEEDS = {"kornia_pipeline": "kornia", "finetune_whitening": "kornia", "retrieval": "faiss"}


def run(script, *arguments, cwd):
    return subprocess.run(
        [sys.executable, script, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("demo", DRAWING, ids=lambda demo: demo.stem)
def test_demo_draws_a_picture(demo, tmp_path):
    if demo.stem in NEEDS:
        pytest.importorskip(NEEDS[demo.stem])
    path = tmp_path / "picture.png"
    done = run(demo, "--out", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout, "the last line says where the picture is"
    picture = cv2.imread(str(path))
    assert picture is not None and min(picture.shape[:2]) > 200
    assert picture.std() > 10, "blank"


@pytest.mark.parametrize("demo", DEMOS, ids=lambda path: path.stem)
def test_demo_fits_on_a_screen_and_imports_public_names(demo):
    source = demo.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 65
    listed = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kd_cv"):
            for alias in node.names:
                where = rf"^(::: .*\.| +- ){alias.name}$"
                assert re.search(where, listed, flags=re.M), f"{node.module}.{alias.name}"


def test_replacing_sift_is_one_line(tmp_path):
    """The program with cv2.SIFT in the place of KDDescriptor runs too."""
    source = (ROOT / "demos/replace_sift.py").read_text()
    line = "\nfeature = KDDescriptor()\n"
    assert source.count(line) == 1
    for name in ("replace_sift.py", "photographs.py"):
        (tmp_path / name).write_text((ROOT / "demos" / name).read_text())
    script = tmp_path / "replace_sift.py"
    script.write_text(source.replace(line, "\nfeature = cv2.SIFT_create()\n"))
    done = run(script, "--out", tmp_path / "sift.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sift.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["replace_sift", "find_object", "panorama"])
def test_photographs_that_have_nothing_in_common(name, tmp_path):
    from skimage import data

    photos = [tmp_path / "a.png", tmp_path / "b.png"]
    cv2.imwrite(str(photos[0]), data.grass()[:120, :120])
    cv2.imwrite(str(photos[1]), data.coins()[:120, :120])
    done = run(ROOT / f"demos/{name}.py", *photos, "--out", tmp_path / "out.png", cwd=tmp_path)
    if name != "replace_sift":  # OpenCV takes any fundamental matrix for one
        assert done.returncode == 1 and not (tmp_path / "out.png").exists()
    assert "Traceback" not in done.stderr


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
sys.path.insert(0, {str(ROOT / "demos")!r})
runpy.run_path({str(ROOT / "demos" / f"{name}.py")!r}, run_name="__main__")
"""
    done = run("-c", program, cwd=tmp_path)
    assert done.returncode == 1 and not (tmp_path / "picture.png").exists()
    (line,) = done.stderr.splitlines()
    assert "pip install" in line

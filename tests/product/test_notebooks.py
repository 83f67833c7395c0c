"""The notebooks run, and the outputs that are stored in them are those of today, in kind."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "demos").glob("*.ipynb"))
NEEDS = {"kornia": ("kornia",), "paper": ()}


def kinds(notebook) -> list[list[str]]:
    """Of each code cell what came out of it: kinds of pictures, and texts without their numbers."""
    return [
        [kind for output in cell.outputs for kind in _kinds(output)]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _kinds(output) -> list[str]:
    if output.output_type == "stream":
        return [f"{output.name}: {_without_numbers(output.text)}"]
    pictures = sorted(kind for kind in output.data if kind.startswith("image/"))
    return pictures or [_without_numbers(output.data["text/plain"])]


def _without_numbers(text: str) -> str:
    return re.sub(r"-?\d+(\.\d+)?", "#", text)


@pytest.mark.nightly
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_current_in_kind(path, monkeypatch):
    for package in ("nbclient", "nbformat", "ipykernel", "matplotlib", "skimage"):
        pytest.importorskip(package)
    for package in NEEDS[path.stem]:
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import nbformat
    from notebooks import run

    stored = nbformat.read(path, as_version=4)
    assert kinds(stored) == kinds(run(path)), "python tools/notebooks.py stores them again"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_viewer_sees_pictures_and_no_warnings(path):
    nbformat = pytest.importorskip("nbformat")
    found = [kind for cell in kinds(nbformat.read(path, as_version=4)) for kind in cell]
    assert sum(kind.startswith("image/") for kind in found) >= {"kornia": 1, "paper": 11}[path.stem]
    assert not [kind for kind in found if kind.startswith("stderr")]
    assert path.stat().st_size < 2_000_000

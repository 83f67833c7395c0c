"""Every Python block of the README runs, in order, as a reader would paste it."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.S)


@pytest.mark.filterwarnings("ignore:only .* (patches|matching pairs):UserWarning")
def test_the_python_blocks_run_in_order(reader, monkeypatch):
    pytest.importorskip("kornia")
    monkeypatch.chdir(reader)
    assert len(BLOCKS) >= 7
    names: dict = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    result = names["result"]
    assert result.success and result.inliers.sum() > 100
    explanation = names["explanation"]
    assert explanation.heat0["whitened"].sum() == pytest.approx(explanation.similarity, abs=1e-6)
    assert (reader / "mine.npz").is_file()


def test_every_command_exists():
    pytest.importorskip("typer")
    import typer.main

    from kd_cv.cli.app import app

    known = set(typer.main.get_command(app).commands)
    named = set(re.findall(r"kd-cv ([a-z]+)", README))
    assert named <= known and len(named) >= 7


def test_the_pictures_are_there():
    for path in re.findall(r"!\[[^]]*\]\(([^)]*)\)", README):
        assert (Path(__file__).parents[2] / path).is_file(), path

"""Every Python block of the README runs, in order, as a reader would paste it."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.S)


def test_the_python_blocks_run_in_order(reader, monkeypatch):
    pytest.importorskip("kornia")
    monkeypatch.chdir(reader)
    assert len(BLOCKS) >= 4
    names: dict = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    result = names["result"]
    assert result.success and result.inliers.sum() > 100
    why = names["why"]
    assert why.heat0["whitened"].sum() == pytest.approx(why.similarity, abs=1e-6)


def test_every_command_exists():
    pytest.importorskip("typer")
    import typer.main

    from kd_cv.cli.app import app

    known = set(typer.main.get_command(app).commands)
    named = set(re.findall(r"kd-cv ([a-z]+)", README))
    assert named and named <= known


def test_links_and_pictures_are_there():
    for path in re.findall(r"\]\(([^)#]*)[^)]*\)", README):
        assert re.match("https:", path) or (ROOT / path).is_file(), path


def test_the_index_shows_no_link_that_leads_nowhere(monkeypatch):
    pytest.importorskip("hatchling")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from readme import for_the_index

    text = for_the_index(README)
    assert "](docs/" not in text and "![" not in text and "Middlebury" not in text
    assert "https://arxiv.org/abs/1811.11147" in text and "Swap SIFT" in text
    assert re.findall(r"^#+ .*", text, flags=re.M) == re.findall(r"^#+ .*", README, flags=re.M)


def test_a_release_links_to_the_files_of_its_commit(monkeypatch):
    pytest.importorskip("hatchling")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from readme import Readme

    monkeypatch.setenv("GITHUB_REPOSITORY", "someone/somewhere")
    monkeypatch.setenv("GITHUB_SHA", "0123abc")
    metadata: dict = {"urls": {"Paper": "https://arxiv.org/abs/1811.11147"}}
    Readme(str(ROOT), {}).update(metadata)
    text, place = metadata["readme"]["text"], "https://github.com/someone/somewhere"
    assert f"]({place}/raw/0123abc/docs/images/motorcycle.jpg)" in text
    assert f"]({place}/blob/0123abc/docs/install.md#extras)" in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) == len(re.findall(r"\]\(([^)]*)\)", README))
    assert all(link.startswith("https://") for link in links)
    assert metadata["urls"] == {
        "Paper": "https://arxiv.org/abs/1811.11147",
        "Source": place,
        "Issues": f"{place}/issues",
        "Changelog": f"{place}/blob/main/CHANGELOG.md",
    }


def test_it_is_short():
    text = README[: README.index("## Cite")]
    prose = re.sub(r"^```.*?^```|^\|.*?$|^!.*?$", "", text, flags=re.S | re.M)
    assert len(prose.split()) <= 700

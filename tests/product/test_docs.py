"""The documentation builds strictly, without network, and every Python block of it runs."""

import importlib
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import kd_cv

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
#: What the blocks of a page need beyond the core and scikit-image.
NEEDS = {
    "collections": ("h5py", "faiss", "pycolmap", "distributed"),
    "explain": ("matplotlib",),
    "kornia": ("kornia",),
    "matching": ("matplotlib",),
}


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.S | re.M)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:only .* (patches|matching pairs):UserWarning")
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda page: page.stem)
def test_the_python_blocks_of_a_page_run_in_order(page, reader, monkeypatch):
    for package in NEEDS.get(page.stem, ()):
        pytest.importorskip(package)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(reader)
    names: dict = {}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), names)


WRITTEN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
WRITTEN += [ROOT / "experiments/README.md", *PAGES]


def shell_lines(page: Path) -> list[list[str]]:
    """The words of every command in the shell blocks of a page, and of those within its text."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.S | re.M)
    found = [block for kind, block in blocks if kind in ("", "bash")]
    found += re.findall(r"(?<!`)`((?:kd-cv|make|python -m experiments) [^`]*)`", text)
    lines = "\n".join(found).replace("\\\n", " ").splitlines()
    return [shlex.split(re.split(r" [|>] ", line)[0], comments=True) for line in lines]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_the_names_and_options_that_there_are(page):
    pytest.importorskip("typer")
    from experiments.__main__ import COMMANDS
    from experiments.benchmarks.sections import SECTIONS
    from kd_cv.cli.app import load

    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    for words in shell_lines(page):
        if words[:1] == ["make"]:
            assert words[1] in targets, words
        elif words[:3] == ["python", "-m", "experiments"]:
            assert words[3] in {*COMMANDS, "NAME"}, words
            if words[3] == "bench":
                sections = [w for w in words[4:] if not w.startswith(("-", "["))]
                assert set(sections) <= {*SECTIONS, "photograph.jpg"}, words
        elif words[:1] == ["kd-cv"] and words[1:2] != ["..."]:
            known = {"--version", "--help"}
            if re.match("[a-z]", words[1]):
                params = load(words[1]).params
                known = {option for p in params for option in (*p.opts, *p.secondary_opts)}
            assert {word for word in words if re.match("--?[a-z]", word)} <= known, words


LIST = re.compile(r"\s*(\||#|-|\d+\.|!|\[)")


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_is_long(page):
    """At most 30 words, but in a list or a table."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    paragraphs = re.split(r"\n\s*\n", text)
    prose = (part for part in paragraphs if not any(map(LIST.match, part.splitlines())))
    for part in prose:
        for sentence in re.split(r"(?<=[.:!?;])[*_)]*\s+", part):
            assert len(sentence.split()) <= 30, sentence


def documented() -> list[str]:
    """What the reference lists: the objects that are rendered from their docstrings."""
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    found = []
    for name, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", text + "\n", flags=re.M):
        members = re.findall(r"^        - (\w+)$", options, flags=re.M)
        found += [f"{name}.{member}" for member in members] or [name]
    return found


def resolve(name: str):
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def test_every_public_name_is_documented():
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    objects = {id(resolve(name)) for name in documented()}
    names = [name for _, name, below in pkgutil.iter_modules(kd_cv.__path__) if below]
    for package in (kd_cv, *(importlib.import_module(f"kd_cv.{name}") for name in names)):
        if package.__name__ == "kd_cv.cli":
            continue  # the page of the commands documents it
        public = getattr(package, "__all__", [])
        missing = [name for name in public if id(getattr(package, name)) not in objects]
        assert missing == [], package.__name__


def test_everything_in_the_reference_has_a_docstring():
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    assert len(documented()) > 25
    for name in documented():
        thing = resolve(name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            own = {k: v for k, v in vars(thing).items() if not k.startswith("_")}
            told = [k for k, v in own.items() if callable(v) or isinstance(v, property)]
            assert [k for k in told if not inspect.getdoc(getattr(thing, k))] == [], name


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings", "typer"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_strictly_with_every_page_in_its_menu(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    for page in site.glob("*.html"):
        if page.name not in ("404.html", "index.html"):
            assert f'href="{page.name}"' in home, page.name
    assert len(list(site.glob("*.html"))) > len(PAGES)


def test_every_command_and_option_is_on_the_page_of_the_command_line(site):
    from kd_cv.cli.app import COMMANDS, load

    page = re.sub("<[^>]*>", "", (site / "commands.html").read_text(encoding="utf-8"))
    for name in COMMANDS:
        assert f"kd-cv {name}" in page
        for parameter in load(name).params:
            if parameter.param_type_name == "option":
                assert max(parameter.opts, key=len) in page, (name, parameter.opts)


def test_links_that_leave_the_documentation_are_turned(monkeypatch):
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(str(ROOT / "docs/tools"))
    from pages import relinked

    text = (
        "[a](../SECURITY.md#b) [b](swap.md) [c](../LICENSE) [d](https://x.org) ![e](images/f.png)"
    )
    expected = "[a](security.md#b) [b](swap.md) c [d](https://x.org) ![e](images/f.png)"
    assert relinked(text, "docs/how.md") == expected
    assert relinked("![e](docs/images/f.png)", "README.md") == "![e](images/f.png)"
    with pytest.raises(ValueError, match=r"nowhere\.md"):
        relinked("[a](../nowhere.md)", "docs/how.md")

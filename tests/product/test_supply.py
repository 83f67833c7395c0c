"""What is installed to develop and to release is pinned, and the workflows use it."""

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "tools" / "dev.lock").read_text()
LOCKED = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^ ]+)", LOCK, re.MULTILINE))


def _of_the_project() -> list[Requirement]:
    """What pyproject.toml asks for, the development set included."""
    text = (ROOT / "pyproject.toml").read_text()
    table = re.search(r"\[project.optional-dependencies\]\n(.*?)\n\[", text, re.DOTALL)
    core = re.search(r"^dependencies = (.*)$", text, re.MULTILINE)
    assert table and core
    found = re.findall(r'"([A-Za-z][^"]*[<>=][^"]*)"', table[1] + core[1])
    return [Requirement(line) for line in found]


@pytest.mark.parametrize("requirement", _of_the_project(), ids=str)
def test_the_lock_holds_what_the_project_asks_for(requirement):
    if requirement.name == "torch":  # pinned in the Makefile, in the build of each machine
        pins = re.findall(r"torch==(\S+)", (ROOT / "Makefile").read_text())
        assert pins and all(pin in requirement.specifier for pin in pins)
        return
    assert LOCKED[canonicalize_name(requirement.name)] in requirement.specifier


def test_every_package_of_the_lock_has_hashes():
    packages = re.split(r"^(?=[A-Za-z])", LOCK, flags=re.MULTILINE)[1:]
    assert len(packages) == len(LOCKED) > 100
    assert all("--hash=sha256:" in package for package in packages)


def test_what_is_locked_is_for_the_python_of_debian_12():
    """A bare machine has 3.11.2, whatever runs the tests."""
    assert 'PYTHON = "3.11.2"' in (ROOT / "tools" / "lock.py").read_text()
    seen = 0
    for name, version in LOCKED.items():
        try:
            found = distribution(name)
        except PackageNotFoundError:  # of another set
            continue
        if found.version == version:
            seen += 1
            wanted = SpecifierSet(found.metadata.get("Requires-Python") or "")
            assert "3.11.2" in wanted, f"{name} {version} needs Python {wanted}"
    assert seen


def test_the_tests_run_on_what_is_locked():
    """In the environment that `make test` builds; elsewhere versions are those of the set."""
    if Path(distribution("pytest").locate_file("")).parts[-4:-3] != (".venv-dev",):
        pytest.skip("not the development environment")
    assert distribution("hypothesis").version == LOCKED["hypothesis"]


@pytest.mark.parametrize("workflow", ["test", "release"])
def test_the_workflows_test_in_the_locked_environment(workflow):
    yaml = pytest.importorskip("yaml")

    text = (ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    assert "make test" in steps
    recipe = re.search(r"\$\(DEV\)/ready:.*\n(?:\t.*\n)+", (ROOT / "Makefile").read_text())
    assert recipe and "--require-hashes -r tools/dev.lock" in recipe[0]


def test_only_the_tag_of_a_version_is_published():
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert 'tags: ["v*"]' in text and "needs: build" in text and "id-token: write" in text
    assert "password" not in re.sub(r"#.*", "", text)

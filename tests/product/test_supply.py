"""What is installed to develop and to release is pinned, and the workflows use it."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
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


@pytest.mark.parametrize("workflow", ["test", "release"])
def test_the_workflows_test_in_the_locked_environment(workflow):
    yaml = pytest.importorskip("yaml")

    text = (ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    assert "make test" in steps
    recipe = re.search(r"\$\(DEV\)/ready:.*\n(?:\t.*\n)+", (ROOT / "Makefile").read_text())
    assert recipe and "--require-hashes -r tools/dev.lock" in recipe[0]

"""The built archives carry the matrices and work without the checkout.

The wheel is built from the sdist. Here it runs beside the packages that are already installed;
`nox -s package` installs both archives into empty environments.
"""

import importlib.metadata
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kd_cv.whitening import registry as weights

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = """
import numpy as np
from golden import make
from kd_cv import KDDescriptor, describe
from kd_cv.whitening import registry as weights
from kd_cv.keypoints import to_keypoints

assert weights.folder().name == "weights_data", weights.folder()
for name in weights.registry():
    assert describe(np.eye(32)[None], weights=name).shape == (1, 128)
golden, largest = np.load(make.PATH), 0.0
for name in make.FRAMES:
    keypoints = to_keypoints(golden[f"{name}/frames"])
    for case in make.CASES:
        kernel, P, whitening, scales = case
        kd = KDDescriptor(patch_size=P, kernel=kernel, whitening=whitening, scales=scales)
        rows = kd.compute(make.photograph(name), keypoints)[1]
        largest = max(largest, np.abs(rows - golden[f"{name}/{make.case_name(*case)}"]).max())
assert largest < 1e-4, largest
print(weights.folder())
"""


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from it."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(archives, tmp_path_factory):
    """run(*command): a command, given the installed wheel, in an empty folder."""
    # Not even looked for as a module: setuptools then hides its distutils from torch.compile.
    if not next(iter(importlib.metadata.distributions(name="pip")), None):
        pytest.skip("pip is not installed")
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("elsewhere")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", site, archives[1]], check=True, timeout=300)
    # Compiling at a new place takes long, and how that goes is the subject of other tests.
    (site / "numba.py").write_text('raise ImportError("left out of this test")\n')
    path = os.pathsep.join([str(site), str(ROOT / "tests" / "witness")])

    def run(*command):
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, timeout=300,
            env={**os.environ, "PYTHONPATH": path, "MPLBACKEND": "agg"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return site, folder, run


def test_the_wheel_holds_the_package_and_its_data(archives):
    names = set(zipfile.ZipFile(archives[1]).namelist())
    assert {
        "kd_cv/__init__.py",
        "kd_cv/report.html",
        "kd_cv/cli/app.py",
        "kd_cv/py.typed",
    } <= names
    shipped = {f"kd_cv/weights_data/{entry.file}" for entry in weights.registry().values()}
    held = {name for name in names if name.startswith("kd_cv/weights_data/")}
    assert held == shipped | {"kd_cv/weights_data/index.json"}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"kd_cv"}


def test_the_sdist_holds_what_the_tests_need(archives):
    with tarfile.open(archives[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "noxfile.py"}
    wanted |= {"weights/index.json", "weights/multiview.npz", "tests/conftest.py"}
    wanted |= {
        "tests/witness/golden/descriptors.npz",
        "tests/compat/oldest.txt",
        "kd_cv/report.html",
    }
    assert wanted <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".venv")]


def test_the_installed_wheel_finds_its_matrices_and_gives_the_stored_descriptors(installed):
    site, _, run = installed
    assert Path(run(sys.executable, "-c", PROGRAM).strip()) == site / "kd_cv" / "weights_data"


def test_the_installed_command_matches_its_own_photographs(installed):
    pytest.importorskip("typer")
    site, folder, run = installed
    run(sys.executable, site / "bin" / "kd-cv", "match", "--max-keypoints", "300", "-o", "m.png")
    assert (folder / "m.png").stat().st_size > 10_000

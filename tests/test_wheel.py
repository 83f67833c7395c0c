"""The built wheel carries its matrices and works without the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kd_cv import weights

ROOT = Path(__file__).parents[1]
PROGRAM = """
import numpy as np
from kd_cv import describe, weights
assert weights.folder().name == "weights_data", weights.folder()
patches = np.random.default_rng(0).integers(0, 255, (4, 32, 32)).astype(np.uint8)
for name in weights.names():
    assert describe(patches, weights=name).shape == (4, 128)
print(weights.folder())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_its_data(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"kd_cv/__init__.py", "kd_cv/report.html", "kd_cv/cli/app.py"} <= names
    shipped = {f"kd_cv/weights_data/{weights.info(name).file}" for name in weights.names()}
    held = {name for name in names if name.startswith("kd_cv/weights_data/")}
    assert held == shipped | {"kd_cv/weights_data/index.json"}


def test_the_installed_wheel_finds_its_matrices(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout


def test_the_checkout_finds_its_matrices():
    assert weights.folder() == ROOT / "weights"

"""The public names, and what importing them costs."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import kd_cv

PUBLIC = [
    "DoG",
    "KDDescriptor",
    "KDFeature",
    "KDModule",
    "MatchResult",
    "Whitening",
    "describe",
    "match",
]


def run(program):
    """Standard output of a program in a new interpreter."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_list_of_public_names():
    assert sorted(kd_cv.__all__) == PUBLIC
    assert kd_cv.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="module 'kd_cv' has no attribute 'SIFT'"):
        _ = kd_cv.SIFT


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_says_what_it_is(name):
    if name in ("KDFeature", "KDModule"):
        pytest.importorskip("torch")
        pytest.importorskip("kornia")
    assert getattr(kd_cv, name).__doc__


HEAVY = ["torch", "kornia", "numba", "pycolmap", "dask", "h5py", "matplotlib", "typer", "skimage"]


def test_import_loads_nothing_heavy():
    loaded = run(f"import sys, kd_cv; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert loaded == "[]"


@pytest.mark.slow
def test_detecting_loads_no_torch_and_making_a_descriptor_no_numba():
    program = f"""
        import sys, numpy as np, kd_cv
        kd = kd_cv.KDDescriptor(whitening=None)
        kd.detect(np.zeros((50, 50), np.uint8))
        print([m for m in {HEAVY!r} if m in sys.modules])
        kd_cv.describe(np.eye(32)[None], whitening=None)
        print([m for m in {HEAVY!r} if m in sys.modules and m != "numba"])
    """
    assert run(program).split("\n") == ["[]", "[]"]


@pytest.mark.slow
def test_without_torch_everything_can_be_listed_and_imported():
    program = """
        import sys
        sys.modules["torch"] = None
        import kd_cv
        from kd_cv import *
        from kd_cv import KDModule, KDFeature
        print(hasattr(kd_cv, "KDModule"), hasattr(kd_cv, "nothing"))
        print(dir(kd_cv) == sorted([*kd_cv.__all__, "__version__"]))
        print(all(getattr(kd_cv, name).__doc__ for name in kd_cv.__all__))
    """
    assert run(program).split() == ["True", "False", "True", "True"]


def test_the_package_says_that_it_has_types():
    assert (Path(kd_cv.__file__).parent / "py.typed").is_file()


def test_import_prints_and_warns_nothing():
    assert run("import warnings; warnings.simplefilter('error'); import kd_cv") == ""

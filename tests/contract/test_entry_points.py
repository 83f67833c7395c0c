"""Every public way in keeps the same contract, with and without Numba and torch."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ways_in import CHECKS, ENTRIES
from ways_in.entry import Entry, photographs

import kd_cv


def marked(entry):
    missing = pytest.mark.skipif(not entry.available(), reason=f"needs {', '.join(entry.needs)}")
    return pytest.param(
        entry, id=entry.name, marks=[missing, *([pytest.mark.slow] if entry.slow else [])]
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("entry", [marked(entry) for entry in ENTRIES])
def test_contract(entry, check):
    check(entry)


def in_another_interpreter(*arguments):
    """The output of all checks there."""
    folders = [str(Path(kd_cv.__file__).parent.parent), str(Path(__file__).parent)]
    path = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    run = subprocess.run(
        [sys.executable, "-m", "ways_in", *map(str, arguments)],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.slow
def test_without_numba_all_keep_it_and_give_the_same(tmp_path):
    out = in_another_interpreter("--without", "numba", "--save", tmp_path / "rows.npz")
    assert out.startswith("warning: Numba cannot be imported (No module named 'numba')")
    found = np.load(tmp_path / "rows.npz")
    for entry in filter(Entry.available, ENTRIES):
        assert f"{entry.name}: ok" in out
        images = photographs(entry.side)
        expected = entry.rows(entry.call(*entry.arguments(images)))
        for i, rows in enumerate(expected):
            assert entry.same(found[f"{entry.name} {i}"], rows, images[i]), (entry.name, i)


@pytest.mark.slow
def test_without_torch_all_others_keep_it():
    out = in_another_interpreter(
        "--without", "torch", "--without", "kornia", "--check", "check_types"
    )
    for entry in filter(Entry.available, ENTRIES):
        expected = "not there" if "torch" in entry.needs else "ok"
        assert f"{entry.name}: {expected}\n" in out

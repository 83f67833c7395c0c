"""Every public way in keeps the same contract, with and without Numba and torch."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ways_in import CHECKS, ENTRIES, checks
from ways_in.absent import Absent
from ways_in.arrays import Describe
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


def test_the_checks_find_what_breaks_them():
    """Each check fails for an entry that does what it forbids."""

    class Broken(Describe):
        calls = 0

        def call(self, patches):
            Broken.calls += 1
            return self.broken(patches)

    def overwrites(self, patches):
        patches[..., 0] = 0
        return kd_cv.describe(patches)

    def depends_on_the_batch(self, patches):
        return kd_cv.describe(patches) * np.float32(len(patches))

    def fails_on_nothing(self, patches):
        return kd_cv.describe(patches) if len(patches) else np.zeros((0, 5), np.float32)

    def wants_it_writeable(self, patches):
        return kd_cv.describe(patches) * np.float32(patches.flags.writeable)

    def counts(self, patches):
        return kd_cv.describe(patches) * np.float32(Broken.calls)

    def doubles(self, patches):
        return kd_cv.describe(patches).astype(np.float64)

    for check, broken in (
        (checks.check_types, doubles),
        (checks.check_arguments_stay, overwrites),
        (checks.check_batched_equals_unbatched, depends_on_the_batch),
        (checks.check_empty_batch, fails_on_nothing),
        (checks.check_layouts, wants_it_writeable),
        (checks.check_again, counts),
    ):
        Broken.broken = broken
        with pytest.raises(AssertionError):
            check(Broken())


def test_a_module_that_is_absent_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [Absent("colorsys"), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with pytest.raises(ModuleNotFoundError, match="No module named 'colorsys'"):
        importlib.util.find_spec("colorsys")
    with pytest.raises(ModuleNotFoundError, match="No module named 'colorsys'"):
        importlib.import_module("colorsys")

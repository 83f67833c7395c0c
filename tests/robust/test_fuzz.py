"""The fuzz targets on their seeds, on what was once found, and on some changes of both."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))

from pieces import mutations
from run import kept
from targets import TARGETS

pytestmark = pytest.mark.slow

INPUTS = 60


@pytest.mark.parametrize("name", TARGETS)
def test_target(name):
    target = TARGETS[name]
    if target.needs:
        pytest.importorskip(target.needs)
    seeds = target.seeds()
    assert target.check(seeds[0])
    known = seeds + kept(name)
    for data in itertools.chain(known, itertools.islice(mutations(known, seed=0), INPUTS)):
        target.check(data)


def test_the_command_runs_and_reports():
    program = Path(__file__).parent / "fuzz" / "run.py"
    command = [sys.executable, str(program), "weights", "rows", "--plain", "--inputs", "100"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    *_, weights, rows, total = result.stdout.splitlines()
    assert weights.startswith("weights: 100 inputs, ") and rows.startswith("rows: 100 inputs, ")
    assert total.startswith("2 targets: 200 inputs, ") and total.endswith(" 0 findings")

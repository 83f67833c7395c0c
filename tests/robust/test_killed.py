"""Runs that are killed at random moments leave what was whole; `killing.py` does more of them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks and kills as Linux does"),
]

NEEDED = {"extract": "h5py", "fit": "numpy", "colmap": "pycolmap", "index": "faiss"}


@pytest.mark.parametrize("job", NEEDED)
def test_what_was_whole_stays_whole(job):
    for module in ("h5py", NEEDED[job]):
        pytest.importorskip(module)
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("killing.py")), job]
    run = subprocess.run([*command, "--times", "3"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.startswith(f"{job}: ") and " killed" in run.stdout

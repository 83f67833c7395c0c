"""The hostile calls that need no minutes; `python tests/robust/hostile.py` makes them all."""

import importlib.util
import subprocess
import sys

import hostile

# The others compile anew, start many processes, or import torch once more.
QUICK = ["images", "keypoints", "arguments", "settings", "patches", "matching"]
if importlib.util.find_spec("typer"):
    QUICK.append("command-line")


def test_hostile_calls_end_in_a_result_or_a_clear_error():
    run = subprocess.run(
        [sys.executable, hostile.__file__, *QUICK],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    total, _, rest = run.stdout.splitlines()[-1].partition(" ")
    assert int(total) > 350 and rest == "hostile calls, 0 of them misbehaved"


def test_what_misbehaves_is_named_and_the_others_still_run():
    count, wrong = hostile.run_group("misbehaving")
    assert count == 7
    assert [text.partition(":")[0] for text in wrong] == [
        "crashes",
        "ends the process",
        "gives something else",
        "raises something else",
        "raises without a word",
        "raises nothing",
    ]
    assert "Segmentation fault" in wrong[0]

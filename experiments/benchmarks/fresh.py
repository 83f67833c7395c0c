"""Sections that need new processes: the first call, the import, peak memory."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.benchmarks.inputs import Config, Inputs
from experiments.benchmarks.measure import CannotMeasure, Row, Spread, Target
from experiments.benchmarks.report import Say

CHILD = Path(__file__).resolve().with_name("child.py")
MEGABYTE = 1e6
FEW = 100  # keypoints of a first call: enough for all threads, so that the constant shows


def in_new_process(task: str, environment: dict[str, str] | None = None, **arguments: Any) -> Any:
    places = [str(CHILD.parents[2]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(place for place in places if place)
    answer = subprocess.run(
        [sys.executable, str(CHILD), task, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": path, **(environment or {})},
        capture_output=True,
        text=True,
    )
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or [f"exit code {answer.returncode}"]
        raise RuntimeError(f"{task} failed in a new process: {last[0]}")
    return json.loads(answer.stdout.splitlines()[-1])


def start(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """First call with and without cached code, and the import."""
    cold, cached = [], []
    with tempfile.TemporaryDirectory() as folder:
        inputs.save(Path(folder), FEW)
        arguments = {"folder": folder, "count": FEW}
        for i in range(config.processes):
            say(f"first call, {i + 1} of {config.processes}")
            environment = {"NUMBA_CACHE_DIR": str(Path(folder) / f"cache{i}")}
            cold.append(in_new_process("first_call", environment, **arguments))
            cached.append(in_new_process("first_call", environment, **arguments))
    yield seconds_row("construct and compute, nothing cached", cold, 4.0)
    yield seconds_row("construct and compute, cached", cached, 0.5)
    second = [answer["second"] for answer in cached]
    yield Row(f"the second compute, {FEW} keypoints", Spread.of(second), "s")
    imports = []
    with tempfile.TemporaryDirectory() as folder:  # bytecode is kept, whatever the environment says
        environment = {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for i in range(config.processes + 1):
            say(f"import, {i + 1} of {config.processes + 1}")
            imports.append(in_new_process("import_time", environment))
    # The first had to compile bytecode.
    yield seconds_row("import of KDDescriptor, beyond numpy and cv2", imports[1:], 0.1)


def seconds_row(name: str, answers: list[dict[str, float]], limit: float) -> Row:
    """Seconds on the clock; the processor time tells whether other work stood in the way."""
    busy = Spread.of([answer["processor"] for answer in answers])
    note = f"{busy.median:.3g} s of processor time"
    seconds = Spread.of([answer["seconds"] for answer in answers])
    return Row(name, seconds, "s", target=Target(limit, at_most=True), note=note)


def memory(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """Peak memory of one large `compute`."""
    check_proc()
    count = config.memory_keypoints
    say(f"{count:,} keypoints")
    with tempfile.TemporaryDirectory() as folder:
        inputs.save(Path(folder), max(config.keypoints))
        answer = in_new_process("compute_memory", folder=folder, count=count)
    peak, output, once = (answer[key] / MEGABYTE for key in ("peak", "output", "once"))
    yield Row(
        f"{count:,} keypoints, beyond image and output",
        Spread.of([peak]),
        "MB",
        target=Target(200.0, at_most=True),
        note=f"the output has {output:.0f} MB",
    )
    yield Row("once in a process: Numba, code, constants", Spread.of([once]), "MB")


def check_proc() -> None:
    """Peak memory is read from Linux's /proc."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        raise CannotMeasure("peak memory is read from /proc/self, which is not there")

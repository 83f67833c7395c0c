"""The command `kd-cv match` on two photographs of 12 megapixels: seconds and memory, all in all."""

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2

from experiments.benchmarks.inputs import Config, Inputs
from experiments.benchmarks.measure import CannotMeasure, Row, Spread
from experiments.benchmarks.report import Say

MEGABYTE = 1e6
WAYS = {
    "kd-cv match": (),
    "the same, --max-size 4000 (no reduction)": ("--max-size", "4000"),
    "the same, --max-size 1600": ("--max-size", "1600"),
    "SIFT's detector and descriptor": ("--descriptor", "sift", "--detector", "sift"),
}
#: Run by a process that is small itself: to Linux the memory of the parent is part of the most that
#: a child ever had.
OUTSIDE = """
import resource, subprocess, sys, time
begin = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def match_large(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """Each way in processes of its own: decoding, detecting, describing, matching, geometry."""
    if importlib.util.find_spec("resource") is None:
        raise CannotMeasure("the memory of a process is read by getrusage, which is not here")
    height, width = config.large_images[0][:2]
    image = cv2.resize(inputs.image, (width, height), interpolation=cv2.INTER_CUBIC)
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), 8, 0.95)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.jpg", "b.jpg")]
        for path, photograph in zip(
            paths, (image, cv2.warpAffine(image, turn, (width, height))), strict=True
        ):
            cv2.imwrite(str(path), photograph)
        for name, options in WAYS.items():
            say(name)
            command = [sys.executable, "-m", "kd_cv", "match", *map(str, paths), *options, "--json"]
            runs = [_run(command) for _ in range(config.large_rounds + 1)][1:]
            peak = max(used for _, used in runs) / MEGABYTE
            seconds = Spread.of([taken for taken, _ in runs])
            yield Row(f"{name}, {width} x {height}", seconds, "s", note=f"{peak:.0f} MB")


def _run(command: list[str]) -> tuple[float, float]:
    """Seconds of a process, and its bytes in memory at most."""
    run = subprocess.run(
        [sys.executable, "-c", OUTSIDE, *command], capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {run.stderr}")
    seconds, most = map(float, run.stdout.split())
    return seconds, most * (1 if sys.platform == "darwin" else 1024)  # bytes, or kilobytes

"""Measure kd_cv on this machine.

    python -m experiments bench [SECTION ...] [--quick] [--image FILE] [--json]

Sections, side by side with cv2.SIFT and Kornia; all of them if none is named, which takes minutes:
detector, detector-large, detector-memory, match-calls, neighbours, poses, views, match,
detector-stages, sift, threads, growth, feature, kornia, module, busy, start, memory, module-memory,
stages.
What is not installed is skipped. Keep the machine idle. On a machine with AVX-512 everything is
measured once more without it, by a process of its own, for the column AVX2.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import cv2

from experiments.benchmarks.inputs import QUICK, Config
from experiments.benchmarks.measure import Spread
from experiments.benchmarks.report import Report
from experiments.benchmarks.sections import run

AVX512_SKX = 256  # CV_CPU_AVX512_SKX of OpenCV, which has no name in Python
#: What restricts Numba, NumPy, OpenCV and torch to AVX2. Numba takes the features of the machine
#: unless they are given beside the name of the CPU.
AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx2,+fma",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENCV_CPU_DISABLE": "AVX512-SKX",
    "OPENCV_IPP": "avx2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 if a section failed; a target that is not met is only shown."""
    parser = argparse.ArgumentParser(
        "python -m experiments bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="all of them by default")
    parser.add_argument("--quick", action="store_true", help="few repeats: a first look")
    parser.add_argument("--image", type=Path, help="a photograph instead of scikit-image's")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(arguments)
    try:
        report = run(QUICK if args.quick else Config(), args.image, args.sections, _say)
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    if cv2.checkHardwareSupport(AVX512_SKX):
        report = with_avx2(report, arguments)
    print(json.dumps(report.as_dict()) if args.json else report)
    return int(report.failed)


def with_avx2(report: Report, arguments: Sequence[str]) -> Report:
    """The report with what the same command measures without AVX-512."""
    _say("once more without AVX-512")
    command = [sys.executable, "-m", "experiments", "bench", *arguments, "--json"]
    run = subprocess.run(command, env={**os.environ, **AVX2}, capture_output=True, text=True)
    if not run.stdout:
        raise RuntimeError(f"the process without AVX-512 failed: {run.stderr}")
    found = {
        (part["name"], row["name"]): Spread(**row["result"])
        for part in json.loads(run.stdout)["parts"]
        for row in part["rows"]
    }
    parts = (
        replace(
            part, rows=tuple(replace(r, avx2=found.get((part.name, r.name))) for r in part.rows)
        )
        for part in report.parts
    )
    return replace(report, parts=tuple(parts))


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="\r", file=sys.stderr, flush=True)

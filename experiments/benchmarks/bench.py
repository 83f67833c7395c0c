"""Measure kd_cv on this machine.

    python -m experiments bench [SECTION ...] [--quick] [--image FILE] [--json]

Sections, side by side with cv2.SIFT and Kornia; all of them if none is named, which takes minutes:
detector, detector-large, detector-memory, match-calls, neighbours, poses, views, match,
detector-stages, sift, threads, growth, feature, kornia, module, busy, start, memory, module-memory,
stages.
What is not installed is skipped. Keep the machine idle.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.benchmarks.inputs import QUICK, Config
from experiments.benchmarks.sections import run


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
    print(json.dumps(report.as_dict()) if args.json else report)
    return int(report.failed)


def _say(text: str) -> None:
    """What is being measured, on one line of the terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="\r", file=sys.stderr, flush=True)

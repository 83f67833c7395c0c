"""The table of a run and its header, as text and as JSON."""

import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import cv2

import kd_cv
from experiments.benchmarks.inputs import Inputs
from experiments.benchmarks.measure import Row, Spread

Say = Callable[[str], None]
COLUMNS = ("measured", "against", "kd_cv", "result", "AVX2", "target", "met", "")
PACKAGES = ("numpy", "scipy", "numba", "torch", "kornia")


@dataclass(frozen=True)
class Part:
    """The rows of one section, or why there are none."""

    name: str
    title: str
    rows: tuple[Row, ...] = ()
    skipped: str = ""
    failed: str = ""


@dataclass(frozen=True)
class Report:
    """What one run of the benchmark found."""

    header: dict[str, str]
    parts: tuple[Part, ...]

    @property
    def failed(self) -> bool:
        return any(part.failed for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; seconds and bytes where the table has more readable units."""
        content = asdict(self)
        for part, written in zip(self.parts, content["parts"], strict=True):
            for row, line in zip(part.rows, written["rows"], strict=True):
                line["met"] = None if row.target is None else row.target.met(row.result)
        return content

    def __str__(self) -> str:
        lines = [f"{name:<11}{value}" for name, value in self.header.items()]
        table = [COLUMNS, *(cells(row) for part in self.parts for row in part.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["", aligned(COLUMNS, widths)]
        for part in self.parts:
            lines += ["", f"{part.name}: {part.title}"]
            lines += [aligned(cells(row), widths) for row in part.rows]
            lines += [f"  skipped: {part.skipped}"] if part.skipped else []
            lines += [f"  FAILED: {part.failed}"] if part.failed else []
        return "\n".join(lines)


def aligned(values: Sequence[str], widths: Sequence[int]) -> str:
    """One line of the table: the name and the note to the left, numbers to the right."""
    first, *numbers, last = values
    right = (f"{value:>{width}}" for value, width in zip(numbers, widths[1:], strict=False))
    return "  ".join((f"{first:<{widths[0]}}", *right, last)).rstrip()


def cells(row: Row) -> tuple[str, ...]:
    show = in_megabytes if row.of_bytes else in_time
    sign = "" if row.target is None else "<= " if row.target.at_most else ">= "
    return (
        f"  {row.name}",
        show(row.against.median) if row.against else "",
        show(row.kd_cv.median) if row.kd_cv else "",
        with_quartiles(row.result, row.unit),
        f"{_digits(row.avx2.median)} {row.unit}" if row.avx2 else "",
        f"{sign}{row.target.value:g}" if row.target else "",
        ("yes" if row.target.met(row.result) else "NO") if row.target else "",
        row.note,
    )


def in_time(seconds: float) -> str:
    """
    >>> in_time(0.0123)
    '12.3 ms'
    """
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    scale, unit = next(((s, u) for s, u in units if abs(seconds) >= s), units[-1])
    return f"{_digits(seconds / scale)} {unit}"


def in_megabytes(size: float) -> str:
    return f"{_digits(size / 1e6)} MB"


def with_quartiles(spread: Spread, unit: str) -> str:
    """
    >>> with_quartiles(Spread(4.1234, 4, 4.5), "x")
    '4.12 x (4..4.5)'
    """
    median, low, high = (_digits(value) for value in (spread.median, spread.low, spread.high))
    quartiles = "" if spread.low == spread.high else f" ({low}..{high})"
    return f"{median} {unit}{quartiles}"


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def header(inputs: Inputs, cores: int, rounds: int) -> dict[str, str]:
    """The machine, the versions and what was described."""
    height, width = inputs.image.shape
    kd = inputs.descriptor(32)
    by, magnification = kd.settings.weights, kd.settings.side
    return {
        "machine": f"{processor()}, {cores} cores, {platform.system()}{load(cores)}",
        "versions": ", ".join(
            (f"kd_cv {kd_cv.__version__}", f"Python {platform.python_version()}", *versions())
        ),
        "threads": f"{cores} unless said otherwise; cv2.setNumThreads and torch.set_num_threads",
        "image": f"{inputs.name}, {width} x {height}; the strongest SIFT keypoints",
        "descriptor": (
            f"concat, whitened to {kd.descriptorSize()} by the shipped {by!r}, "
            f"magnification {magnification:g}"
        ),
        "figures": f"median (quartiles) of {rounds} or more rounds in which rivals take turns",
    }


def load(cores: int) -> str:
    """How many processes want to run, where the system tells."""
    if not hasattr(os, "getloadavg"):
        return ""
    now = os.getloadavg()[0]
    return f", load {now:.1f}" + (": BUSY, expect noise" if now > 0.5 * cores else "")


def versions() -> list[str]:
    listed = [f"OpenCV {cv2.__version__}"]
    for name in PACKAGES:
        try:
            listed.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            listed.append(f"no {name}")
    return listed


def processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()

"""Timing that noise hits fairly: rivals take turns, and medians with quartiles are reported."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Work = Callable[[], Any]
Times = NDArray[np.float64]


class CannotMeasure(Exception):
    """This system does not have what a section needs; the message says what."""


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of repeated measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Any) -> "Spread":
        low, median, high = np.percentile(np.asarray(values, dtype=np.float64), [25, 50, 75])
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class Target:
    """What a result must reach: at least, or at most, a value in its unit."""

    value: float
    at_most: bool = False

    def met(self, result: Spread) -> bool:
        return result.median <= self.value if self.at_most else result.median >= self.value


@dataclass(frozen=True)
class Row:
    """One line of the table.

    result in `unit` ("x" is a ratio); against and kd_cv: the rival and kd_cv, in
    seconds, or in bytes if `of_bytes`; avx2: the result without AVX-512, if the machine has it.
    """

    name: str
    result: Spread
    unit: str = "x"
    against: Spread | None = None
    kd_cv: Spread | None = None
    target: Target | None = None
    note: str = ""
    of_bytes: bool = False
    avx2: Spread | None = None


def take_turns(
    works: Mapping[str, Work],
    rounds: int,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Times]:
    """Times of each work in `rounds` rounds, or as many as fit in `seconds` if those are more.

    In each round every work runs once, in turn forwards and backwards, so that what disturbs the
    machine disturbs all of them. One call of each comes first and is not counted.
    """
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    order = list(works.items())
    begin = time.perf_counter()
    while len(times[order[0][0]]) < rounds or time.perf_counter() - begin < seconds:
        for name, work in order:
            start = clock()
            work()
            times[name].append(clock() - start)
        order.reverse()
    return {name: np.array(values) for name, values in times.items()}


def ratio_row(name: str, against: Times, kd_cv: Times, **more: Any) -> Row:
    """How many times longer `against` takes, as the median over the rounds."""
    return Row(
        name,
        Spread.of(against / kd_cv),
        against=Spread.of(against),
        kd_cv=Spread.of(kd_cv),
        **more,
    )


@contextmanager
def threads(count: int) -> Iterator[None]:
    """OpenCV's threads, which are also those of kd_cv, held to `count`."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(count)
    try:
        yield
    finally:
        cv2.setNumThreads(before)

"""Sections on `KDDescriptor.compute`, against `cv2.SIFT.compute` on the same keypoints."""

from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.benchmarks.inputs import Config, Inputs
from experiments.benchmarks.measure import (
    CannotMeasure,
    Row,
    Spread,
    Target,
    Times,
    Work,
    ratio_row,
    take_turns,
    threads,
)
from experiments.benchmarks.report import Say
from kd_cv.parallel import cores
from kd_cv.types import KeyPoints

#: (keypoints, patch size) to how many times faster than SIFT one scale must be on all cores.
TARGETS = {(500, 32): 4.0, (4000, 32): 4.0, (20000, 32): 3.0, (4000, 64): 1.5}
SPEED_UP = 1.7  # from 1 to 2 threads


def sift(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """All cores and one; both patch sizes; one scale and three."""
    every = cores()
    settings = [(P, scales) for P in config.patch_sizes for scales in (1, 3)]
    for count in sorted({len(inputs.keypoints(count)) for count in config.keypoints}):
        keypoints = inputs.keypoints(count)
        for used in sorted({every, 1}, reverse=True):
            label = f"{count:,} keypoints, {_threads(used)}"
            say(label)
            works = {"sift": _sift(inputs, keypoints)}
            for P, scales in settings:
                works[f"{P} {scales}"] = _ours(inputs, keypoints, P, scales)
            with threads(used):
                times = take_turns(works, config.rounds, config.seconds)
            for P, scales in settings:
                wanted = TARGETS.get((count, P)) if (used, scales) == (every, 1) else None
                yield ratio_row(
                    f"{label}, P = {P}, {'1 scale' if scales == 1 else f'{scales} scales'}",
                    times["sift"],
                    times[f"{P} {scales}"],
                    target=None if wanted is None else Target(wanted),
                    note=_each(times[f"{P} {scales}"], count),
                )


def two_threads(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """Times on one thread over times on two."""
    if cores() < 2:
        raise CannotMeasure("this machine has one core")
    count = 4000 if 4000 in config.keypoints else max(config.keypoints)
    keypoints = inputs.keypoints(count)
    works = {f"P = {P}": _ours(inputs, keypoints, P) for P in config.patch_sizes}
    works["cv2.SIFT"] = _sift(inputs, keypoints)
    for name, work in works.items():
        say(name)
        both = {str(used): _with_threads(work, used) for used in (1, 2)}
        times = take_turns(both, config.rounds, config.seconds)
        target = None if name == "cv2.SIFT" else Target(SPEED_UP)
        label = f"{len(keypoints):,} keypoints, {name}"
        yield ratio_row(label, times["1"], times["2"], target=target)


def growth(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """Times of ever more keypoints of one mixture of sizes, and the line a + b n through them."""
    P = min(config.patch_sizes)
    most = inputs.keypoints(max(config.growth))
    shuffled = [most[i] for i in np.random.default_rng(0).permutation(len(most))]
    counts = np.array(sorted({min(count, len(most)) for count in config.growth}))
    works: dict[str, Work] = {}
    for n in counts:
        works[f"sift {n}"] = _sift(inputs, tuple(shuffled[:n]))
        works[f"kd {n}"] = _ours(inputs, tuple(shuffled[:n]), P)
    say(f"{counts[0]:,} to {counts[-1]:,} keypoints")
    with threads(cores()):
        times = take_turns(works, config.rounds, config.seconds)
    for n in counts:
        note = _each(times[f"kd {n}"], n)
        label = f"{n:,} keypoints, P = {P}"
        yield ratio_row(label, times[f"sift {n}"], times[f"kd {n}"], note=note)
    if len(counts) < 3:
        return
    # (counts, rounds), and a line for each round: (rounds, 2)
    kd_times, rival = (np.stack([times[f"{of} {n}"] for n in counts]) for of in ("kd", "sift"))
    kd_lines, rival_lines = (np.array([line(counts, t) for t in of.T]) for of in (kd_times, rival))
    parts = (("the constant a of a + b n", "ms", 1e3), ("each keypoint, b", "us", 1e6))
    for i, (name, unit, scale) in enumerate(parts):
        against, own = Spread.of(rival_lines[:, i]), Spread.of(kd_lines[:, i])
        yield Row(name, Spread.of(scale * kd_lines[:, i]), unit, against, own)
    medians = np.median(kd_times, axis=1)
    a, b = line(counts, medians)
    off = 100 * np.abs(a + b * counts - medians) / medians
    yield Row("largest distance of a median from the line", Spread.of([off.max()]), "%")


def line(n: NDArray[np.int64], t: Times) -> tuple[float, float]:
    """a and b of t = a + b n, by least squares of the relative errors."""
    columns = np.stack([np.ones(len(n)), n], axis=1)
    (a, b), *_ = np.linalg.lstsq(columns / t[:, None], np.ones(len(n)), rcond=None)
    return float(a), float(b)


def _sift(inputs: Inputs, keypoints: KeyPoints) -> Work:
    rival = cv2.SIFT_create()
    return lambda: rival.compute(inputs.image, keypoints)


def _ours(inputs: Inputs, keypoints: KeyPoints, P: int, scales: int = 1) -> Work:
    kd = inputs.descriptor(P, scales)
    return lambda: kd.compute(inputs.image, keypoints)


def _with_threads(work: Work, count: int) -> Work:
    def run() -> None:
        with threads(count):
            work()

    return run


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _each(times: Times, count: int) -> str:
    return f"{1e6 * np.median(times) / count:.1f} us a keypoint"

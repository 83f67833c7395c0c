"""Time each stage of the detector, beside its floor.

A detection runs on one thread with a clock around each of its parts. The floor of a part is what
it cannot do without: OpenCV's blurs of the same images by the same taps, one copy of all
differences for their scan, arithmetic at the rate of a matrix product for the fit and the
gradients, as many empty keypoints for those that are handed out.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.benchmarks.detect import of_size
from experiments.benchmarks.fresh import in_new_process
from experiments.benchmarks.inputs import Config, Inputs
from experiments.benchmarks.measure import Row, Spread, Times, Work, threads
from experiments.benchmarks.report import Say
from experiments.benchmarks.stages import ONE_THREAD, operations
from kd_cv.detector import compiled, detect, orientation
from kd_cv.detector.detect import Detections
from kd_cv.detector.scale_space import STEPS, ScaleSpace
from kd_cv.keypoints import to_keypoints
from kd_cv.opencv.kd_descriptor import KDDescriptor

#: The functions that are timed, none of them inside another.
PARTS: dict[str, tuple[Any, str]] = {
    "deviation of the image": (detect, "gain_of"),
    "blurs and differences": (compiled, "blur"),
    "scan for candidates": (compiled, "scan"),
    "fit": (compiled, "fit"),
    "doubles": (detect, "_distinct"),
    "gradients around keypoints": (orientation, "describe_frames"),
    "angles": (compiled, "turn"),
}
#: Of one candidate in one of Newton's steps: weights of the samples 276, sums along x 450, along y
#: 180 and along the scales 60, the step itself 60.
FIT_OPERATIONS = 1026


def stages(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    say("rate of a matrix product")
    rate = in_new_process("matrix_rate", ONE_THREAD, side=1024, rounds=10 + config.rounds)["rate"]
    for height, width, count in config.images:
        label = f"{width} x {height}, {f'{count:,}' if count else 'all'}"
        say(label)
        with threads(1):
            yield from _rows(
                of_size(inputs.image, height, width), count, label, rate, 3 * config.rounds
            )


def _rows(
    image: NDArray[np.uint8], count: int, label: str, rate: float, rounds: int
) -> Iterator[Row]:
    space = KDDescriptor(count).detection.space
    detected = detect.detect(image, space, count=count)
    places = len(np.unique(detected.frames[:, :3], axis=0))
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        start = time.perf_counter()
        with _clocks() as (seconds, results):
            detect.detect(image, space, count=count)
        whole = time.perf_counter() - start
        for name in PARTS:
            taken[name].append(seconds[name])
        taken["all else"].append(whole - sum(seconds.values()))
    taken["cv2.KeyPoint objects"] = _times(lambda: to_keypoints(*detected), rounds)
    candidates = sum(results["scan for candidates"])
    operations_each = sum(operations(orientation.Orientation(), 0).values())
    floors = {
        "blurs and differences": min(_times(lambda: _blurs(image, space), rounds)),
        "scan for candidates": min(_times(_copy_of_differences(image, space), rounds)),
        "fit": (STEPS + 1) * candidates * FIT_OPERATIONS / rate,
        "gradients around keypoints": places * operations_each / rate,
        "cv2.KeyPoint objects": min(_times(lambda: _empty_keypoints(detected), rounds)),
    }
    total = np.sum(list(taken.values()), axis=0)
    for name, times in taken.items():
        note = f"{np.median(times / total):.0%} of detect"
        yield _row(f"{label}: {name}", np.array(times), floors.get(name), note)
    note = f"{candidates:,} candidates, {len(detected.frames):,} keypoints"
    yield _row(f"{label}: detect", total, None, note)


def _row(name: str, times: Times, floor: float | None, note: str) -> Row:
    if floor is None:
        return Row(name, Spread.of(1e3 * times), "ms", kd_cv=Spread.of(times), note=note)
    return Row(name, Spread.of(times / floor), "x", Spread.of([floor]), Spread.of(times), note=note)


@contextmanager
def _clocks() -> Iterator[tuple[dict[str, float], dict[str, list[Any]]]]:
    """Seconds in each of the parts, and what its calls returned, while the block lasts."""
    seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    results: dict[str, list[Any]] = {name: [] for name in PARTS}
    originals = {name: getattr(*place) for name, place in PARTS.items()}

    def clocked(name: str) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = originals[name](*args, **options)
            seconds[name] += time.perf_counter() - start
            results[name].append(result)
            return result

        return run

    for name, place in PARTS.items():
        setattr(*place, clocked(name))
    try:
        yield seconds, results
    finally:
        for name, place in PARTS.items():
            setattr(*place, originals[name])


def _times(work: Work, rounds: int) -> list[float]:
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def _octaves(image: NDArray[np.uint8], space: ScaleSpace) -> Iterator[tuple[int, int]]:
    height, width = image.shape
    for _ in range(space.octaves(image.shape)):
        yield height, width
        height, width = (height + 1) // 2, (width + 1) // 2


def _blurs(image: NDArray[np.uint8], space: ScaleSpace) -> None:
    """All levels of all octaves by OpenCV."""
    level = cv2.sepFilter2D(image, cv2.CV_32F, space.taps[0], space.taps[0])
    for _ in _octaves(image, space):
        first = level
        for i, taps in enumerate(space.taps[1:], 1):
            level = cv2.sepFilter2D(level, cv2.CV_32F, taps, taps)
            if i == space.layers:
                first = np.ascontiguousarray(level[::2, ::2])
        level = first


def _copy_of_differences(image: NDArray[np.uint8], space: ScaleSpace) -> Work:
    """One pass over as many numbers as all differences have."""
    count = (space.layers + 2) * sum(h * w for h, w in _octaves(image, space))
    source, target = np.zeros(count, np.float32), np.zeros(count, np.float32)
    return lambda: np.copyto(target, source)


def _empty_keypoints(detected: Detections) -> tuple[cv2.KeyPoint, ...]:
    return tuple([cv2.KeyPoint() for _ in range(len(detected.frames))])

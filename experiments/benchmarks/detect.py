"""Sections on `detect` and `detectAndCompute`, against OpenCV's features on the same image."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.benchmarks.fresh import MEGABYTE, check_proc, in_new_process
from experiments.benchmarks.inputs import Config, Inputs
from experiments.benchmarks.measure import Row, Spread, Target, Work, ratio_row, take_turns, threads
from experiments.benchmarks.report import Say
from kd_cv.cli.pair import opencv_factory
from kd_cv.opencv.kd_descriptor import KDDescriptor
from kd_cv.parallel import cores

#: (height, keypoints asked for) to how many times faster than SIFT all cores must be; 0 is all.
TARGETS = {
    "detect": {(1024, 2000): 8.0, (1024, 0): 8.0},
    "compute": {},
    "detectAndCompute": {
        (480, 2000): 3.0,
        (1024, 2000): 5.0,
        (1024, 0): 4.5,
        (3000, 8000): 8.0,
    },
}
MEMORY = 4.0  # of cv2.SIFT's over kd_cv


def detector(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """All cores and one; two sizes of images, some keypoints and all."""
    for height, width, count in config.images:
        yield from _of_image(inputs, (height, width), count, config.rounds, config.seconds, say)


def large(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    for height, width, count in config.large_images:
        yield from _of_image(inputs, (height, width), count, config.large_rounds, 0.0, say)


def features_of(count: int) -> dict[str, Any]:
    """Features of kd_cv and this OpenCV that detect `count` keypoints, or all."""
    features = {
        "KD": KDDescriptor(count),
        "cv2.SIFT": cv2.SIFT_create(count),
        "cv2.ORB": cv2.ORB_create(count or 10**6),
    }
    make_akaze = opencv_factory("AKAZE_create")
    if make_akaze:
        features["cv2.AKAZE"] = akaze = make_akaze()
        if count and hasattr(akaze, "setMaxPoints"):
            akaze.setMaxPoints(count)
    return features


def _of_image(
    inputs: Inputs,
    shape: tuple[int, int],
    count: int,
    rounds: int,
    seconds: float,
    say: Say,
) -> Iterator[Row]:
    height, width = shape
    image = of_size(inputs.image, height, width)
    features = features_of(count)
    keypoints = {name: feature.detect(image, None) for name, feature in features.items()}
    found = ", ".join(f"{name} {len(own):,}" for name, own in keypoints.items())
    for used in sorted({cores(), 1}, reverse=True):
        label = f"{width} x {height}, {f'{count:,}' if count else 'all'}"
        label += f", {used} thread{'s' if used > 1 else ''}"
        say(label)
        works: dict[str, Work] = {}
        for name, feature in features.items():
            works[f"{name} detect"] = _detect(feature, image)
            works[f"{name} compute"] = _compute(feature, image, keypoints[name])
            works[f"{name} detectAndCompute"] = _both(feature, image)
        with threads(used):
            times = take_turns(works, rounds, seconds)
        for rival in list(features)[1:]:
            for call, targets in TARGETS.items():
                wanted = rival == "cv2.SIFT" and used == cores() > 1
                target = targets.get((height, count)) if wanted else None
                yield ratio_row(
                    f"{rival}, {call}, {label}",
                    times[f"{rival} {call}"],
                    times[f"KD {call}"],
                    target=None if target is None else Target(target),
                    note=found,
                )


def detector_memory(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """Peak of detectAndCompute of the largest image, above what was there before."""
    check_proc()
    height, width, count = next(image for image in config.large_images[::-1] if image[2])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image.npy"
        np.save(path, of_size(inputs.image, height, width))
        peaks = {}
        for name in ("sift", "kd"):
            say(name)
            answer = in_new_process("detect_memory", path=str(path), name=name, count=count)
            peaks[name] = Spread.of([answer["peak"]])
    yield Row(
        f"cv2.SIFT / KD, {width} x {height}, {count:,} keypoints",
        Spread.of([peaks["sift"].median / peaks["kd"].median]),
        against=peaks["sift"],
        kd_cv=peaks["kd"],
        target=Target(MEMORY),
        note=f"{peaks['kd'].median / MEGABYTE:.0f} MB",
        of_bytes=True,
    )


def of_size(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """A photograph of this size: shrunk if it is larger, laid out several times if smaller."""
    shrink = max(height / image.shape[0], width / image.shape[1])
    if shrink < 1:
        image = cv2.resize(image, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA)
    times = -(-height // image.shape[0]), -(-width // image.shape[1])
    return np.ascontiguousarray(np.tile(image, times)[:height, :width])


def _detect(feature: Any, image: NDArray[np.uint8]) -> Work:
    return lambda: feature.detect(image, None)


def _compute(feature: Any, image: NDArray[np.uint8], keypoints: Any) -> Work:
    return lambda: feature.compute(image, keypoints)


def _both(feature: Any, image: NDArray[np.uint8]) -> Work:
    return lambda: feature.detectAndCompute(image, None)

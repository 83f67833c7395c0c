"""Huge images and a million keypoints: time, memory, and whether the rows are right.

    python tests/robust/large.py

Takes minutes and gigabytes. The exit code is 0 only if every row has norm 1 or 0, and points that
look alike have rows that are alike.
"""

import contextlib
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from hostile import IMAGE, POINTS

from kd_cv import KDDescriptor
from kd_cv.keypoints import to_keypoints


def large() -> bool:
    """Huge images and a million keypoints: time, and the largest memory of the process so far."""
    kd = KDDescriptor()
    kd.compute(IMAGE, POINTS)
    print(f"{'':46s}{'rows':>10s}{'seconds':>9s}{'peak':>9s}")
    behaved = []

    def step(name: str, image: np.ndarray, points: Any, test: Callable[[np.ndarray], bool]) -> None:
        start = time.perf_counter()
        _, rows = kd.compute(image, points)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        norms = np.sqrt(np.einsum("n d, n d -> n", rows, rows))
        good = bool(np.all((norms == 0) | (np.abs(norms - 1) < 1e-4))) and test(rows)
        behaved.append(good)
        print(f"{name:46s}{len(rows):10,}{seconds:9.2f}{peak:6.2f} GB{'' if good else '  WRONG'}")

    def everywhere(height: int, width: int, count: int, largest: float) -> np.ndarray:
        own = np.random.default_rng(1)
        xy = own.uniform(-50, (width + 50, height + 50), (count, 2))
        size = np.exp(own.uniform(0, np.log(largest), count))
        return np.column_stack([xy, size, own.uniform(0, 360, count)])

    tile = cv2.resize(IMAGE, (500, 500), interpolation=cv2.INTER_CUBIC)

    def tiled(height: int, width: int) -> np.ndarray:
        image = np.empty((height, width), np.uint8)
        for top in range(0, height, 500):
            row = image[top : top + 500]
            for left in range(0, width, 500):
                block = row[:, left : left + 500]
                block[:] = tile[: block.shape[0], : block.shape[1]]
        return image

    def repeated(height: int, width: int) -> np.ndarray:
        """The same point of the first tile and of tiles far away."""
        offsets = [(0, 0), (height // 500 - 2, 0), (0, width // 500 - 2),
                   (height // 500 - 2, width // 500 - 2)]  # fmt: skip
        return np.array([[740.0 + 500 * j, 750.0 + 500 * i, 3.0, 30.0] for i, j in offsets])

    def alike(rows: np.ndarray) -> bool:
        return bool(rows.any()) and bool(np.abs(rows - rows[0]).max() < 1e-3)

    def most(rows: np.ndarray) -> bool:
        return rows.any(axis=1).mean() > 0.9

    image = tiled(20_000, 20_000)
    step("20,000 x 20,000, the same point 4 times", image, to_keypoints(
        repeated(20_000, 20_000)
    ), alike)  # fmt: skip
    frames = everywhere(20_000, 20_000, 100_000, 3000.0)
    step("20,000 x 20,000, sizes to 3,000", image, to_keypoints(frames), most)
    million = everywhere(20_000, 20_000, 1_000_000, 60.0)
    step("20,000 x 20,000, a million keypoints", image, to_keypoints(million), most)
    del image
    step("60 x 80, a million keypoints", IMAGE, to_keypoints(
        everywhere(60, 80, 1_000_000, 8.0)
    ), lambda rows: bool(rows.any()))  # fmt: skip
    for name, row in (("1 x 1,000,000", tile[:1]), ("1,000,000 x 1", tile[:, :1])):
        line = np.tile(row, (1, 2000) if len(row) == 1 else (2000, 1))
        step(name, line, to_keypoints(everywhere(*line.shape, 10_000, 3000.0)), lambda rows: True)
    line = np.tile(tile[:1], (1, 33_000))
    step(f"1 x {line.shape[1]:,}", line, to_keypoints(
        everywhere(*line.shape, 10_000, 1e6)
    ), lambda rows: True)  # fmt: skip
    free = available_memory()
    if free > 8:
        image = tiled(47_000, 47_000)  # more than 2^31 pixels
        step("47,000 x 47,000, the same point 4 times", image, to_keypoints(
            repeated(47_000, 47_000)
        ), alike)  # fmt: skip
        frames = everywhere(47_000, 47_000, 20_000, 3000.0)
        step("47,000 x 47,000, sizes to 3,000", image, to_keypoints(frames), most)
    else:
        print(f"47,000 x 47,000: left out, only {free:.1f} GB of memory are free")
    return all(behaved)


def available_memory() -> float:
    """In GB, as Linux reckons it; 0 elsewhere."""
    with contextlib.suppress(OSError):
        found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
        return int(found[1]) / 2**20 if found else 0.0
    return 0.0


if __name__ == "__main__":
    raise SystemExit(0 if large() else 1)

"""What must be measured in a new process. Run as a script, it prints one JSON object.

python child.py TASK JSON-ARGUMENTS

Nothing of kd_cv is imported before the clock runs; that is why it is not run as a module.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


class Clock:
    """Seconds, and processor seconds of all threads, since it was made."""

    def __init__(self) -> None:
        self.start = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        now = time.perf_counter(), time.process_time()
        return {"seconds": now[0] - self.start[0], "processor": now[1] - self.start[1]}


def import_time() -> dict[str, float]:
    """Seconds until `KDDescriptor` is there, where numpy and cv2 are already."""
    import cv2  # noqa: F401
    import numpy  # noqa: F401

    clock = Clock()
    from kd_cv import KDDescriptor  # noqa: F401

    return clock.read()


def first_call(folder: str, count: int) -> dict[str, float]:
    """Seconds of constructing a `KDDescriptor` and its first `compute`, and of the second."""
    import numpy as np

    import kd_cv
    from kd_cv.keypoints import to_keypoints

    with np.load(Path(folder) / "inputs.npz") as inputs:
        image, keypoints = inputs["image"], to_keypoints(inputs["frames"][:count])
    clock = Clock()
    kd = kd_cv.KDDescriptor()
    kd.compute(image, keypoints)
    first, clock = clock.read(), Clock()
    kd.compute(image, keypoints)
    return {**first, "second": clock.read()["seconds"]}


def matrix_rate(side: int, rounds: int) -> dict[str, float]:
    """Best rate of a float32 matrix product, in operations a second of one core."""
    import numpy as np

    rng = np.random.default_rng(0)
    a, b = rng.random((2, side, side), dtype=np.float32)
    out = a @ b
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        np.matmul(a, b, out=out)
        best = min(best, time.process_time() - start)
    return {"rate": 2 * side**3 / best}


def compute_memory(folder: str, count: int) -> dict[str, float]:
    """Bytes that `compute` needs at its peak beyond what was there and what it returns.

    `once` is what the first call leaves behind: Numba, compiled code, constants.
    """
    import cv2  # noqa: F401
    import numpy as np

    with np.load(Path(folder) / "inputs.npz") as inputs:
        image, frames = inputs["image"], inputs["frames"]
    before = resident("VmRSS")
    from kd_cv import KDDescriptor
    from kd_cv.keypoints import to_keypoints

    kd = KDDescriptor()
    kd.compute(image, to_keypoints(frames[:100]))  # few: freed memory may stay with the process
    once = resident("VmRSS") - before
    keypoints = to_keypoints(np.resize(frames, (count, frames.shape[1])))
    reset_peak()
    before = resident("VmRSS")
    copies, rows = kd.compute(image, keypoints)
    output = rows.nbytes + sys.getsizeof(copies) + sum(map(sys.getsizeof, copies))
    peak = resident("VmHWM") - before
    return {"peak": peak - output, "output": output, "once": once}


def detect_memory(path: str, name: str, count: int) -> dict[str, float]:
    """Bytes that `detectAndCompute` of an image needs at its peak beyond what was there."""
    import cv2
    import numpy as np

    from kd_cv import KDDescriptor

    image = np.load(path)
    feature = KDDescriptor(count) if name == "kd" else cv2.SIFT_create(count)
    feature.detectAndCompute(image[:200, :200], None)  # one-time allocations
    reset_peak()
    before = resident("VmRSS")
    feature.detectAndCompute(image, None)
    return {"peak": resident("VmHWM") - before}


def callers_memory(name: str, callers: int) -> dict[str, float]:
    """Bytes of a process at its peak, in which as many threads call the same at once, twice."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    from experiments.benchmarks.callers import call

    call(name)
    together = Barrier(callers)

    def work(_: int) -> None:
        together.wait()
        call(name)

    reset_peak()
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(work, range(2 * callers)))
    return {"peak": resident("VmHWM")}


def callers_faults(name: str, calls: int = 20) -> dict[str, float]:
    """New pages that a call on one thread asks the system for."""
    import resource

    import cv2

    from experiments.benchmarks.callers import call

    cv2.setNumThreads(1)
    for _ in range(3):
        call(name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(calls):
        call(name)
    return {"faults": (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / calls}


def module_memory(rival: bool, gradients: bool, patch_size: int, batch: int) -> dict[str, float]:
    """Bytes that a torch module needs at its peak, by plain torch operations."""
    import torch

    from experiments.benchmarks.modules import kornia_mkd, plain_module

    module = kornia_mkd(patch_size) if rival else plain_module(patch_size)
    patches = torch.rand(batch, 1, patch_size, patch_size, requires_grad=gradients)
    with torch.set_grad_enabled(gradients):
        for part in (patches[:2], patches):  # a small one first, for one-time allocations
            reset_peak()
            before = resident("VmRSS")
            rows = module(part)
            if gradients:
                rows.square().sum().backward()
    return {"peak": resident("VmHWM") - before}


def resident(field: str) -> int:
    """Bytes of this process in memory, now (VmRSS) or at most (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise OSError(f"no {field} in /proc/self/status")


def reset_peak() -> None:
    """Begin anew with VmHWM."""
    Path("/proc/self/clear_refs").write_text("5")


TASKS: tuple[Any, ...] = (
    import_time,
    first_call,
    matrix_rate,
    compute_memory,
    detect_memory,
    callers_memory,
    callers_faults,
    module_memory,
)

if __name__ == "__main__":
    # This folder is no place to import from; the packages are found as the caller found them.
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    task = next(task for task in TASKS if task.__name__ == sys.argv[1])
    print(json.dumps(task(**json.loads(sys.argv[2]))))

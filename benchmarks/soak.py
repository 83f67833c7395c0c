"""Does it stay the same for hours? python -m benchmarks soak --minutes 5

Threads of one process, processes forked from one that has computed already, and fresh (spawned)
processes call `compute`, `describe` and `match` on images of many sizes and types, in random order.
Every result is compared, bit for bit, with the first one. The memory of the two long-lived
processes is sampled all the while. Exit code 1 if a result differs, a process dies or hangs, or
memory grows by more than MAX_GROWTH after the warm-up.
"""

import argparse
import hashlib
import multiprocessing as mp
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty
from statistics import median
from typing import Any

import cv2
import numpy as np
import skimage.data
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from kd_cv import KDDescriptor, describe, match

MAX_GROWTH = 48  # MB from the end of the warm-up to the end
WARM_UP = 0.25  # of the time: allocators and caches fill up
CALLS = 40  # of a short-lived process
PATIENCE = 180  # seconds for them
THREADS = 2

Job = Callable[[], bytes]


# ----------------------------------------------------------------------------------------- the jobs


def make_jobs() -> dict[str, Job]:
    """Name -> a call that gives a digest of all it returned."""
    photo = np.ascontiguousarray(skimage.data.astronaut()[:, :, ::-1])
    gray = cv2.cvtColor(photo, cv2.COLOR_BGR2GRAY)
    images = {
        "small": cv2.resize(gray, (160, 120)),
        "bgr": cv2.resize(photo, (640, 480)),
        "float": gray.astype(np.float32) / 255,
        "uint16": gray.astype(np.uint16) * 257,
        "large": cv2.resize(gray, (2000, 1500)),
        "row": np.ascontiguousarray(gray[200:201]),
        "strided": cv2.resize(gray, (900, 700))[::2, ::3],
    }
    descriptors = {
        "default": KDDescriptor(),
        "scales": KDDescriptor(scales=3, drop=True),
        "bytes": KDDescriptor(descriptor_type=cv2.CV_8U, upright=True),
        "raw": KDDescriptor(patch_size=64, whitening=None),
    }
    jobs: dict[str, Job] = {}
    for name, image in images.items():
        keypoints = _keypoints(image)
        for kind, kd in descriptors.items():
            jobs[f"compute {name} {kind}"] = partial(_computed, kd, image, keypoints)
    patches = np.stack([gray[y : y + 32, x : x + 32] for y in range(0, 480, 24) for x in (9, 200)])
    larger = np.stack([cv2.resize(patch, (64, 64)) for patch in patches]).astype(np.float32)
    jobs["describe 32"] = lambda: _digest(describe(patches))
    jobs["describe 64"] = lambda: _digest(describe(larger, whitening="wua", dim=64))
    jobs["describe none"] = lambda: _digest(describe(patches[:0]))
    turned = cv2.warpAffine(gray, cv2.getRotationMatrix2D((256, 256), 20, 0.9), (512, 512))
    for kind in ("kd", "rootsift"):
        jobs[f"match {kind}"] = partial(_matched, gray, turned, kind)
    jobs["match different sizes"] = lambda: _matched(images["bgr"], images["small"], "kd")
    return jobs


def _keypoints(image: Any) -> list[cv2.KeyPoint]:
    height, width = image.shape[:2]
    rng = np.random.default_rng(0)
    count = 20 if height == 1 else 3000 if width == 2000 else 300
    x, y = rng.uniform(0, width, count), rng.uniform(0, height, count)
    size, angle = rng.uniform(1, 20, count), rng.uniform(0, 360, count)
    odd = [cv2.KeyPoint(-100, 5, 3), cv2.KeyPoint(5, 5, float("nan")), cv2.KeyPoint(3, 0, 0)]
    return [cv2.KeyPoint(*row) for row in np.stack([x, y, size, angle], axis=1).tolist()] + odd


def _described(kd: KDDescriptor, image: Any, keypoints: list[cv2.KeyPoint]) -> tuple[Any, Any]:
    copies, rows = kd.compute(image, keypoints)
    return cv2.KeyPoint.convert(copies), rows


def _computed(kd: KDDescriptor, image: Any, keypoints: list[cv2.KeyPoint]) -> bytes:
    return _digest(*_described(kd, image, keypoints))


def _matched(image0: Any, image1: Any, kind: str) -> bytes:
    found = match(image0, image1, kind, max_keypoints=600)
    return _digest(found.matches, found.ratios, found.inliers, found.H_0to1)


def _digest(*arrays: Any) -> bytes:
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            array = np.ascontiguousarray(array)
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.digest()


def check(jobs: dict[str, Job], first: dict[str, bytes], rng: random.Random) -> str | None:
    """Call a job of the rng's choice; its name if the result is not the first one."""
    name = rng.choice(list(jobs))
    return None if jobs[name]() == first[name] else name


# -------------------------------------------------------------------------------- the processes


def resident() -> float:
    """Memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def on_threads(first: dict[str, bytes], end: float, told: Any) -> None:
    """A process whose threads call at the same time."""
    jobs = make_jobs()

    def loop(seed: int) -> None:
        for name, job in jobs.items():  # the warm-up has seen everything
            told.put(("threads", 1, None if job() == first[name] else name, None))
        rng = random.Random(seed)
        while time.time() < end:
            told.put(("threads", 1, check(jobs, first, rng), None))

    workers = [threading.Thread(target=loop, args=(k,)) for k in range(THREADS)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        told.put(("threads", 0, None, resident()))
        time.sleep(1)
    told.put(("threads", 0, None, resident()))


def on_forks(first: dict[str, bytes], end: float, told: Any) -> None:
    """A process that computes, then forks one that computes, and so on."""
    jobs = make_jobs()
    fork = mp.get_context("fork")
    rng = random.Random(0)
    while time.time() < end:
        for _ in range(5):
            told.put(("forking", 1, check(jobs, first, rng), None))
        told.put(("forking", 0, None, resident()))
        child = fork.Process(target=short, args=(first, rng.random(), end, jobs))
        child.start()
        told.put(("forked", *ended(child), None))


def short(
    first: dict[str, bytes], seed: float, end: float, jobs: dict[str, Job] | None = None
) -> None:
    """A short life: some calls; the exit code is 1 if a result differs."""
    jobs = jobs or make_jobs()
    rng = random.Random(seed)
    calls = range(CALLS)
    differ = [name for _ in calls if time.time() < end and (name := check(jobs, first, rng))]
    os._exit(1 if differ else 0)


def ended(process: Any) -> tuple[int, str | None]:
    """Calls of a short-lived process, and what was wrong with it."""
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        return 0, f"no end after {PATIENCE} s"
    if process.exitcode == 1:
        return CALLS, "a result differs"
    return CALLS, f"ended with code {process.exitcode}" if process.exitcode else None


# -------------------------------------------------------------------------------------- the soak


@dataclass
class Lane:
    """What is known of one kind of process."""

    calls: int = 0
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)  # (seconds, MB)

    def growth(self, warm: float) -> tuple[float, float, float] | None:
        """MB at the start, after the warm-up and at the end: medians of a few samples."""
        late = [mb for at, mb in self.memory if at >= warm]
        if len(late) < 6:
            return None
        return self.memory[0][1], median(late[:5]), median(late[-5:])


def soak(minutes: float) -> int:
    spawn = mp.get_context("spawn")
    jobs = make_jobs()
    first = {name: job() for name, job in jobs.items()}
    again = [name for name, job in jobs.items() if job() != first[name]]
    if again:
        print(f"not even twice the same: {', '.join(again)}")
        return 1
    lanes = {name: Lane() for name in ("threads", "forking", "forked", "spawned")}
    told = spawn.Queue()
    start = time.time()
    end = start + 60 * minutes
    long_lived = [
        spawn.Process(target=target, args=(first, end, told), daemon=target is on_threads)
        for target in (on_threads, on_forks)
    ]
    for process in long_lived:
        process.start()
    fresh, seed = None, 0
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("soaking", total=60 * minutes)
        while time.time() < end or any(process.is_alive() for process in long_lived):
            if time.time() > end + 2 * PATIENCE:
                lanes["threads"].wrong.append("no end")
                break
            if fresh is None and time.time() < end:
                seed += 1
                fresh = spawn.Process(target=short, args=(first, seed, end))
                fresh.start()
            elif fresh is not None and not fresh.is_alive():
                _note(lanes["spawned"], *ended(fresh))
                fresh = None
            _listen(told, lanes, start)
            calls = sum(lane.calls for lane in lanes.values())
            progress.update(
                task, completed=min(time.time() - start, 60 * minutes),
                description=f"soaking: {calls} calls",
            )  # fmt: skip
    if fresh is not None:
        _note(lanes["spawned"], *ended(fresh))
    _listen(told, lanes, start)
    for process in long_lived:
        process.join(PATIENCE)
        if process.exitcode != 0:
            lanes["threads"].wrong.append(f"a process ended with code {process.exitcode}")
    return report(lanes, minutes)


def _listen(told: Any, lanes: dict[str, Lane], start: float) -> None:
    until = time.time() + 0.5
    while time.time() < until:
        try:
            name, calls, wrong, memory = told.get(timeout=0.2)
        except Empty:
            continue
        _note(lanes[name], calls, wrong)
        if memory is not None:
            lanes[name].memory.append((time.time() - start, memory))


def _note(lane: Lane, calls: int, wrong: str | None) -> None:
    lane.calls += calls
    if wrong:
        lane.wrong.append(wrong)


def report(lanes: dict[str, Lane], minutes: float) -> int:
    """Print what was found; the exit code."""
    failed = False
    print(f"{minutes:g} minutes, {sum(lane.calls for lane in lanes.values())} calls")
    for name, lane in lanes.items():
        wrong = f", wrong: {sorted(set(lane.wrong))}" if lane.wrong else ", all results equal"
        print(f"{name}: {lane.calls} calls{wrong}")
        failed |= bool(lane.wrong)
        memory = lane.growth(WARM_UP * 60 * minutes)
        if memory is None:
            continue
        begun, warm, last = memory
        too_much = last - warm > MAX_GROWTH
        failed |= too_much
        print(
            f"{name}: {begun:.0f} MB at the start, {warm:.0f} MB after the warm-up, "
            f"{last:.0f} MB at the end: {last - warm:+.1f} MB, at most {MAX_GROWTH} allowed"
            + (", TOO MUCH" if too_much else "")
        )
    return int(failed)


def main(arguments: Sequence[str]) -> int:
    """Run it with these arguments of the command line; the exit code."""
    parser = argparse.ArgumentParser(
        "soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    args = parser.parse_args(arguments)
    if not args.minutes > 0:
        parser.error(f"--minutes must be positive, got {args.minutes:g}")
    return soak(args.minutes)

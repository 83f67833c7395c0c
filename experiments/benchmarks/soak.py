"""Does it stay the same for hours? python -m experiments soak --minutes 5

Threads of one process, processes forked from one that has computed already, and fresh (spawned)
processes call `detect`, `compute`, `detectAndCompute`, `describe` and `match` with every model, on
images of many sizes and types, in random order. Every result is compared, bit for bit, with the
first one. The memory of the two long-lived processes is sampled all the while, and what they hold
is counted when their warm-up is over and once more at the end: open files, threads, child
processes. Exit code 1 if a result differs, a process dies or hangs, memory grows by more than
MAX_GROWTH after the warm-up, or anything is left behind.
"""

import argparse
import multiprocessing as mp
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from statistics import median
from typing import Any, NamedTuple

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.benchmarks.child import resident
from experiments.benchmarks.jobs import Job, check, make_jobs

MAX_GROWTH = 48  # MB from the end of the warm-up to the end
WARM_UP = 0.25  # of the time: allocators and caches fill up
CALLS = 40  # of a short-lived process
PATIENCE = 600  # seconds for them, beside whatever else the machine does
THREADS = 2


class Held(NamedTuple):
    """What a process holds."""

    files: int
    threads: int
    children: int


class Told(NamedTuple):
    """What a long-lived process says of a lane; memory in MB."""

    lane: str
    calls: int = 0
    wrong: str | None = None
    memory: float | None = None
    held: Held | None = None


def held() -> Held:
    here = Path("/proc/self")
    tasks = list((here / "task").iterdir())
    children = sum(len((task / "children").read_text().split()) for task in tasks)
    return Held(len(list((here / "fd").iterdir())), len(tasks), children)


def memory() -> float:
    """Memory of this process in MB."""
    return resident("VmRSS") / 2**20


# -------------------------------------------------------------------------------- the processes


def on_threads(first: dict[str, bytes], end: float, told: Any) -> None:
    """A process whose threads call at the same time."""
    jobs = make_jobs()

    def all_jobs(seed: int) -> None:
        for name, job in jobs.items():
            told.put(Told("threads", 1, None if job() == first[name] else name))

    def some_jobs(seed: int) -> None:
        rng = random.Random(seed)
        while time.time() < end:
            told.put(Told("threads", 1, check(jobs, first, rng)))

    def at_once(loop: Callable[[int], None]) -> None:
        workers = [threading.Thread(target=loop, args=(k,)) for k in range(THREADS)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            told.put(Told("threads", memory=memory()))
            time.sleep(1)
        told.put(Told("threads", memory=memory(), held=held()))

    at_once(all_jobs)  # the warm-up has seen everything
    at_once(some_jobs)


def on_forks(first: dict[str, bytes], end: float, told: Any) -> None:
    """A process that computes, then forks one that computes, and so on."""
    jobs = make_jobs()
    fork = mp.get_context("fork")
    rng = random.Random(0)
    for name, job in jobs.items():
        told.put(Told("forking", 1, None if job() == first[name] else name))
    while True:
        told.put(Told("forking", memory=memory(), held=held()))
        if time.time() > end:
            return
        for _ in range(5):
            told.put(Told("forking", 1, check(jobs, first, rng)))
        child = fork.Process(target=short, args=(first, rng.random(), end, jobs))
        child.start()
        told.put(Told("forked", *ended(child)))


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
    """Calls of a short-lived process, and what was wrong with it; what it held is given back."""
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()
        return 0, f"no end after {PATIENCE} s"
    code = process.exitcode
    process.close()
    if code == 1:
        return CALLS, "a result differs"
    return CALLS, f"ended with code {code}" if code else None


# -------------------------------------------------------------------------------------- the soak


@dataclass
class Lane:
    """What is known of one kind of process."""

    calls: int = 0
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)  # (seconds, MB)
    held: list[tuple[float, Held]] = field(default_factory=list)

    def growth(self, warm: float) -> tuple[float, float, float] | None:
        """MB at the start, after the warm-up and at the end: medians of a few samples."""
        every_job_done = self.held[0][0] if self.held else 0.0
        late = [mb for at, mb in self.memory if at >= max(warm, every_job_done)]
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
            news: Told = told.get(timeout=0.2)
        except Empty:
            continue
        lane = lanes[news.lane]
        _note(lane, news.calls, news.wrong)
        if news.memory is not None:
            lane.memory.append((time.time() - start, news.memory))
        if news.held is not None:
            lane.held.append((time.time() - start, news.held))


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
        megabytes = lane.growth(WARM_UP * 60 * minutes)
        if megabytes is not None:
            begun, warm, last = megabytes
            too_much = last - warm > MAX_GROWTH
            failed |= too_much
            print(
                f"{name}: {begun:.0f} MB at the start, {warm:.0f} MB after the warm-up, "
                f"{last:.0f} MB at the end: {last - warm:+.1f} MB, at most {MAX_GROWTH} allowed"
                + (", TOO MUCH" if too_much else "")
            )
        if lane.held:
            (_, before), (_, after) = lane.held[0], lane.held[-1]
            left = any(b > a for a, b in zip(before, after, strict=True))
            failed |= left
            print(
                f"{name}: {_say(before)} after the warm-up, {_say(after)} at the end"
                + (": LEFT BEHIND" if left else ": nothing left behind")
            )
    return int(failed)


def _say(held: Held) -> str:
    return ", ".join(f"{count} {name}" for name, count in held._asdict().items())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    args = parser.parse_args(arguments)
    if not args.minutes > 0:
        parser.error(f"--minutes must be positive, got {args.minutes:g}")
    return soak(args.minutes)

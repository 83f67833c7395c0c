"""Many callers at once: python -m experiments callers

`compute` and `detectAndCompute` of one image, called by threads of one process, by processes, by
workers of torch's DataLoader and of Dask, none of which is told how many threads to use but those
that `kd-cv extract --scheduler local` starts. How many calls a second they reach together, as a
fraction of the best single caller's (on one thread or on all cores) just before; whether every call
gives the same bits; and what memory each caller takes. No two kinds of callers are there at the
same time: Dask's workers take time when they have nothing to do, and leave an environment behind in
which others are slower. Exit code 1 if a result differs.
"""

import argparse
import multiprocessing as mp
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from typing import Any

import numpy as np

from experiments.benchmarks.fresh import MEGABYTE, check_proc, in_new_process
from experiments.benchmarks.inputs import load_inputs
from experiments.benchmarks.jobs import computed, detected_and_computed
from experiments.benchmarks.measure import Spread, threads
from kd_cv import KDDescriptor
from kd_cv.parallel import cores

HEIGHT, WIDTH, KEYPOINTS = 480, 640, 2000
CALLS = ("compute", "detectAndCompute")
TARGET = 0.85  # of the best single caller's throughput

Many = Callable[[str, int], list[bytes]]  # call, count: a digest of each result


@lru_cache(maxsize=1)
def _material() -> tuple[KDDescriptor, Any, Any]:
    from experiments.benchmarks.detect import of_size

    kd, image = KDDescriptor(KEYPOINTS), of_size(load_inputs().image, HEIGHT, WIDTH)
    return kd, image, kd.detect(image)


def call(name: str, _: int = 0) -> bytes:
    kd, image, keypoints = _material()
    return computed(kd, image, keypoints) if name == "compute" else detected_and_computed(kd, image)


class Calls:
    """Calls as torch's DataLoader takes them: each item is one."""

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> bytes:
        return call(self.name)


# ------------------------------------------------------------------------------------- the callers


def alone(count: int) -> Many:

    def many(name: str, calls: int) -> list[bytes]:
        with threads(count):
            return [call(name) for _ in range(calls)]

    return many


@contextmanager
def by_threads(callers: int) -> Iterator[Many]:
    with ThreadPoolExecutor(callers) as pool:
        yield lambda name, calls: list(pool.map(partial(call, name), range(calls)))


@contextmanager
def by_processes(callers: int) -> Iterator[Many]:
    context = mp.get_context("spawn")
    ready = context.Barrier(callers + 1)
    with context.Pool(callers, _begin, (ready,)) as pool:
        ready.wait()
        yield lambda name, calls: pool.map(partial(call, name), range(calls), chunksize=1)


def _begin(ready: Any) -> None:
    """In a new process: have all at hand, and wait for the others, which would take the cores."""
    for name in CALLS:
        call(name)
    ready.wait()


@contextmanager
def by_loader(callers: int) -> Iterator[Many]:
    """Workers of torch's DataLoader, forked from this process."""
    from torch.utils.data import DataLoader

    loaders: dict[tuple[str, int], Any] = {}

    def many(name: str, calls: int) -> list[bytes]:
        if (name, calls) not in loaders:
            loaders[name, calls] = DataLoader(
                Calls(name, calls),  # type: ignore[arg-type]
                batch_size=None,
                num_workers=callers,
                persistent_workers=True,
            )
        return list(loaders[name, calls])

    yield many
    loaders.clear()  # which ends their workers


@contextmanager
def by_dask(workers: int | None = None, each: int | None = None) -> Iterator[Many]:
    """Workers of a Dask cluster on this machine, of `each` threads; by default as Dask has them."""
    from distributed import Client

    with (
        _same_environment(),
        Client(n_workers=workers, threads_per_worker=each, dashboard_address=None) as client,
    ):
        yield _of_client(client)


@contextmanager
def by_our_dask() -> Iterator[Many]:
    with by_dask(each=1) as many:
        yield many


def _of_client(client: Any) -> Many:
    for name in CALLS:
        client.run(call, name)

    def many(name: str, calls: int) -> list[bytes]:
        return list(client.gather(client.map(partial(call, name), range(calls), pure=False)))

    return many


@contextmanager
def _same_environment() -> Iterator[None]:
    """Take back what is done to the environment: Dask puts there what its workers are to have."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# --------------------------------------------------------------------------------------- the study


def throughput(names: Sequence[str], args: argparse.Namespace) -> bool:
    """Print a table for each call; whether all results are equal."""
    single = {f"1 caller, {n} thread{'s' * (n > 1)}": alone(n) for n in sorted({1, cores()})}
    ways: dict[str, Callable[[], AbstractContextManager[Many]]] = {
        f"{args.threads} threads of a process": partial(by_threads, args.threads),
        f"{args.processes} processes": partial(by_processes, args.processes),
        f"{args.workers} workers of torch's DataLoader": partial(by_loader, args.workers),
        "workers of Dask, as `kd-cv extract` starts them": by_our_dask,
        "workers of Dask, as many as it starts": by_dask,
        f"{args.workers} workers of Dask, of 2 threads": partial(by_dask, args.workers, 2),
    }
    expected, different = {name: call(name) for name in names}, set()
    rates, fractions = defaultdict(list), defaultdict(list)

    def rate(name: str, way: str, many: Many) -> float:
        start = time.perf_counter()
        digests = many(name, args.calls)
        rates[name, way].append(args.calls / (time.perf_counter() - start))
        if any(digest != expected[name] for digest in digests):
            different.add((name, way))
        return rates[name, way][-1]

    for _ in range(args.rounds):
        for way, begin in ways.items():
            alone_now = {
                name: {one: rate(name, one, many) for one, many in single.items()} for name in names
            }
            with begin() as many:
                for name in names:
                    many(name, args.calls)  # warm up
                    best = max(alone_now[name].values())
                    fractions[name, way].append(rate(name, way, many) / best)
                    for one, now in alone_now[name].items():
                        fractions[name, one].append(now / best)
    for name in names:
        print(f"\n| {name} | calls/s | of the best single caller | results |\n|---|---|---|---|")
        for way in (*single, *ways):
            fraction = Spread.of(fractions[name, way])
            short = "" if way in single or fraction.median >= TARGET else f", below {TARGET:.0%}"
            print(
                f"| {way} | {np.median(rates[name, way]):.1f} | {fraction.median:.0%} "
                f"({fraction.low:.0%}..{fraction.high:.0%}){short} "
                f"| {'DIFFERENT' if (name, way) in different else 'equal'} |"
            )
    return not different


def memory(name: str, counts: Sequence[int]) -> None:
    """Print the peak memory of a process by its calling threads, and the line through it."""
    peaks = [
        in_new_process("callers_memory", name=name, callers=count)["peak"] / MEGABYTE
        for count in counts
    ]
    slope, start = np.polyfit(counts, peaks, 1)
    print(f"\n| {name}, calling threads | peak of the process (MB) | line |\n|---|---|---|")
    for count, peak in zip(counts, peaks, strict=True):
        print(f"| {count} | {peak:.0f} | {start + slope * count:.0f} |")
    print(f"\n{start:.0f} MB a process and {slope:.1f} MB a calling thread")


def faults(names: Sequence[str]) -> None:
    """Print the pages that a call asks the system for, here and in the environment of Dask's."""
    print("\n| page faults of a call | as it is | MALLOC_TRIM_THRESHOLD_=65536 |\n|---|---|---|")
    for name in names:
        here, dasks = (
            in_new_process("callers_faults", environment, name=name)["faults"]
            for environment in (None, {"MALLOC_TRIM_THRESHOLD_": "65536"})
        )
        print(f"| {name} | {here:.0f} | {dasks:.0f} |")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "callers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--workers", type=int, default=4, help="of DataLoader and of Dask")
    parser.add_argument("--calls", type=int, default=64, help="in a round, all callers together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=CALLS, help="one of the two calls")
    args = parser.parse_args(arguments)
    names = [args.only] if args.only else CALLS
    print(f"{WIDTH} x {HEIGHT}, {KEYPOINTS:,} keypoints, {cores()} cores", file=sys.stderr)
    equal = throughput(names, args)
    check_proc()
    for name in names:
        memory(name, sorted({1, 2, max(1, args.threads // 4), args.threads // 2, args.threads}))
    faults(names)
    return int(not equal)

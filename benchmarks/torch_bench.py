"""KDModule against kornia.feature.MKDDescriptor on the CPU: time and peak memory, raw vectors.

python benchmarks/torch_bench.py [--patches 1024] [--sizes 32 64] [--repeats 7] [--threads 1]

The two run in turns, so that a busy machine slows both down, with the same number of threads; times
are medians. One thread by default: more of them, on cores that other processes use, measure how
long they wait for each other. Peak memory is what torch allocates at most beyond the patches.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import torch
from kornia.feature import MKDDescriptor
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from kd_cv import KDModule

Work = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One comparison; `ratio` is how many times less KDModule needs."""

    what: str
    patch_size: int
    kd: float
    kornia: float
    unit: str
    target: float

    @property
    def ratio(self) -> float:
        return self.kornia / self.kd


class PlainModule(KDModule):
    """KDModule by plain torch operations, as other devices run it."""

    def _fusable(self, patches: Tensor) -> bool:
        return False


def rows(
    patches: int = 1024, sizes: tuple[int, ...] = (32, 64), repeats: int = 7, threads: int = 1
) -> list[Row]:
    """All comparisons for a batch of random patches of each size."""
    before = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)  # those of the fused path
    try:
        return [row for P in sizes for row in rows_of_size(P, patches, repeats)]
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


def rows_of_size(P: int, patches: int, repeats: int) -> list[Row]:
    kornia = MKDDescriptor(patch_size=P, whitening=None)
    fused, plain = KDModule(P, whitening=None), PlainModule(P, whitening=None)
    x = torch.rand(patches, 1, P, P, generator=torch.manual_seed(0))
    cases = (
        ("no gradient", without_gradient, fused, 8.0 if P < 64 else 20.0),
        ("no gradient, plain torch", without_gradient, plain, 3.0),
        ("forward and backward", with_gradient, plain, 3.0),
    )
    results = []
    for what, prepare, kd, target in cases:
        both = prepare(kd, x), prepare(kornia, x)
        times = [1e3 * seconds for seconds in in_turns(both, repeats)]
        results.append(Row(what, P, times[0], times[1], "ms", target))
        if kd is plain:  # the fused path allocates outside torch
            memory = [peak(work) / 2**20 for work in both]
            results.append(Row(f"{what}, peak memory", P, memory[0], memory[1], "MiB", 3.0))
    return results


def without_gradient(module: nn.Module, x: Tensor) -> Work:
    return torch.no_grad()(lambda: module(x))


def with_gradient(module: nn.Module, x: Tensor) -> Work:
    leaf = x.clone().requires_grad_()

    def work() -> None:
        leaf.grad = None
        module(leaf).sum().backward()

    return work


def in_turns(works: tuple[Work, ...], repeats: int) -> list[float]:
    """Median seconds of each, after one run to warm up."""
    times: list[list[float]] = [[] for _ in works]
    for repeat in range(repeats + 1):
        for own, work in zip(times, works, strict=True):
            start = time.perf_counter()
            work()
            if repeat:
                own.append(time.perf_counter() - start)
    return [statistics.median(own) for own in times]


def peak(work: Work) -> float:
    """Most bytes that torch had allocated at a time, beyond those before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as run:
        work()
    events = run.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    most = total = 0
    for _, change in changes:
        total += change
        most = max(most, total)
    return float(most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--patches", type=int, default=1024)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    print(f"{args.patches} patches, threads: {args.threads}, torch {torch.__version__}\n")
    print("| | P | KDModule | Kornia MKD | ratio | wanted |\n|---|---|---|---|---|---|")
    for row in rows(args.patches, tuple(args.sizes), args.repeats, args.threads):
        print(
            f"| {row.what} | {row.patch_size} | {row.kd:.1f} {row.unit} "
            f"| {row.kornia:.1f} {row.unit} | {row.ratio:.1f} | {row.target:g} |"
        )


if __name__ == "__main__":
    main()

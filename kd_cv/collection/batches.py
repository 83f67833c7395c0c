"""Batches of images, each a partial file, and the threads or processes that they run on."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

import cv2
from numpy.typing import NDArray

from kd_cv.collection.extraction import STAGES, Clock, Extraction
from kd_cv.collection.store import names_in, open_hdf5, write_image, writing_hdf5
from kd_cv.io.files import digest, reason, replacing
from kd_cv.io.images import read_gray

MAX_BATCH = 16  # images of one partial file: what a crash can cost each worker


@dataclass(frozen=True)
class Batch:
    """Images root / name whose features go to one partial file."""

    root: Path
    names: tuple[str, ...]
    sources: tuple[str, ...]
    part: Path
    settings: str  # of the extraction, as text


@dataclass(frozen=True)
class Report:
    """The result of a batch."""

    done: int  # images described now
    keypoints: int
    skipped: Mapping[str, str]  # name -> reason
    seconds: Mapping[str, float]  # of processor time by stage
    kept: int = 0  # images described by an earlier run


def batches(
    root: Path, sources: Mapping[str, str], folder: Path, extraction: Extraction
) -> list[Batch]:
    """Cut the names into batches: the same ones in a later run.

    Smaller batches at the end let all workers finish at about the same time.
    """
    names, settings = list(sources), extraction.settings_text
    plan: list[Batch] = []
    start = 0
    while start < len(names):
        size = min(MAX_BATCH, max(1, (len(names) - start) // 64))
        chosen = tuple(names[start : start + size])
        start += size
        stamps = tuple(sources[name] for name in chosen)
        key = json.dumps([settings, str(root), chosen, stamps])
        part = folder / f"{digest(key.encode(), 24)}.h5"
        plan.append(Batch(root, chosen, stamps, part, settings))
    return plan


def run_batch(batch: Batch, extraction: Extraction, stop: Any = None) -> Report:
    """Extract a batch into its partial file, unless that is there already.

    stop  an event that ends the work before the next image
    """
    if extraction.settings_text != batch.settings:  # a path may mean another file elsewhere
        raise ValueError(
            "this worker has other matrices, or another kd_cv, than the process that asks: name "
            "weights by an absolute path that means the same file everywhere"
        )
    report = finished(batch)
    if report:
        return report
    clock, skipped, keypoints = Clock(), {}, 0
    with replacing(batch.part) as temporary, writing_hdf5(temporary) as (file, check):
        for (name, image), source in zip(ahead(batch, clock), batch.sources, strict=True):
            if stop is not None and stop.is_set():
                raise InterruptedError("the run was stopped")
            if isinstance(image, str):
                skipped[name] = image
                continue
            try:
                features = extraction.features(image, clock)
            except cv2.error as error:
                skipped[name] = f"OpenCV cannot process it: {error}"
                continue
            write_image(file, name, features, extraction.dtype, source)
            check()
            keypoints += len(features.frames)
        report = Report(len(batch.names) - len(skipped), keypoints, skipped, clock.seconds)
        file.attrs["report"] = json.dumps(vars(report))
    return report


def finished(batch: Batch) -> Report | None:
    """Read the report of a batch whose partial file is whole; None otherwise."""
    try:
        with open_hdf5(batch.part) as file:
            stored = json.loads(file.attrs["report"])
            names = {*names_in(file), *stored["skipped"]}
    except (OSError, KeyError, TypeError, ValueError, RuntimeError):
        return None  # not there, or cut off by a full disk or a power failure
    if names != {*batch.names}:
        return None
    nothing = dict.fromkeys(STAGES, 0.0)
    return Report(0, stored["keypoints"], stored["skipped"], nothing, kept=stored["done"])


def ahead(batch: Batch, clock: Clock) -> Iterator[tuple[str, NDArray[Any] | str]]:
    """Yield names and gray images or reasons to skip them, decoding one image ahead."""
    with futures.ThreadPoolExecutor(1) as reader:
        coming = reader.submit(decode, batch.root / batch.names[0])
        for name, after in zip(batch.names, (*batch.names[1:], None), strict=True):
            image, seconds = coming.result()
            clock.seconds["decode"] += seconds
            if after is not None:
                coming = reader.submit(decode, batch.root / after)
            yield name, image


def decode(path: Path) -> tuple[NDArray[Any] | str, float]:
    """Read a gray image, or the reason to skip it; and measure the processor seconds."""
    start = time.thread_time()
    image: NDArray[Any] | str
    try:
        image = read_gray(path)
    except FileNotFoundError:
        image = "not found"
    except (ValueError, OSError) as error:
        image = reason(error).replace(f"{path}: ", "").replace(f"{path} ", "").strip()
    return image, time.thread_time() - start


def by_threads(plan: Sequence[Batch], extraction: Extraction, workers: int) -> Iterator[Report]:
    """Run batches on threads, one each: OpenCV and the descriptor release the GIL."""
    stop = threading.Event()
    work = partial(run_batch, extraction=extraction, stop=stop)
    return _on(futures.ThreadPoolExecutor(workers), work, plan, 2 * workers, stop)


def by_processes(plan: Sequence[Batch], extraction: Extraction, workers: int) -> Iterator[Report]:
    """Run batches on processes of one thread each."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    count = max(1, min(workers, len(plan)))
    pool = futures.ProcessPoolExecutor(count, context, _start_process, (stop,))
    work = partial(_in_process, extraction=extraction)
    try:
        yield from _on(pool, work, plan, 2 * count, stop)
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a worker process has ended: for lack of memory, or because the script that called "
            'extract(workers=...) has no `if __name__ == "__main__":`'
        ) from error


def _on(
    pool: futures.Executor,
    work: Callable[[Batch], Report],
    plan: Sequence[Batch],
    ahead: int,
    stop: Any,
) -> Iterator[Report]:
    """Yield reports as they finish; after an error or Ctrl-C no worker begins another image."""
    waiting = iter(plan)
    running: set[futures.Future[Report]] = set()
    try:
        while True:
            while len(running) < ahead and (batch := next(waiting, None)):
                running.add(pool.submit(work, batch))
            if not running:
                return
            ready, running = futures.wait(running, return_when=futures.FIRST_COMPLETED)
            for future in ready:
                yield future.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


_stop: Any = None  # in a worker process: the event of its parent


def _start_process(stop: Any) -> None:
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent sets the event
    cv2.setNumThreads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    wait_for([multiprocessing.parent_process().sentinel])  # type: ignore[union-attr]
    os._exit(1)


def _in_process(batch: Batch, extraction: Extraction) -> Report:
    return run_batch(batch, extraction, _stop)

"""Whole collections of images into one feature file.

An HDF5 file that is open for writing does not survive a crash. So batches of images go to small
files in `<output>.partial/`, each of which appears whole or not at all, and the output is put
together from them at the end, again whole or not at all. A run that was stopped at any moment goes
on from the batches that are there. The settings are kept beside the data: a file is never continued
with other settings, and only one run at a time works on an output.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from threading import Thread

import cv2
import numpy as np

from kd_cv.checks import as_int
from kd_cv.collection.batches import Batch, Report, batches, decode, open_part, run_batch
from kd_cv.collection.extraction import STAGES, Extraction, check_settings
from kd_cv.collection.hdf5 import load_h5py, open_hdf5, text_attribute, writing_hdf5
from kd_cv.collection.names import Collection
from kd_cv.collection.partial import clear, keep_settings, owned, remove
from kd_cv.collection.store import READERS, SETTINGS, copy_image, names_in
from kd_cv.io.files import PathLike, printable, replacing
from kd_cv.io.images import say_others
from kd_cv.parallel import cores


@dataclass(frozen=True)
class Summary:
    """What a run did.

    images     in the collection; of these `kept` were described by an earlier run
    skipped    name -> reason
    others     files beside them that are not photographs: suffix -> count
    seconds    from start to end; `cpu`: processor seconds by stage, as the threads count them
    """

    output: Path
    images: int
    kept: int
    done: int
    keypoints: int
    skipped: Mapping[str, str]
    seconds: float
    workers: int
    cpu: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def use(self) -> float:
        """Part of the workers' time that went into decoding, detecting and describing."""
        return sum(self.cpu.values()) / max(1e-9, self.seconds * self.workers)

    @property
    def exit_code(self) -> int:
        """0 if every image is in the output, else 1."""
        return int(bool(self.skipped))

    def __str__(self) -> str:
        lines = [
            f"{self.output}: {self.done} images, {self.keypoints} keypoints in {self.seconds:.1f} s"
            f" ({self.done / max(1e-9, self.seconds):.1f} images/s)"
            + (f", {self.kept} were done before" if self.kept else "")
        ]
        if self.done:
            each = ", ".join(f"{s} {1e3 * t / self.done:.0f} ms" for s, t in self.cpu.items())
            lines.append(f"an image: {each}; {self.use:.0%} of {self.workers} workers' time")
        lines += [printable(f"skipped {name}: {reason}") for name, reason in self.skipped.items()]
        if self.skipped:
            lines.append(f"{len(self.skipped)} of {self.images} images skipped")
        if self.others:
            lines.append(printable(say_others(self.others)))
        return "\n".join(lines)


# Runs batches in any order and yields their reports as they finish.
Runner = Callable[[Sequence[Batch], Extraction], Iterator[Report]]


def extract(
    images: PathLike | Collection,
    output: PathLike,
    extraction: Extraction | None = None,
    *,
    root: PathLike | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
    runner: Runner | None = None,
) -> Summary:
    """Extract features of a collection into one HDF5 file (extra `features`).

    images     a folder, a glob pattern, or a list file; `root`: what names are relative to
    workers    images at a time, one thread each; as many as there are cores by default
    overwrite  start over; otherwise images that the output already has, by name, are kept
    runner     where the batches are run; on threads of this process by default

    >>> print(extract("photographs", "features.h5"))
    features.h5: 3 images, ...
    """
    load_h5py()  # an ImportError comes before any work
    start = time.perf_counter()
    extraction = extraction or Extraction()
    collection, output = Collection.of(images, root), Path(output)
    if not output.parent.is_dir():
        raise FileNotFoundError(f"no directory {str(output.parent)!r} to write {output.name!r} in")
    workers = cores() if workers is None else as_int(workers, "workers")
    text = extraction.settings_text
    totals = Report(0, 0, {}, dict.fromkeys(STAGES, 0.0))
    with owned(output) as folder:
        if overwrite:
            clear(folder)
            output.unlink(missing_ok=True)
        present: set[str] = set()
        if os.path.lexists(output):
            with open_hdf5(output) as file:
                check_settings(output, text_attribute(file, SETTINGS), text)
                present = {*names_in(file)} & {*collection.names}
        todo = [name for name in collection.names if name not in present]
        if todo:
            keep_settings(folder, text)
            plan = batches(collection, todo, folder, text)
            run = runner or partial(by_threads, workers=workers)
            totals = reduce(_sum, shown(run(plan, extraction), len(todo), progress), totals)
            if totals.done or totals.kept or not output.exists():
                _assemble(output, folder, plan, extraction)
        remove(folder)
    return Summary(
        output,
        len(collection.names) + len(collection.refused),
        len(present) + totals.kept,
        totals.done,
        totals.keypoints,
        dict(sorted({**collection.refused, **totals.skipped}.items())),
        time.perf_counter() - start,
        workers,
        totals.seconds,
        collection.others,
    )


def by_threads(plan: Sequence[Batch], extraction: Extraction, workers: int) -> Iterator[Report]:
    """Run batches on threads, an image each: OpenCV and the descriptor release the GIL."""
    pool, readers = ThreadPoolExecutor(workers), ThreadPoolExecutor(workers)
    # The compiled code is loaded while the first images are decoded and detected in.
    loading = Thread(target=load_compiled, args=(extraction,))
    loading.start()
    waiting = iter(plan)
    running: set[Future[Report]] = set()
    try:
        while True:
            # A few more than the workers: a million batches need not exist at once, and of those
            # that wait the first image is decoded.
            while len(running) < 2 * workers and (batch := next(waiting, None)):
                path = batch.root / batch.names[0]
                first = None if batch.part.exists() else readers.submit(decode, path)
                running.add(pool.submit(run_batch, batch, extraction, first))
            if not running:
                return
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        readers.shutdown(cancel_futures=True)
        loading.join()


def load_compiled(extraction: Extraction) -> None:
    """Load Numba's compiled code, which takes about half a second, once."""
    extraction.feature.compute(np.zeros((64, 64), np.uint8), [cv2.KeyPoint(32, 32, 8, 0)])


def shown(reports: Iterable[Report], total: int, progress: bool) -> Iterator[Report]:
    """The reports, with a line of progress on stderr: the rate is that of this run alone."""
    start, count, now = time.perf_counter(), 0, 0
    for report in reports:
        yield report
        now += report.done + len(report.skipped)
        count += report.done + report.kept + len(report.skipped)
        if progress:
            rate = now / (time.perf_counter() - start)
            left = f", {duration((total - count) / rate)} left" if rate else ""
            line = f"{count}/{total} images, {rate:.1f}/s{left}"
            end = "\n" if count == total else ""
            print(f"\r{line:<60}", end=end, file=sys.stderr, flush=True)  # covers a longer line


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, however many hours.

    >>> duration(90061.5)
    '25:01:02'
    """
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _sum(a: Report, b: Report) -> Report:
    seconds = {stage: a.seconds[stage] + b.seconds[stage] for stage in STAGES}
    skipped = {**a.skipped, **b.skipped}
    keypoints, kept = a.keypoints + b.keypoints, a.kept + b.kept
    return Report(a.done + b.done, keypoints, skipped, seconds, kept)


def _assemble(output: Path, folder: Path, plan: Sequence[Batch], extraction: Extraction) -> None:
    """Write the output from what it had and the partial files, in the order of the names."""
    # Among the partial files, so that what a killed run leaves is cleared up by the next one.
    with replacing(output, within=folder) as whole:
        with writing_hdf5(whole) as (file, check):
            file.attrs[SETTINGS] = extraction.settings_text
            file.attrs["readers"] = READERS[extraction.dtype]
            if output.exists():
                with open_hdf5(output) as old:
                    for name in names_in(old):
                        copy_image(old, file, name)
                        check()
            for batch in plan:
                with open_part(batch) as part:
                    for name in batch.names:
                        if name in part:
                            copy_image(part, file, name)
                check()
        with open(whole, "rb+") as written:
            os.fsync(written)  # the partial files are removed next: it must be on the disk

"""Whole collections of images into one feature file.

An HDF5 file that is open for writing does not survive a crash. So each batch of images becomes a
file in `<output>.partial/`, whole or not at all, and the output is put together from them at the
end. A run that was stopped continues from the batches that are there. An image is extracted again
if its root folder, name, size, modification time or the settings differ.
"""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial, reduce
from pathlib import Path

from kd_cv.checks import as_int
from kd_cv.collection import store
from kd_cv.collection.batches import Batch, Report, batches, by_processes, by_threads
from kd_cv.collection.extraction import STAGES, Extraction, check_settings
from kd_cv.collection.names import Collection
from kd_cv.extras import extra
from kd_cv.io.files import PathLike, printable, replacing
from kd_cv.io.images import say_others
from kd_cv.parallel import cores


@dataclass(frozen=True)
class Summary:
    """The result of a run.

    images     in the collection; `kept`: those that an earlier run has stored
    skipped    name -> reason
    others     files that are not photographs: suffix -> count
    seconds    from start to end; `cpu`: processor seconds by stage
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
            use = sum(self.cpu.values()) / max(1e-9, self.seconds * self.workers)
            lines.append(f"an image: {each}; {use:.0%} of {self.workers} workers' time")
        lines += [f"skipped {name}: {reason}" for name, reason in self.skipped.items()]
        if self.skipped:
            lines.append(f"{len(self.skipped)} of {self.images} images skipped")
        if self.others:
            lines.append(say_others(self.others))
        return "\n".join(map(printable, lines))


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
    workers    number of processes; by default the threads of this process. A script that asks for
               processes needs `if __name__ == "__main__":`, as with `multiprocessing`
    overwrite  start over; otherwise unchanged images of the output are kept
    runner     runs the batches, in place of threads and processes

    >>> print(extract("photographs", "features.h5"))
    features.h5: 3 images, ...
    """
    store.load_h5py()  # an ImportError comes before any work
    start = time.perf_counter()
    extraction = extraction or Extraction()
    collection, output = Collection.of(images, root), Path(output)
    if workers is not None:
        as_int(workers, "workers")
    in_process = workers in (None, 1)
    workers = workers or cores()
    sources = _sources(collection, output)
    totals = Report(0, 0, {}, dict.fromkeys(STAGES, 0.0))
    with owned(output) as folder:
        if overwrite:
            _clear(folder)
        present = set() if overwrite else _present(output, sources, extraction)
        todo = [name for name in collection.names if name not in present]
        if todo:
            plan = batches(collection.root, {n: sources[n] for n in todo}, folder, extraction)
            run = runner or partial(by_threads if in_process else by_processes, workers=workers)
            totals = reduce(_sum, shown(run(plan, extraction), len(todo), progress), totals)
            if totals.done or totals.kept or not output.exists():
                _assemble(output, folder, plan, extraction, keep=not overwrite)
        _clear(folder)
    skipped = dict(sorted({**collection.refused, **totals.skipped}.items()))
    count, seconds = len(collection.names) + len(collection.refused), time.perf_counter() - start
    return Summary(
        output, count, len(present) + totals.kept, totals.done, totals.keypoints, skipped, seconds,
        workers, totals.seconds, collection.others,
    )  # fmt: skip


def _sources(collection: Collection, output: Path) -> dict[str, str]:
    """Map names to root, size and modification time; ValueError if the output is an image."""
    taken = output.stat() if output.exists() else None
    sources = {}
    for name in collection.names:
        try:
            state = (collection.root / name).stat()
        except OSError:
            sources[name] = ""  # `decode` will say why
            continue
        if taken is not None and os.path.samestat(state, taken):
            raise ValueError(f"{output} is one of the photographs: give another output")
        sources[name] = json.dumps([str(collection.root), state.st_size, state.st_mtime_ns])
    return sources


def _present(output: Path, sources: Mapping[str, str], extraction: Extraction) -> set[str]:
    """Return the names of the images whose features are in the output."""
    if not output.exists():
        return set()
    with store.open_hdf5(output) as file:
        check_settings(output, store.settings_in(file), extraction.settings_text)
        stored = {name: file[name].attrs.get(store.SOURCE) for name in store.names_in(file)}
    return {name for name, source in stored.items() if source and source == sources.get(name)}


@contextmanager
def owned(output: Path) -> Iterator[Path]:
    """Lock the folder of the partial files; the lock ends with the process."""
    filelock = extra("filelock", "feature files need filelock", "features")
    folder = output.with_name(output.name + ".partial")
    folder.mkdir(exist_ok=True)
    try:
        with filelock.FileLock(folder / "lock", timeout=0):
            yield folder
    except filelock.Timeout:
        raise BlockingIOError(errno.EAGAIN, "another run is writing it", str(output)) from None
    (folder / "lock").unlink(missing_ok=True)
    with suppress(OSError):  # another run has come, or files that are not ours are there
        folder.rmdir()


def _clear(folder: Path) -> None:
    """Remove the partial files."""
    for part in [*folder.glob("*.h5"), *folder.glob(".*-*.*")]:
        part.unlink(missing_ok=True)


def _assemble(
    output: Path, folder: Path, plan: Sequence[Batch], extraction: Extraction, keep: bool
) -> None:
    """Write the output from the partial files and, with `keep`, the other images that it had."""
    new = {name for batch in plan for name in batch.names}
    # Among the partial files: the next run removes those of a killed run.
    with replacing(output, within=folder) as whole:
        with store.writing_hdf5(whole) as (file, check):
            file.attrs[store.SETTINGS] = extraction.settings_text
            file.attrs["readers"] = store.READERS[extraction.dtype]
            if keep and output.exists():
                with store.open_hdf5(output) as old:
                    for name in store.names_in(old):
                        if name not in new:
                            store.copy_image(old, file, name)
                            check()
            for batch in plan:
                with store.open_hdf5(batch.part) as part:
                    for name in store.names_in(part):
                        store.copy_image(part, file, name)
                check()
        with open(whole, "rb+") as written:
            os.fsync(written)  # the partial files are removed next: it must be on the disk


def shown(reports: Iterable[Report], total: int, progress: bool) -> Iterator[Report]:
    """Yield the reports, with a line of progress on stderr."""
    start, count, now = time.perf_counter(), 0, 0
    for report in reports:
        yield report
        now += report.done + len(report.skipped)
        count += report.done + report.kept + len(report.skipped)
        if progress and now:
            rate = now / (time.perf_counter() - start)
            left = timedelta(seconds=math.ceil((total - count) / rate))
            line = f"{count}/{total} images, {rate:.1f}/s, {left} left"
            end = "\n" if count == total else ""
            print(f"\r{line:<60}", end=end, file=sys.stderr, flush=True)


def _sum(a: Report, b: Report) -> Report:
    seconds = {stage: a.seconds[stage] + b.seconds[stage] for stage in STAGES}
    skipped = {**a.skipped, **b.skipped}
    keypoints, kept = a.keypoints + b.keypoints, a.kept + b.kept
    return Report(a.done + b.done, keypoints, skipped, seconds, kept)

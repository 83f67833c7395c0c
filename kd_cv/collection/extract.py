"""Whole collections of images into one HDF5 file, in the layout that hloc reads.

A group per image, named by its path below the collection's folder, with the datasets

==============  ======  =======================================================================
keypoints       (N, 2)  float32 x, y in pixels of the image file, the first pixel's centre at
                        (0, 0); attribute `uncertainty`: pixels of the image file per pixel seen
descriptors     (D, N)  float32, float16, or uint8 (see `settings.as_uint8`)
scores          (N,)    float32, the detector's response
scales, oris    (N,)    float32, sigma in pixels (half of OpenCV's size) and angle in radians
image_size      (2,)    width, height of the image file
==============  ======  =======================================================================

An HDF5 file that is open for writing does not survive a crash. So batches of images go to small
files in `<output>.partial/`, each of which appears whole or not at all, and the output is put
together from them at the end, again whole or not at all. A run that was stopped at any moment goes
on from the batches that are there. The settings are kept beside the data: a file is never continued
with others.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from threading import Thread
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import (
    degrees,
    from_keypoints,
    radians,
    resized_points,
    sigma_from_size,
    size_from_sigma,
)
from kd_cv.detector.keypoints import strongest
from kd_cv.feature2d import KDDescriptor
from kd_cv.io.files import printable, replacing
from kd_cv.io.images import PHOTO_SUFFIXES, list_photos, read_gray
from kd_cv.matching import DESCRIPTORS, as_feature

LAYOUT = 1  # to be raised when the layout or the meaning of a setting changes
MAX_BATCH = 16  # images of one partial file: what a crash can cost each worker
DTYPES = ("float16", "float32", "uint8")
STAGES = ("decode", "detect", "describe")
MAX_RATIO = 1100  # bytes that one stored byte may stand for; deflate reaches 1032
SETTINGS = "kd_cv"  # the root attribute that holds the settings as JSON

PathLike = str | os.PathLike[str]
Arrays = dict[str, NDArray[Any]]
Decoded = tuple[NDArray[np.uint8] | str, float]  # see `decode`


# --------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class Extraction:
    """What is done with one image.

    descriptor     "kd", "sift", "rootsift", or a KDDescriptor; each finds its own keypoints
    max_keypoints  the strongest that are kept
    max_size       images whose longer side is larger are reduced to it first; None: never
    dtype          of the stored descriptors: "float16", "float32" or, for KD only, "uint8"
    """

    descriptor: str | KDDescriptor = "kd"
    max_keypoints: int = 8192
    max_size: int | None = 3200
    dtype: str = "float16"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {list(DTYPES)}, got {self.dtype!r}")
        for name in ("max_keypoints", "max_size"):
            value = getattr(self, name)
            if value is None and name == "max_size":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive int, got {value!r}")
        if isinstance(self.descriptor, str):
            if self.descriptor not in DESCRIPTORS:
                raise ValueError(
                    f"unknown descriptor {self.descriptor!r}: expected one of {list(DESCRIPTORS)} "
                    "or a KDDescriptor"
                )
        elif not isinstance(self.descriptor, KDDescriptor):
            kind = type(self.descriptor).__name__
            raise TypeError(f"descriptor must be a name or a KDDescriptor, got {kind}")
        else:
            self.descriptor.__reduce__()  # TypeError with a detector that has no written settings
        if self.dtype == "uint8" and self.descriptor in ("sift", "rootsift"):
            raise ValueError(f"dtype 'uint8' is for KD descriptors, not for {self.descriptor!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        # OpenCV's objects cannot be sent to another process: `feature` is made anew there.
        return Extraction, (self.descriptor, self.max_keypoints, self.max_size, self.dtype)

    @cached_property
    def feature(self) -> Any:
        """The object that describes, giving float32 rows or, for dtype "uint8", bytes."""
        kd = KDDescriptor() if self.descriptor == "kd" else self.descriptor
        if isinstance(kd, str):
            return as_feature(kd)
        kind = cv2.CV_8U if self.dtype == "uint8" else cv2.CV_32F
        return kd.with_settings(
            descriptor_type=kind, drop=True, nfeatures=kd.getNFeatures() or self.max_keypoints
        )

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides the content of the file, as JSON can hold it."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        settings: dict[str, Any] = {"layout": LAYOUT, **own}
        feature = self.feature
        if isinstance(feature, KDDescriptor):
            settings["descriptor"] = feature.settings.record
            settings["detector"] = feature.detection.record
        return settings

    @property
    def settings_text(self) -> str:
        """The settings as they are written into files."""
        return _json(self.settings)

    def features(self, gray: NDArray[np.uint8], clock: Clock | None = None) -> Arrays:
        """The datasets of one gray image (H, W)."""
        clock = clock or Clock()
        height, width = gray.shape
        with clock("detect"):
            seen = shrunk(gray, self.max_size)
            keypoints = strongest(self.feature.detect(seen, None), self.max_keypoints)
        with clock("describe"):
            keypoints, rows = self.feature.compute(seen, keypoints)
            frames = from_keypoints(keypoints)
            ratio = np.array([width, height]) / np.array(seen.shape[::-1])
            if rows is None:
                rows = np.zeros((0, self.dim), np.float32)
            stored = rows.astype(self.dtype, copy=False)
        return {
            "keypoints": resized_points(frames[:, :2], ratio).astype(np.float32),
            "descriptors": np.ascontiguousarray(stored.T),
            "scores": np.array([k.response for k in keypoints], np.float32),
            "scales": sigma_from_size(frames[:, 2] * ratio.mean()).astype(np.float32),
            "oris": radians(frames[:, 3]).astype(np.float32),
            "image_size": np.array([width, height], np.int64),
        }

    @property
    def dim(self) -> int:
        """Dimensions of a descriptor."""
        return self.feature.descriptorSize() if isinstance(self.feature, KDDescriptor) else 128


def shrunk(gray: NDArray[np.uint8], max_size: int | None) -> NDArray[np.uint8]:
    """The image with its longer side at most `max_size`."""
    height, width = gray.shape
    if max_size is None or max(height, width) <= max_size:
        return gray
    scale = max_size / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(cv2.resize(gray, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


class Clock:
    """Processor seconds of each stage, as the threads that worked on it count them."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.thread_time()
        yield
        self.seconds[stage] += time.thread_time() - start


# ----------------------------------------------------------------------------------------- images


@dataclass(frozen=True)
class Collection:
    """Images by their names: paths below a root folder."""

    root: Path
    names: tuple[str, ...]

    @classmethod
    def of(cls, images: PathLike | Collection, root: PathLike | None = None) -> Collection:
        """The images of a folder (and below it), of a glob pattern, or of a list file.

        A list file (.txt) has one name a line, relative to `root` or else to its own folder; empty
        lines and those that begin with # do not count. The names of a glob pattern are relative
        to `root` or else to the last folder before the first wildcard.
        """
        if isinstance(images, Collection):
            return images
        path = Path(images)
        if path.is_dir():
            base = Path(root or path)
            return cls._below(base, (p.relative_to(base).as_posix() for p in list_photos(path)))
        if path.is_file():
            if path.suffix.lower() != ".txt":
                raise ValueError(
                    f"{str(path)!r} is one file: expected a folder, a glob pattern or a list (.txt)"
                )
            lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
            named = (line for line in lines if line and not line.startswith("#"))
            return cls._below(Path(root or path.parent), named)
        fixed = [part for part in path.parts[: _first_wildcard(path.parts)]]
        base = Path(root) if root else Path(*fixed)
        found = Path(*fixed).glob(str(Path(*path.parts[len(fixed) :])))
        photos = (p for p in found if p.suffix.lower() in PHOTO_SUFFIXES and p.is_file())
        return cls._below(base, sorted(p.relative_to(base).as_posix() for p in photos))

    @classmethod
    def _below(cls, root: Path, names: Iterable[str]) -> Collection:
        checked = tuple(dict.fromkeys(_name(name) for name in names))
        if not checked:
            raise ValueError(f"no images found in {str(root)!r}")
        return cls(root.absolute(), checked)


def _first_wildcard(parts: Sequence[str]) -> int:
    for index, part in enumerate(parts):
        if any(character in part for character in "*?["):
            return index
    raise FileNotFoundError(f"no folder, list file or pattern {os.path.join(*parts)!r}")


def _name(text: str) -> str:
    """A name as it is stored: a relative path that stays below its root."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in text:
        raise ValueError(f"image name {text!r} must be a path below the folder of the images")
    return str(path)


# ---------------------------------------------------------------------------------------- batches


@dataclass(frozen=True)
class Batch:
    """Some images whose features go to one partial file."""

    root: Path
    names: tuple[str, ...]
    part: Path

    @property
    def label(self) -> str:
        return _json(self.names)


@dataclass(frozen=True)
class Report:
    """What became of a batch.

    done     images described now; `kept`: by an earlier run
    skipped  name -> reason
    seconds  of processor time by stage
    """

    done: int
    keypoints: int
    skipped: Mapping[str, str]
    seconds: Mapping[str, float]
    kept: int = 0


def batches(collection: Collection, names: Sequence[str], folder: Path) -> list[Batch]:
    """Cut the names into batches; a later run with the same names finds the same batches.

    They get smaller towards the end, so that all workers finish at about the same time.
    """
    parts: list[Batch] = []
    start = 0
    while start < len(names):
        size = min(MAX_BATCH, max(1, (len(names) - start) // 64))
        own = tuple(names[start : start + size])
        digest = hashlib.sha256(_json(own).encode()).hexdigest()[:24]
        parts.append(Batch(collection.root, own, folder / f"{digest}.h5"))
        start += size
    return parts


def run_batch(batch: Batch, extraction: Extraction, first: Future[Decoded] | None = None) -> Report:
    """Extract a batch into its partial file, unless that is there already.

    first  its first image, if somebody has begun to decode it
    """
    h5py = _h5py()
    report = finished(batch)
    if report:
        return report
    clock, skipped, keypoints = Clock(), {}, 0
    with replacing(batch.part) as temporary, h5py.File(temporary, "w") as file:
        for name, image in ahead(batch, clock, first):
            if isinstance(image, str):
                skipped[name] = image
                continue
            try:
                arrays = extraction.features(image, clock)
            except cv2.error as error:
                skipped[name] = f"OpenCV cannot process it: {error}"
                continue
            uncertainty = max(1.0, max(image.shape) / (extraction.max_size or np.inf))
            write_group(file, name, arrays, uncertainty)
            keypoints += len(arrays["keypoints"])
        report = Report(len(batch.names) - len(skipped), keypoints, skipped, clock.seconds)
        file.attrs["names"], file.attrs["report"] = batch.label, _json(vars(report))
    return report


def finished(batch: Batch) -> Report | None:
    """The report of a batch whose partial file is whole; None if it has to be done."""
    h5py = _h5py()
    try:
        with h5py.File(batch.part, "r") as file:
            if file.attrs["names"] == batch.label:
                report = Report(**json.loads(file.attrs["report"]))
                idle = dict.fromkeys(STAGES, 0.0)
                return replace(report, done=0, kept=report.done, seconds=idle)
    except (OSError, KeyError, TypeError, ValueError):
        pass  # not there, or cut off by a full disk or a power failure
    return None


def ahead(
    batch: Batch, clock: Clock, first: Future[Decoded] | None = None
) -> Iterator[tuple[str, NDArray[np.uint8] | str]]:
    """Name and gray image, or the reason why there is none; the next one is decoded meanwhile."""
    with ThreadPoolExecutor(1) as reader:
        coming = first or reader.submit(decode, batch.root / batch.names[0])
        for name, after in zip(batch.names, (*batch.names[1:], None), strict=True):
            image, seconds = coming.result()
            clock.seconds["decode"] += seconds
            if after is not None:
                coming = reader.submit(decode, batch.root / after)
            yield name, image


def decode(path: Path) -> Decoded:
    """The gray image of a file, or why there is none, and the processor seconds it took."""
    start = time.thread_time()
    image: NDArray[np.uint8] | str
    try:
        image = read_gray(path)
    except (ValueError, OSError) as error:
        image = _reason(path, error)
    return image, time.thread_time() - start


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "not found"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if path.is_file() and path.stat().st_size == 0:
        return "empty file"
    return str(error).replace(f"{path}: ", "").replace(f"{path} ", "").strip()


def write_group(file: Any, name: str, arrays: Arrays, uncertainty: float) -> None:
    """One image in hloc's layout."""
    group = file.create_group(name)
    for key, values in arrays.items():
        group.create_dataset(key, data=values)
    group["keypoints"].attrs["uncertainty"] = uncertainty


# ------------------------------------------------------------------------------------- a whole run


@dataclass(frozen=True)
class Summary:
    """What a run did.

    images     in the collection; of these `kept` were described by an earlier run
    skipped    name -> reason
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
    overwrite  begin anew; otherwise images that are in the output already, by their names, are kept
    runner     where the batches are run; on threads of this process by default

    >>> print(extract("photographs", "features.h5"))
    features.h5: 3 images, ...
    """
    _h5py()  # an ImportError comes before any work
    start = time.perf_counter()
    extraction = extraction or Extraction()
    collection, output = Collection.of(images, root), Path(output)
    if not output.parent.is_dir():
        raise FileNotFoundError(f"no directory {str(output.parent)!r} to write {output.name!r} in")
    workers = cores() if workers is None else workers
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    partial = output.with_name(output.name + ".partial")
    if overwrite:
        shutil.rmtree(partial, ignore_errors=True)
        output.unlink(missing_ok=True)
    text = extraction.settings_text
    present: set[str] = set()
    if output.exists():
        with opened(output) as file:
            check_settings(output, file.attrs.get(SETTINGS), text)
            present = {name for name in collection.names if name in file}
    todo = [name for name in collection.names if name not in present]
    totals = Report(0, 0, {}, dict.fromkeys(STAGES, 0.0))
    if todo:
        _prepare(partial, text)
        plan = batches(collection, todo, partial)
        run = runner or on_threads(workers)
        for report in shown(run(plan, extraction), len(todo), progress):
            totals = _sum(totals, report)
        if totals.done or totals.kept or not output.exists():
            _assemble(output, partial, plan, text)
    if partial.exists():
        shutil.rmtree(partial)
    return Summary(
        output,
        len(collection.names),
        len(present) + totals.kept,
        totals.done,
        totals.keypoints,
        dict(sorted(totals.skipped.items())),
        time.perf_counter() - start,
        workers,
        totals.seconds,
    )


def on_threads(workers: int) -> Runner:
    """Run batches on threads, an image each: OpenCV and the descriptor release the GIL."""

    def run(plan: Sequence[Batch], extraction: Extraction) -> Iterator[Report]:
        threads = cv2.getNumThreads()
        cv2.setNumThreads(1)  # one image a core needs no further threads
        pool, readers = ThreadPoolExecutor(workers), ThreadPoolExecutor(workers)
        # The compiled code is loaded while the first images are decoded and detected in.
        loading = Thread(target=load_compiled, args=(extraction,))
        loading.start()
        waiting = iter(plan)
        running: set[Future[Report]] = set()
        try:
            while True:
                # A few more than the workers: a million batches need not exist at once, and of
                # those that wait the first image is decoded.
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
            cv2.setNumThreads(threads)

    return run


def load_compiled(extraction: Extraction) -> None:
    """Have Numba's code at hand, which takes about half a second once."""
    extraction.feature.compute(np.zeros((64, 64), np.uint8), [cv2.KeyPoint(32, 32, 8, 0)])


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


def _prepare(partial: Path, text: str) -> None:
    """Make the folder of partial files, or find it with the same settings."""
    partial.mkdir(exist_ok=True)
    settings = partial / "settings.json"
    if settings.exists():
        check_settings(partial, settings.read_text(encoding="utf-8"), text)
    else:
        with replacing(settings) as temporary:
            temporary.write_text(text, encoding="utf-8")


def check_settings(where: PathLike, found: Any, wanted: str) -> None:
    """ValueError that names the differences between two texts of settings."""
    if found == wanted:
        return
    if not isinstance(found, str):
        raise ValueError(f"{where} was not written by kd_cv: give another output, or overwrite it")
    old, new = (_flat(json.loads(text)) for text in (found, wanted))
    changed = ", ".join(
        f"{key} {old.get(key)!r} there and {new.get(key)!r} here"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    )
    raise ValueError(
        f"{where} has other settings ({changed}): give another output, or overwrite it"
    )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    inner = settings.get("descriptor")
    return {**settings, "descriptor": "kd", **inner} if isinstance(inner, dict) else {**settings}


def _assemble(output: Path, partial: Path, plan: Sequence[Batch], text: str) -> None:
    """Write the output from what it had and the partial files, in the order of the names."""
    h5py = _h5py()
    whole = partial / "whole.h5"  # a killed run leaves it where the next one clears up
    with h5py.File(whole, "w") as file:
        file.attrs[SETTINGS] = text
        if output.exists():
            with h5py.File(output, "r") as old:
                for name in names_in(old):
                    old.copy(old[name], file, name)
        for batch in plan:
            with h5py.File(batch.part, "r") as part:
                for name in batch.names:
                    if name in part:
                        part.copy(part[name], file, name)
    with open(whole, "rb+") as file:
        os.fsync(file)  # the partial files are removed next: it must be on the disk
    os.replace(whole, output)


# ------------------------------------------------------------------------------------ reading back


@dataclass(frozen=True)
class Features:
    """The features of one image, as this package uses them.

    frames       (N, 4) x, y, size, angle in pixels of the image file
    descriptors  (N, D) float32, of unit norm where KD wrote them
    scores       (N,)
    image_size   width, height
    """

    frames: NDArray[np.float64]
    descriptors: NDArray[np.float32]
    scores: NDArray[np.float32]
    image_size: tuple[int, int]

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> Features:
        """From the datasets of an image; ValueError if they do not fit together."""
        n = len(arrays["keypoints"])
        shapes = {
            "keypoints": (n, 2), "descriptors": (len(arrays["descriptors"]), n),
            "scores": (n,), "scales": (n,), "oris": (n,), "image_size": (2,),
        }  # fmt: skip
        for key, shape in shapes.items():
            values = arrays[key]
            if values.shape != shape or values.dtype.kind not in "fiu":
                raise ValueError(
                    f"{key} must be numbers of shape {shape}, got {values.dtype} {values.shape}"
                )
        rows = arrays["descriptors"].T
        if rows.dtype == np.uint8:  # the inverse of settings.as_uint8, up to rounding
            rows = rows.astype(np.float32) - 128
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        sizes, angles = size_from_sigma(arrays["scales"]), degrees(arrays["oris"])
        frames = np.column_stack([arrays["keypoints"], sizes, angles])
        width, height = arrays["image_size"].tolist()
        return cls(
            frames.astype(np.float64),
            np.ascontiguousarray(rows, dtype=np.float32),
            np.asarray(arrays["scores"], dtype=np.float32),
            (int(width), int(height)),
        )


def _stored(group: Any) -> Arrays:
    """The datasets of an image in an open file; ValueError for what is not simply stored there.

    A dataset may claim any size and store nothing, or stand for bytes of another file.
    """
    h5py = _h5py()
    arrays = {}
    for key in ("keypoints", "descriptors", "scores", "scales", "oris", "image_size"):
        item = group[key] if isinstance(group.get(key, getlink=True), h5py.HardLink) else None
        if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
            raise ValueError(f"{key} is not a dataset of the file itself")
        if not 1 <= item.ndim <= 2 or item.nbytes > MAX_RATIO * item.id.get_storage_size():
            raise ValueError(f"{key} claims the shape {item.shape}, which is not stored")
        arrays[key] = item[()]
    return arrays


@contextmanager
def _damage_named(what: str) -> Iterator[None]:
    """What HDF5 raises for a damaged file, as a ValueError that names it."""
    try:
        yield
    except (ValueError, TypeError, KeyError, RuntimeError, OSError, AttributeError) as error:
        raise ValueError(f"{what} is damaged: {error}") from error


class FeatureFile(Mapping[str, Features]):
    """The features of an open file by image name, read when asked for."""

    def __init__(self, file: Any) -> None:
        self._file = file
        with _damage_named(file.filename):
            settings = file.attrs.get(SETTINGS)
        if not isinstance(settings, str):
            raise ValueError(f"{file.filename} was not written by kd_cv: it has no settings")
        with _damage_named(f"{file.filename}: {SETTINGS}"):
            descriptor = json.loads(settings)["descriptor"]
        #: The settings of the extraction.
        self.settings_text = settings
        #: What it holds: "kd", "sift" or "rootsift".
        self.descriptor = descriptor if descriptor in ("sift", "rootsift") else "kd"

    @cached_property
    def names(self) -> tuple[str, ...]:
        with _damage_named(self._file.filename):
            return tuple(_name(name) for name in names_in(self._file))

    def count(self, name: str) -> int:
        """Keypoints of an image."""
        with _damage_named(f"{self._file.filename}: {name!r}"):
            return int(self._file[name]["keypoints"].shape[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and f"{name}/keypoints" in self._file

    def __getitem__(self, name: str) -> Features:
        if name not in self:
            raise KeyError(name)
        with _damage_named(f"{self._file.filename}: {name!r}"):
            return Features.of(_stored(self._file[name]))


@contextmanager
def reading(path: PathLike) -> Iterator[FeatureFile]:
    """Open a feature file.

    >>> summary = extract("photographs", "features.h5")
    >>> with reading("features.h5") as features:
    ...     features["a.jpg"].descriptors.shape == (len(features["a.jpg"].frames), 128)
    True
    """
    with opened(path) as file:
        yield FeatureFile(file)


def opened(path: PathLike) -> Any:
    """An HDF5 file to read; a ValueError that names it if it is none."""
    try:
        return _h5py().File(path, "r")
    except FileNotFoundError:
        raise FileNotFoundError(f"no feature file {str(path)!r}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read as an HDF5 file: {error}") from error


def names_in(file: Any) -> list[str]:
    """Names of the images in an open HDF5 file, in its order: groups that hold keypoints."""
    h5py = _h5py()
    names: list[str] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Group) and "keypoints" in item:
            names.append(name)

    file.visititems(visit)
    return names


def _json(content: Any) -> str:
    return json.dumps(content, sort_keys=True)


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("feature files need h5py: pip install kd-cv[features]") from error
    return h5py

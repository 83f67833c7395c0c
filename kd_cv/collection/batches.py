"""Batches of images: the unit of work, each a partial file that is whole or absent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.collection.extraction import STAGES, Clock, Extraction
from kd_cv.collection.hdf5 import open_hdf5, text_attribute, writing_hdf5
from kd_cv.collection.names import Collection
from kd_cv.collection.store import SETTINGS, write_image
from kd_cv.io.files import digest, reason, replacing
from kd_cv.io.images import read_gray
from kd_cv.parallel import on_threads

MAX_BATCH = 16  # images of one partial file: what a crash can cost each worker

Decoded = tuple[NDArray[np.uint8] | str, float]  # see `decode`


@dataclass(frozen=True)
class Batch:
    """Some images whose features go to one partial file."""

    root: Path
    names: tuple[str, ...]
    part: Path
    settings: str  # of the extraction, as text


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


def batches(
    collection: Collection, names: Sequence[str], folder: Path, settings: str
) -> list[Batch]:
    """Cut the names into batches; a later run with the same names finds the same batches.

    They get smaller towards the end, so that all workers finish at about the same time.
    """
    parts: list[Batch] = []
    start = 0
    while start < len(names):
        size = min(MAX_BATCH, max(1, (len(names) - start) // 64))
        chosen = tuple(names[start : start + size])
        part = folder / f"{digest(json.dumps([settings, chosen]).encode(), 24)}.h5"
        parts.append(Batch(collection.root, chosen, part, settings))
        start += size
    return parts


def run_batch(batch: Batch, extraction: Extraction, first: Future[Decoded] | None = None) -> Report:
    """Extract a batch into its partial file, unless that is there already.

    first  its first image, if it is being decoded already
    """
    report = finished(batch)
    if report:
        return report
    clock, skipped, keypoints = Clock(), {}, 0
    # An image a worker: it needs no further threads.
    with (
        on_threads(1),
        replacing(batch.part) as temporary,
        writing_hdf5(temporary) as (file, check),
    ):
        for name, image in ahead(batch, clock, first):
            if isinstance(image, str):
                skipped[name] = image
                continue
            try:
                features = extraction.features(image, clock)
            except cv2.error as error:
                skipped[name] = f"OpenCV cannot process it: {error}"
                continue
            write_image(file, name, features, extraction.dtype)
            check()
            keypoints += len(features.frames)
        report = Report(len(batch.names) - len(skipped), keypoints, skipped, clock.seconds)
        file.attrs[SETTINGS] = batch.settings
        file.attrs["names"] = json.dumps(batch.names)
        file.attrs["report"] = json.dumps(vars(report))
    return report


def finished(batch: Batch) -> Report | None:
    """The report of a batch whose partial file is whole; None if it has to be done."""
    try:
        with open_part(batch) as file:
            stored = json.loads(text_attribute(file, "report") or "")
            skipped = {str(name): str(why) for name, why in stored["skipped"].items()}
            done, keypoints = int(stored["done"]), int(stored["keypoints"])
        if {*skipped} <= {*batch.names} and done == len(batch.names) - len(skipped):
            return Report(0, keypoints, skipped, dict.fromkeys(STAGES, 0.0), kept=done)
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        pass  # not there, or cut off by a full disk or a power failure
    return None


@contextmanager
def open_part(batch: Batch) -> Iterator[Any]:
    """The partial file of a batch; ValueError if it is not this batch with these settings."""
    with open_hdf5(batch.part) as file:
        content = text_attribute(file, SETTINGS), text_attribute(file, "names")
        if content != (batch.settings, json.dumps(batch.names)):
            raise ValueError(f"{batch.part} holds other images, or was made with other settings")
        yield file


def ahead(
    batch: Batch, clock: Clock, first: Future[Decoded] | None = None
) -> Iterator[tuple[str, NDArray[np.uint8] | str]]:
    """Name and gray image, or why there is none; meanwhile the next one is decoded."""
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
        if isinstance(error, FileNotFoundError):
            image = "not found"
        elif path.is_file() and path.stat().st_size == 0:
            image = "empty file"
        else:
            image = reason(error).replace(f"{path}: ", "").replace(f"{path} ", "").strip()
    return image, time.thread_time() - start

"""Reconstruction with COLMAP: KD descriptors, matches, a model, and SIFT beside it."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kd_cv.checks import as_int
from kd_cv.collection import Collection, Extraction, extract, reading
from kd_cv.collection import database as db
from kd_cv.collection.batches import by_threads
from kd_cv.io.files import PathLike, drafting
from kd_cv.matching.neighbours import RATIO, as_ratio

MODEL = Path("sparse", "0")  # the first of the models, where COLMAP keeps it


@dataclass(frozen=True)
class Row:
    """The result of one reconstruction, a line of the table."""

    descriptor: str
    images: int
    registered: int
    points: int
    track_length: float  # images that see a point, on average
    error: float  # reprojection error in pixels, on average
    matches: int  # verified, over all pairs
    skipped: Mapping[str, str] = field(default_factory=dict)  # name -> reason
    others: Mapping[str, int] = field(default_factory=dict)  # suffix -> files of other kinds


def reconstruct(
    images: PathLike | Collection,
    workspace: PathLike,
    extraction: Extraction | None = None,
    *,
    matcher: db.Matcher = "kd",
    ratio: float = RATIO,
    pairs: PathLike | Sequence[db.Pair] | None = None,
    camera: db.CameraChoice = "auto",
    threads: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Row:
    """Extract, match, verify and reconstruct a collection with COLMAP (extra `sfm`).

    pairs   image names to match, or a file of them (see `db.read_pairs`); all by default
    camera  which photographs share a camera: "auto" goes by their EXIF data
    threads  of the extraction and of COLMAP; by default the number of cores

    The workspace keeps features.h5, database.db and, in sparse/0, the model with the most images.
    Only an interrupted extraction is continued.

    >>> print(table([reconstruct("photographs", "workspace")]))  # doctest: +SKIP
    """
    db.camera_mode(camera)
    ratio = as_ratio(ratio)
    count = -1 if threads is None else as_int(threads, "threads")  # as COLMAP says it
    extraction = extraction or Extraction()
    collection, workspace = Collection.of(images), Path(workspace)
    workspace.mkdir(parents=True, exist_ok=True)
    features, database = workspace / "features.h5", workspace / "database.db"
    runner = partial(by_threads, workers=threads) if threads else None
    summary = extract(
        collection, features, extraction, overwrite=overwrite, progress=progress, runner=runner
    )
    names = [name for name in collection.names if name not in summary.skipped]
    wanted = _pairs(pairs, names)
    with quiet(), drafting(workspace / "draft") as drafts:
        draft = drafts / database.name
        db.write_database(features, collection.root, draft, camera, names)
        db.match_database(draft, features, wanted, matcher=matcher, ratio=ratio, threads=count)
        model = largest_model(draft, collection.root, workspace / MODEL, count)
        for made in (draft, drafts / db.PAIRS):
            os.replace(made, workspace / made.name)
    with db.open_database(database) as target:
        matches = int(target.num_inlier_matches())
    with reading(features) as stored:
        name = stored.descriptor
    counts: tuple[int, int, float, float] = (0, 0, math.nan, math.nan)
    if model is not None:
        counts = (
            model.num_reg_images(), model.num_points3D(), model.compute_mean_track_length(),
            model.compute_mean_reprojection_error(),
        )  # fmt: skip
    return Row(name, len(names), *counts, matches, summary.skipped, summary.others)


def compare(
    images: PathLike | Collection,
    workspace: PathLike,
    extractions: Sequence[Extraction],
    **options: Any,
) -> list[Row]:
    """Reconstruct with each extraction, in a folder of the workspace each.

    KD has keypoints of its own, RootSIFT and SIFT those of cv2.SIFT.
    """
    folders = [e.descriptor if isinstance(e.descriptor, str) else "kd" for e in extractions]
    if len(set(folders)) != len(folders):
        raise ValueError(f"each descriptor once, got {folders}")
    return [
        reconstruct(images, Path(workspace) / folder, extraction, **options)
        for folder, extraction in zip(folders, extractions, strict=True)
    ]


def table(rows: Sequence[Row]) -> str:
    """Format the results as a Markdown table."""
    lines = [
        "| descriptor | registered | points | track length | error (px) | verified matches |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.descriptor} | {r.registered} of {r.images} | {r.points} | {r.track_length:.2f} "
        f"| {r.error:.2f} | {r.matches} |"
        for r in rows
    ]
    return "\n".join(lines)


def _pairs(pairs: PathLike | Sequence[db.Pair] | None, names: Sequence[str]) -> list[db.Pair]:
    if pairs is None:
        return list(itertools.combinations(names, 2))
    listed = db.read_pairs(pairs) if isinstance(pairs, str | os.PathLike) else list(pairs)
    unknown = {name for pair in listed for name in pair} - set(names)
    if unknown:
        raise ValueError(f"pairs name images that are not there: {sorted(unknown)[:5]}")
    return listed


@contextmanager
def quiet() -> Iterator[None]:
    """Only errors of COLMAP are printed."""
    logging = db.load_pycolmap().logging
    level, logging.minloglevel = logging.minloglevel, 2
    try:
        yield
    finally:
        logging.minloglevel = level


def largest_model(
    database: Path, image_root: Path, final: Path, threads: int, **settings: Any
) -> Any:
    """Map, and keep the model with the most images in `final`; None if there is no model.

    settings: of pycolmap.IncrementalPipelineOptions.
    """
    pycolmap = db.load_pycolmap()
    options = {"min_model_size": 3, "num_threads": threads, "random_seed": 0, **settings}
    with drafting(database.with_name("mapping")) as drafts:
        models = pycolmap.incremental_mapping(database, image_root, drafts, options=options)
        best = max(
            models.values(), key=lambda m: (m.num_reg_images(), m.num_points3D()), default=None
        )
        if best is not None:
            whole = drafts / "best"
            whole.mkdir()
            best.write(whole)
            _check_written(whole, best)
            final.parent.mkdir(exist_ok=True)
        if final.exists():
            os.replace(final, drafts / "before")
        if best is not None:
            os.replace(whole, final)
    return best


def _check_written(folder: Path, model: Any) -> None:
    """OSError if a model was not written whole: COLMAP does not check that by itself."""
    try:
        stored = db.load_pycolmap().Reconstruction(folder)
        same = all(
            getattr(stored, count)() == getattr(model, count)()
            for count in ("num_reg_images", "num_points3D", "compute_num_observations")
        )
    except (ValueError, RuntimeError, IndexError):
        same = False
    if not same:
        raise OSError(f"{folder}: the model could not be written, is the disk full?")

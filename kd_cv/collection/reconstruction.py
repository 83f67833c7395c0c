"""Incremental reconstruction by pycolmap."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kd_cv.extras import extra
from kd_cv.io.files import drafting


def load_pycolmap() -> Any:
    return extra("pycolmap", "reconstruction needs pycolmap", "sfm")


@contextmanager
def quiet() -> Iterator[None]:
    """Only errors of COLMAP are printed."""
    logging = load_pycolmap().logging
    level, logging.minloglevel = logging.minloglevel, 2
    try:
        yield
    finally:
        logging.minloglevel = level


def largest_model(
    database: Path, image_root: Path, final: Path, threads: int, **settings: Any
) -> Any:
    """The model with the most images, also kept in the folder `final`; None if there is none.

    settings: of pycolmap.IncrementalPipelineOptions.
    """
    pycolmap = load_pycolmap()
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
        stored = load_pycolmap().Reconstruction(folder)
        same = all(
            getattr(stored, count)() == getattr(model, count)()
            for count in ("num_reg_images", "num_points3D", "compute_num_observations")
        )
    except (ValueError, RuntimeError, IndexError):
        same = False
    if not same:
        raise OSError(f"{folder}: the model could not be written, is the disk full?")

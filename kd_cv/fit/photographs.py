"""Scenes of photographs: each alone, with warps of itself, or all of a folder by structure from
motion.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kd_cv.fit.builders import sfm_scene, warp_scene
from kd_cv.fit.keypoints import detect
from kd_cv.fit.scenes import Scene, View
from kd_cv.io.files import digest
from kd_cv.io.images import read_gray, reduced

PairSource = Literal["none", "warp", "sfm"]
HELD_OUT = 5  # every fifth photograph is kept from the fit, to test on
MAX_SIZE = 1280  # longer side of the photographs, in pixels; larger ones are reduced


class NoScene(ValueError):
    """No folder of photographs gives a reconstruction."""


def check_pairs(pairs: str) -> None:
    """ValueError for an unknown source of pairs."""
    if pairs not in ("none", "warp", "sfm"):
        raise ValueError(f"pairs must be 'none', 'warp' or 'sfm', got {pairs!r}")


def split_photos(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Photographs to fit on and to test on: every fifth, of two to four the last, of one none."""
    held_out = list(paths[HELD_OUT - 1 :: HELD_OUT]) or list(paths[1:][-1:])
    return [path for path in paths if path not in held_out], held_out


def read_reduced(path: Path) -> NDArray[np.uint8] | None:
    """A photograph in gray, reduced to MAX_SIZE; None, with a warning, if it cannot be read."""
    try:
        gray = read_gray(path)
    except (ValueError, OSError) as error:
        warnings.warn(f"photograph skipped: {error}", stacklevel=2)
        return None
    return reduced(gray, MAX_SIZE)


def photo_scenes(
    paths: Sequence[Path],
    pairs: PairSource = "warp",
    *,
    views: int = 4,
    max_keypoints: int = 1000,
    workspace: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Iterator[Scene]:
    """Scenes of photographs, one by one.

    pairs  "none": each photograph alone, without matching pairs; "warp": each with views - 1
           random warps of itself; "sfm": all of a folder by structure from motion
    workspace  a folder in which "sfm" keeps its work, so that an interrupted run can continue
    """
    check_pairs(pairs)
    if pairs == "sfm":
        yield from _sfm_scenes(paths, workspace, max_keypoints, seed)
        return
    for number, path in enumerate(paths):
        gray = read_reduced(path)
        if gray is None:
            continue
        if pairs == "none":
            frames = detect(gray, max_keypoints=max_keypoints)
            yield Scene(path.name, (View(gray, frames, np.arange(len(frames))),))
        else:
            yield warp_scene(
                gray, views, seed + number, name=path.name, max_keypoints=max_keypoints
            )


def _sfm_scenes(
    paths: Sequence[Path],
    workspace: str | os.PathLike[str] | None,
    max_keypoints: int,
    seed: int,
) -> Iterator[Scene]:
    """One scene for each folder that the photographs are in."""
    failure: ValueError | None = None
    built = 0
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary if workspace is None else workspace)
        for folder in sorted({path.parent for path in paths}):
            name = digest(os.fsencode(folder.resolve()), 16)
            # The held-out photographs are in the same folder: show the reconstruction only ours.
            shown = home / name / "photographs" / (folder.resolve().name or "scene")
            shutil.rmtree(shown, ignore_errors=True)
            shown.mkdir(parents=True)
            for path in paths:
                if path.parent == folder:
                    shutil.copyfile(path, shown / path.name)
            try:
                scene = sfm_scene(shown, home / name, max_keypoints=max_keypoints, seed=seed)
            except ValueError as error:
                warnings.warn(f"folder skipped: {error}", stacklevel=2)
                failure = error
                continue
            built += 1
            yield scene
    if failure and not built:
        raise NoScene(str(failure)) from failure

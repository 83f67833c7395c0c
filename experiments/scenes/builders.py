"""Builders of scenes: frames of several views with known correspondences.

- `hpatches_scene` and `sfm_scene` detect keypoints in every view and link them where homographies
  or a reconstruction say that they show the same point. Their errors are the detector's own.
- `exact_scene` carries keypoints of one view into the others by homographies, as in HPatches.
  They are exact but for the jitter.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.scenes.detectors import Detector, detect_frames
from experiments.scenes.jitter import JITTER, JitterLevel, project_frames
from experiments.scenes.links import MAX_FRAMES, link_detected, scene_of
from experiments.scenes.sequences import ImageSet, read_photos, read_sequence
from experiments.scenes.surface import SurfaceMap, registered_views, sparse_model
from kd_cv.checks import as_int
from kd_cv.fit.scenes import Scene
from kd_cv.fit.warps import PointMap, homography_map
from kd_cv.io.files import PathLike
from kd_cv.io.images import read_gray


def hpatches_scene(
    sequence: ImageSet | PathLike,
    detectors: Sequence[Detector] = ("dog",),
    *,
    max_keypoints: int = 4000,
    max_frames: int = MAX_FRAMES,
    seed: int = 0,
) -> Scene:
    if not isinstance(sequence, ImageSet):
        sequence = read_sequence(sequence)
    as_int(max_keypoints, "max_keypoints")
    as_int(max_frames, "max_frames", 2)
    grays, H_1tok = sequence.load_all()
    frames = [detect_frames(gray, detectors, max_keypoints) for gray in grays]

    def point_map(i: int, j: int) -> PointMap:
        return homography_map(H_1tok[j] @ np.linalg.inv(H_1tok[i]))

    ids = link_detected(frames, point_map, itertools.combinations(range(len(grays)), 2))
    rng = np.random.default_rng(seed)
    return scene_of(sequence.name, sequence.images, frames, ids, max_frames, rng)


def exact_scene(
    sequence: ImageSet,
    jitter: JitterLevel,
    detectors: Sequence[Detector] = ("dog",),
    *,
    max_keypoints: int = 4000,
    max_frames: int = MAX_FRAMES,
    everywhere: bool = True,
    seed: int = 0,
) -> Scene:
    """A scene by HPatches' recipe: keypoints of image 1, jittered and carried into images 2, 3, ...

    Keypoints that overlap are dropped, with `everywhere` also those that leave another image.
    """
    if jitter not in JITTER:
        raise ValueError(f"jitter must be one of {list(JITTER)}, got {jitter!r}")
    grays, H_1tok = sequence.load_all()
    rng = np.random.default_rng(seed)
    frames, ids = project_frames(
        detect_frames(grays[0], detectors, max_keypoints),
        [gray.shape for gray in grays],
        [homography_map(H) for H in H_1tok[1:]],
        rng,
        JITTER[jitter],
        everywhere=everywhere,
    )
    return scene_of(sequence.name, sequence.images, frames, ids, max_frames, rng)


def sfm_scene(
    folder: PathLike,
    workspace: PathLike,
    photos: Sequence[Path] | None = None,
    *,
    detectors: Sequence[Detector] = ("dog",),
    max_keypoints: int = 4000,
    seed: int = 0,
) -> Scene:
    """A scene of photographs of one place, by structure from motion (pycolmap, on the CPU).

    The reconstruction gives the surface; keypoints of the detectors in the photographs as they are
    get linked by it (see `SurfaceMap`).

    photos     those of the folder that are shown to it; by default all in it and below it
    workspace  a folder that keeps the database and the model, under names that depend on the
               photographs: what was reconstructed there is read back
    """
    as_int(max_keypoints, "max_keypoints")
    folder = Path(folder)
    names = [path.relative_to(folder).as_posix() for path, _ in read_photos(photos or folder)]
    if len(names) < 3:
        raise ValueError(f"{folder}: 3 photographs or more are needed, {len(names)} can be read")
    model = sparse_model(folder, Path(workspace), names)
    cameras, paths = registered_views(model, folder)
    frames = []
    for path, view in zip(paths, cameras, strict=True):
        gray = read_gray(path)
        if gray.shape != view.shape:
            raise ValueError(f"{path} is {gray.shape}, the reconstruction saw {view.shape}")
        frames.append(detect_frames(gray, detectors, max_keypoints))
    surface = SurfaceMap(cameras)
    ids = link_detected(frames, surface.point_map, surface.view_pairs())
    rng = np.random.default_rng(seed)
    return scene_of(folder.resolve().name, paths, frames, ids, MAX_FRAMES, rng)

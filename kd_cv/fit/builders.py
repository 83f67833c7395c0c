"""Builders of scenes: frames of several views whose correspondence is known by geometry.

Three sources of geometry (a reconstruction, homographies of a sequence, homographies made up for
a photograph) each supply a point map from view to view; the rest is shared (`correspond`):

- by default, keypoints are as the detector finds them in every view, linked where the point map
  says that they show the same point. Their errors are the detector's own.
- with jitter, where there are homographies, keypoints of one view are carried into the others by
  the point map, as in HPatches. They are exact but for the jitter.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_int
from kd_cv.fit.correspond import (
    JITTER,
    Array,
    PointMap,
    homography_map,
    link_detected,
    project_frames,
    scene_of,
)
from kd_cv.fit.keypoints import Detector, detect
from kd_cv.fit.scenes import Scene
from kd_cv.fit.sequences import ImageSet, read_sequence
from kd_cv.fit.surface import SurfaceMap, reconstruct, registered_views
from kd_cv.io.files import PathLike
from kd_cv.io.images import read_gray, read_photos

JitterLevel = Literal["easy", "hard", "tough"]

MAX_FRAMES = 20_000  # of a scene


# ----------------------------------------------------------------------------- homography sequences


def hpatches_scene(
    sequence: ImageSet | PathLike,
    detectors: Sequence[Detector] = ("dog",),
    *,
    jitter: JitterLevel | None = None,
    max_keypoints: int = 4000,
    max_frames: int = MAX_FRAMES,
    seed: int = 0,
) -> Scene:
    """A scene of an image sequence with homographies.

    The keypoints of every image as they are; or, with jitter, by HPatches' recipe: keypoints of
    image 1, those that overlap or leave another image dropped, jittered and carried into images 2,
    3, ...
    """
    if not isinstance(sequence, ImageSet):
        sequence = read_sequence(sequence)
    rng = np.random.default_rng(seed)
    return _homography_scene(
        sequence, detectors, jitter, max_keypoints, max_frames, rng, everywhere=True
    )


def _homography_scene(
    images: ImageSet,
    detectors: Sequence[Detector],
    jitter: JitterLevel | None,
    max_keypoints: int,
    max_frames: int,
    rng: np.random.Generator,
    *,
    everywhere: bool,
) -> Scene:
    if jitter is not None and jitter not in JITTER:
        raise ValueError(f"jitter must be None or one of {list(JITTER)}, got {jitter!r}")
    as_int(max_keypoints, "max_keypoints")
    as_int(max_frames, "max_frames", 2)
    grays, H_1tok = images.load_all()

    def point_map(i: int, j: int) -> PointMap:
        return homography_map(H_1tok[j] @ np.linalg.inv(H_1tok[i]))

    if jitter is None:
        frames_of_views = [detect(gray, detectors, max_keypoints) for gray in grays]
        pairs = itertools.combinations(range(len(grays)), 2)
        ids = link_detected(frames_of_views, point_map, pairs)
    else:
        frames_of_views, ids = project_frames(
            detect(grays[0], detectors, max_keypoints),
            [gray.shape for gray in grays],
            [point_map(0, j) for j in range(1, len(grays))],
            rng,
            JITTER[jitter],
            everywhere=everywhere,
        )
    return scene_of(images.name, images.images, frames_of_views, ids, max_frames, rng)


# ------------------------------------------------------------------------------- single photographs


def warp_scene(
    gray: NDArray[np.uint8],
    n_views: int = 4,
    seed: int = 0,
    *,
    name: str = "photo",
    detectors: Sequence[Detector] = ("dog",),
    jitter: JitterLevel | None = None,
    max_keypoints: int = 2000,
) -> Scene:
    """A scene made of one photograph (H, W): itself and n_views - 1 random warps of it.

    A warp is a random homography (turn, zoom, shift, tilt) with random gain, gamma, blur and noise.
    The views hold their images as arrays.
    """
    as_int(n_views, "n_views", 2)
    if gray.ndim != 2 or gray.dtype != np.uint8:
        raise ValueError(f"photo must be gray uint8 (H, W), got {gray.dtype} {gray.shape}")
    rng = np.random.default_rng(seed)
    images = random_warps(name, gray, n_views, rng)
    return _homography_scene(
        images, detectors, jitter, max_keypoints, MAX_FRAMES, rng, everywhere=False
    )


def random_warps(
    name: str, gray: NDArray[np.uint8], views: int, rng: np.random.Generator
) -> ImageSet:
    """A photograph and views - 1 random warps of it."""
    H_1tok = [np.eye(3), *(random_homography(gray.shape, rng) for _ in range(views - 1))]
    images = [gray, *(relight(warp(gray, H), rng) for H in H_1tok[1:])]
    return ImageSet(name, images, np.stack(H_1tok))


def random_homography(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """About the centre: a turn up to 45 degrees, a zoom up to 1.6, a tilt and a shift."""
    height, width = shape[:2]
    turn, direction = rng.uniform(-np.pi / 4, np.pi / 4), rng.uniform(0, np.pi)
    zoom, stretch = 1.6 ** rng.uniform(-1, 1), 1.3 ** rng.uniform(-1, 1)
    rotation, spin = (
        np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        for angle in (turn, direction)
    )
    H = np.eye(3)
    H[:2, :2] = zoom * rotation @ spin @ np.diag([stretch, 1 / stretch]) @ spin.T
    H[:2, 2] = rng.uniform(-0.1, 0.1, 2) * (width, height)
    H[2, :2] = rng.uniform(-0.3, 0.3, 2) / max(width, height)
    centre = np.array([[1, 0, (width - 1) / 2], [0, 1, (height - 1) / 2], [0, 0, 1]])
    return centre @ H @ np.linalg.inv(centre)


def warp(gray: NDArray[np.uint8], H: Array) -> NDArray[np.uint8]:
    """The image (H, W) seen through a homography, of the same size."""
    height, width = gray.shape
    centre = np.array([[(width - 1) / 2, (height - 1) / 2]])
    zoom = float(np.sqrt(np.abs(np.linalg.det(homography_map(H)(centre)[1][0]))))
    if zoom < 1:  # smooth before shrinking, or the warp aliases
        gray = np.asarray(cv2.GaussianBlur(gray, (0, 0), 0.5 * np.sqrt(1 / zoom**2 - 1) + 0.01))
    # Mirrored borders make no false edge along the old frame of the picture.
    warped = cv2.warpPerspective(
        gray, H, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101
    )
    return np.asarray(warped, dtype=np.uint8)


def relight(gray: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Random blur, gamma, gain and noise."""
    image = cv2.GaussianBlur(gray, (0, 0), rng.uniform(0.05, 1.2)).astype(np.float64) / 255
    image = rng.uniform(0.7, 1.3) * image ** (1.5 ** rng.uniform(-1, 1))
    image += rng.normal(0, rng.uniform(0, 0.02), image.shape)
    return np.clip(np.rint(255 * image), 0, 255).astype(np.uint8)


# ---------------------------------------------------------------------------- structure from motion


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
    model = reconstruct(folder, Path(workspace), names)
    cameras, paths = registered_views(model, folder)
    frames = []
    for path, view in zip(paths, cameras, strict=True):
        gray = read_gray(path)
        if gray.shape != view.shape:
            raise ValueError(f"{path} is {gray.shape}, the reconstruction saw {view.shape}")
        frames.append(detect(gray, detectors, max_keypoints))
    surface = SurfaceMap(cameras)
    ids = link_detected(frames, surface.point_map, surface.view_pairs())
    rng = np.random.default_rng(seed)
    return scene_of(folder.resolve().name, paths, frames, ids, MAX_FRAMES, rng)

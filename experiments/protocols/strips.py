"""Strips of patches as in the HPatches release, made from image sequences with homographies.

The recipe is that of the release: keypoints of three detectors in the first image, one of several
that overlap, whose region lies within all images; easy, hard and tough noise on each; the region
carried into the other images by the homography's local affine map. Three things differ: the release
was made from images of its own resolution with other implementations of the detectors, it picks by
chance which of several overlapping keypoints to keep, and its noise is affine where this one is a
similarity (shift, size and angle), with the same median overlap for easy and hard.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.protocols.patch_sets import STRIP_SIDE
from experiments.protocols.tasks import Tasks, draw_tasks, write_tasks
from experiments.scenes.detectors import detect_frames
from experiments.scenes.jitter import JITTER, REGION, distinct, jittered
from experiments.scenes.sequences import ImageSet
from kd_cv.checks import as_int
from kd_cv.descriptor.frames import Frames, radians
from kd_cv.descriptor.patches import SHARPNESS, Pyramid, max_depth
from kd_cv.fit.warps import PointMap, homography_map
from kd_cv.io.files import replacing

Gray = NDArray[np.uint8]
Patches = NDArray[np.uint8]
Strips = Mapping[str, Patches]  # "ref", "e1", ... "t5": (N, P, P), row n of all the same point

MAX_KEYPOINTS = 1000  # of each detector
LEVELS = {"e": "easy", "h": "hard", "t": "tough"}


def strips_of_sequence(
    sequence: ImageSet, magnification: float = REGION, max_patches: int = 500
) -> dict[str, Patches]:
    """The 16 strips of a sequence of six images; of the points that all images show, at most
    max_patches. magnification: side of a patch in keypoint sizes."""
    as_int(max_patches, "max_patches", 2)
    images, H_1tok = sequence.load_all()
    rng = np.random.default_rng(0)
    frames = detect_frames(images[0], ("sift", "hessian", "harris"), MAX_KEYPOINTS)
    maps = [homography_map(H) for H in H_1tok]
    inside = [
        _within(image.shape, *_affine(frames, point_map, magnification))
        for image, point_map in zip(images, maps, strict=True)
    ]
    frames = frames[np.all(inside, axis=0)]
    frames = frames[distinct(frames, rng)]
    if len(frames) < 2:
        raise ValueError(f"{sequence.name}: {len(frames)} keypoints are seen in all images")
    frames = frames[np.sort(rng.permutation(len(frames))[:max_patches])]

    def strip(k: int, frames: Frames) -> Patches:
        return cut(images[k], *_affine(frames, maps[k], magnification), STRIP_SIDE)

    strips = {"ref": strip(0, frames)}
    for letter, level in LEVELS.items():
        for k in range(1, len(images)):
            strips[f"{letter}{k}"] = strip(k, jittered(frames, JITTER[level], rng))
    return strips


def _affine(
    frames: Frames, point_map: PointMap, magnification: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centres (N, 2), and matrices (N, 2, 2) from the patch, -1/2 to 1/2 wide, to the image."""
    centre, J = point_map(frames[:, :2])
    turn, side = radians(frames[:, 3]), magnification * frames[:, 2]
    c, s = side * np.cos(turn), side * np.sin(turn)
    return centre, J @ np.stack([np.stack([c, -s], 1), np.stack([s, c], 1)], 1)


def _within(
    shape: tuple[int, ...], centre: NDArray[np.float64], A: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Whether the ellipse of each region, of the patch's own width, lies in the image."""
    reach = np.linalg.norm(A, axis=2) / 2  # half the bounding box of an ellipse
    last = np.array(shape[1::-1]) - 1
    with np.errstate(invalid="ignore"):
        return np.asarray(((centre >= reach) & (centre <= last - reach)).all(axis=1))


def cut(
    gray: Gray, centre: NDArray[np.float64], A: NDArray[np.float64], patch_size: int
) -> Patches:
    """Patches (N, P, P) under the affine maps x = centre + A u, u from -1/2 to 1/2 in each axis.

    Each is read from the level of the image pyramid whose pixels are about as dense as its samples;
    outside, the border repeats.
    """
    pitch = np.sqrt(np.abs(np.linalg.det(A))) / patch_size
    depth = np.clip(np.floor(np.log2(pitch) + SHARPNESS), 0, max_depth(gray.shape)).astype(int)
    pyramid = Pyramid.of(np.ascontiguousarray(gray), int(depth.max(initial=0)))
    offset = (np.arange(patch_size) - (patch_size - 1) / 2) / patch_size
    v, u = np.meshgrid(offset, offset, indexing="ij")
    patches = np.empty((len(A), patch_size, patch_size), np.uint8)
    for n, level in enumerate(depth):
        x, y = ((centre[n, i] + A[n, i, 0] * u + A[n, i, 1] * v) / 2**level for i in range(2))
        patches[n] = cv2.remap(
            pyramid.level(level), x.astype(np.float32), y.astype(np.float32), cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )  # fmt: skip
    return patches


def write_strips(folder: str | os.PathLike[str], strips: Strips) -> None:
    """A folder of ref.png, e1.png, ... t5.png that readers of the release can read."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for kind, patches in strips.items():
        coded, data = cv2.imencode(".png", patches.reshape(-1, STRIP_SIDE))
        if not coded:  # a PNG has a million rows at most
            raise ValueError(f"{kind}: {len(patches)} patches do not make an image")
        with replacing(folder / f"{kind}.png") as temporary:
            temporary.write_bytes(data.tobytes())


def save_sequences(
    folder: str | os.PathLike[str], sequences: Iterable[tuple[str, Strips]]
) -> Tasks:
    """Write the strips of sequences in the layout of the release, and tasks for them in `tasks`."""
    contrast, images = {}, []
    for name, strips in sequences:
        write_strips(Path(folder) / name, strips)
        contrast[name] = strips["ref"].std(axis=(1, 2))
        images.append(1 + sum(kind[0] == "e" for kind in strips))
    tasks = draw_tasks(contrast, images=min(images, default=2))
    write_tasks(Path(folder) / "tasks", tasks, "all")
    return tasks

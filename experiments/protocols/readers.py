"""What a protocol is run on: sequences, photographs and their warps, scenes, labelled pairs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.protocols.patch_sets import read_phototourism
from experiments.protocols.verification import (
    MAX_ALL_PAIRS,
    PatchPairs,
    pairs_of_scenes,
    pairs_of_set,
)
from experiments.scenes.builders import exact_scene, hpatches_scene
from experiments.scenes.detectors import Detector
from experiments.scenes.jitter import JitterLevel
from experiments.scenes.sequences import ImageSet, read_photos, read_sequence
from kd_cv.cli.pair import skimage_photo
from kd_cv.fit.scenes import Scene
from kd_cv.fit.warps import random_warps, warp_scene
from kd_cv.io.files import as_folder

Gray = NDArray[np.uint8]

#: Photographs inside scikit-image to fit on, and to test on.
FIT_PHOTOS = ("coffee", "chelsea", "rocket", "brick", "gravel", "grass", "coins", "page")
TEST_PHOTOS = ("astronaut", "camera")


def builtin_photos(names: Iterable[str] = TEST_PHOTOS) -> Iterator[tuple[str, Gray]]:
    """Name and gray image of photographs inside scikit-image."""
    for name in names:
        image = skimage_photo(name)
        gray = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        yield name, np.asarray(gray, np.uint8)


def read_images(folder: str | os.PathLike[str]) -> list[ImageSet]:
    """The sequences in a folder of them, or the one that the folder is."""
    folder = as_folder(folder)
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    sequences = [read_sequence(place) for place in places if _has_homography(place)]
    if not sequences:
        raise ValueError(f"{folder} holds no sequences: no files H_1_2 or H1to2p")
    return sequences


def image_sets(folders: Iterable[str | os.PathLike[str]]) -> Iterable[ImageSet]:
    """The sequences of folders; without any, built-in photographs and their warps."""
    sets = [images for folder in folders for images in read_images(folder)]
    return sets or warped_images(builtin_photos())


def _has_homography(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("H_1_2", "H1to2p"))


def warped_images(
    photos: Iterable[tuple[str, Gray]], views: int = 4, seed: int = 0
) -> Iterator[ImageSet]:
    """Photographs, each with views - 1 random warps of itself, as `warp_scene` makes them."""
    for number, (name, gray) in enumerate(photos):
        yield ImageSet(name, *random_warps(gray, views, np.random.default_rng([seed, number])))


def builtin_scenes(
    names: Iterable[str] = FIT_PHOTOS,
    jitter: JitterLevel | None = None,
    views: int = 4,
    max_keypoints: int = 800,
) -> list[Scene]:
    """Scenes of photographs inside scikit-image and their warps.

    Keypoints as detected; with jitter those of the photograph itself, carried over with that noise.
    """
    return [
        photo_scene(name, gray, views, seed, jitter, max_keypoints)
        for seed, (name, gray) in enumerate(builtin_photos(names))
    ]


def photo_scene(
    name: str, gray: Gray, views: int, seed: int, jitter: JitterLevel | None, max_keypoints: int
) -> Scene:
    if jitter is None:
        return warp_scene(gray, views, seed, name=name, max_keypoints=max_keypoints)
    images = ImageSet(name, *random_warps(gray, views, np.random.default_rng(seed)))
    return exact_scene(images, jitter, max_keypoints=max_keypoints, everywhere=False, seed=seed)


def labelled_pairs(data: str | os.PathLike[str] | None, patch_size: int = 64) -> PatchPairs:
    """Labelled patches of whatever a folder holds: a Phototourism set, image sequences with
    homographies, or photographs, which are warped. Without a folder: built-in photographs.
    """
    if data is None:
        return pairs_of_scenes(builtin_scenes(TEST_PHOTOS, "hard"), patch_size)
    if is_phototourism(data):
        patch_set = read_phototourism(data)
        every = len(patch_set) <= MAX_ALL_PAIRS
        return pairs_of_set(patch_set, "all" if every else "m50")
    return pairs_of_scenes(scenes_of(data), patch_size)


def scenes_of(data: str | os.PathLike[str], jitter: JitterLevel | None = None) -> Iterator[Scene]:
    """Scenes of a folder of image sequences, or of photographs and their warps.

    Keypoints as detected; with jitter those of the first image, carried over with that noise.
    """
    folder = as_folder(data)
    if any(_has_homography(place) for place in [folder, *folder.iterdir()]):
        for sequence in read_images(folder):
            if jitter:
                detectors: tuple[Detector, ...] = ("dog", "hessian", "harris")
                yield exact_scene(sequence, jitter, detectors, max_keypoints=1500, max_frames=4000)
            else:
                yield hpatches_scene(sequence, max_keypoints=1000)
        return
    for number, (path, gray) in enumerate(read_photos(folder)):
        yield photo_scene(path.name, gray, 3, number, jitter, 800)


def is_phototourism(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds patch sheets."""
    return any(Path(folder).glob("patches*.bmp"))

"""The benchmark's photograph and its keypoints, described by the default descriptor."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.patches import extract_patches
from kd_cv.gray import as_gray
from kd_cv.keypoints import from_keypoints
from kd_cv.opencv.kd_descriptor import KDDescriptor
from kd_cv.types import KeyPoints

PANEL = 512
MOSAIC = "astronaut, grass, gravel and motorcycle of scikit-image side by side"


@dataclass(frozen=True)
class Config:
    """How much is measured."""

    rounds: int = 9  # turns of each rival
    seconds: float = 1.0  # or more turns, if all those fit in this time
    processes: int = 5  # new processes for the first call and the import
    keypoints: tuple[int, ...] = (500, 4000, 20000)
    patch_sizes: tuple[int, ...] = (32, 64)
    growth: tuple[int, ...] = (250, 500, 1000, 2000, 4000, 8000, 16000)
    stage_keypoints: int = 4000
    batch: int = 1024  # patches described at once
    memory_keypoints: int = 200_000
    # height, width and keypoints asked for (0: all) of images that are detected in
    images: tuple[tuple[int, int, int], ...] = (
        (480, 640, 2000),
        (480, 640, 0),
        (1024, 1024, 2000),
        (1024, 1024, 0),
    )
    # the same of images that take seconds, and their rounds
    large_images: tuple[tuple[int, int, int], ...] = (
        (3000, 4000, 2000),
        (3000, 4000, 8000),
        (3000, 4000, 0),
    )
    large_rounds: int = 3
    # height, width and keypoints of the image of torch's pipelines
    feature_image: tuple[int, int, int] = (480, 640, 2000)


QUICK = Config(rounds=3, seconds=0.2, processes=1, large_rounds=1)


@dataclass(frozen=True, eq=False)
class Inputs:
    """A gray photograph (H, W) uint8 and what is needed of it."""

    name: str
    image: NDArray[np.uint8]

    def keypoints(self, count: int) -> KeyPoints:
        """The strongest SIFT keypoints, as the detector orders them; fewer if there are fewer."""
        return _detected(self, count)

    def patches(self, count: int, patch_size: int) -> NDArray[np.float32]:
        """(count, P, P) patches at its keypoints, repeated if there are too few."""
        frames = from_keypoints(self.keypoints(count))
        patches = extract_patches(self.image, frames, patch_size)
        return np.ascontiguousarray(np.resize(patches, (count, patch_size, patch_size)))

    def descriptor(self, patch_size: int, scales: int = 1) -> KDDescriptor:
        """The default descriptor: whitened by the shipped matrices to 128 dimensions."""
        return KDDescriptor(patch_size=patch_size, scales=scales)

    def save(self, folder: Path, count: int) -> None:
        """Image and frames as inputs.npz, for other processes."""
        frames = from_keypoints(self.keypoints(count))
        np.savez(folder / "inputs.npz", image=self.image, frames=frames)


@lru_cache(maxsize=16)
def _detected(inputs: Inputs, count: int) -> KeyPoints:
    # Faint keypoints and edges too: a photograph of a million pixels then has 20,000.
    sift = cv2.SIFT_create(count, contrastThreshold=0.0, edgeThreshold=20)
    # The detector may keep one more, where two are equally strong.
    keypoints = tuple(sift.detect(inputs.image, None)[:count])
    if not keypoints:
        raise ValueError(f"SIFT finds no keypoint in {inputs.name}")
    return keypoints


def load_inputs(path: str | os.PathLike[str] | None = None) -> Inputs:
    """A photograph from a file, or four of scikit-image's as one of 1024 x 1024."""
    if path is not None:
        from kd_cv.io.images import read_gray

        return Inputs(Path(path).name, read_gray(path))
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            "the built-in photograph comes with scikit-image: pip install 'kd-cv[cli]', "
            "or give one with --image"
        ) from error
    photographs = [data.astronaut(), data.grass(), data.gravel(), data.stereo_motorcycle()[0]]
    a, b, c, d = (_panel(photograph) for photograph in photographs)
    return Inputs(MOSAIC, np.block([[a, b], [c, d]]))


def _panel(photograph: NDArray[np.uint8]) -> NDArray[np.uint8]:
    gray = as_gray(photograph[..., ::-1] if photograph.ndim == 3 else photograph)
    side = min(gray.shape)
    return np.asarray(cv2.resize(gray[:side, :side], (PANEL, PANEL)), dtype=np.uint8)

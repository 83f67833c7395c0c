"""Image sequences with homographies, as HPatches and Oxford publish them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import resizing
from kd_cv.io.files import PathLike, as_folder, read_text, refused_as
from kd_cv.io.images import PHOTO_SUFFIXES, list_photos, read_gray, read_or_skip, reduced

Gray = NDArray[np.uint8]


@dataclass(frozen=True)
class ImageSet:
    """Images 1..K of one plane (or from one place) and the homographies from image 1.

    images: K paths or gray arrays. H_1tok: (K, 3, 3); H_1tok[k - 1] maps image 1 to image k.
    """

    name: str
    images: Sequence[Path | Gray]
    H_1tok: NDArray[np.float64]

    def load(self, index: int) -> Gray:
        """One of the images, counted from 0."""
        image = self.images[index]
        return image if isinstance(image, np.ndarray) else read_gray(image)

    def load_all(self, max_size: int | None = None) -> tuple[list[Gray], NDArray[np.float64]]:
        """The images, reduced to at most `max_size` pixels a side, and their homographies."""
        grays, shrinks = [], []
        for whole in map(self.load, range(len(self.images))):
            grays.append(reduced(whole, max_size))
            shrinks.append(resizing(whole.shape, grays[-1].shape))
        return grays, np.stack(
            [S @ H @ np.linalg.inv(shrinks[0]) for S, H in zip(shrinks, self.H_1tok, strict=True)]
        )


def read_sequence(folder: PathLike) -> ImageSet:
    """Read an image sequence with homographies: HPatches (1.ppm, H_1_2) or Oxford (img1, H1to2p).

    Images are numbered from 1 without a gap; every one but the first has its homography.
    """
    folder = as_folder(folder)
    numbered: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"(?:img)?([1-9]\d{0,3})", path.stem)
        if not match or path.suffix.lower() not in PHOTO_SUFFIXES or not path.is_file():
            continue
        number = int(match[1])
        if number in numbered:
            raise ValueError(f"{folder}: {numbered[number].name} and {path.name} are both {number}")
        numbered[number] = path
    if len(numbered) < 2 or max(numbered) != len(numbered):
        raise ValueError(
            f"{folder}: expected images 1, 2, ... (or img1, img2, ...), "
            f"found {[numbered[k].name for k in sorted(numbered)]}"
        )
    H_1tok = [np.eye(3)]
    for k in range(2, len(numbered) + 1):
        names = (f"H_1_{k}", f"H1to{k}p")
        files = [folder / name for name in names if (folder / name).is_file()]
        if not files:
            raise ValueError(f"{folder} has neither {names[0]} nor {names[1]}")
        H_1tok.append(read_homography(files[0]))
    images = tuple(numbered[k] for k in sorted(numbered))
    return ImageSet(folder.resolve().name, images, np.stack(H_1tok))


def read_homography(path: PathLike) -> NDArray[np.float64]:
    """A 3 x 3 matrix from a text file, its numbers separated by blanks or commas."""
    with refused_as(f"{path} is not a homography", ValueError):
        values = np.array(read_text(path, 4096).replace(",", " ").split(), dtype=np.float64)
    if values.size != 9 or not np.isfinite(values).all():
        raise ValueError(f"{path}: a homography is 9 finite numbers, got {values.size}")
    H = values.reshape(3, 3)
    scale = np.abs(H).max()
    if scale == 0 or abs(np.linalg.det(H / scale)) < 1e-15:
        raise ValueError(f"{path}: the homography is singular")
    return H


def read_photos(
    photos: PathLike | Sequence[Path],
) -> Iterator[tuple[Path, NDArray[np.uint8]]]:
    """Path and 8-bit gray image (H, W) of photographs: those listed, or all in a folder.

    A photograph that cannot be read is skipped with a warning; ValueError if none can.
    """
    paths = list_photos(photos) if isinstance(photos, (str, os.PathLike)) else photos
    read = 0
    for path in paths:
        image = read_or_skip(path)
        if image is not None:
            read += 1
            yield path, image
    if not read:
        raise ValueError(f"none of the {len(paths)} photographs in {paths[0].parent} can be read")

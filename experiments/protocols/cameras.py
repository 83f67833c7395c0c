"""Photographs with known cameras, from the files of those who measured them.

Three formats, each a folder of files beside or apart from the photographs:

- Strecha's: `NAME.camera` for each photograph: K (3 x 3), a row of zeros, the rotation from camera
  to world, the centre, and the width and height that K is for;
- COLMAP's model, binary or text, with cameras without distortion (extra `sfm`);
- `poses.txt`: a line for each photograph, its name and then K, R (both 3 x 3, by rows) and t.

Everywhere X_camera = R X_world + t, and the centre of the first pixel is (0, 0).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.collection.database import load_pycolmap
from kd_cv.descriptor.frames import from_corner, resizing
from kd_cv.io.files import read_text
from kd_cv.io.images import read_gray
from kd_cv.matching.two_view import as_camera

Float64 = NDArray[np.float64]

MAX_BYTES = 2**28  # of a file of cameras
ROTATION_TOLERANCE = 1e-3  # files are rounded


@dataclass(frozen=True)
class CameraView:
    """A photograph, its camera matrix K (3, 3), and its pose R (3, 3), t (3,)."""

    image: Path
    K: Float64
    R: Float64
    t: Float64

    def __post_init__(self) -> None:
        as_camera(self.K, f"K of {self.image.name}")
        off = np.abs(self.R @ self.R.T - np.eye(3)).max()
        if self.R.shape != (3, 3) or self.t.shape != (3,) or not off <= ROTATION_TOLERANCE:
            raise ValueError(
                f"{self.image.name}: R must be a rotation and t (3,), off by {off:.2g}"
            )


def read_cameras(
    photos: str | os.PathLike[str], cameras: str | os.PathLike[str] | None = None
) -> list[CameraView]:
    """The photographs of a folder whose cameras are known, by name.

    cameras: the folder with the files of cameras; by default that of the photographs.
    """
    photos = Path(photos)
    folder = photos if cameras is None else Path(cameras)
    if any((folder / f"images{ending}").is_file() for ending in (".bin", ".txt")):
        views = _read_colmap(photos, folder)
    elif (folder / "poses.txt").is_file():
        views = _read_poses(photos, folder / "poses.txt")
    else:
        views = [
            _read_strecha(photos / path.stem, path)
            for path in sorted(folder.glob("*.camera"))
            if (photos / path.stem).is_file()
        ]
    if len(views) < 2:
        raise ValueError(
            f"{folder} has the cameras of {len(views)} photographs of {photos}: expected "
            "NAME.camera, a model of COLMAP or poses.txt, for two photographs or more"
        )
    return sorted(views, key=lambda view: view.image.name)


def read_scenes(
    photos: Sequence[Path], cameras: Sequence[Path]
) -> list[tuple[str, list[CameraView]]]:
    """Name and views of each scene, from a folder of photographs and one of cameras for each."""
    if len(cameras) != len(photos):
        raise ValueError(f"{len(photos)} scenes need as many --cameras, got {len(cameras)}")
    return [
        (folder.resolve().name, read_cameras(folder, poses))
        for folder, poses in zip(photos, cameras, strict=True)
    ]


def _read_strecha(image: Path, path: Path) -> CameraView:
    numbers = _numbers(read_text(path, MAX_BYTES).split(), path)
    if len(numbers) != 26:
        raise ValueError(f"{path} has {len(numbers)} numbers, a camera of Strecha's has 26")
    K, R_to_world, centre = numbers[:9].reshape(3, 3), numbers[12:21].reshape(3, 3), numbers[21:24]
    R, size = R_to_world.T, numbers[24:]
    if not (size > 0).all():
        raise ValueError(f"{image.name}: its camera is for an image of {size.tolist()} pixels")
    # The photograph may be a reduced copy of that image.
    to_image = resizing(size[::-1].tolist(), read_gray(image).shape)
    return CameraView(image, to_image @ K, R, -R @ centre)


def _read_poses(photos: Path, path: Path) -> list[CameraView]:
    views = []
    for name, *words in _rows(path, 22):
        numbers = _numbers(words, path)
        K, R, t = numbers[:9].reshape(3, 3), numbers[9:18].reshape(3, 3), numbers[18:]
        views.append(CameraView(_photo(photos, name), K, R, t))
    return views


def _read_colmap(photos: Path, folder: Path) -> list[CameraView]:
    model = load_pycolmap().Reconstruction(folder)
    views = []
    for image in model.images.values():
        lens = model.cameras[image.camera_id]
        if lens.model.name not in ("PINHOLE", "SIMPLE_PINHOLE"):
            raise ValueError(
                f"{folder}: camera {image.camera_id} is a {lens.model.name}; only PINHOLE and "
                "SIMPLE_PINHOLE have no distortion: undistort the photographs first"
            )
        if image.has_pose:
            K, pose = lens.calibration_matrix(), image.cam_from_world().matrix()
            K[:2, 2] = from_corner(K[:2, 2])
            views.append(CameraView(_photo(photos, image.name), K, pose[:, :3], pose[:, 3]))
    return views


def _rows(path: Path, fewest: int) -> list[list[str]]:
    """The words, `fewest` or more, of every line that is not a comment."""
    lines = [line for line in read_text(path, MAX_BYTES).splitlines() if not line.startswith("#")]
    rows = [line.split() for line in lines if line.strip()]
    for words in rows:
        if len(words) < fewest:
            raise ValueError(f"{path}: {' '.join(words)!r} has fewer than {fewest} words")
    return rows


def _photo(photos: Path, name: str) -> Path:
    path = photos / name
    if not path.resolve().is_relative_to(photos.resolve()) or not path.is_file():
        raise ValueError(f"{photos} has no photograph {name!r}")
    return path


def _numbers(values: Iterable[Any], path: Path) -> Float64:
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not np.isfinite(numbers).all():
        raise ValueError(f"{path} has a number that is not finite")
    return numbers

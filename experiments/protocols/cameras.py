"""Photographs with known cameras, from the files of those who measured them.

Three formats, each a folder of files beside or apart from the photographs:

- Strecha's: `NAME.camera` for each photograph: K (3 x 3), a row of zeros, the rotation from camera
  to world, the centre, and the width and height that K is for;
- COLMAP's model: `cameras.bin` and `images.bin`, or the same as text (.txt), with cameras without
  distortion;
- `poses.txt`: a line for each photograph, its name and then K, R (both 3 x 3, by rows) and t.

Everywhere X_camera = R X_world + t, and the centre of the first pixel is (0, 0).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from kd_cv.descriptor.frames import from_corner, resizing
from kd_cv.io.files import read_bytes, read_text
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
    colmap = [
        ending
        for ending in (".bin", ".txt")
        if all((folder / (name + ending)).is_file() for name in ("cameras", "images"))
    ]
    if colmap:
        views = _read_colmap(photos, folder, colmap[0])
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
            "NAME.camera, cameras and images (.bin, .txt) or poses.txt, for two photographs or more"
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


def _read_colmap(photos: Path, folder: Path, ending: str) -> list[CameraView]:
    in_cameras, in_images = folder / f"cameras{ending}", folder / f"images{ending}"
    binary = ending == ".bin"
    cameras = {}
    for number, model, values in _binary_cameras(in_cameras) if binary else _cameras(in_cameras):
        if model == "SIMPLE_PINHOLE" and len(values) == 3:
            fx, fy, cx, cy = values[0], *values
        elif model == "PINHOLE" and len(values) == 4:
            fx, fy, cx, cy = values
        else:
            raise ValueError(
                f"{in_cameras}: camera {number} is a {model} of {len(values)} numbers; "
                "only PINHOLE, of 4, and SIMPLE_PINHOLE, of 3, have no distortion: undistort the "
                "photographs first"
            )
        cx, cy = from_corner(np.array([cx, cy]))
        cameras[number] = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])
    views = []
    for number, pose, camera, name in _binary_images(in_images) if binary else _images(in_images):
        quaternion, t = np.roll(pose[:4], -1), pose[4:]  # SciPy has the real part last
        if not quaternion.any() or camera not in cameras:
            raise ValueError(f"{in_images}: image {number} has no rotation or camera")
        R = Rotation.from_quat(quaternion).as_matrix()
        views.append(CameraView(_photo(photos, name), cameras[camera], R, t))
    return views


# Of a model, as text or not: number, model and parameters of each camera; number, quaternion and
# translation, number of the camera and name of each image.
_Cameras = Iterable[tuple[str, str, Float64]]
_Images = Iterable[tuple[str, Float64, str, str]]


def _cameras(path: Path) -> _Cameras:
    for words in _rows(path, 7):
        yield words[0], words[1], _numbers(words[4:], path)


def _images(path: Path) -> _Images:
    for words in _rows(path, 10, every=2):
        yield words[0], _numbers(words[1:8], path), words[8], words[9]


def _binary_cameras(path: Path) -> _Cameras:
    """The caller stops at a model with distortion, whose number of parameters is not known here."""
    parameters = {0: ("SIMPLE_PINHOLE", 3), 1: ("PINHOLE", 4)}
    read = _Binary(path)
    for _ in range(read("Q")[0]):
        number, kind, _, _ = read("iiQQ")
        model, count = parameters.get(kind, (f"model {kind}", 0))
        yield str(number), model, _numbers(read(f"{count}d"), path)


def _binary_images(path: Path) -> _Images:
    read = _Binary(path)
    for _ in range(read("Q")[0]):
        number, *values, camera = read("i7di")
        pose, name = _numbers(values, path), read.name()
        read.take(24 * read("Q")[0])  # its points: x, y and the number of the point in space
        yield str(number), pose, str(camera), name


class _Binary:
    """Numbers and names of a file, one after the other, little-endian."""

    def __init__(self, path: Path) -> None:
        self._path, self._data, self._at = path, read_bytes(path, MAX_BYTES), 0

    def __call__(self, kinds: str) -> tuple[Any, ...]:
        return struct.unpack("<" + kinds, self.take(struct.calcsize("<" + kinds)))

    def name(self) -> str:
        """What comes before the next zero."""
        end = self._data.find(b"\0", self._at)
        last = len(self._data) if end < 0 else end  # without a zero the file is cut off
        return self.take(last + 1 - self._at)[:-1].decode("utf-8")

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        start, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise ValueError(f"{self._path} is cut off: it ends after {len(self._data)} bytes")
        return self._data[start : self._at]


def _rows(path: Path, fewest: int, every: int = 1) -> list[list[str]]:
    """The words, `fewest` or more, of every n-th line that is not a comment: in images.txt points
    follow each image, and may be an empty line."""
    lines = [line for line in read_text(path, MAX_BYTES).splitlines() if not line.startswith("#")]
    rows = [line.split() for line in lines[::every] if line.strip()]
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

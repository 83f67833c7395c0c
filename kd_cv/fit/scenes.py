"""Scenes: views of one place whose frames are linked by the points that they show."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.io.archive import read_npz
from kd_cv.io.files import replacing
from kd_cv.io.images import read_gray

NO_POINT = -1  # point id of a patch whose 3D point is not known
MAX_SCENE_BYTES = 2**31  # uncompressed; 20,000 frames take 1 MB


@dataclass(frozen=True)
class View:
    """One image of a scene with the frames found in it.

    image: path of the image, or the gray uint8 image itself (H, W).
    frames: (N, 4) float64, columns x, y, size, angle in OpenCV's convention.
    point_ids: (N,) int64; the same id in two views of a scene is the same physical point.
    """

    image: Path | NDArray[np.uint8]
    frames: NDArray[np.float64]
    point_ids: NDArray[np.int64]

    def __post_init__(self) -> None:
        frames = np.asarray(self.frames, dtype=np.float64)
        point_ids = np.asarray(self.point_ids)
        if frames.ndim != 2 or frames.shape[1] != 4:
            raise ValueError(f"frames must have shape (N, 4), got {frames.shape}")
        if point_ids.shape != (len(frames),) or not np.issubdtype(point_ids.dtype, np.integer):
            raise ValueError(
                f"point_ids must be {len(frames)} integers, one a frame, "
                f"got {point_ids.dtype} of shape {point_ids.shape}"
            )
        if not np.isfinite(frames).all():
            raise ValueError("frames must be finite")
        if isinstance(self.image, np.ndarray):
            if self.image.ndim != 2 or self.image.dtype != np.uint8:
                raise ValueError(
                    f"image must be a gray uint8 array (H, W), "
                    f"got {self.image.dtype} of shape {self.image.shape}"
                )
        else:
            object.__setattr__(self, "image", Path(self.image))
        object.__setattr__(self, "frames", frames)
        object.__setattr__(self, "point_ids", point_ids.astype(np.int64))

    def load(self) -> NDArray[np.uint8]:
        """The gray uint8 image (H, W)."""
        return self.image if isinstance(self.image, np.ndarray) else read_gray(self.image)


@dataclass(frozen=True)
class Scene:
    """Views of one place whose frames are linked by point ids."""

    name: str
    views: tuple[View, ...]

    def pairs(self, i: int, j: int) -> NDArray[np.int64]:
        """Frames of view i and view j that show the same point: (M, 2) row indices."""
        _, rows_i, rows_j = np.intersect1d(
            self.views[i].point_ids, self.views[j].point_ids, return_indices=True
        )
        return np.stack([rows_i, rows_j], axis=1).astype(np.int64)

    def all_pairs(self) -> NDArray[np.int64]:
        """Every two frames of the same point in different views.

        Returns (M, 2) rows into the frames of all views stacked in order.
        """
        offsets = np.cumsum([0, *(len(view.frames) for view in self.views)])
        pairs = [
            self.pairs(i, j) + offsets[[i, j]]
            for i, j in itertools.combinations(range(len(self.views)), 2)
        ]
        return np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)

    def save(self, path: str | os.PathLike[str], image_root: str | os.PathLike[str]) -> None:
        """Write an .npz without pickle; images are named by their path below image_root.

        An image held as an array is stored inside the file. The file appears whole or not at all.
        """
        root = Path(image_root).resolve()
        names: list[str] = []
        arrays: dict[str, Any] = {}
        for index, view in enumerate(self.views):
            if isinstance(view.image, np.ndarray):
                names.append("")
                arrays[f"image_{index}"] = view.image
                continue
            image = view.image.resolve()
            if not image.is_relative_to(root):
                raise ValueError(f"image {image} is not below image_root {root}")
            names.append(image.relative_to(root).as_posix())
        frames = [view.frames for view in self.views]
        point_ids = [view.point_ids for view in self.views]
        arrays |= {
            "name": np.array(self.name, dtype=np.str_),
            "images": np.array(names, dtype=np.str_),
            "counts": np.array([len(f) for f in frames], dtype=np.int64),
            "frames": np.concatenate([np.empty((0, 4)), *frames]),
            "point_ids": np.concatenate([np.empty(0, np.int64), *point_ids]),
        }
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], image_root: str | os.PathLike[str]) -> Scene:
        """Read a scene written by save; images are looked for below image_root."""
        path, root = Path(path), Path(image_root)
        try:
            arrays = read_npz(path, MAX_SCENE_BYTES)
            names = [str(name) for name in arrays["images"]]
            counts = arrays["counts"].astype(np.int64, casting="safe")
            frames = arrays["frames"].astype(np.float64, casting="safe")
            point_ids = arrays["point_ids"].astype(np.int64, casting="safe")
            if counts.ndim != 1 or len(counts) != len(names):
                raise ValueError("counts and images do not agree")
            if (
                ((counts < 0) | (counts > len(frames))).any()
                or counts.sum() != len(frames)
                or len(frames) != len(point_ids)
            ):
                raise ValueError("counts, frames and point_ids do not agree")
            cuts = np.cumsum(counts)[:-1]
            parts = zip(names, np.split(frames, cuts), np.split(point_ids, cuts), strict=False)
            views = []
            for index, (name, view_frames, view_ids) in enumerate(parts):
                image = root / _inside(name) if name else arrays[f"image_{index}"]
                views.append(View(image, view_frames, view_ids))
            return cls(str(arrays["name"]), tuple(views))
        except FileNotFoundError:
            raise
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise ValueError(f"{path} is not a scene file: {error}") from error


def _inside(name: str) -> PurePosixPath:
    """A relative path that stays below its root."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or "\\" in name or "\0" in name:
        raise ValueError(f"image path {name!r} leaves its folder")
    return relative

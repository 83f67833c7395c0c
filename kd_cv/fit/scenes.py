"""Scenes: views of one place whose frames are linked by the points that they show."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import as_frames
from kd_cv.io.images import read_gray

NO_POINT = -1  # point id of a patch whose 3D point is not known


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
        frames, point_ids = as_frames(self.frames), np.asarray(self.point_ids)
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


def seen_twice(points: NDArray[np.int64], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Which of the points were seen twice or more; a random choice if they were seen too often."""
    seen, count = np.unique(points, return_counts=True)
    seen, count = seen[count >= 2], count[count >= 2]
    order = rng.permutation(len(seen))
    return np.sort(seen[order[np.cumsum(count[order]) <= most]])


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

"""Scenes: views of one place whose frames are linked by the points that they show; their
descriptors, and the statistics that a whitening is fitted from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import Frames, as_frames
from kd_cv.descriptor.projection import Array32
from kd_cv.descriptor.spec import Spec
from kd_cv.io.images import read_gray
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.trained import Sample

Describe = Callable[[NDArray[np.uint8], Frames], Array32]

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


class SceneDescriptors(NamedTuple):
    """Descriptors X (N, D) of a scene, its matching pairs (M, 2) of rows, and the points (N,)."""

    X: Array32
    pairs: NDArray[np.int64]
    points: NDArray[np.int64]


def describe_scene(scene: Scene, describe: Describe) -> SceneDescriptors:
    """Describe all views of a scene.

    Frames that cannot be described are left out, and so are their pairs.
    """
    if not scene.views:
        raise ValueError(f"scene {scene.name!r} has no views")
    X = np.concatenate([describe(view.load(), view.frames) for view in scene.views])
    described = np.asarray(X.any(axis=1))
    row = np.cumsum(described) - 1  # of each frame among the described ones
    pairs = scene.all_pairs()
    points = np.concatenate([view.point_ids for view in scene.views])
    return SceneDescriptors(
        X[described], row[pairs[described[pairs].all(axis=1)]], points[described]
    )


def scene_statistics(scenes: Iterable[Scene], describe: Describe, dim: int) -> Statistics:
    """Statistics of the descriptors of scenes and of their matching pairs.

    describe(gray, frames) gives rows (N, dim). One scene is in memory at a time.
    """
    statistics = Statistics(dim)
    for scene in scenes:
        if scene.views:
            X, pairs, _ = describe_scene(scene, describe)
            statistics.update(X, pairs)
    return statistics


def kernel_part(X: Array32, concat: Spec, kernel: str) -> Array32:
    """Raw descriptors (N, D) of a kernel, out of those of the concatenation (N, 238)."""
    if kernel == "concat":
        return X
    rows = X[:, concat.parts[("polar", "cart").index(kernel)]]
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


class Samples:
    """Samples of at most MAX_SCENES scenes, of MAX_ROWS rows each: memory does not grow with the
    number of scenes, and each of them is as likely to be kept as any other."""

    MAX_SCENES = 64
    MAX_ROWS = 4000

    def __init__(self, seed: int = 0) -> None:
        self.kept: list[Sample] = []
        self._seen = 0
        self._rng = np.random.default_rng(seed)

    def add(self, sample: Sample) -> None:
        """Keep it, or not (Vitter's reservoir)."""
        self._seen += 1
        if len(self.kept) < self.MAX_SCENES:
            self.kept.append(sample)
        elif (place := int(self._rng.integers(self._seen))) < self.MAX_SCENES:
            self.kept[place] = sample

    @classmethod
    def of(cls, X: Array32, points: NDArray[np.int64], seed: int = 0) -> Sample:
        """Of the rows X (N, D) of a scene those of points (N,) that were seen twice or more; of
        too many, a random choice of points."""
        rows = np.isin(points, seen_twice(points, cls.MAX_ROWS, np.random.default_rng(seed)))
        return Sample(X[rows], points[rows])

"""Scenes: linked views of one place, their descriptors, and statistics to fit a whitening."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import Frames
from kd_cv.descriptor.projection import Array32
from kd_cv.descriptor.spec import Spec
from kd_cv.io.images import read_gray
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.trained import Sample

Describe = Callable[[NDArray[np.uint8], Frames], Array32]

NO_POINT = -1  # point id of a patch whose 3D point is not known


class View(NamedTuple):
    """An image of a scene: a gray uint8 array (H, W) or its path; its frames and their points.

    frames: (N, 4) x, y, size, angle. point_ids: (N,) int64, equal for the same physical point.
    """

    image: Path | NDArray[np.uint8]
    frames: NDArray[np.float64]
    point_ids: NDArray[np.int64]

    def load(self) -> NDArray[np.uint8]:
        """Return the gray uint8 image (H, W)."""
        return self.image if isinstance(self.image, np.ndarray) else read_gray(self.image)


def seen_twice(points: NDArray[np.int64], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the points seen twice or more; a random choice if they have over `most` frames."""
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
        """Return the frames of view i and of view j that show the same point: (M, 2) indices."""
        ids = self.views[i].point_ids, self.views[j].point_ids
        return np.stack(np.intersect1d(*ids, return_indices=True)[1:], axis=1).astype(np.int64)

    def all_pairs(self) -> NDArray[np.int64]:
        """Return matching frames of all views: (M, 2) indices into the frames of all views."""
        offsets = np.cumsum([0, *(len(view.frames) for view in self.views)])
        pairs = [
            self.pairs(i, j) + offsets[[i, j]]
            for i, j in itertools.combinations(range(len(self.views)), 2)
        ]
        return np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)


def describe_scene(
    scene: Scene, describe: Describe
) -> tuple[Array32, NDArray[np.int64], NDArray[np.int64]]:
    """Return descriptors X (N, D) of a scene, indices of pairs (M, 2), and the points (N,)."""
    X = np.concatenate([describe(view.load(), view.frames) for view in scene.views])
    described = np.asarray(X.any(axis=1))
    index = np.cumsum(described) - 1  # of each frame among the described ones
    pairs = scene.all_pairs()
    points = np.concatenate([view.point_ids for view in scene.views])
    return X[described], index[pairs[described[pairs].all(axis=1)]], points[described]


def scene_statistics(scenes: Iterable[Scene], describe: Describe, dim: int) -> Statistics:
    """Compute statistics of the descriptors (N, dim) of scenes and of their matching pairs."""
    statistics = Statistics(dim)
    for scene in scenes:
        if scene.views:
            X, pairs, _ = describe_scene(scene, describe)
            statistics.update(X, pairs)
    return statistics


def kernel_part(X: Array32, concat: Spec, kernel: str) -> Array32:
    """Cut the raw descriptors (N, D) of a kernel out of those of the concatenation (N, 238)."""
    if kernel == "concat":
        return X
    part = X[:, concat.parts[("polar", "cart").index(kernel)]]
    return part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12)


class Samples:
    """A random choice of MAX_SCENES scenes, of MAX_ROWS descriptors each."""

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
        """Make a sample of the descriptors X (N, D) whose points (N,) were seen twice or more."""
        kept = np.isin(points, seen_twice(points, cls.MAX_ROWS, np.random.default_rng(seed)))
        return Sample(X[kept], points[kept])

"""From scenes to fitted matrices: describe, accumulate, whiten.

`scene_statistics` is the one way from scenes (views, frames, point ids) to the statistics that a
whitening is fitted from; `fit_whitening` is the one recipe from statistics to matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import Frames
from kd_cv.descriptor.projection import Array32
from kd_cv.descriptor.spec import Spec
from kd_cv.fit.scenes import Scene, seen_twice
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.trained import Sample, train
from kd_cv.whitening.variants import eig, supervised
from kd_cv.whitening.whitening import Whitening

Describe = Callable[[NDArray[np.uint8], Frames], Array32]

# Attenuation of C_M in W_S; the paper has 1. In image matching 0.9 gains up to 0.7 points of
# average precision where pairs are few, and loses 0.1 at most where they are many.
SUPERVISED_T = 0.9


class Described(NamedTuple):
    """Descriptors X (N, D) of a scene, its matching pairs (M, 2) of rows, and the points (N,)."""

    X: Array32
    pairs: NDArray[np.int64]
    points: NDArray[np.int64]


def describe_scene(scene: Scene, describe: Describe) -> Described:
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
    return Described(X[described], row[pairs[described[pairs].all(axis=1)]], points[described])


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


def part(X: Array32, concat: Spec, kernel: str) -> Array32:
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


def fit_whitening(
    statistics: Statistics,
    provenance: Mapping[str, Any] | None = None,
    *,
    max_dim: int | None = None,
    samples: Sequence[Sample] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Whitening:
    """Fit all variants, W_S by one recipe for any descriptor and any number of pairs.

    provenance, max_dim: see `Whitening.fit`. samples: descriptors of scenes, to train W_M on (see
    `train`, also for progress); without them there is no W_M.
    """
    index = shrink_index(statistics.pair_count, statistics.dim)
    whitening = Whitening.fit(
        statistics,
        max_dim=max_dim,
        shrink_index=index,
        supervised_t=SUPERVISED_T,
        provenance=provenance,
    )
    if not samples:
        return whitening
    C = statistics.C
    A_s = supervised(C, statistics.C_M, index, t=SUPERVISED_T)
    mu_m, A_m = train(samples, statistics.mean, A_s, whitening.max_dim, progress=progress)
    # Only the span of the columns matters: turn them so that the first ones say the most.
    turn, _ = eig(A_m.T @ C @ A_m)
    return replace(
        whitening,
        A_m=(A_m @ turn).astype(np.float32),
        mu_m=mu_m.astype(np.float32),
        provenance={
            **whitening.provenance,
            "trained_on": {"scenes": len(samples), "patches": sum(len(s.X) for s in samples)},
        },
    )


def shrink_index(pairs: int, dim: int) -> int | None:
    """Which eigenvalue of C_M shrinks it: i = D n / (n + 2 D) for n pairs; None if that is D.

    The smallest eigenvalues of a C_M of few pairs are too small by chance, and W_S divides by them.
    With twice as many pairs as dimensions the smaller half is not believed; with many, all are.

    >>> [shrink_index(n, 238) for n in (238, 476, 2380, 250_000)]
    [79, 119, 198, None]
    """
    index = round(dim * pairs / (pairs + 2 * dim))
    return None if index >= dim else max(1, index)

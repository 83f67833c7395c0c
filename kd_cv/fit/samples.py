"""Descriptors of scenes, kept to train on: a limited number of them, however many there are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kd_cv.types import Array32
from kd_cv.whitening.trained import Sample


class Samples:
    """Samples of at most MAX_SCENES scenes, of MAX_ROWS rows each: any of the scenes seen as likely
    as any other, so that memory does not grow with their number."""

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
        seen, count = np.unique(points, return_counts=True)
        seen, count = seen[count >= 2], count[count >= 2]
        order = np.random.default_rng(seed).permutation(len(seen))
        rows = np.isin(points, seen[order[np.cumsum(count[order]) <= cls.MAX_ROWS]])
        return Sample(X[rows], points[rows])

"""Pairs of images with known geometry, matched and scored.

A protocol gives images, the true geometry of pairs, and the score; `Measure` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.protocols.cache import Cache
from experiments.protocols.candidates import Candidate
from experiments.protocols.scores import PairScore, Progress, Score, summaries, tell
from kd_cv.checks import as_int, as_positive
from kd_cv.keypoints import from_keypoints
from kd_cv.matching.neighbours import RATIO, as_ratio

SEEDS = 6  # how often the robust estimate is made of each pair, its matches in another order

Gray = NDArray[np.uint8]
Float64 = NDArray[np.float64]
#: Points (N, 2) of an image and their descriptors (N, D), None without points.
PointDescriptors = tuple[Float64, NDArray[np.float32] | None]


class Views(NamedTuple):
    """Images of one place, and pairs of them: two indices, and the true geometry."""

    name: str
    grays: Sequence[Gray]
    pairs: Sequence[tuple[int, int, Any]]


#: Yields each candidate or pipeline (it has a name and a kind) with the features of all images.
Describe = Callable[[Views], Iterator[tuple[Any, Sequence[PointDescriptors]]]]


class NothingToMatch(ValueError):
    """No two images have a keypoint in common."""


@dataclass(frozen=True)
class Measure:
    """How pairs of images are matched and scored.

    threshold  pixels from the true place up to which a match is correct, or an inlier
    ratio      largest ratio of the matches that the robust estimate is made from
    seeds      how often it is made, with the matches in another order each time
    against    name of the candidate that the others are compared with
    """

    threshold: float = 3.0
    ratio: float = RATIO
    seeds: int = SEEDS
    against: str | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        as_positive(self.threshold, "threshold")
        as_ratio(self.ratio)
        as_int(self.seeds, "seeds")

    def scores(
        self,
        data: Iterable[Views],
        describe: Describe,
        score: Callable[[PointDescriptors, PointDescriptors, Any, Measure], PairScore | None],
        thresholds: Sequence[int],
    ) -> list[Score]:
        """The scores of every candidate or pipeline; a pair whose score is None does not count."""
        tables: dict[str, list[PairScore]] = {}
        kinds: dict[str, str] = {}
        dims: dict[str, int] = {}
        for views in data:
            for by, features in describe(views):
                pairs = (score(features[i], features[j], true, self) for i, j, true in views.pairs)
                tables.setdefault(by.name, []).extend(pair for pair in pairs if pair is not None)
                kinds[by.name] = by.kind
                widths = [
                    descriptors.shape[1] for _, descriptors in features if descriptors is not None
                ]
                dims[by.name] = max(widths, default=dims.get(by.name, 0))
            tell(self.progress, views.name)
        if not any(tables.values()):
            raise NothingToMatch("there is no pair of images with keypoints in common")
        values = summaries(tables, thresholds, self.against)
        return [Score(name, kinds[name], dims[name], values[name]) for name in tables]


AS_USUAL = Measure()


def orders(count: int, seeds: int) -> Iterator[NDArray[np.int64]]:
    return (np.random.default_rng(seed).permutation(count) for seed in range(seeds))


def at_keypoints(candidates: Iterable[Candidate], max_keypoints: int, cache: Cache) -> Describe:
    """Describe with candidates, all at the same SIFT keypoints of an image."""
    detector = cv2.SIFT_create(max_keypoints)

    def describe(views: Views) -> Iterator[tuple[Candidate, list[PointDescriptors]]]:
        frames = [from_keypoints(detector.detect(gray, None)) for gray in views.grays]
        for candidate in candidates:
            yield (
                candidate,
                [
                    (seen[:, :2], cache.frames(f"{views.name}.{k}", candidate, gray, seen))
                    for k, (gray, seen) in enumerate(zip(views.grays, frames, strict=True), start=1)
                ],
            )

    return describe

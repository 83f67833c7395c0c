"""Labelled pairs of patches, and how well candidates tell them apart: the Phototourism protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments.protocols import metrics
from experiments.protocols.cache import NO_CACHE, Cache
from experiments.protocols.candidates import Array32, Candidate, Patches
from experiments.protocols.patch_sets import PatchSet
from experiments.protocols.scores import Progress, Score, tell
from kd_cv.descriptor.patches import extract_patches
from kd_cv.fit.scenes import NO_POINT, Scene

Pairs = NDArray[np.int64]

MAX_ALL_PAIRS = 5000  # patches whose pairs are all compared: 12 million


@dataclass(frozen=True)
class PatchPairs:
    """Patches (N, P, P), pairs (M, 2) of them, and labels (M,): True where both show one point."""

    patches: Patches
    pairs: Pairs
    labels: NDArray[np.bool_]

    def fpr95(self, rows0: Array32, rows1: Array32 | None = None) -> float:
        """FPR95 (%) of descriptors (N, D); rows1 stands for the second patch of each pair."""
        rows1 = rows0 if rows1 is None else rows1
        distances = metrics.pair_distances(rows0[self.pairs[:, 0]], rows1[self.pairs[:, 1]])
        return metrics.fpr95(distances, self.labels)


def pairs_of_set(patch_set: PatchSet, pairs: Literal["all", "m50"] = "all") -> PatchPairs:
    """The pairs of a patch set: of its m50 file, or every two patches whose points are known.

    With "all", two identical patches that are said to show different points are left out: no
    descriptor can tell them apart.
    """
    if pairs == "m50":
        if not len(patch_set.pairs):
            raise ValueError("the patch set has no m50 file of pairs, or several: name one")
        return PatchPairs(patch_set.patches, patch_set.pairs, patch_set.labels)
    known = np.flatnonzero(patch_set.point_ids != NO_POINT)
    if not 2 <= len(known) <= MAX_ALL_PAIRS:
        raise ValueError(
            f"all pairs are compared of 2 to {MAX_ALL_PAIRS} labelled patches, got {len(known)}; "
            "take the pairs of an m50 file instead"
        )
    i, j = np.triu_indices(len(known), 1)
    i, j = known[i], known[j]
    labels = patch_set.point_ids[i] == patch_set.point_ids[j]
    flat = patch_set.patches.reshape(len(patch_set), -1)
    look = np.unique(flat, axis=0, return_inverse=True)[1].ravel()
    keep = labels | (look[i] != look[j])
    all_pairs = np.stack([i, j], axis=1)[keep].astype(np.int64)
    return PatchPairs(patch_set.patches, all_pairs, labels[keep])


def pairs_of_scenes(
    scenes: Iterable[Scene], patch_size: int = 64, max_pairs: int = 5000
) -> PatchPairs:
    """Matching pairs of scenes, at most max_pairs, and as many that do not match."""
    rng = np.random.default_rng(0)
    patches, groups, matching = [], [], []
    count = points = 0
    for scene in scenes:
        for view in scene.views:
            cut = extract_patches(view.load(), view.frames, patch_size)
            patches.append(np.rint(255 * cut).astype(np.uint8))
            groups.append(view.point_ids + points)
        matching.append(scene.all_pairs() + count)
        count += sum(len(view.frames) for view in scene.views)
        points += 1 + max((int(v.point_ids.max(initial=0)) for v in scene.views), default=0)
    same = np.concatenate(matching) if matching else np.empty((0, 2), np.int64)
    if not len(same) or points < 2:
        raise ValueError("the scenes have no matching pairs")
    point = np.concatenate(groups)
    same = same[np.sort(rng.permutation(len(same))[:max_pairs])]
    other = rng.integers(0, count, (4 * len(same) + 100, 2))
    other = other[point[other[:, 0]] != point[other[:, 1]]][: len(same)]
    used, rows = np.unique(np.concatenate([same, other]), return_inverse=True)
    labels = np.arange(len(same) + len(other)) < len(same)
    return PatchPairs(np.concatenate(patches)[used], rows.reshape(-1, 2), labels)


def patch_verification(
    labelled: PatchPairs,
    candidates: Iterable[Candidate],
    cache: Cache = NO_CACHE,
    name: str = "patches",
    progress: Progress | None = None,
) -> list[Score]:
    """FPR95 of candidates on labelled pairs: values "fpr95"."""
    scores = []
    for candidate in candidates:
        descriptors = cache.patches(name, candidate, labelled.patches)
        values = {"fpr95": labelled.fpr95(descriptors)}
        scores.append(Score(candidate.name, candidate.kind, descriptors.shape[1], values))
        tell(progress, candidate.name)
    return scores

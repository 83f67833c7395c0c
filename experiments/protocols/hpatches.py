"""The three tasks of HPatches, on strips of patches, scored as the benchmark itself scores them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.protocols import metrics
from experiments.protocols.cache import NO_CACHE, Cache
from experiments.protocols.candidates import Array32, Candidate
from experiments.protocols.scores import Progress, Score, tell
from experiments.protocols.strips import LEVELS, Strips
from experiments.protocols.tasks import Table, Tasks, draw_tasks

Descriptors = Mapping[str, Mapping[str, Array32]]  # sequence -> strip -> (N, D)

_CHUNK = 1 << 16  # pairs compared at a time


def hpatches(
    sequences: Iterable[tuple[str, Strips]],
    candidates: Sequence[Candidate],
    *,
    tasks: Tasks | None = None,
    cache: Cache = NO_CACHE,
    progress: Progress | None = None,
) -> list[Score]:
    """The three tasks of HPatches: values "verification", "matching", "retrieval" (mAP).

    sequences  name and strips (see `read_hpatches_release`, `strips_of_sequence`), one by one
    tasks      of the benchmark's files (`read_tasks`); by default drawn from the sequences
    Each value is the mean over the levels of jitter that there are. Verification is the imbalanced
    task, the mean of non-matching pairs of one sequence and of several. Retrieval is over the whole
    pool, and needs two sequences.
    """
    descriptors: dict[str, dict[str, dict[str, Array32]]] = {c.name: {} for c in candidates}
    contrast: dict[str, NDArray[np.float64]] = {}
    images = []
    for name, strips in sequences:
        images.append(1 + _others(name, strips))
        contrast[name] = strips["ref"].std(axis=(1, 2))
        # One file for a sequence: its strips on top of one another.
        stacked = np.concatenate(list(strips.values()))
        cuts = np.cumsum([len(strip) for strip in strips.values()])[:-1]
        for candidate in candidates:
            parts = np.split(cache.patches(name, candidate, stacked), cuts)
            descriptors[candidate.name][name] = dict(zip(strips, parts, strict=True))
        tell(progress, name)
    if not contrast:
        raise ValueError("there are no sequences")
    if tasks is None:
        tasks = draw_tasks(contrast, images=min(images))
    tasks.check({name: len(values) for name, values in contrast.items()}, min(images))
    return [
        Score(
            c.name,
            c.kind,
            _dim(descriptors[c.name]),
            scores_of_descriptors(descriptors[c.name], tasks),
        )
        for c in candidates
    ]


def scores_of_descriptors(descriptors: Descriptors, tasks: Tasks) -> dict[str, float]:
    """The values (%) of descriptors (N, D) of all strips of the sequences that the tasks name."""
    values: dict[str, list[float]] = {}
    for letter, level in LEVELS.items():
        if not all(f"{letter}1" in descriptors[name] for name in tasks.sequences):
            continue
        near, far = _verification(descriptors, letter, tasks)
        task = {
            "verification": (near + far) / 2,
            "matching": _matching(descriptors, letter, tasks),
        }
        values[f"verification {level} near"], values[f"verification {level} far"] = [near], [far]
        if len(tasks.sequences) > 1 and len(tasks.queries):
            task["retrieval"] = _retrieval(descriptors, letter, tasks)
        for key, value in task.items():
            values.setdefault(key, []).append(value)
            values[f"{key} {level}"] = [value]
    return {key: 100 * float(np.mean(levels)) for key, levels in values.items()}


def _others(name: str, strips: Strips) -> int:
    """How many images there are beside the reference: as many at every level."""
    levels = {kind[0] for kind in strips} & set(LEVELS)
    count = max((int(kind[1:]) for kind in strips if kind[0] in levels), default=1)
    wanted = ["ref", *(f"{letter}{k}" for letter in levels or "e" for k in range(1, count + 1))]
    missing = sorted(set(wanted) - set(strips))
    if missing:
        raise ValueError(f"{name}: the strip {missing[0]!r} is missing")
    return count


def _of_level(strips: Mapping[str, Array32], letter: str) -> list[Array32]:
    return [strips[kind] for kind in sorted(strips) if kind[0] == letter]


def _dim(descriptors: Descriptors) -> int:
    return next(iter(descriptors.values()))["ref"].shape[1]


def _verification(descriptors: Descriptors, letter: str, tasks: Tasks) -> tuple[float, float]:
    """Average precision of the imbalanced task with pairs of one sequence, and of several."""
    images = [[descriptors[n]["ref"], *_of_level(descriptors[n], letter)] for n in tasks.sequences]
    counts = np.array([len(strips[0]) for strips in images])
    starts = np.cumsum([0, *(len(strips) * len(strips[0]) for strips in images[:-1])])
    every = np.concatenate([strip for strips in images for strip in strips])

    def distances(table: Table) -> NDArray[np.float64]:
        row0, row1 = (
            starts[table[:, i]] + table[:, i + 1] * counts[table[:, i]] + table[:, i + 2]
            for i in (0, 3)
        )
        return np.concatenate(
            [
                metrics.pair_distances(every[row0[a : a + _CHUNK]], every[row1[a : a + _CHUNK]])
                for a in range(0, len(table), _CHUNK)
            ]
        )

    positive = distances(tasks.positive)
    near, far = (
        metrics.verification(positive, distances(table)) for table in (tasks.near, tasks.far)
    )
    return near, far


def _matching(descriptors: Descriptors, letter: str, tasks: Tasks) -> float:
    precisions = [
        metrics.matching(descriptors[name]["ref"], other)
        for name in tasks.sequences
        for other in _of_level(descriptors[name], letter)
    ]
    return float(np.mean(precisions))


def _retrieval(descriptors: Descriptors, letter: str, tasks: Tasks) -> float:
    """Mean over the queries: the same patch in the other images is to be found among distractors
    of other sequences."""

    def of(table: Table, kind: str) -> Array32:
        picked = [descriptors[tasks.sequences[s]][kind][patch] for s, patch in table.tolist()]
        return np.stack(picked) if picked else np.empty((0, _dim(descriptors)), np.float32)

    images = min(len(_of_level(descriptors[name], letter)) for name in tasks.sequences)
    kinds = [f"{letter}{k}" for k in range(1, images + 1)]
    others = np.stack([of(tasks.queries, kind) for kind in kinds], axis=1)
    ap = metrics.retrieval(
        of(tasks.queries, "ref"), others, of(tasks.distractors, "ref"),
        tasks.queries[:, 0], tasks.distractors[:, 0],
    )  # fmt: skip
    return float(ap.mean())

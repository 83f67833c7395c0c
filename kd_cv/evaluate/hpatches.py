"""The three tasks of HPatches, on strips of patches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import Frames
from kd_cv.descriptor.sampling import extract_patches
from kd_cv.evaluate import metrics
from kd_cv.evaluate.cache import Cache
from kd_cv.evaluate.candidates import Array32, Candidate, Patches
from kd_cv.evaluate.scores import Progress, Score, tell
from kd_cv.fit.builders import JitterLevel, hpatches_scene
from kd_cv.fit.correspond import REGION
from kd_cv.fit.sequences import ImageSequence
from kd_cv.io.images import read_gray

Gray = NDArray[np.uint8]
Strips = Mapping[str, Patches]  # "ref", "e1", ... "t5": (N, P, P), row n of all the same point
Rows = Mapping[str, Mapping[str, Array32]]  # sequence -> strip -> (N, D)

LEVELS: dict[str, JitterLevel] = {"e": "easy", "h": "hard", "t": "tough"}


def strips_of_sequence(
    sequence: ImageSequence,
    patch_size: int = 65,
    magnification: float = REGION,
    max_patches: int = 500,
    max_keypoints: int = 1000,
    seed: int = 0,
) -> dict[str, Patches]:
    """Strips as in the HPatches release, built by its recipe from an image sequence.

    Of the points that all strips show, at most max_patches; an image that shows less than half of
    the points has no strips.
    """
    strip_frames: dict[str, dict[tuple[float, ...], list[float]]] = {}  # by frame in image 1
    for level, jitter in LEVELS.items():
        scene = hpatches_scene(
            sequence, jitter=jitter, max_keypoints=max_keypoints, max_frames=10**9, seed=seed
        )
        if not scene.views:  # nothing was detected
            break
        number = {view.image: index for index, view in enumerate(scene.views)}
        for k, path in enumerate(sequence.images[1:], start=1):
            rows = scene.pairs(0, number[path]) if path in number else np.empty((0, 2), np.int64)
            # The keypoint in image 1 tells which point it is; jitter comes after it.
            seeds = map(tuple, scene.views[0].frames[rows[:, 0]].tolist())
            seen = scene.views[number.get(path, 0)].frames[rows[:, 1]].tolist()
            strip_frames[f"{level}{k}"] = dict(zip(seeds, seen, strict=True))
    # An image seen too obliquely for most points is left out, or there would be none.
    most = max(map(len, strip_frames.values()), default=0)
    few = {kind[1:] for kind, seen in strip_frames.items() if len(seen) < most / 2}
    strip_frames = {kind: seen for kind, seen in strip_frames.items() if kind[1:] not in few}
    chosen = sorted(set.intersection(*map(set, strip_frames.values()))) if strip_frames else []
    if len(chosen) < 2:
        raise ValueError(f"{sequence.name}: {len(chosen)} keypoints are seen in all images")
    order = np.random.default_rng(seed).permutation(len(chosen))[:max_patches]
    chosen = [chosen[i] for i in np.sort(order)]
    images = [read_gray(path) for path in sequence.images]

    def strip(image: Gray, frames: Frames) -> Patches:
        cut = extract_patches(image, frames, patch_size, magnification)
        return np.rint(255 * cut).astype(np.uint8)

    strips = {"ref": strip(images[0], np.array(chosen))}
    for kind, seen in strip_frames.items():
        frames = np.array([seen[key] for key in chosen])
        strips[kind] = strip(images[int(kind[1:])], frames)
    return strips


def hpatches(
    sequences: Iterable[tuple[str, Strips]],
    candidates: Sequence[Candidate],
    *,
    max_queries: int = 1000,
    max_distractors: int = 5000,
    max_pairs: int = 20_000,
    seed: int = 0,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> list[Score]:
    """The three tasks of HPatches: values "verification", "matching", "retrieval" (mAP).

    sequences  name and strips (see `read_hpatches_release`, `strips_of_sequence`), one by one
    Which pairs and queries are drawn depends on the seed alone. Each value is the mean over the
    levels of jitter there are; retrieval needs two sequences.
    """
    rows: dict[str, dict[str, dict[str, Array32]]] = {c.name: {} for c in candidates}
    for name, strips in sequences:
        # One file for a sequence: its strips on top of one another.
        stacked = np.concatenate(list(strips.values()))
        cuts = np.cumsum([len(strip) for strip in strips.values()])[:-1]
        for candidate in candidates:
            parts = np.split((cache or Cache()).patches(name, candidate, stacked), cuts)
            rows[candidate.name][name] = dict(zip(strips, parts, strict=True))
        tell(progress, name)
    if not any(rows.values()):
        raise ValueError("there are no sequences")
    scores = []
    for candidate in candidates:
        of_candidate = rows[candidate.name]
        values: dict[str, list[float]] = {}
        jitters = sorted({kind[0] for strips in of_candidate.values() for kind in strips} - {"r"})
        for level in jitters:
            rng = np.random.default_rng(seed)
            task = {
                "verification": _verification(of_candidate, level, max_pairs, rng),
                "matching": _matching(of_candidate, level),
            }
            if len(of_candidate) > 1:
                task["retrieval"] = _retrieval(
                    of_candidate, level, max_queries, max_distractors, rng
                )
            for key, value in task.items():
                values.setdefault(key, []).append(value)
                values[f"{key} {LEVELS.get(level, level)}"] = [value]
        dim = next(iter(of_candidate.values()))["ref"].shape[1]
        means = {key: 100 * float(np.mean(levels)) for key, levels in values.items()}
        scores.append(Score(candidate.name, candidate.kind, dim, means))
    return scores


def _of_level(strips: Mapping[str, Array32], level: str) -> list[Array32]:
    return [strips[kind] for kind in sorted(strips) if kind[0] == level]


def _verification(rows: Rows, level: str, max_pairs: int, rng: np.random.Generator) -> float:
    """Average precision of the imbalanced task; non-matching pairs of the same sequence, and of
    different ones where there are several, count alike."""
    names = list(rows)
    same, near, far = [], [], []
    share = max(1, max_pairs // len(names))
    for index, name in enumerate(names):
        ref, others = rows[name]["ref"], _of_level(rows[name], level)
        strangers = _of_level(rows[names[(index + 1) % len(names)]], level)
        i = rng.integers(0, len(ref), share)
        k = rng.integers(0, len(others), share)
        step = rng.integers(1, max(2, len(ref)), share)
        stranger = rng.integers(0, len(strangers[0]), share)
        other = np.stack(others)
        same.append(metrics.pair_distances(ref[i], other[k, i]))
        near.append(metrics.pair_distances(ref[i], other[k, (i + step) % len(ref)]))
        k = rng.integers(0, len(strangers), share)
        far.append(metrics.pair_distances(ref[i], np.stack(strangers)[k, stranger]))
    positive = rng.permutation(np.concatenate(same))  # verification() takes the first fifth
    kinds = [near, far] if len(names) > 1 else [near]
    tasks = [metrics.verification(positive, np.concatenate(kind)) for kind in kinds]
    return float(np.mean([task["ap_imbalanced"] for task in tasks]))


def _matching(rows: Rows, level: str) -> float:
    precisions = [
        metrics.matching(strips["ref"], other)["ap"]
        for strips in rows.values()
        for other in _of_level(strips, level)
    ]
    return float(np.mean(precisions))


def _retrieval(
    rows: Rows, level: str, max_queries: int, max_distractors: int, rng: np.random.Generator
) -> float:
    """Queries and distractors are patches of reference images; the same patches in the other
    images of a query's sequence are to be found among the distractors of other sequences."""
    refs = np.concatenate([strips["ref"] for strips in rows.values()])
    sequence = np.repeat(np.arange(len(rows)), [len(strips["ref"]) for strips in rows.values()])
    pool = rng.permutation(len(refs))[:max_distractors]
    first = np.searchsorted(sequence, sequence)  # row of refs where the sequence begins
    queries = rng.permutation(len(refs))[:max_queries]
    ap = []
    for number, strips in enumerate(rows.values()):
        here = queries[sequence[queries] == number]
        others = np.stack(_of_level(strips, level), axis=1)[here - first[here]]
        ap.append(metrics.retrieval(refs[here], others, refs[pool], sequence[here], sequence[pool]))
    return float(np.concatenate(ap).mean())

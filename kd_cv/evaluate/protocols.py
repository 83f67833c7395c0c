"""Protocols: describe once, score many times.

Every protocol takes candidates (see `candidates`) and gives a `Score` for each, all on the same
patches or keypoints. With a `Cache`, the rows of a candidate are stored by image or patch set, and
only what is missing, or was made by another configuration, is described again.

>>> candidates = make_candidates(["kd", "rootsift"])
>>> for score in image_matching(read_images("sequences"), candidates):
...     print(score.name, score.values["ap"])
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import MAGNIFICATION, Frames, from_keypoints
from kd_cv.descriptor.sampling import extract_patches
from kd_cv.evaluate import metrics
from kd_cv.evaluate.candidates import Array32, Candidate, Patches, Whitened, digest
from kd_cv.fit.builders import (
    JitterLevel,
    hpatches_scene,
    random_homography,
    relight,
    warp,
    warp_scene,
)
from kd_cv.fit.correspond import REGION
from kd_cv.fit.matrices import descriptor_statistics
from kd_cv.io import datasets
from kd_cv.io.datasets import NO_POINT, PatchSet, Scene, read_gray, read_sequence
from kd_cv.io.files import replacing
from kd_cv.matching import find_homography, match_descriptors
from kd_cv.whitening.whitening import Whitening

Gray = NDArray[np.uint8]
Pairs = NDArray[np.int64]
Progress = Callable[[str], None]

MAX_ALL_PAIRS = 5000  # patches whose pairs are all compared: 12 million
RATIO = 0.85  # of the matches that a homography is estimated from
LEVELS: dict[str, JitterLevel] = {"e": "easy", "h": "hard", "t": "tough"}

#: Photographs inside scikit-image: to fit on, and to test on.
FIT_PHOTOS = ("coffee", "chelsea", "rocket", "brick", "gravel", "grass", "coins", "page")
TEST_PHOTOS = ("astronaut", "camera")


@dataclass(frozen=True)
class Score:
    """What a candidate reached; values in percent."""

    name: str
    kind: str
    dim: int
    values: Mapping[str, float]


# --------------------------------------------------------------------------------------------------
# Describe once


@dataclass(frozen=True)
class Cache:
    """Rows in .npz files of a folder, one for each set and candidate; without a folder, none.

    A file says what it was made from and with. If that is not what is asked for, or if the file is
    damaged, it is made anew.
    """

    folder: Path | None = None

    def rows(
        self,
        name: str,
        candidate: Candidate,
        inputs: Sequence[NDArray[Any]],
        describe: Callable[[], Array32],
    ) -> Array32:
        """Rows of a candidate for the set `name`; `inputs` are the arrays that describe() reads."""
        if self.folder is None:
            return describe()
        path = self.folder / f"{_slug(name)}.{_slug(candidate.name)}.npz"
        made_from = {"inputs": digest(*inputs), "candidate": dict(candidate.configuration)}
        wanted = json.dumps(made_from, sort_keys=True)
        stored = _stored_rows(path, wanted)
        if stored is not None:
            return stored
        rows = np.ascontiguousarray(describe(), np.float32)
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, rows=rows, made_from=np.array(wanted))
        return rows

    def patches(self, name: str, candidate: Candidate, patches: Patches) -> Array32:
        return self.rows(name, candidate, [patches], lambda: candidate.of_patches(patches))

    def frames(self, name: str, candidate: Candidate, gray: Gray, frames: Frames) -> Array32:
        return self.rows(name, candidate, [gray, frames], lambda: candidate.at_frames(gray, frames))


def _stored_rows(path: Path, wanted: str) -> Array32 | None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return archive["rows"] if str(archive["made_from"]) == wanted else None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+_]+", "-", name).strip("-.")


# --------------------------------------------------------------------------------------------------
# Labelled pairs of patches


@dataclass(frozen=True)
class PatchPairs:
    """Patches (N, P, P), pairs (M, 2) of them, and labels (M,): True where both show one point."""

    name: str
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
    descriptor can part them.
    """
    if pairs not in ("all", "m50"):
        raise ValueError(f"pairs must be 'all' or 'm50', got {pairs!r}")
    if pairs == "m50":
        if not len(patch_set.pairs):
            raise ValueError("the patch set has no m50 file of pairs, or several: name one")
        return PatchPairs("m50", patch_set.patches, patch_set.pairs, patch_set.labels)
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
    return PatchPairs("all pairs", patch_set.patches, all_pairs, labels[keep])


def pairs_of_scenes(
    scenes: Iterable[Scene],
    patch_size: int = 64,
    magnification: float = MAGNIFICATION,
    max_pairs: int = 5000,
    seed: int = 0,
) -> PatchPairs:
    """Matching pairs of scenes, at most max_pairs, and as many that do not match."""
    rng = np.random.default_rng(seed)
    patches, groups, matching = [], [], []
    count = points = 0
    for scene in scenes:
        for view in scene.views:
            found = extract_patches(view.load(), view.frames, patch_size, magnification)
            patches.append(np.rint(255 * found).astype(np.uint8))
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
    return PatchPairs("scenes", np.concatenate(patches)[used], rows.reshape(-1, 2), labels)


def phototourism(
    patch_set: PatchSet,
    candidates: Iterable[Candidate],
    pairs: Literal["all", "m50"] = "all",
    cache: Cache | None = None,
    name: str = "patches",
    progress: Progress | None = None,
) -> list[Score]:
    """FPR95 of candidates on a Phototourism set."""
    return patch_verification(pairs_of_set(patch_set, pairs), candidates, cache, name, progress)


def patch_verification(
    labelled: PatchPairs,
    candidates: Iterable[Candidate],
    cache: Cache | None = None,
    name: str = "patches",
    progress: Progress | None = None,
) -> list[Score]:
    """FPR95 of candidates on labelled pairs: values "fpr95"."""
    scores = []
    for candidate in candidates:
        rows = (cache or Cache()).patches(name, candidate, labelled.patches)
        values = {"fpr95": labelled.fpr95(rows)}
        scores.append(Score(candidate.name, candidate.kind, rows.shape[1], values))
        _tell(progress, candidate.name)
    return scores


# --------------------------------------------------------------------------------------------------
# HPatches: three tasks on strips of patches


Strips = Mapping[str, Patches]  # "ref", "e1", ... "t5": (N, P, P), row n of all the same point


def strips_of_sequence(
    sequence: datasets.Sequence,
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
    found: dict[str, dict[tuple[float, ...], list[float]]] = {}  # strip -> frame in 1 -> frame
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
            found[f"{level}{k}"] = dict(zip(seeds, seen, strict=True))
    # An image seen too obliquely for most points is left out, or there would be none.
    most = max(map(len, found.values()), default=0)
    few = {kind[1:] for kind, seen in found.items() if len(seen) < most / 2}
    found = {kind: seen for kind, seen in found.items() if kind[1:] not in few}
    chosen = sorted(set.intersection(*map(set, found.values()))) if found else []
    if len(chosen) < 2:
        raise ValueError(f"{sequence.name}: {len(chosen)} keypoints are seen in all images")
    order = np.random.default_rng(seed).permutation(len(chosen))[:max_patches]
    chosen = [chosen[i] for i in np.sort(order)]
    images = [read_gray(path) for path in sequence.images]

    def strip(image: Gray, own: Frames) -> Patches:
        found = extract_patches(image, own, patch_size, magnification)
        return np.rint(255 * found).astype(np.uint8)

    strips = {"ref": strip(images[0], np.array(chosen))}
    for kind, seen in found.items():
        own = np.array([seen[key] for key in chosen])
        strips[kind] = strip(images[int(kind[1:])], own)
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
            found = (cache or Cache()).patches(name, candidate, stacked)
            parts = np.split(found, cuts)
            rows[candidate.name][name] = dict(zip(strips, parts, strict=True))
        _tell(progress, name)
    if not any(rows.values()):
        raise ValueError("there are no sequences")
    scores = []
    for candidate in candidates:
        own = rows[candidate.name]
        values: dict[str, list[float]] = {}
        levels = sorted({kind[0] for strips in own.values() for kind in strips} - {"r"})
        for level in levels:
            rng = np.random.default_rng(seed)
            task = {
                "verification": _verification(own, level, max_pairs, rng),
                "matching": _matching(own, level),
            }
            if len(own) > 1:
                task["retrieval"] = _retrieval(own, level, max_queries, max_distractors, rng)
            for key, value in task.items():
                values.setdefault(key, []).append(value)
                values[f"{key} {LEVELS.get(level, level)}"] = [value]
        dim = next(iter(own.values()))["ref"].shape[1]
        means = {key: 100 * float(np.mean(found)) for key, found in values.items()}
        scores.append(Score(candidate.name, candidate.kind, dim, means))
    return scores


Rows = Mapping[str, Mapping[str, Array32]]  # sequence -> strip -> (N, D)


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
    found = [metrics.verification(positive, np.concatenate(kind)) for kind in kinds]
    return float(np.mean([value["ap_imbalanced"] for value in found]))


def _matching(rows: Rows, level: str) -> float:
    found = [
        metrics.matching(strips["ref"], other)["ap"]
        for strips in rows.values()
        for other in _of_level(strips, level)
    ]
    return float(np.mean(found))


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
        own = queries[sequence[queries] == number]
        others = np.stack(_of_level(strips, level), axis=1)[own - first[own]]
        ap.append(metrics.retrieval(refs[own], others, refs[pool], sequence[own], sequence[pool]))
    return float(np.concatenate(ap).mean())


# --------------------------------------------------------------------------------------------------
# Image matching


class NothingToMatch(ValueError):
    """No two images have a keypoint in common."""


@dataclass(frozen=True)
class ImageSet:
    """Images of one plane, as paths or gray arrays, and the homographies (K, 3, 3) from image 1."""

    name: str
    images: Sequence[Path | Gray]
    H_1tok: NDArray[np.float64]

    def load(self, index: int) -> Gray:
        image = self.images[index]
        return image if isinstance(image, np.ndarray) else read_gray(image)


def find_sequences(folder: str | os.PathLike[str]) -> list[datasets.Sequence]:
    """The sequences in a folder of them, or the one that the folder is."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    found = [read_sequence(place) for place in places if _has_homography(place)]
    if not found:
        raise ValueError(f"{folder} holds no sequences: no files H_1_2 or H1to2p")
    return found


def _has_homography(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("H_1_2", "H1to2p"))


def read_images(folder: str | os.PathLike[str]) -> list[ImageSet]:
    """The image sequences of a folder (see `find_sequences`)."""
    return [ImageSet(s.name, s.images, s.H_1tok) for s in find_sequences(folder)]


def warped_images(
    photos: Iterable[tuple[str, Gray]], views: int = 4, seed: int = 0
) -> Iterator[ImageSet]:
    """Photographs, each with views - 1 random warps of itself, as `warp_scene` makes them."""
    for number, (name, gray) in enumerate(photos):
        rng = np.random.default_rng([seed, number])
        H_1tok = [np.eye(3)] + [random_homography(gray.shape, rng) for _ in range(views - 1)]
        images = [gray] + [relight(warp(gray, H), rng) for H in H_1tok[1:]]
        yield ImageSet(name, images, np.stack(H_1tok))


def builtin_photos(names: Iterable[str] = TEST_PHOTOS) -> Iterator[tuple[str, Gray]]:
    """Name and gray image of photographs inside scikit-image."""
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            "the built-in photographs come with scikit-image: pip install 'kd-cv[cli]'"
        ) from error
    for name in names:
        image = np.asarray(getattr(data, name)())
        gray = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        yield name, np.asarray(gray, np.uint8)


def image_matching(
    sets: Iterable[ImageSet],
    candidates: Sequence[Candidate],
    *,
    max_keypoints: int = 1000,
    threshold: float = 3.0,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> list[Score]:
    """Match image 1 of every set to images 2, 3, ... at the same SIFT keypoints for all.

    Values, means over the pairs of images: "ap" (see `match_scores`), "precision" of mutual
    matches, "auc3", "auc5", "auc10" of the homography's corner error in pixels; and "pairs".
    """
    if max_keypoints < 2 or not 0 < threshold < np.inf:
        raise ValueError(
            f"max_keypoints must be at least 2 and threshold positive, "
            f"got {max_keypoints} and {threshold}"
        )
    detector = cv2.SIFT_create(max_keypoints)
    found: dict[str, list[dict[str, float]]] = {c.name: [] for c in candidates}
    dims: dict[str, int] = {}
    for images in sets:
        grays = [images.load(k) for k in range(len(images.images))]
        frames = [from_keypoints(detector.detect(gray, None)) for gray in grays]
        for candidate in candidates:
            rows = [
                (cache or Cache()).frames(f"{images.name}.{k}", candidate, gray, own)
                for k, (gray, own) in enumerate(zip(grays, frames, strict=True), start=1)
            ]
            dims[candidate.name] = rows[0].shape[1]
            for k in range(1, len(grays)):
                score = match_scores(
                    rows[0], rows[k], frames[0][:, :2], frames[k][:, :2], images.H_1tok[k],
                    grays[0].shape, threshold,
                )  # fmt: skip
                if score is not None:
                    found[candidate.name].append(score)
        _tell(progress, images.name)
    if not any(found.values()):
        raise NothingToMatch("there is no pair of images with keypoints in common")
    scores = []
    for candidate in candidates:
        own = found[candidate.name]
        values = {key: 100 * float(np.mean([s[key] for s in own])) for key in ("ap", "precision")}
        areas = metrics.auc([score["corner_error"] for score in own], (3, 5, 10))
        values |= {f"auc{t}": 100 * float(a) for t, a in zip((3, 5, 10), areas, strict=True)}
        values["pairs"] = len(own)
        scores.append(Score(candidate.name, candidate.kind, dims[candidate.name], values))
    return scores


def match_scores(
    rows0: Array32,
    rows1: Array32,
    points0: NDArray[np.float64],
    points1: NDArray[np.float64],
    H_0to1: NDArray[np.float64],
    shape: tuple[int, ...],
    threshold: float = 3.0,
) -> dict[str, float] | None:
    """Scores in [0, 1] of one pair of images, from rows and positions of their keypoints.

    "ap": average precision of the nearest neighbours of all keypoints of image 0, ranked by ratio.
    A match is correct within threshold pixels of the true place; recall is relative to the
    keypoints of image 0 with any keypoint of image 1 there. "precision": share of correct ones of
    the mutual matches. "corner_error": of the estimated homography, in pixels.
    None if no keypoint could be matched correctly.
    """
    if not len(points0) or not len(points1):
        return None
    truth = metrics.warp_points(points0, H_0to1)
    distance = np.linalg.norm(truth[:, None] - points1[None], axis=2)
    possible = int((distance.min(axis=1) <= threshold).sum())
    if not possible:
        return None
    matches, ratios = match_descriptors(rows0, rows1, mutual=False)
    correct = distance[matches[:, 0], matches[:, 1]] <= threshold
    mutual, mutual_ratios = match_descriptors(rows0, rows1, mutual=True)
    good = distance[mutual[:, 0], mutual[:, 1]] <= threshold
    clear = mutual[mutual_ratios <= RATIO]
    H_found, _ = find_homography(points0[clear[:, 0]], points1[clear[:, 1]], threshold)
    return {
        "ap": metrics.average_precision(-ratios, correct, possible),
        "precision": float(good.mean()) if len(good) else 0.0,
        "corner_error": metrics.homography_corner_error(H_found, H_0to1, shape),
    }


# --------------------------------------------------------------------------------------------------
# Supervised whitening of any descriptor


def with_ws(
    candidate: Candidate,
    scenes: Iterable[Scene],
    *,
    patches: tuple[int, float] | None = None,
    dim: int = 128,
) -> Whitened:
    """The candidate followed by W_S, fitted on its rows of scenes.

    patches  patch size and magnification, if the candidate is to describe patches; by default it is
             fitted on rows of frames
    """

    def describe(gray: Gray, frames: Frames) -> Array32:
        if patches is None:
            return candidate.at_frames(gray, frames)
        found = extract_patches(gray, frames, *patches)
        return candidate.of_patches(np.rint(255 * found).astype(np.uint8))

    D = describe(np.zeros((64, 64), np.uint8), np.array([[32.0, 32.0, 4.0, 0.0]])).shape[1]
    statistics = descriptor_statistics(scenes, describe, D)
    if statistics.pair_count < D:
        raise ValueError(
            f"{candidate.name} + W_S needs {D} matching pairs or more to be fitted on, "
            f"got {statistics.pair_count}"
        )
    whitening = Whitening.fit(statistics, shrink_index=max(1, D // 2))
    return Whitened(candidate, whitening, "ws", dim)


def builtin_scenes(
    names: Iterable[str] = FIT_PHOTOS,
    jitter: JitterLevel | None = None,
    views: int = 4,
    max_keypoints: int = 800,
    seed: int = 0,
) -> list[Scene]:
    """Scenes of photographs inside scikit-image and their warps.

    Keypoints as detected; with jitter those of the photograph itself, carried over with that noise.
    """
    return [
        warp_scene(
            gray, views, seed + i, name=name, frames="projected" if jitter else "detected",
            jitter=jitter, max_keypoints=max_keypoints,
        )
        for i, (name, gray) in enumerate(builtin_photos(names))
    ]  # fmt: skip


# --------------------------------------------------------------------------------------------------
# The paper's curves


def shrinkage_curves(
    labelled: PatchPairs,
    raw: Array32,
    whitening: Whitening,
    ts: Iterable[float],
    beta_indices: Iterable[int],
    dim: int = 128,
) -> dict[str, list[tuple[float, float]]]:
    """FPR95 over t of W_UA and over i of W_US, beta = lam_i, for raw rows (N, D) of the patches."""

    def error(variant: str, **setting: Any) -> float:
        return labelled.fpr95(whitening.apply(raw, variant, min(dim, raw.shape[1]), **setting))

    return {
        "wua": [(t, error("wua", t=t)) for t in ts],
        "wus": [(i, error("wus", beta_index=i)) for i in beta_indices],
    }


def robustness_curves(
    labelled: PatchPairs,
    candidates: Iterable[Candidate],
    *,
    turns: Sequence[float] = (),
    shifts: Sequence[float] = (),
) -> dict[str, list[tuple[float, float]]]:
    """FPR95 when the second patch of each pair is turned (degrees) or shifted (pixels).

    Name of the candidate -> (turn or shift, FPR95).
    """
    moves = [(turn, turn, 0.0) for turn in turns] + [(shift, 0.0, shift) for shift in shifts]
    curves: dict[str, list[tuple[float, float]]] = {}
    for candidate in candidates:
        still = candidate.of_patches(labelled.patches)
        curves[candidate.name] = [
            (value, labelled.fpr95(still, candidate.of_patches(moved(labelled.patches, *move))))
            for value, *move in moves
        ]
    return curves


def moved(patches: Patches, turn: float, shift: float) -> Patches:
    """Patches turned about their centre by degrees and shifted to the right by pixels.

    What comes in from outside repeats the border.
    """
    centre = (patches.shape[1] - 1) / 2
    M = cv2.getRotationMatrix2D((centre, centre), turn, 1.0)
    M[0, 2] += shift
    out = np.empty_like(patches)
    for after, before in zip(out, patches, strict=True):
        after[:] = cv2.warpAffine(
            before, M, before.shape[::-1], flags=cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )  # fmt: skip
    return out


def labelled_pairs(
    data: str | os.PathLike[str] | None,
    *,
    patch_size: int = 64,
    magnification: float = MAGNIFICATION,
    max_pairs: int = 5000,
) -> PatchPairs:
    """Labelled patches of whatever a folder holds: a Phototourism set, image sequences with
    homographies, or photographs, which are warped. Without a folder: built-in photographs.
    """
    settings = (patch_size, magnification, max_pairs)
    if data is None:
        return pairs_of_scenes(builtin_scenes(TEST_PHOTOS, "hard"), *settings)
    if is_phototourism(data):
        patch_set = datasets.read_phototourism(data)
        every = len(patch_set) <= MAX_ALL_PAIRS
        return pairs_of_set(patch_set, "all" if every else "m50")
    return pairs_of_scenes(scenes_of(data), *settings)


def scenes_of(data: str | os.PathLike[str]) -> Iterator[Scene]:
    """Scenes of a folder of image sequences, or of photographs and their warps."""
    folder = Path(data)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    if any(_has_homography(place) for place in [folder, *folder.iterdir()]):
        for sequence in find_sequences(folder):
            yield hpatches_scene(
                sequence, frames="detected", jitter=None, detectors=("dog",), max_keypoints=1000
            )
        return
    for number, (path, gray) in enumerate(datasets.read_photos(folder)):
        yield warp_scene(gray, 3, number, name=path.name, max_keypoints=800)


def is_phototourism(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds patch sheets."""
    return any(Path(folder).glob("patches*.bmp"))


def _tell(progress: Progress | None, what: str) -> None:
    if progress:
        progress(what)

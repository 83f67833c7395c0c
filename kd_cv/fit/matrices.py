"""From scenes to fitted matrices: describe, accumulate, whiten.

`scene_statistics` is the one way from scenes (views, frames, point ids) to the statistics that a
whitening is fitted from; `fit_photos` is the way from a folder of photographs to matrices.

>>> from kd_cv import KDDescriptor
>>> from kd_cv.whitening import save
>>> save("mine.npz", fit_photos("photographs"))
>>> kd = KDDescriptor(weights="mine.npz", whitening="ws")
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import MAGNIFICATION, Frames
from kd_cv.descriptor.projection import Array32
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.detector.keypoints import detect
from kd_cv.fit.builders import sfm_scene, warp_scene
from kd_cv.fit.samples import Samples
from kd_cv.fit.scenes import Scene, View
from kd_cv.io.files import digest
from kd_cv.io.images import list_photos, read_gray, reduced
from kd_cv.settings import Settings
from kd_cv.whitening.files import Key
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


def scene_statistics(
    scenes: Iterable[Scene],
    settings: Settings,
    *,
    progress: Callable[[Scene], None] | None = None,
) -> Statistics:
    """Statistics of the raw descriptors of scenes and of their matching pairs.

    The whitening of the settings is left out. One scene is in memory at a time. progress(scene) is
    called after each.
    """
    raw = settings.raw
    return descriptor_statistics(scenes, raw.rows, raw.descriptor_size, progress)


def descriptor_statistics(
    scenes: Iterable[Scene],
    describe: Describe,
    dim: int,
    progress: Callable[[Scene], None] | None = None,
) -> Statistics:
    """Statistics of any descriptor: describe(gray, frames) gives its rows (N, dim)."""
    statistics = Statistics(dim)
    for scene in scenes:
        if scene.views:
            X, pairs, _ = describe_scene(scene, describe)
            statistics.update(X, pairs)
        if progress:
            progress(scene)
    return statistics


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


# --------------------------------------------------------------------------------------------------
# A folder of photographs


PairSource = Literal["none", "warp", "sfm"]
HELD_OUT = 5  # every fifth photograph is kept from the fit, to test on
Run = Callable[[Callable[[Any], "Share"], Sequence[Any]], Iterable["Share"]]
MAX_SIZE = 1280  # longer side of the photographs, in pixels; larger ones are reduced


class NoScene(ValueError):
    """No folder of photographs gives a reconstruction."""


def check_pairs(pairs: str) -> None:
    """ValueError for an unknown source of pairs."""
    if pairs not in ("none", "warp", "sfm"):
        raise ValueError(f"pairs must be 'none', 'warp' or 'sfm', got {pairs!r}")


def split_photos(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Photographs to fit on and to test on: every fifth, of two to four the last, of one none."""
    held_out = list(paths[HELD_OUT - 1 :: HELD_OUT]) or list(paths[1:][-1:])
    return [path for path in paths if path not in held_out], held_out


def read_reduced(path: Path, max_size: int = MAX_SIZE) -> NDArray[np.uint8] | None:
    """A photograph in gray, its longer side at most max_size; None, with a warning, if it cannot be
    read."""
    try:
        gray = read_gray(path)
    except (ValueError, OSError) as error:
        warnings.warn(f"photograph skipped: {error}", stacklevel=2)
        return None
    return reduced(gray, max_size)


def photo_scenes(
    paths: Sequence[Path],
    pairs: PairSource = "warp",
    *,
    views: int = 4,
    max_keypoints: int = 1000,
    workspace: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Iterator[Scene]:
    """Scenes of photographs, one by one.

    pairs  "none": each photograph alone, without matching pairs; "warp": each with views - 1
           random warps of itself; "sfm": all of a folder by structure from motion
    workspace  a folder in which "sfm" keeps its work, so that an interrupted run goes on
    """
    check_pairs(pairs)
    if pairs == "sfm":
        yield from _sfm_scenes(paths, workspace, max_keypoints, seed)
        return
    for number, path in enumerate(paths):
        gray = read_reduced(path)
        if gray is None:
            continue
        if pairs == "none":
            frames = detect(gray, max_keypoints=max_keypoints)
            yield Scene(path.name, (View(gray, frames, np.arange(len(frames))),))
        else:
            yield warp_scene(
                gray, views, seed + number, name=path.name, max_keypoints=max_keypoints
            )


def _sfm_scenes(
    paths: Sequence[Path],
    workspace: str | os.PathLike[str] | None,
    max_keypoints: int,
    seed: int,
) -> Iterator[Scene]:
    """One scene for each folder that the photographs are in."""
    failure: ValueError | None = None
    found = 0
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary if workspace is None else workspace)
        for folder in sorted({path.parent for path in paths}):
            name = digest(os.fsencode(folder.resolve()), 16)
            # The held-out photographs are in the same folder: show the reconstruction only ours.
            shown = home / name / "photographs" / (folder.resolve().name or "scene")
            shutil.rmtree(shown, ignore_errors=True)
            shown.mkdir(parents=True)
            for path in paths:
                if path.parent == folder:
                    shutil.copyfile(path, shown / path.name)
            try:
                scene = sfm_scene(shown, home / name, max_keypoints=max_keypoints, seed=seed)
            except ValueError as error:
                warnings.warn(f"folder skipped: {error}", stacklevel=2)
                failure = error
                continue
            found += 1
            yield scene
    if failure and not found:
        raise NoScene(str(failure)) from failure


def fit_photos(
    photos: str | os.PathLike[str] | Sequence[Path],
    pairs: PairSource = "warp",
    *,
    kernels: Sequence[str] = KERNELS,
    patch_sizes: Sequence[int] = (32,),
    magnification: float = MAGNIFICATION,
    scales: Sequence[float] = (1.0,),
    views: int = 4,
    max_keypoints: int = 1000,
    workspace: str | os.PathLike[str] | None = None,
    seed: int = 0,
    trained: bool = True,
    progress: Callable[[str], None] | None = None,
    run: Run = map,
) -> dict[Key, Whitening]:
    """Fit matrices on photographs, of a folder or as listed, for every kernel and patch size.

    Memory does not grow with their number. pairs, views, max_keypoints, workspace: see
    `photo_scenes`; without pairs there is no W_S. trained: train W_M too, where there are pairs,
    which takes about a minute for each kernel and patch size. A photograph that cannot be read is
    skipped with a warning. progress(name) is called after each scene, and while W_M is trained.
    run: `map`, or what works like it on other machines (see `cluster.in_order`).
    """
    paths = list_photos(photos) if isinstance(photos, (str, os.PathLike)) else list(photos)
    if not paths:
        raise ValueError("there are no photographs to fit on")
    check_pairs(pairs)
    specs = [Spec(size, kernel) for size in patch_sizes for kernel in kernels]
    statistics = {spec: Statistics(spec.dim) for spec in specs}
    work = partial(
        fit_share,
        pairs=pairs,
        specs=specs,
        magnification=magnification,
        scales=tuple(scales),
        views=views,
        max_keypoints=max_keypoints,
        workspace=workspace,
        sampled=trained and pairs != "none",
    )
    samples = {size: Samples(seed) for size in patch_sizes}
    scenes, problem = 0, ""
    for share in run(work, shares(paths, pairs, seed)):
        for problem in share.problems:
            warnings.warn(problem, stacklevel=2)
        for spec, own in share.statistics.items():
            statistics[spec].merge(own)
        for size, sample in share.samples:
            samples[size].add(sample)
        scenes += len(share.scenes)
        for name in share.scenes if progress else ():
            progress(name)  # type: ignore[misc]
    if not scenes:
        raise ValueError(f"none of the {len(paths)} photographs can be used: {problem}")
    provenance = {
        "fitted_on": f"{len(paths) if pairs == 'sfm' else scenes} photographs",
        "pairs_by": pairs,
        "scenes": scenes,
        "magnification": magnification,
        "scales": list(scales),
    }
    for spec, own in statistics.items():
        _check_enough(own, spec, pairs)

    def fitted(spec: Spec) -> Whitening:
        concat = Spec(spec.patch_size, "concat")
        kept = [
            Sample(part(sample.X, concat, spec.kernel), sample.points)
            for sample in samples[spec.patch_size].kept
        ]

        def tell(step: int, steps: int) -> None:
            if progress and step % 100 == 0:
                progress(f"training {spec.kernel} {spec.patch_size}: {step} of {steps} steps")

        return fit_whitening(statistics[spec], provenance, samples=kept, progress=tell)

    return {(spec.kernel, spec.patch_size): fitted(spec) for spec in statistics}


@dataclass(frozen=True)
class Share:
    """What some of the photographs add to a fit.

    scenes    their names
    problems  why photographs or folders were skipped
    samples   patch size and descriptors of scenes, of the concatenation; where they are asked for
    """

    scenes: tuple[str, ...]
    statistics: Mapping[Spec, Statistics]
    problems: tuple[str, ...]
    samples: tuple[tuple[int, Sample], ...] = ()


def shares(
    paths: Sequence[Path], pairs: PairSource, seed: int
) -> list[tuple[tuple[Path, ...], int]]:
    """Photographs that are worked on together, and their seed: one by one, or folder by folder."""
    if pairs != "sfm":
        return [((path,), seed + number) for number, path in enumerate(paths)]
    folders = sorted({path.parent for path in paths})
    return [(tuple(path for path in paths if path.parent == f), seed) for f in folders]


def fit_share(
    share: tuple[Sequence[Path], int],
    *,
    pairs: PairSource,
    specs: Sequence[Spec],
    magnification: float,
    scales: Sequence[float],
    sampled: bool = False,
    **options: Any,
) -> Share:
    """Describe the photographs of a share; options: of `photo_scenes`."""
    paths, seed = share
    statistics = {spec: Statistics(spec.dim) for spec in specs}
    names = []
    samples: list[tuple[int, Sample]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for scene in photo_scenes(paths, pairs, seed=seed, **options):
                names.append(scene.name)
                for size in dict.fromkeys(spec.patch_size for spec in specs if scene.views):
                    # The parts of the concatenation are the other two descriptors.
                    concat = Settings(
                        patch_size=size,
                        whitening=None,
                        magnification=magnification,
                        scales=tuple(scales),
                    )
                    described = describe_scene(scene, concat.rows)
                    if sampled:
                        samples.append((size, Samples.of(described.X, described.points, seed)))
                    for spec in specs:
                        if spec.patch_size == size:
                            rows = part(described.X, concat.spec, spec.kernel)
                            statistics[spec].update(rows, described.pairs)
        except NoScene:
            pass  # of which there is a warning
    problems = tuple(str(own.message) for own in caught)
    return Share(tuple(names), statistics, problems, tuple(samples))


def part(X: Array32, concat: Spec, kernel: str) -> Array32:
    """Raw descriptors (N, D) of a kernel, out of those of the concatenation (N, 238)."""
    if kernel == "concat":
        return X
    own = X[:, concat.parts[("polar", "cart").index(kernel)]]
    return own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-12)


def _check_enough(statistics: Statistics, spec: Spec, pairs: PairSource) -> None:
    if statistics.count <= spec.dim:
        raise ValueError(
            f"the photographs have {statistics.count} keypoints that can be described; more than "
            f"{spec.dim} are needed: give more or larger photographs"
        )
    if pairs != "none" and statistics.pair_count <= spec.dim:
        raise ValueError(
            f"the photographs give {statistics.pair_count} matching pairs, more than {spec.dim} "
            "are needed: give more photographs, or fit without pairs"
        )

"""From a folder of photographs to fitted matrices, share by share, here or on other machines.

>>> from kd_cv import KDDescriptor
>>> from kd_cv.whitening import save
>>> save("mine.npz", fit_photos("photographs"))
>>> kd = KDDescriptor(weights="mine.npz", whitening="ws")
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.descriptor.projection import Array32
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.fit.matrices import describe_scene, fit_whitening
from kd_cv.fit.photographs import NoScene, PairSource, check_pairs, photo_scenes
from kd_cv.fit.samples import Samples
from kd_cv.io.images import list_photos
from kd_cv.settings import Settings
from kd_cv.whitening.files import Key
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.trained import Sample
from kd_cv.whitening.whitening import Whitening

Run = Callable[[Callable[[Any], "Share"], Sequence[Any]], Iterable["Share"]]


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
        for spec, added in share.statistics.items():
            statistics[spec].merge(added)
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
    for spec, added in statistics.items():
        _check_enough(added, spec, pairs)

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
    problems = tuple(str(warning.message) for warning in caught)
    return Share(tuple(names), statistics, problems, tuple(samples))


def part(X: Array32, concat: Spec, kernel: str) -> Array32:
    """Raw descriptors (N, D) of a kernel, out of those of the concatenation (N, 238)."""
    if kernel == "concat":
        return X
    rows = X[:, concat.parts[("polar", "cart").index(kernel)]]
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


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

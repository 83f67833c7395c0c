"""From photographs to fitted matrices, one photograph at a time, here or on other machines.

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
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.extractor import Extractor
from kd_cv.fit.scenes import Samples, Scene, View, describe_scene, kernel_part
from kd_cv.fit.warps import detect_dog, warp_scene
from kd_cv.io.files import PathLike
from kd_cv.io.images import list_photos, read_or_skip, reduced
from kd_cv.settings import Settings
from kd_cv.whitening.files import Key
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.trained import Sample
from kd_cv.whitening.whitening import Whitening

PairSource = Literal["none", "warp"]
HELD_OUT = 5  # every fifth photograph is kept from the fit, to test on
MAX_DIM = 128  # columns of the matrices, as of the shipped ones
MAX_SIZE = 1280  # longer side of the photographs, in pixels; larger ones are reduced

Job = tuple[Path, int]  # a photograph and its seed
Run = Callable[[Callable[[Job], "PhotoStatistics"], Sequence[Job]], Iterable["PhotoStatistics"]]
Progress = Callable[[str], None]


def split_photos(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Split off photographs to test on: every fifth, the last of two to four, none of one."""
    held_out = list(paths[HELD_OUT - 1 :: HELD_OUT]) or list(paths[1:][-1:])
    return [path for path in paths if path not in held_out], held_out


def read_reduced(path: Path) -> NDArray[np.uint8] | None:
    """Read a photograph in gray, reduced to MAX_SIZE; None, with a warning, on failure."""
    gray = read_or_skip(path)
    return None if gray is None else reduced(gray, MAX_SIZE)


@dataclass(frozen=True)
class PhotoFit:
    """The options of `fit_photos`.

    pairs          "warp": matching pairs between a photograph and views - 1 random warps of it;
                   "none": no pairs, and no W_S
    max_keypoints  of each view
    trained        train W_M of the concatenation too, where there are pairs: about half a
                   minute for each patch size
    """

    pairs: PairSource = "warp"
    kernels: Sequence[str] = KERNELS
    patch_sizes: Sequence[int] = (32,)
    magnification: float = MAGNIFICATION
    scales: Sequence[float] = (1.0,)
    views: int = 4
    max_keypoints: int = 1000
    seed: int = 0
    trained: bool = True

    def __post_init__(self) -> None:
        if self.pairs not in get_args(PairSource):
            raise ValueError(f"pairs must be 'none' or 'warp', got {self.pairs!r}")

    def scene(self, job: Job) -> Scene | None:
        path, seed = job
        gray, most = read_reduced(path), self.max_keypoints
        if gray is None:
            return None
        if self.pairs == "warp":
            return warp_scene(gray, self.views, seed, name=path.name, max_keypoints=most)
        frames = detect_dog(gray, most)
        return Scene(path.name, (View(gray, frames, np.arange(len(frames))),))

    def describe(self, job: Job) -> PhotoStatistics:
        statistics: dict[tuple[str, int], Statistics] = {}
        samples: dict[int, Sample] = {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scene = self.scene(job)
            for size in self.patch_sizes if scene and scene.views else ():
                assert scene is not None
                concat = Settings(
                    size, whitening=None, magnification=self.magnification,
                    scales=tuple(self.scales),
                )  # fmt: skip
                X, matching, points = describe_scene(scene, Extractor(concat).describe)
                if self.trained and self.pairs != "none":
                    samples[size] = Samples.of(X, points, job[1])
                for kernel in self.kernels:  # "polar" and "cart" are parts of the concatenation
                    part = kernel_part(X, concat.spec, kernel)
                    statistics[kernel, size] = Statistics(part.shape[1]).update(part, matching)
        problems = tuple(str(warning.message) for warning in caught)
        return PhotoStatistics(scene.name if scene else None, problems, statistics, samples)


@dataclass(frozen=True)
class PhotoStatistics:
    """Statistics of one photograph."""

    name: str | None  # None if it could not be read
    problems: tuple[str, ...]
    statistics: Mapping[tuple[str, int], Statistics]  # by kernel and patch size
    samples: Mapping[int, Sample]  # by patch size, to train W_M on


def fit_photos(
    photos: PathLike | Sequence[Path],
    pairs: PairSource = "warp",
    *,
    progress: Progress | None = None,
    run: Run = map,
    **options: Any,
) -> dict[Key, Whitening]:
    """Fit matrices on photographs, of a folder or as listed, for every kernel and patch size.

    pairs, options: see `PhotoFit`. Photographs that cannot be read are skipped with a warning.
    progress(name) is called after each photograph, and while W_M is trained. run: `map`, or
    `cluster.in_order(client)` to use a cluster.
    """
    fit = PhotoFit(pairs, **options)
    paths = list_photos(photos) if isinstance(photos, (str, os.PathLike)) else list(photos)
    if not paths:
        raise ValueError("there are no photographs to fit on")
    keys = [(kernel, size) for size in fit.patch_sizes for kernel in fit.kernels]
    statistics = {(kernel, size): Statistics(Spec(size, kernel).dim) for kernel, size in keys}
    samples = {size: Samples(fit.seed) for size in fit.patch_sizes}
    tell = progress or (lambda message: None)

    def tell_steps(step: int, steps: int) -> None:
        if step % 100 == 0:
            tell(f"training: {step} of {steps} steps")

    used, problem = 0, ""
    for photo in run(fit.describe, [(path, fit.seed + n) for n, path in enumerate(paths)]):
        for problem in photo.problems:
            warnings.warn(problem, stacklevel=2)
        for key, added in photo.statistics.items():
            statistics[key].merge(added)
        for size, sample in photo.samples.items():
            samples[size].add(sample)
        if photo.name is not None:
            used += 1
            tell(photo.name)
    if not used:
        raise ValueError(f"none of the {len(paths)} photographs can be used: {problem}")
    for total in statistics.values():
        _check_enough(total, pairs)
    provenance = {
        "fitted_on": f"{used} photographs",
        "pairs_by": pairs,
        "scenes": used,
        "magnification": fit.magnification,
        "scales": list(fit.scales),
    }
    return {
        (kernel, size): Whitening.fit(
            statistics[kernel, size],
            max_dim=min(MAX_DIM, statistics[kernel, size].dim),
            samples=samples[size].kept if kernel == "concat" else (),
            provenance=provenance,
            progress=tell_steps,
        )
        for kernel, size in keys
    }


def _check_enough(statistics: Statistics, pairs: PairSource) -> None:
    dim = statistics.dim
    if statistics.count <= dim:
        raise ValueError(
            f"{statistics.count} keypoints can be described, more than {dim} are needed: give "
            "more or larger photographs"
        )
    if pairs != "none" and statistics.pair_count <= dim:
        raise ValueError(
            f"the photographs give {statistics.pair_count} matching pairs, more than {dim} "
            "are needed: give more photographs, or fit without pairs"
        )

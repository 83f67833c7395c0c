"""From photographs to fitted matrices, share by share, here or on other machines.

A share gives one scene: of a photograph alone, of one and warps of itself, or of all photographs of
a folder by structure from motion.

>>> from kd_cv import KDDescriptor
>>> from kd_cv.whitening import save
>>> save("mine.npz", fit_photos("photographs"))
>>> kd = KDDescriptor(weights="mine.npz", whitening="ws")
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.fit.builders import sfm_scene, warp_scene
from kd_cv.fit.keypoints import detect
from kd_cv.fit.matrices import Samples, describe_scene, fit_whitening, part
from kd_cv.fit.scenes import Scene, View
from kd_cv.io.files import PathLike, digest
from kd_cv.io.images import list_photos, read_or_skip, reduced
from kd_cv.settings import Settings
from kd_cv.whitening.files import Key
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.trained import Sample
from kd_cv.whitening.whitening import Whitening

PairSource = Literal["none", "warp", "sfm"]
HELD_OUT = 5  # every fifth photograph is kept from the fit, to test on
MAX_SIZE = 1280  # longer side of the photographs, in pixels; larger ones are reduced

Run = Callable[[Callable[[Any], "Share"], Sequence[Any]], Iterable["Share"]]


def split_photos(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Photographs to fit on, and to test on: every fifth, the last of two to four, none of one."""
    held_out = list(paths[HELD_OUT - 1 :: HELD_OUT]) or list(paths[1:][-1:])
    return [path for path in paths if path not in held_out], held_out


def read_reduced(path: Path) -> NDArray[np.uint8] | None:
    """A photograph in gray, reduced to MAX_SIZE; None, with a warning, if it cannot be read."""
    gray = read_or_skip(path)
    return None if gray is None else reduced(gray, MAX_SIZE)


def fit_photos(
    photos: PathLike | Sequence[Path],
    pairs: PairSource = "warp",
    *,
    kernels: Sequence[str] = KERNELS,
    patch_sizes: Sequence[int] = (32,),
    magnification: float = MAGNIFICATION,
    scales: Sequence[float] = (1.0,),
    views: int = 4,
    max_keypoints: int = 1000,
    workspace: PathLike | None = None,
    seed: int = 0,
    trained: bool = True,
    progress: Callable[[str], None] | None = None,
    run: Run = map,
) -> dict[Key, Whitening]:
    """Fit matrices on photographs, of a folder or as listed, for every kernel and patch size.

    Memory does not grow with their number. pairs, views, max_keypoints, workspace: see
    `photo_scene`; without pairs there is no W_S. trained: train W_M too, where there are pairs,
    which takes about a minute for each kernel and patch size. A photograph that cannot be read is
    skipped with a warning. progress(name) is called after each scene, and while W_M is trained.
    run: `map`, or what works like it on other machines (see `cluster.in_order`).
    """
    paths = list_photos(photos) if isinstance(photos, (str, os.PathLike)) else list(photos)
    if not paths:
        raise ValueError("there are no photographs to fit on")
    if pairs not in get_args(PairSource):
        raise ValueError(f"pairs must be 'none', 'warp' or 'sfm', got {pairs!r}")
    keys = [(kernel, size) for size in patch_sizes for kernel in kernels]
    statistics = {(kernel, size): Statistics(Spec(size, kernel).dim) for kernel, size in keys}
    samples = {size: Samples(seed) for size in patch_sizes}
    tell = progress or (lambda message: None)
    raw = Settings(whitening=None, magnification=magnification, scales=tuple(scales))
    work = partial(
        fit_share,
        pairs=pairs,
        raw=[replace(raw, patch_size=size) for size in patch_sizes],
        kernels=kernels,
        sampled=trained and pairs != "none",
        views=views,
        max_keypoints=max_keypoints,
        workspace=workspace,
    )
    scenes, problem = 0, ""
    for share in run(work, shares(paths, pairs, seed)):
        for problem in share.problems:
            warnings.warn(problem, stacklevel=2)
        for key, added in share.statistics.items():
            statistics[key].merge(added)
        for size, sample in share.samples.items():
            samples[size].add(sample)
        if share.scene is not None:
            scenes += 1
            tell(share.scene)
    if not scenes:
        raise ValueError(f"none of the {len(paths)} photographs can be used: {problem}")
    provenance = {
        "fitted_on": f"{len(paths) if pairs == 'sfm' else scenes} photographs",
        "pairs_by": pairs,
        "scenes": scenes,
        "magnification": magnification,
        "scales": list(scales),
    }
    for of_all in statistics.values():
        _check_enough(of_all, pairs)

    def fitted(kernel: str, size: int) -> Whitening:
        concat = Spec(size, "concat")
        kept = [Sample(part(s.X, concat, kernel), s.points) for s in samples[size].kept]

        def count(step: int, steps: int) -> None:
            if step % 100 == 0:
                tell(f"training {kernel} {size}: {step} of {steps} steps")

        return fit_whitening(statistics[kernel, size], provenance, samples=kept, progress=count)

    return {key: fitted(*key) for key in keys}


@dataclass(frozen=True)
class Share:
    """What some of the photographs add to a fit.

    scene       its name; None if they give none
    problems    why photographs were skipped
    statistics  by kernel and patch size
    samples     patch size -> descriptors of the concatenation, where they are asked for
    """

    scene: str | None
    problems: tuple[str, ...]
    statistics: Mapping[tuple[str, int], Statistics]
    samples: Mapping[int, Sample]


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
    raw: Sequence[Settings],
    kernels: Sequence[str],
    sampled: bool,
    **options: Any,
) -> Share:
    """Describe the photographs of a share.

    raw: the concatenation at each patch size, without whitening; options: of `photo_scene`.
    """
    paths, seed = share
    statistics: dict[tuple[str, int], Statistics] = {}
    samples: dict[int, Sample] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scene = photo_scene(paths, pairs, seed=seed, **options)
        for concat in raw:
            if scene is None or not scene.views:
                break
            X, matching, points = describe_scene(scene, concat.rows)
            if sampled:
                samples[concat.patch_size] = Samples.of(X, points, seed)
            for kernel in kernels:  # the other two descriptors are parts of the concatenation
                rows = part(X, concat.spec, kernel)
                added = Statistics(rows.shape[1]).update(rows, matching)
                statistics[kernel, concat.patch_size] = added
    problems = tuple(str(warning.message) for warning in caught)
    return Share(scene.name if scene else None, problems, statistics, samples)


def photo_scene(
    paths: Sequence[Path],
    pairs: PairSource,
    *,
    views: int = 4,
    max_keypoints: int = 1000,
    workspace: PathLike | None = None,
    seed: int = 0,
) -> Scene | None:
    """The scene of the photographs of a share; None, with a warning, if they give none.

    pairs  "none": the one photograph alone, without matching pairs; "warp": with views - 1 random
           warps of itself; "sfm": those of one folder by structure from motion
    workspace  a folder in which "sfm" keeps its work, so that an interrupted run can continue
    """
    if pairs == "sfm":
        folder = paths[0].parent
        with tempfile.TemporaryDirectory() as temporary:
            home = Path(workspace or temporary) / digest(os.fsencode(folder.resolve()), 16)
            try:
                return sfm_scene(folder, home, paths, max_keypoints=max_keypoints, seed=seed)
            except ValueError as error:
                warnings.warn(f"folder skipped: {error}", stacklevel=2)
                return None
    gray = read_reduced(paths[0])
    if gray is None:
        return None
    name = paths[0].name
    if pairs == "warp":
        return warp_scene(gray, views, seed, name=name, max_keypoints=max_keypoints)
    frames = detect(gray, max_keypoints=max_keypoints)
    return Scene(name, (View(gray, frames, np.arange(len(frames))),))


def _check_enough(statistics: Statistics, pairs: PairSource) -> None:
    dim = statistics.dim
    if statistics.count <= dim:
        raise ValueError(
            f"the photographs have {statistics.count} keypoints that can be described; more than "
            f"{dim} are needed: give more or larger photographs"
        )
    if pairs != "none" and statistics.pair_count <= dim:
        raise ValueError(
            f"the photographs give {statistics.pair_count} matching pairs, more than {dim} "
            "are needed: give more photographs, or fit without pairs"
        )

"""From scenes to fitted matrices: describe, accumulate, whiten.

`scene_statistics` is the one way from scenes (views, frames, point ids) to the statistics that a
whitening is fitted from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kd_cv.datasets import Scene
from kd_cv.engine import Array32, describe_frames
from kd_cv.frames import Frames
from kd_cv.spec import Spec
from kd_cv.whitening import Statistics, Whitening

Describe = Callable[[NDArray[np.uint8], Frames], Array32]

#: Which eigenvalue of C_M the supervised whitening is shrunk by, about the middle of the spectrum.
SHRINK_INDEX = {"concat": 120, "polar": 88, "cart": 32}


def describe_scene(scene: Scene, describe: Describe) -> tuple[Array32, NDArray[np.int64]]:
    """Descriptors (N, D) of all views of a scene, and its matching pairs (M, 2) of their rows.

    Frames that cannot be described are left out, and so are their pairs.
    """
    if not scene.views:
        raise ValueError(f"scene {scene.name!r} has no views")
    X = np.concatenate([describe(view.load(), view.frames) for view in scene.views])
    described = np.asarray(X.any(axis=1))
    row = np.cumsum(described) - 1  # of each frame among the described ones
    pairs = scene.all_pairs()
    return X[described], row[pairs[described[pairs].all(axis=1)]]


def scene_statistics(
    scenes: Iterable[Scene],
    spec: Spec,
    *,
    magnification: float,
    scales: Sequence[float] = (1.0,),
    progress: Callable[[Scene], None] | None = None,
) -> Statistics:
    """Statistics of the raw descriptors of scenes and of their matching pairs.

    One scene is in memory at a time. progress(scene) is called after each.
    """
    describe = raw_descriptors(spec, magnification, scales)
    return descriptor_statistics(scenes, describe, spec.dim, progress)


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
            statistics.update(*describe_scene(scene, describe))
        if progress:
            progress(scene)
    return statistics


def raw_descriptors(spec: Spec, magnification: float, scales: Sequence[float] = (1.0,)) -> Describe:
    """The raw descriptor of a spec as a function of an image and frames."""
    return lambda gray, frames: describe_frames(
        gray, frames, spec, magnification=magnification, scales=tuple(scales)
    )


def fit_whitening(
    statistics: Statistics,
    spec: Spec,
    provenance: Mapping[str, Any],
    *,
    max_dim: int | None = None,
    shrink_index: int | Literal["auto"] | None = "auto",
) -> Whitening:
    """Fit all variants for a descriptor.

    shrink_index: see `whitening.supervised`; "auto" is that of SHRINK_INDEX, None the paper's W_S.
    """
    if statistics.dim != spec.dim:
        raise ValueError(f"{spec} has {spec.dim} dimensions, the statistics {statistics.dim}")
    if shrink_index == "auto":
        shrink_index = SHRINK_INDEX[spec.kernel]
    return Whitening.fit(
        statistics, max_dim=max_dim, shrink_index=shrink_index, provenance=provenance
    )

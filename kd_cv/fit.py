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
from kd_cv.spec import Spec
from kd_cv.whitening import Statistics, Whitening

#: Which eigenvalue of C_M the supervised whitening is shrunk by, about the middle of the spectrum.
SHRINK_INDEX = {"concat": 120, "polar": 88, "cart": 32}


def describe_scene(
    scene: Scene, spec: Spec, *, magnification: float, scales: Sequence[float] = (1.0,)
) -> tuple[Array32, NDArray[np.int64]]:
    """Raw descriptors (N, D) of all views of a scene, and its matching pairs (M, 2) of their rows.

    Frames that cannot be described are left out, and so are their pairs.
    """
    X = np.concatenate(
        [
            np.empty((0, spec.dim), np.float32),
            *(
                describe_frames(
                    view.load(),
                    view.frames,
                    spec,
                    magnification=magnification,
                    scales=tuple(scales),
                )
                for view in scene.views
            ),
        ]
    )
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
    statistics = Statistics(spec.dim)
    for scene in scenes:
        X, pairs = describe_scene(scene, spec, magnification=magnification, scales=scales)
        statistics.update(X, pairs)
        if progress:
            progress(scene)
    return statistics


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

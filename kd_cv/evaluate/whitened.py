"""Any candidate followed by a supervised whitening that is fitted on its own rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import Frames
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.sampling import extract_patches
from kd_cv.evaluate.candidates import Array32, Candidate, Patches
from kd_cv.fit.matrices import descriptor_statistics, fit_whitening
from kd_cv.fit.scenes import Scene
from kd_cv.whitening.whitening import Whitening

Gray = NDArray[np.uint8]


@dataclass(frozen=True)
class Whitened:
    """A candidate followed by a whitening that was fitted on its rows."""

    base: Candidate
    whitening: Whitening
    variant: str = "ws"
    dim: int = 128

    @property
    def name(self) -> str:
        return f"{self.base.name} + {self.variant}"

    @property
    def kind(self) -> str:
        return f"{self.base.kind}+{self.variant}"

    @property
    def configuration(self) -> dict[str, Any]:
        return {
            "base": dict(self.base.configuration),
            "variant": self.variant,
            "projection": self._projection.digest,
        }

    def at_frames(self, gray: Gray, frames: Frames) -> Array32:
        return self._apply(self.base.at_frames(gray, frames))

    def of_patches(self, patches: Patches) -> Array32:
        return self._apply(self.base.of_patches(patches))

    @property
    def _projection(self) -> Projection:
        return self.whitening.projection(self.variant, min(self.dim, self.whitening.max_dim))

    def _apply(self, rows: Array32) -> Array32:
        return self._projection(rows).astype(np.float32, copy=False)


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
        cut = extract_patches(gray, frames, *patches)
        return candidate.of_patches(np.rint(255 * cut).astype(np.uint8))

    D = describe(np.zeros((64, 64), np.uint8), np.array([[32.0, 32.0, 4.0, 0.0]])).shape[1]
    statistics = descriptor_statistics(scenes, describe, D)
    if statistics.pair_count < D:
        raise ValueError(
            f"{candidate.name} + W_S needs {D} matching pairs or more to be fitted on, "
            f"got {statistics.pair_count}"
        )
    return Whitened(candidate, fit_whitening(statistics), "ws", dim)

"""What the figures of the paper are drawn from: the shipped whitening, and pairs of patches.

The patches are those of the photographs of scikit-image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.protocols.candidates import kd_candidate
from experiments.protocols.patch_curves import Curves, robustness_curves
from experiments.protocols.readers import TEST_PHOTOS, builtin_scenes
from experiments.protocols.verification import pairs_of_scenes
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.descriptor.patches import extract_patches
from kd_cv.descriptor.spec import Spec
from kd_cv.explain import Array, Explanation, explain_patches
from kd_cv.extractor import Extractor
from kd_cv.fit.scenes import Scene
from kd_cv.settings import Settings
from kd_cv.whitening import registry as shipped
from kd_cv.whitening.registry import DEFAULT_WEIGHTS
from kd_cv.whitening.whitening import Whitening

DIM = 128
EXPLAINED = 3  # matches, in the figure of heat maps
Columns = Mapping[str, Settings]  # title -> the descriptor that a patch map is made for
#: An image and frames (M, 4) in it; the rows of the two sides of a pair are the same points.
Side = tuple[NDArray[np.uint8], NDArray[np.float64]]
WHITENED = {"ws": r"$W_S$", "wua": r"$W_{UA}$", "wus": r"$W_{US}$"}


@dataclass(frozen=True)
class FigureData:
    """Where the figures take patches and whitening from.

    patch_size   of all the figures' patches and maps
    weights      whatever KDDescriptor takes
    keypoints    at most, of each view of a photograph
    """

    patch_size: int = 64
    weights: Any = DEFAULT_WEIGHTS
    keypoints: int = 1500

    def settings(self, kernel: str = "concat", variant: str | None = None) -> Settings:
        """A kernel, whitened by a variant or raw."""
        if variant is None:
            return Settings(self.patch_size, kernel, whitening=None)
        return Settings(self.patch_size, kernel, variant, self.whitening(kernel), DIM)

    def whitening(self, kernel: str = "concat") -> Whitening:
        """The matrices of a kernel."""
        dim = Spec(self.patch_size, kernel).dim
        return shipped.resolve(self.weights, kernel, self.patch_size, dim)

    def columns(self, *kinds: tuple[str, str | None]) -> Columns:
        """Descriptors by title: kernels, each whitened by a variant or raw.

        A kernel without matrices is left out, but for "concat", which must have them.
        """
        columns = {}
        for kernel, variant in kinds:
            with nullcontext() if kernel == "concat" else suppress(ValueError):
                title = f"{kernel} + {WHITENED[variant]}" if variant else kernel
                columns[title] = self.settings(kernel, variant)
        return columns

    @property
    def source(self) -> str:
        """Which whitening it is, in words."""
        if isinstance(self.weights, str) and self.weights in shipped.registry():
            return f'whitening: the shipped "{self.weights}"'
        return "whitening: as given"

    @cached_property
    def scenes(self) -> list[Scene]:
        """Photographs that the fit did not see, and their warps, the keypoints a little off."""
        return builtin_scenes(TEST_PHOTOS, "easy", 4, self.keypoints)

    @cached_property
    def pairs(self) -> list[tuple[Side, Side]]:
        pairs = []
        for scene in self.scenes:
            first = scene.views[0]
            for number, view in enumerate(scene.views[1:], start=1):
                rows0, rows1 = scene.pairs(0, number).T
                side0 = first.load(), first.frames[rows0]
                pairs.append((side0, (view.load(), view.frames[rows1])))
        return pairs

    def whitening_columns(self) -> Columns:
        """The columns of figure 5."""
        return self.columns(
            ("concat", None), ("polar", "ws"), ("cart", "ws"), ("concat", "ws"), ("concat", "wua"),
            ("concat", "wus"),
        )  # fmt: skip

    def slices_columns(self) -> Columns:
        """The columns of figure 6."""
        return self.columns(
            ("concat", None), ("concat", "wua"), ("concat", "wus"), ("concat", "ws")
        )

    def explanations(self) -> list[Explanation]:
        """Heat maps of a few large keypoints whose patches lie inside the photographs."""
        settings = self.settings(variant="ws")
        explanations = []
        chosen = self.pairs[:: max(1, len(self.pairs) // EXPLAINED)][:EXPLAINED]
        for number, pair in enumerate(chosen):
            rows = np.flatnonzero(_inside(*pair[0]) & _inside(*pair[1]))
            if not len(rows):
                continue
            sizes = pair[0][1][rows, 2]
            row = rows[np.argsort(-sizes, kind="stable")][[6 * number % len(rows)]]
            patch0, patch1 = (
                extract_patches(image, frames[row], self.patch_size, MAGNIFICATION)[0]
                for image, frames in pair
            )
            explanations.append(explain_patches(patch0, patch1, settings.spec, settings.projection))
        return explanations

    def similarities(self) -> dict[str, tuple[Array, Array]]:
        """Of matching and of non-matching pairs, by the title of the descriptor."""
        similar = {}
        for title, settings in self.columns(
            ("polar", None), ("cart", None), ("concat", None), ("concat", "ws")
        ).items():
            d0, d1 = (
                np.concatenate([Extractor(settings).describe(*p[k]) for p in self.pairs])
                for k in (0, 1)
            )
            similar[title] = similarities(d0, d1)
        return similar

    def robustness(self, **moves: Sequence[float]) -> tuple[Curves, Curves]:
        """The curves of each kernel with W_S over the turns and the shifts of one patch."""
        columns = self.columns(("concat", "ws"), ("polar", "ws"), ("cart", "ws"))
        candidates = {title: kd_candidate(settings) for title, settings in columns.items()}
        labelled = pairs_of_scenes(self.scenes, self.patch_size)
        return robustness_curves(labelled, candidates, **moves)


def _inside(image: NDArray[np.uint8], frames: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Frames whose patch, at any angle, lies in the image."""
    reach = MAGNIFICATION * frames[:, 2:3] / np.sqrt(2)
    size = np.array(image.shape[::-1])
    return ((frames[:, :2] >= reach) & (frames[:, :2] <= size - 1 - reach)).all(axis=1)


def similarities(d0: NDArray[Any], d1: NDArray[Any], seed: int = 0) -> tuple[Array, Array]:
    """Cosines of matching rows, (M,), and of as many that do not match, (M,)."""
    order = np.random.default_rng(seed).permutation(len(d0))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)  # a cycle: no row meets its own partner
    d0, d1 = d0.astype(np.float64), d1.astype(np.float64)
    return (d0 * d1).sum(axis=1), (d0 * d1[other]).sum(axis=1)

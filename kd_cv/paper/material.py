"""What the figures of the paper are drawn from: the shipped whitening, and pairs of patches.

The patches are those of the photographs of scikit-image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.descriptor.sampling import extract_patches
from kd_cv.descriptor.spec import Spec
from kd_cv.evaluate.candidates import kd_candidate
from kd_cv.evaluate.curves import robustness_curves
from kd_cv.evaluate.patches import pairs_of_scenes
from kd_cv.evaluate.readers import builtin_scenes
from kd_cv.explain import Array, Explanation, explain_patches
from kd_cv.fit.scenes import Scene
from kd_cv.io.builtin import TEST_PHOTOS
from kd_cv.settings import Settings
from kd_cv.whitening import registry as shipped
from kd_cv.whitening.registry import DEFAULT_WEIGHTS
from kd_cv.whitening.whitening import Whitening

DIM = 128
EXPLAINED = 3  # matches, in the figure of heat maps
Curve = Sequence[tuple[float, float]]
Columns = Mapping[str, Settings]  # title -> the descriptor that a patch map is made for
#: An image and frames (M, 4) in it; the rows of the two sides of a pair are the same points.
Side = tuple[NDArray[np.uint8], NDArray[np.float64]]
WHITENED = {"ws": r"$W_S$", "wua": r"$W_{UA}$", "wus": r"$W_{US}$"}


@dataclass(frozen=True)
class Material:
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

    def kernels(self) -> tuple[str, ...]:
        """Those that there are matrices for; never without "concat"."""
        self.whitening("concat")
        if isinstance(self.weights, Whitening):
            return ("concat",)
        fitted = ["concat"]
        for kernel in ("polar", "cart"):
            with suppress(ValueError):
                self.whitening(kernel)
                fitted.append(kernel)
        return tuple(fitted)

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
        """The same keypoints of each photograph and of each of its warps."""
        pairs = []
        for scene in self.scenes:
            first = scene.views[0]
            for number, view in enumerate(scene.views[1:], start=1):
                rows0, rows1 = scene.pairs(0, number).T
                side0 = first.load(), first.frames[rows0]
                pairs.append((side0, (view.load(), view.frames[rows1])))
        return pairs

    def descriptors(self, side: int, kernel: str = "concat", variant: str | None = None) -> Array:
        """Descriptors (M, D) of one side of the pairs, 0 or 1."""
        settings = self.settings(kernel, variant)
        return np.concatenate([settings.rows(*pair[side]) for pair in self.pairs]).astype(float)


def whitening_columns(material: Material) -> Columns:
    """The columns of figure 5."""
    columns = {"concat": material.settings()}
    for kernel, variant in (
        ("polar", "ws"), ("cart", "ws"), ("concat", "ws"), ("concat", "wua"), ("concat", "wus"),
    ):  # fmt: skip
        if kernel in material.kernels():
            columns[f"{kernel} + {WHITENED[variant]}"] = material.settings(kernel, variant)
    return columns


def slices_columns(material: Material) -> Columns:
    """The columns of figure 6."""
    whitened = {
        f"concat + {WHITENED[variant]}": material.settings(variant=variant)
        for variant in ("wua", "wus", "ws")
    }
    return {"concat": material.settings(), **whitened}


def sample_explanations(material: Material) -> list[Explanation]:
    """Heat maps of a few large keypoints whose patches lie inside the photographs."""
    settings = material.settings(variant="ws")
    explanations = []
    chosen = material.pairs[:: max(1, len(material.pairs) // EXPLAINED)][:EXPLAINED]
    for number, pair in enumerate(chosen):
        rows = np.flatnonzero(_inside(*pair[0]) & _inside(*pair[1]))
        if not len(rows):
            continue
        sizes = pair[0][1][rows, 2]
        row = rows[np.argsort(-sizes, kind="stable")][[6 * number % len(rows)]]
        patch0, patch1 = (
            extract_patches(image, frames[row], material.patch_size, MAGNIFICATION)[0]
            for image, frames in pair
        )
        explanations.append(explain_patches(patch0, patch1, settings.spec, settings.projection))
    return explanations


def _inside(image: NDArray[np.uint8], frames: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Frames whose patch, at any angle, lies in the image."""
    reach = MAGNIFICATION * frames[:, 2:3] / np.sqrt(2)
    size = np.array(image.shape[::-1])
    return ((frames[:, :2] >= reach) & (frames[:, :2] <= size - 1 - reach)).all(axis=1)


def similarities(d0: Array, d1: Array, seed: int = 0) -> tuple[Array, Array]:
    """Cosines of matching rows, (M,), and of as many that do not match, (M,)."""
    if len(d0) < 2:
        raise ValueError(f"non-matching pairs need 2 or more rows, got {len(d0)}")
    order = np.random.default_rng(seed).permutation(len(d0))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)  # a cycle: no row meets its own partner
    return (d0 * d1).sum(axis=1), (d0 * d1[other]).sum(axis=1)


def histogram_groups(material: Material) -> dict[str, tuple[Array, Array]]:
    """Similarities of pairs for "polar", "cart", "concat" and that with W_S."""
    kinds = (("polar", None), ("cart", None), ("concat", None), ("concat", "ws"))
    groups = {}
    for kernel, variant in kinds:
        d0, d1 = (material.descriptors(side, kernel, variant) for side in (0, 1))
        title = kernel + (f" + {WHITENED[variant]}" if variant else "")
        groups[title] = similarities(d0, d1)
    return groups


def robustness(
    material: Material, turns: Sequence[float] = (), shifts: Sequence[float] = ()
) -> Mapping[str, Curve]:
    """Label -> (turn or shift, FPR95) for "polar", "cart" and "concat" with W_S."""
    candidates = {
        f"{kernel} + {WHITENED['ws']}": kd_candidate(material.settings(kernel, "ws"), "ws")
        for kernel in material.kernels()
    }
    labelled = pairs_of_scenes(material.scenes, material.patch_size)
    return robustness_curves(labelled, candidates, turns=turns, shifts=shifts)

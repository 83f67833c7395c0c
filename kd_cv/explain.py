"""Why two patches match: patch maps, heat maps, and the explanation of a match.

A raw descriptor is a sum over pixels, V = sum_p psi(p). Whitening is linear up to the last
normalisation, so a similarity is a sum over pixels too:

    M(p, q) = psi(p) . psi(q)                                   two pixels, raw
    M(p, q) = (psi(p) - mu)^T A A^T (psi(q) - mu)               two pixels, whitened
    heat(p) = sum_q M(p, q) = (psi(p) - weight(p) mu) . z       a pixel against a whole patch

with z = A A^T (V' - mu) and sum_p weight(p) = 1. A heat map sums to the cosine of the two
descriptors exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.descriptor import reference
from kd_cv.descriptor.frames import as_frames
from kd_cv.descriptor.kernels import THETA, Array, Grid
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.gray import as_gray
from kd_cv.keypoints import views_of
from kd_cv.opencv.kd_descriptor import KDDescriptor
from kd_cv.settings import Settings
from kd_cv.types import Image

CHUNK = 64  # pairs of patches at a time
POSITIONS = ("polar", "cart")


def planes(theta: ArrayLike, weight: ArrayLike) -> Array:
    """Return weight * (1, cos k theta, sin k theta) of pixels (..., P, P): (..., 7, P * P)."""
    theta, weight = np.broadcast_arrays(theta, weight)
    terms = weight[..., None] * (THETA.psi(theta) / THETA.psi_weights)
    *many, height, width = theta.shape
    return np.swapaxes(terms.reshape(*many, height * width, THETA.dim), -1, -2)


def pixel_responses(spec: Spec, planes: Array, z: Array) -> Array:
    """Return psi(p) . z of planes (..., 7, P * P) and z (..., D): (..., P, P)."""
    P, c = spec.patch_size, spec.constants
    terms = np.einsum("k f d, ... d -> ... k f", c.T, z) @ c.Phi.T
    return (planes * terms).sum(axis=-2).reshape(*z.shape[:-1], P, P)


@dataclass(frozen=True)
class Pixels:
    """The pixels of N keypoints, at one scale or several: V = sum_s scale_s * sum_p psi_s(p)."""

    spec: Spec
    planes: Array  # (N, S, 7, P * P) of the patch at each scale
    scale: Array  # (N, S, D) normalisation
    weight: Array  # (N, S, P, P) |psi(p)|, normalised to a sum of 1 for a keypoint
    sides: Array  # (S,) side of each patch, the largest being 1
    V: Array  # (N, D) raw descriptors, of unit norm; zero if the patch cannot be described

    @classmethod
    def of(cls, patches: ArrayLike, spec: Spec, sides: Sequence[float] = (1.0,)) -> Pixels:
        """Make them from patches (N, S, P, P) of sides in the ratio of `sides`."""
        P, c, stack = spec.patch_size, spec.constants, np.asarray(patches)
        if stack.shape[-2:] != (P, P):
            raise ValueError(f"a patch must have shape {(P, P)}, got {stack.shape[-2:]}")
        gray = stack.astype(np.float64) * (1 / 255 if stack.dtype == np.uint8 else 1.0)
        weight, cos, sin, textured = reference.gradients(gray, c.smooth, c.diff)
        stacked = planes(np.arctan2(sin, cos), weight)
        sums = np.einsum("... k f, k f d -> ... d", stacked @ c.Phi, c.T)
        norms = reference.nonzero(sums**2 @ c.parts) ** 0.5 @ c.parts.T  # step 3
        scale = textured[..., None] / norms
        V = (scale * sums).sum(axis=1)
        length = reference.nonzero(np.linalg.norm(V, axis=1, keepdims=True))
        weight = Grid.of_size(P).g * weight  # proportional to |psi(p)|
        return cls(
            spec=spec,
            planes=stacked,
            scale=scale / length[:, None],
            weight=weight / reference.nonzero(weight.sum(axis=(1, 2, 3), keepdims=True)),
            sides=np.asarray(sides, np.float64) / np.max(sides),
            V=V / length,
        )

    def heat(self, z: Array, constant: Array) -> Array:
        """Return psi(p) . z - weight(p) * constant on the largest patch: (N, P, P).

        z (N, D), constant (N,).
        """
        total = np.zeros((len(z), *self.weight.shape[2:]))
        for s, side in enumerate(self.sides):
            heat = pixel_responses(self.spec, self.planes[:, s], self.scale[:, s] * z)
            heat -= constant[:, None, None] * self.weight[:, s]
            R = _overlap(self.spec.patch_size, float(side))
            total += R.T @ heat @ R
        return total


@lru_cache(maxsize=16)
def _overlap(P: int, side: float) -> Array:
    """(P, P): part of cell i of a patch of side `side` that lies in cell j of one of side 1."""
    edges = np.arange(P + 1) / P - 0.5
    low, high = side * edges[:-1, None], side * edges[1:, None]
    common = np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1])
    return np.maximum(common, 0.0) * (P / side)


@dataclass(frozen=True)
class Explanation:
    """The explanation of a match.

    Similarities have names: "polar", "cart" and "concat", as the descriptor has them, and
    "whitened".
    """

    patch0: NDArray[np.float32]  # (P, P), the largest patch of each keypoint
    patch1: NDArray[np.float32]
    heat0: Mapping[str, Array]  # name -> (P, P) contribution of each pixel to the similarity
    heat1: Mapping[str, Array]
    similarities: Mapping[str, float]  # name -> cosine, the sum of heat0 and of heat1
    shares: Mapping[str, float]  # part -> its contribution; joint contributions are halved
    name: str  # of the descriptor's own similarity

    @property
    def similarity(self) -> float:
        """Cosine of the two descriptors."""
        return self.similarities[self.name]

    def limit(self, name: str | None = None) -> float:
        """Return the magnitude of the strongest colour of both heat maps of a name."""
        name = self.name if name is None else name
        if name not in self.similarities:
            raise ValueError(f"unknown heat map {name!r}: expected {list(self.similarities)}")
        return heat_limit(self.heat0[name], self.heat1[name])


def explain(
    image0: Image,
    keypoint0: cv2.KeyPoint | ArrayLike,
    image1: Image,
    keypoint1: cv2.KeyPoint | ArrayLike,
    descriptor: KDDescriptor | None = None,
) -> Explanation:
    """Compute the contribution of each pixel to the similarity of two keypoints.

    keypoint    a cv2.KeyPoint, or a frame (x, y, size, angle)
    descriptor  the KDDescriptor that described them; KDDescriptor() by default

    >>> i, j = result.matches[0]
    >>> why = explain(image0, result.keypoints0[i], image1, result.keypoints1[j])
    >>> bool(why.similarity > 0.9)
    True
    """
    descriptor = KDDescriptor() if descriptor is None else descriptor
    if not isinstance(descriptor, KDDescriptor):
        raise TypeError(f"can explain a KDDescriptor, got {type(descriptor).__name__}")
    settings = descriptor.settings
    stack0, stack1 = (
        descriptor.extractor.patches(as_gray(image), *_as_frame(keypoint, descriptor))[0]
        for image, keypoint in ((image0, keypoint0), (image1, keypoint1))
    )
    return _explain(stack0, stack1, settings.spec, settings.scales, settings.projection)


def explain_patches(
    patch0: NDArray[Any], patch1: NDArray[Any], spec: Spec, projection: Projection | None = None
) -> Explanation:
    """Explain two patches (P, P), uint8 or float."""
    stack0, stack1 = np.asarray(patch0)[None], np.asarray(patch1)[None]
    return _explain(stack0, stack1, spec, (1.0,), projection)


def _explain(
    stack0: NDArray[Any],
    stack1: NDArray[Any],
    spec: Spec,
    scales: Sequence[float],
    projection: Projection | None,
) -> Explanation:
    """Explain two stacks of patches (S, P, P) at the scales."""
    pixels0, pixels1 = (Pixels.of(stack[None], spec, scales) for stack in (stack0, stack1))
    heat0, heat1, similarities = {}, {}, {}
    for name, linear in _similarities(spec, projection).items():
        maps = _heat_maps(pixels0, pixels1, linear)
        heat0[name], heat1[name] = maps.heat0[0], maps.heat1[0]
        similarities[name] = float(maps.similarity[0])
    # The last name is the descriptor's own.
    shares = dict(zip(part_names(spec), maps.shares[0].tolist(), strict=True))
    largest = int(np.argmax(scales))
    patch0, patch1 = (np.asarray(stack[largest], np.float32) for stack in (stack0, stack1))
    return Explanation(patch0, patch1, heat0, heat1, similarities, shares, name)


class HeatMaps(NamedTuple):
    """The explanations of N matches, by the descriptor's own similarity."""

    heat0: Array  # (N, P, P) contribution of each pixel
    heat1: Array
    similarity: Array  # (N,) cosines, the sums of the heat maps
    shares: Array  # (N, parts) contribution of each of `part_names`


def heat_maps(patches0: ArrayLike, patches1: ArrayLike, settings: Settings) -> HeatMaps:
    """Explain N matches at once, from patches (N, S, P, P) at the scales of settings."""
    stacks = np.asarray(patches0), np.asarray(patches1)
    *_, linear = _similarities(settings.spec, settings.projection).values()
    done = []
    for start in range(0, max(1, len(stacks[0])), CHUNK):
        pixels0, pixels1 = (
            Pixels.of(stack[start : start + CHUNK], settings.spec, settings.scales)
            for stack in stacks
        )
        done.append(_heat_maps(pixels0, pixels1, linear))
    return HeatMaps(*map(np.concatenate, zip(*done, strict=True)))


def _heat_maps(pixels0: Pixels, pixels1: Pixels, linear: Linear) -> HeatMaps:
    """Compute z0, z1 (N, D) with (V0 - mu) . z1 = (V1 - mu) . z0 = the cosine, and their heat."""
    mu, B = linear
    V0, V1 = pixels0.V - mu, pixels1.V - mu
    z0, z1 = B(V0), B(V1)
    squares = (V0 * z0).sum(axis=1) * (V1 * z1).sum(axis=1)
    known = pixels0.V.any(axis=1) & pixels1.V.any(axis=1)  # a zero vector has similarity 0
    factor = (known / reference.nonzero(np.sqrt(squares)))[:, None]
    z0, z1 = factor * z0, factor * z1
    each = V0 * z1, V1 * z0
    shares = [sum(terms[:, part].sum(axis=1) for terms in each) / 2 for part in pixels0.spec.parts]
    heat0, heat1 = pixels0.heat(z1, z1 @ mu), pixels1.heat(z0, z0 @ mu)
    return HeatMaps(heat0, heat1, each[0].sum(axis=1), np.stack(shares, axis=1))


Linear = tuple[Array, Callable[[Array], Array]]  # mu (D,) and v -> A A^T v


def _similarities(spec: Spec, projection: Projection | None) -> dict[str, Linear]:
    """Return mu and A A^T of each similarity; the descriptor's own comes last."""
    zero = np.zeros(spec.dim)
    similarities: dict[str, Linear] = {}
    for name, indicator in zip(part_names(spec), spec.constants.parts.T, strict=True):
        similarities[name] = zero, lambda v, chosen=indicator: v * chosen  # type: ignore[misc]
    similarities[spec.kernel] = linear(None, spec)
    if projection is not None:
        similarities["whitened"] = linear(projection, spec)
    return similarities


def part_names(spec: Spec) -> tuple[str, ...]:
    """Return the names of the parts of a raw descriptor."""
    return POSITIONS if spec.kernel == "concat" else (spec.kernel,)


def linear(projection: Projection | None, spec: Spec) -> Linear:
    """Return mu and A A^T of a similarity."""
    if projection is None:
        return np.zeros(spec.dim), lambda v: v
    if projection.power != 1.0:
        raise ValueError(
            f"a whitening with a power of {projection.power:g} is no sum over pixels: use "
            '"ws", "wus", "wua" or "w"'
        )
    if len(projection.mu) != spec.dim:
        raise ValueError(
            f"the projection takes vectors of {len(projection.mu)} dimensions, but the "
            f"{spec.kernel!r} descriptor has {spec.dim}"
        )
    A = projection.A.astype(np.float64)
    return projection.mu.astype(np.float64), lambda v: (v @ A) @ A.T


def _as_frame(
    keypoint: cv2.KeyPoint | ArrayLike, descriptor: KDDescriptor
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The frame (1, 4) of a keypoint and its view (1,)."""
    if isinstance(keypoint, cv2.KeyPoint):
        return descriptor.frames([keypoint]), views_of([keypoint])
    return as_frames(np.atleast_2d(np.array(keypoint, dtype=np.float64))), np.zeros(1, np.int64)


def heat_limit(*heats: Array) -> float:
    """Return the 99.5 % quantile of the magnitudes of heat maps."""
    magnitudes = np.abs(np.stack(heats))
    return float(np.quantile(magnitudes, 0.995)) or float(magnitudes.max()) or 1.0

"""Why two patches match: patch maps, heat maps, and the explanation of a match.

A raw descriptor is a sum over pixels, V = sum_p psi(p), and all that follows but the last
normalisation is linear. So a similarity can be shared out over the pixels without a remainder:

    M(p, q) = psi(p) . psi(q)                                   two pixels, raw
    M(p, q) = (psi(p) - mu)^T A A^T (psi(q) - mu)               two pixels, whitened
    heat(p) = sum_q M(p, q) = (psi(p) - share(p) mu) . z        a pixel against a whole patch

with z = A A^T (V' - mu) and sum_p share(p) = 1. A heat map costs one product of a matrix and a
vector, and sums to the cosine of the two descriptors exactly.

psi is built from the constants of the descriptor itself (`Spec.constants`), so that a picture
cannot drift from what it explains. Angles are clockwise and y points down, as in images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.descriptor import core
from kd_cv.descriptor.frames import as_frames, as_gray
from kd_cv.descriptor.kernels import PHI, RHO, THETA, Array, Grid, X, Y
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.feature2d import KDDescriptor

Pixel = tuple[int, int]  # (x, y): column and row in the patch
POSITIONS = ("polar", "cart")
ANGLES = ("relative", "absolute")


# --------------------------------------------------------------------------------------------------
# Pixels as summands of the descriptor


def gradients(patch: ArrayLike, spec: Spec) -> tuple[Array, Array]:
    """Angle theta and weight sqrt(m) of the pixels of a patch, each (P, P)."""
    x = _checked_patch(patch, spec)
    c = spec.constants
    weight, cos, sin, _ = core.gradients(x[None], c.smooth, c.diff)
    return np.arctan2(sin[0], cos[0]), weight[0]


def planes(theta: ArrayLike, weight: ArrayLike) -> Array:
    """weight * (1, cos k theta, sin k theta) of P x P pixels: (7, P * P)."""
    theta, weight = np.broadcast_arrays(theta, weight)
    terms = THETA.psi(theta) / THETA.psi_weights
    return (weight[..., None] * terms).reshape(-1, THETA.dim).T


def pixel_features(spec: Spec, planes: Array, pixels: Any = slice(None)) -> Array:
    """psi(p) of the chosen pixels, (N, D); the sum over all is V before its normalisation."""
    c = spec.constants
    psi = np.zeros((len(c.Phi[pixels]), spec.dim))
    for plane, T in zip(planes, c.T, strict=True):
        psi += (plane[pixels, None] * c.Phi[pixels]) @ T
    return psi


def pixel_responses(spec: Spec, planes: Array, z: Array) -> Array:
    """psi(p) . z of all pixels, (P, P), without the P * P x D matrix of the psi."""
    P, c = spec.patch_size, spec.constants
    return np.einsum("k p, p k -> p", planes, c.Phi @ (c.T @ z).T).reshape(P, P)


@dataclass(frozen=True)
class Pixels:
    """The pixels of one keypoint, at one scale or several: V = sum_s scale_s * sum_p psi_s(p).

    planes  (S, 7, P * P) of the patch at each scale
    scale   (S, D) normalisation: constant over the pixels of a part
    share   (S, P, P) part of each pixel in the sum of all |psi(p)|; sums to 1
    sides   (S,) side of each patch, the largest being 1
    V       (D,) the raw descriptor, of unit norm; zero if the patch cannot be described
    """

    spec: Spec
    planes: Array
    scale: Array
    share: Array
    sides: Array
    V: Array

    @classmethod
    def of(cls, patches: ArrayLike, spec: Spec, sides: Sequence[float] = (1.0,)) -> Pixels:
        """From patches (S, P, P) whose sides, relative to each other, are `sides`."""
        c = spec.constants
        stack = np.stack([_checked_patch(patch, spec) for patch in np.asarray(patches)])
        if len(stack) != len(sides):
            raise ValueError(f"{len(stack)} patches need as many sides, got {len(sides)}")
        # The descriptor itself says which patches are too flat to count.
        counts = core.raw(stack, c.smooth, c.diff, c.Phi, c.T, c.parts).any(axis=1)
        fields = [gradients(patch, spec) for patch in stack]
        stacked = np.stack([planes(theta, weight) for theta, weight in fields])
        sums = np.stack([np.einsum("k f, k f d -> d", p @ c.Phi, c.T) for p in stacked])
        norms = core.nonzero(sums**2 @ c.parts) ** 0.5 @ c.parts.T  # eq. of step 3, part by part
        scale = counts[:, None] / norms
        length = np.linalg.norm((scale * sums).sum(axis=0))
        scale /= length or 1.0
        # |psi(p)| is g sqrt(m) times the same constant for all pixels.
        share = Grid.of_size(spec.patch_size).g * np.stack([weight for _, weight in fields])
        return cls(
            spec=spec,
            planes=stacked,
            scale=scale,
            share=share / share.sum(),
            sides=np.asarray(sides, np.float64) / np.max(sides),
            V=(scale * sums).sum(axis=0),
        )

    def heat(self, z: Array, constant: float = 0.0) -> Array:
        """psi(p) . z - share(p) * constant on the grid of the largest patch: (P, P)."""
        total = np.zeros((self.spec.patch_size,) * 2)
        for planes_at_scale, scale, share, side in zip(
            self.planes, self.scale, self.share, self.sides, strict=True
        ):
            heat = pixel_responses(self.spec, planes_at_scale, scale * z) - constant * share
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


def _checked_patch(patch: ArrayLike, spec: Spec) -> Array:
    P, values = spec.patch_size, np.asarray(patch)
    if values.shape != (P, P):
        raise ValueError(f"a patch must have shape {(P, P)}, got {values.shape}")
    gain = 1 / 255 if values.dtype == np.uint8 else 1.0
    return values.astype(np.float64) * gain


# --------------------------------------------------------------------------------------------------
# Patch maps: one pixel against all pixels of a patch of constant angle


def kernel_map(
    patch_size: int,
    pixel: Pixel,
    theta_p: float = 0.0,
    theta_q: float = 0.0,
    *,
    position: str = "polar",
    angle: str = "relative",
) -> Array:
    """The product of the kernels of position and angle, as a map over q: (P, P).

    The polar, relative map is the one of the descriptor's polar part, the cart, absolute map that
    of its Cartesian part; the other two are what the paper compares them with.
    """
    if position not in POSITIONS or angle not in ANGLES:
        raise ValueError(
            f"position must be one of {list(POSITIONS)} and angle one of {list(ANGLES)}, "
            f"got {position!r} and {angle!r}"
        )
    row_column = _row_column(pixel, patch_size)
    grid = Grid.of_size(patch_size)

    def delta(values: Array) -> Array:
        return values - values[row_column]

    if position == "polar":
        k = PHI(delta(grid.phi)) * RHO(delta(grid.rho_angle))
    else:
        k = X(delta(grid.x_angle)) * Y(delta(grid.y_angle))
    turn = delta(grid.phi) if angle == "relative" else 0.0
    return k * THETA(np.full_like(grid.phi, theta_q - theta_p) - turn)


def patch_map(
    spec: Spec,
    pixel: Pixel,
    theta_p: float = 0.0,
    theta_q: float = 0.0,
    projection: Projection | None = None,
) -> Array:
    """M(p, q) of a pixel p and every pixel q of a patch of constant angle theta_q: (P, P).

    psi is the descriptor's, without its Gaussian mask, its parts of equal weight and M(p, p) = 1
    before whitening.
    """
    row, column = _row_column(pixel, spec.patch_size)
    _check_linear(projection, spec)
    unmasked = 1.0 / Grid.of_size(spec.patch_size).g
    index = [row * spec.patch_size + column]
    psi = pixel_features(spec, planes(theta_p, unmasked), index)
    parts = spec.constants.parts
    scale = 1.0 / ((psi**2 @ parts) ** 0.5 @ parts.T * len(spec.parts) ** 0.5)
    scale = scale[0]  # |psi(p)| is the same for all pixels, so this is their scale too
    mu, B = _linear(projection, spec)
    z = B(scale * psi[0] - mu)
    return pixel_responses(spec, planes(theta_q, unmasked), scale * z) - mu @ z


def slices(values: Array, pixel: Pixel) -> tuple[Array, Array]:
    """The row and the column of a map (P, P) that cross at a pixel: along x (P,), along y (P,)."""
    row, column = _row_column(pixel, len(values))
    return values[row], values[:, column]


def _row_column(pixel: Pixel, P: int) -> tuple[int, int]:
    x, y = pixel
    if not (0 <= x < P and 0 <= y < P):
        raise ValueError(f"pixel (x, y) must lie in a {P} x {P} patch, got {pixel!r}")
    return int(y), int(x)


# --------------------------------------------------------------------------------------------------
# Heat maps: every pixel of a patch against the whole of another


@dataclass(frozen=True)
class Explanation:
    """What made two patches match.

    patch0, patch1   (P, P) float32, the largest patch of each keypoint
    heat0, heat1     name -> (P, P): what each pixel adds to the similarity of that name
    similarities     name -> cosine of the two descriptors, the sum of heat0 and of heat1
    shares           part -> what it adds to `similarity`; what two parts do together is halved
    name             of the descriptor's own similarity: "whitened", "concat", "polar" or "cart"

    The names are "polar", "cart" and "concat", as far as the descriptor has them, and "whitened".
    """

    patch0: NDArray[np.float32]
    patch1: NDArray[np.float32]
    heat0: Mapping[str, Array]
    heat1: Mapping[str, Array]
    similarities: Mapping[str, float]
    shares: Mapping[str, float]
    name: str

    @property
    def similarity(self) -> float:
        """Cosine of the two descriptors."""
        return self.similarities[self.name]

    def limit(self, name: str | None = None) -> float:
        """Magnitude that both heat maps of a name are drawn up to."""
        heats = [maps[self._known(name)] for maps in (self.heat0, self.heat1)]
        return heat_limit(*heats)

    def _known(self, name: str | None) -> str:
        if name is None:
            return self.name
        if name not in self.similarities:
            raise ValueError(f"unknown heat map {name!r}: expected {list(self.similarities)}")
        return name


def explain(
    image0: Any, keypoint0: Any, image1: Any, keypoint1: Any, descriptor: Any = None
) -> Explanation:
    """Share out the similarity of two keypoints over the pixels of their patches.

    keypoint   a cv2.KeyPoint, or a frame (x, y, size, angle)
    descriptor the KDDescriptor that is to be explained; KDDescriptor() by default

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
        settings.patches(as_gray(image), _as_frame(keypoint, descriptor))[0]
        for image, keypoint in ((image0, keypoint0), (image1, keypoint1))
    )
    pixels0, pixels1 = (Pixels.of(s, settings.spec, settings.scales) for s in (stack0, stack1))
    largest = int(np.argmax(settings.scales))
    return _explain(pixels0, pixels1, stack0[largest], stack1[largest], settings.projection)


def explain_patches(
    patch0: NDArray[Any], patch1: NDArray[Any], spec: Spec, projection: Projection | None = None
) -> Explanation:
    """The same for two patches (P, P), uint8 or float."""
    pixels0, pixels1 = (Pixels.of(np.asarray(patch)[None], spec) for patch in (patch0, patch1))
    patch0, patch1 = np.asarray(patch0, np.float32), np.asarray(patch1, np.float32)
    return _explain(pixels0, pixels1, patch0, patch1, projection)


def _explain(
    pixels0: Pixels,
    pixels1: Pixels,
    patch0: NDArray[np.float32],
    patch1: NDArray[np.float32],
    projection: Projection | None,
) -> Explanation:
    spec = pixels0.spec
    _check_linear(projection, spec)
    heat0, heat1, similarities = {}, {}, {}
    for name, (mu, B) in _similarities(spec, projection).items():
        z0, z1 = _directions(pixels0.V, pixels1.V, mu, B)
        heat0[name] = pixels0.heat(z1, float(mu @ z1))
        heat1[name] = pixels1.heat(z0, float(mu @ z0))
        similarities[name] = float((pixels0.V - mu) @ z1)
    shares = {}  # mu, z0 and z1 are now those of the descriptor itself, the last name
    for part_name, part in zip(_part_names(spec), spec.parts, strict=True):
        v0, v1 = (pixels0.V - mu)[part], (pixels1.V - mu)[part]
        shares[part_name] = float(v0 @ z1[part] + v1 @ z0[part]) / 2
    return Explanation(patch0, patch1, heat0, heat1, similarities, shares, name)


Linear = tuple[Array, Callable[[Array], Array]]  # mu (D,) and v -> A A^T v


def _similarities(spec: Spec, projection: Projection | None) -> dict[str, Linear]:
    """Each similarity of two raw vectors as mu and A A^T; the descriptor's own comes last."""
    zero = np.zeros(spec.dim)
    similarities: dict[str, Linear] = {}
    for name, indicator in zip(_part_names(spec), spec.constants.parts.T, strict=True):
        similarities[name] = zero, lambda v, chosen=indicator: v * chosen  # type: ignore[misc]
    similarities[spec.kernel] = _linear(None, spec)
    if projection is not None:
        similarities["whitened"] = _linear(projection, spec)
    return similarities


def _part_names(spec: Spec) -> tuple[str, ...]:
    return POSITIONS if spec.kernel == "concat" else (spec.kernel,)


def _linear(projection: Projection | None, spec: Spec) -> Linear:
    if projection is None:
        return np.zeros(spec.dim), lambda v: v
    A = projection.A.astype(np.float64)
    return projection.mu.astype(np.float64), lambda v: A @ (v @ A)


def _directions(
    V0: Array, V1: Array, mu: Array, B: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """z0, z1 (D,) with (V0 - mu) . z1 = (V1 - mu) . z0 = the cosine; zero for zero vectors."""
    if not V0.any() or not V1.any():
        return np.zeros_like(V0), np.zeros_like(V1)
    z0, z1 = B(V0 - mu), B(V1 - mu)
    norms = np.sqrt(((V0 - mu) @ z0) * ((V1 - mu) @ z1)) or 1.0
    return z0 / norms, z1 / norms


def _check_linear(projection: Projection | None, spec: Spec) -> None:
    if projection is None:
        return
    if projection.power != 1.0:
        raise ValueError(
            f"a whitening with a power of {projection.power:g} acts on the sum of the pixels and "
            'cannot be shared out among them: use "ws", "wus", "wua" or "w"'
        )
    if len(projection.mu) != spec.dim:
        raise ValueError(
            f"the projection takes vectors of {len(projection.mu)} dimensions, but the "
            f"{spec.kernel!r} descriptor has {spec.dim}"
        )


def _as_frame(keypoint: Any, descriptor: KDDescriptor) -> NDArray[np.float64]:
    if isinstance(keypoint, cv2.KeyPoint):
        return descriptor.frames([keypoint])
    return as_frames(np.atleast_2d(np.array(keypoint, dtype=np.float64)))


def heat_limit(*heats: Array) -> float:
    """A magnitude that 99.5 % of the pixels of the given heat maps stay below."""
    limit = float(np.quantile(np.abs(np.stack(heats)), 0.995))
    return limit or float(np.abs(np.stack(heats)).max()) or 1.0

"""Patch maps: one pixel against all pixels of a patch of constant angle."""

from __future__ import annotations

from typing import Any

import numpy as np

from kd_cv.descriptor.kernels import Array, Grid
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.explain import linear, pixel_responses, planes
from kd_cv.viz.palette import VERMILION
from kd_cv.viz.style import Axes, framed, style

Pixel = tuple[int, int]  # (x, y): column and row in the patch
LEVELS = 10  # isocontours, as in the paper


def pixel_features(spec: Spec, planes: Array, pixels: Any = slice(None)) -> Array:
    """Return psi(p) of the chosen pixels, (N, D); their sum is V before its normalisation."""
    Phi, T = spec.constants.Phi[pixels], spec.constants.T
    return np.einsum("k p, p f, k f d -> p d", planes[:, pixels], Phi, T, optimize=True)


def patch_map(
    spec: Spec,
    pixel: Pixel,
    theta_p: float = 0.0,
    theta_q: float = 0.0,
    projection: Projection | None = None,
) -> Array:
    """Return M(p, q) of a pixel p and every pixel q of a patch of constant angle: (P, P).

    psi has no Gaussian mask here, parts of equal weight, and M(p, p) = 1 before whitening.
    """
    row, column = row_column(pixel, spec.patch_size)
    mu, B = linear(projection, spec)
    unmasked = 1.0 / Grid.of_size(spec.patch_size).g
    index = [row * spec.patch_size + column]
    psi = pixel_features(spec, planes(theta_p, unmasked), index)
    parts = spec.constants.parts
    scale = 1.0 / ((psi**2 @ parts) ** 0.5 @ parts.T * len(spec.parts) ** 0.5)
    scale = scale[0]  # |psi(p)| is the same for all pixels
    z = B(scale * psi[0] - mu)
    return pixel_responses(spec, planes(theta_q, unmasked), scale * z) - mu @ z


def row_column(pixel: Pixel, P: int) -> tuple[int, int]:
    x, y = pixel
    if not (0 <= x < P and 0 <= y < P):
        raise ValueError(f"pixel (x, y) must lie in a {P} x {P} patch, got {pixel!r}")
    return int(y), int(x)


@style()
def plot_patch_map(
    ax: Axes, values: Array, pixel: Pixel | None = None, *, title: str | None = None
) -> Axes:
    """Plot a patch map (P, P) with ten isocontours, and a cross at pixel (x, y)."""
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high if high > low else low + 1.0, LEVELS + 2)
    ax.contourf(values, levels=edges, cmap="cividis")
    ax.contour(
        values, levels=edges[1:-1], colors="white", linewidths=0.25, linestyles="solid", alpha=0.6
    )
    ax.set_aspect("equal")
    ax.invert_yaxis()
    if pixel is not None:
        ax.plot(*pixel, "x", color="white", markersize=6, markeredgewidth=2.4)
        ax.plot(*pixel, "x", color=VERMILION, markersize=5, markeredgewidth=1.2)
    framed(ax).set_title(title or "")
    return ax

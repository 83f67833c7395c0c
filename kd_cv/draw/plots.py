"""Matplotlib pictures that compose: every function draws on axes and returns axes.

>>> axes = plot_images([image0, image1], ["query", "scene"])
>>> _ = plot_keypoints(axes[0], result.keypoints0)
>>> _ = plot_matches(*axes, result.points0, result.points1, result.inliers)
>>> save_plot("matches.png", axes)

Colours are those of `palette`. `style()` sets the fonts and lines that all the pictures share.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.descriptor.frames import as_frames, from_keypoints, radians
from kd_cv.explain import Array, Explanation, Pixel, heat_limit
from kd_cv.io.files import replacing
from kd_cv.pictures.palette import (
    BLUE,
    GRAY,
    GREEN,
    INLIER,
    ORANGE,
    OUTLIER,
    SKY,
    VERMILION,
    YELLOW,
    diverging_colors,
)
from kd_cv.whitening.variants import ATTENUATION, BETA_INDEX, attenuation, shrinkage

try:
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import EllipseCollection, LineCollection
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.transforms import IdentityTransform
except ImportError as error:
    raise ImportError("pictures need matplotlib: pip install kd-cv[cli]") from error

DIVERGING = ListedColormap(diverging_colors().tolist(), name="kd_diverging")
SEQUENTIAL = "cividis"
DPI = 150
MAX_SIDE = 1600  # pixels of an image that are worth drawing
MAX_WIDTH = 14.0  # inches of a new figure
LEVELS = 10  # isocontours of a patch map, as in the paper

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "mathtext.fontset": "dejavusans",
    "font.size": 8.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "figure.titlesize": 10.0,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
}


@contextmanager
def style() -> Iterator[None]:
    """The look of kd_cv's figures, for the length of a block or of a function."""
    # Only these settings are put back, unlike by rc_context: a notebook's backend turns interactive
    # mode on with the first figure, and must not lose it.
    before = {key: mpl.rcParams[key] for key in STYLE}
    mpl.rcParams.update(STYLE)
    try:
        yield
    finally:
        mpl.rcParams.update(before)


def save_plot(path: str | os.PathLike[str], target: Any) -> None:
    """Write the figure of `target` (a figure, axes or an array of axes), whole or not at all."""
    figure = figure_of(target)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DPI)


def figure_of(target: Any) -> Figure:
    """The figure that a figure, axes or an array of axes belongs to."""
    if isinstance(target, Figure):
        return target
    ax: Any = target if isinstance(target, Axes) else np.ravel(np.asarray(target, object))[0]
    return ax.get_figure(root=True)


# --------------------------------------------------------------------------------------------------
# Images, keypoints, matches


@style()
def plot_images(
    images: Sequence[NDArray[Any]],
    titles: Sequence[str] | None = None,
    *,
    axes: Any = None,
    height: float = 3.2,
) -> NDArray[Any]:
    """Images side by side, BGR as OpenCV has them, or gray: an array of axes, one an image.

    axes: where to draw; a new figure of `height` inches, or less for wide images, if not given.
    """
    if not len(images):
        raise ValueError("there are no images to plot")
    if titles is not None and len(titles) != len(images):
        raise ValueError(f"{len(images)} images need as many titles, got {len(titles)}")
    if axes is None:
        ratios = [image.shape[1] / image.shape[0] for image in images]
        height = min(height, MAX_WIDTH / sum(ratios))
        figsize = height * sum(ratios) + 0.1 * len(images), height + 0.3 * bool(titles)
        _, axes = plt.subplots(
            1,
            len(images),
            figsize=figsize,
            width_ratios=ratios,
            squeeze=False,
            layout="compressed",
        )
    flat = np.ravel(np.asarray(axes, dtype=object))
    if len(flat) != len(images):
        raise ValueError(f"{len(images)} images need as many axes, got {len(flat)}")
    for i, (ax, image) in enumerate(zip(flat, images, strict=True)):
        show_image(ax, image)
        if titles is not None:
            ax.set_title(titles[i])
    return flat


@style()
def show_image(ax: Axes, image: NDArray[Any]) -> Axes:
    """One image, in its own pixel coordinates, without axis marks."""
    image = np.asarray(image)
    height, width = image.shape[:2]
    shrink = MAX_SIDE / max(height, width)
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    if shrink < 1:
        size = max(1, round(width * shrink)), max(1, round(height * shrink))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    if image.ndim == 3:
        image = image[..., 0] if image.shape[2] == 1 else image[..., 2::-1]
    top = 255 if image.dtype == np.uint8 else max(1.0, float(image.max(initial=0.0)))
    if image.ndim == 3:
        ax.imshow(image if image.dtype == np.uint8 else image / top, extent=extent)
    else:
        ax.imshow(image, cmap="gray", vmin=0, vmax=top, extent=extent)
    return bare(ax)


def bare(ax: Axes) -> Axes:
    """Without ticks and frame."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
    return ax


@style()
def plot_keypoints(
    ax: Axes,
    keypoints: Any,
    *,
    color: str = YELLOW,
    linewidth: float = 0.7,
    magnification: float = 1.0,
    label: str | None = None,
) -> Axes:
    """Circles of the keypoints' size, with a radius at their angle.

    keypoints: cv2.KeyPoint, or frames (N, 4). magnification enlarges the circles, 1 being the
    keypoint itself.
    """
    frames = _as_frames(keypoints)
    x, y, size, angle = frames.T
    diameter, turn = magnification * size, radians(angle)
    circles = EllipseCollection(
        diameter,
        diameter,
        np.zeros(len(frames)),
        units="xy",
        offsets=frames[:, :2],
        offset_transform=ax.transData,
        facecolors="none",
        edgecolors=color,
        linewidths=linewidth,
        label=label,
    )
    tips = np.stack([x + diameter / 2 * np.cos(turn), y + diameter / 2 * np.sin(turn)], axis=1)
    radii = LineCollection(
        list(np.stack([frames[:, :2], tips], axis=1)), colors=color, linewidths=linewidth
    )
    ax.add_collection(circles, autolim=False)
    ax.add_collection(radii, autolim=False)
    return ax


@style()
def plot_frame(ax: Axes, keypoint: Any, *, magnification: float, color: str = SKY) -> Axes:
    """The square that the patch of a keypoint is cut from, a tick at its angle."""
    x, y, size, angle = _as_frames(keypoint)[0]
    turn = radians(np.array([angle]))[0]
    along = magnification * size / 2 * np.array([np.cos(turn), np.sin(turn)])
    across = np.array([-along[1], along[0]])
    centre = np.array([x, y])
    corners = [
        centre + i * along + j * across for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1))
    ]
    for points in (corners, [centre, centre + along]):
        for shade, width in (("black", 2.6), (color, 1.4)):  # seen on any background
            ax.add_line(Line2D(*np.array(points).T, color=shade, linewidth=width))
    return ax


def _as_frames(keypoints: Any) -> NDArray[np.float64]:
    if isinstance(keypoints, cv2.KeyPoint):
        keypoints = [keypoints]
    if isinstance(keypoints, np.ndarray):
        return as_frames(np.atleast_2d(keypoints))
    return from_keypoints(tuple(keypoints))


class _Links(LineCollection):
    """Lines from points of one axes to points of another, wherever these are when it is drawn."""

    def __init__(
        self, ax0: Axes, ax1: Axes, points0: Array, points1: Array, **settings: Any
    ) -> None:
        super().__init__([], transform=IdentityTransform(), **settings)
        self._ends = (ax0, points0), (ax1, points1)
        self.set_in_layout(False)

    def draw(self, renderer: Any) -> None:
        ends = [ax.transData.transform(points) for ax, points in self._ends]
        self.set_segments(list(np.stack(ends, axis=1)))
        super().draw(renderer)


@style()
def plot_matches(
    ax0: Axes,
    ax1: Axes,
    points0: ArrayLike,
    points1: ArrayLike,
    inliers: ArrayLike | None = None,
    *,
    linewidth: float = 0.7,
    alpha: float = 0.9,
    legend: bool = True,
) -> tuple[Axes, Axes]:
    """Lines from points (M, 2) of one image to points (M, 2) of another.

    inliers (M,): true for matches that are drawn as right, in blue; the others are drawn first,
    thinner, in vermilion. Without it all are drawn as right, and there is no legend.
    """
    points0, points1 = (np.asarray(p, np.float64).reshape(-1, 2) for p in (points0, points1))
    if len(points0) != len(points1):
        raise ValueError(f"got {len(points0)} points in one image, {len(points1)} in the other")
    right = np.ones(len(points0), bool) if inliers is None else np.asarray(inliers, bool)
    if right.shape != (len(points0),):
        raise ValueError(f"inliers must have shape ({len(points0)},), got {right.shape}")
    kinds = ((~right, OUTLIER, 0.75), (right, INLIER, 1.0))
    for zorder, (chosen, color, factor) in enumerate(kinds, start=5):
        links = _Links(
            ax0,
            ax1,
            points0[chosen],
            points1[chosen],
            colors=color,
            linewidths=linewidth * factor,
            alpha=alpha,
            zorder=zorder,
        )
        ax0.figure.add_artist(links)
        for ax, points in ((ax0, points0), (ax1, points1)):
            ax.scatter(
                points[chosen, 0],
                points[chosen, 1],
                s=9 * linewidth * factor,
                color=color,
                edgecolors="white",
                linewidths=0.25,
                zorder=zorder + 2,
            )
    if inliers is not None and legend:
        _match_legend(ax0.figure, f"{right.sum():,} inliers", f"{(~right).sum():,} outliers")
    return ax0, ax1


def _match_legend(figure: Any, inliers: str, outliers: str) -> None:
    handles: list[Artist] = [
        Line2D([], [], color=INLIER, linewidth=2.0, label=inliers),
        Line2D([], [], color=OUTLIER, linewidth=1.0, label=outliers),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)


# --------------------------------------------------------------------------------------------------
# Patches and maps


@style()
def plot_patch(ax: Axes, patch: NDArray[Any], title: str | None = None) -> Axes:
    """A patch (P, P) in gray, from its darkest to its brightest pixel."""
    ax.imshow(patch, cmap="gray")
    return _titled(bare(ax), title)


@style()
def plot_heatmap(
    ax: Axes,
    heat: Array,
    *,
    limit: float | None = None,
    title: str | None = None,
    colorbar: bool = False,
) -> Axes:
    """A heat map (P, P): vermilion speaks for the match, blue against it.

    limit: the magnitude of the strongest colour, by default that of the map itself.
    """
    limit = heat_limit(heat) if limit is None else limit
    shown = ax.imshow(heat, cmap=DIVERGING, vmin=-limit, vmax=limit)
    if colorbar:
        bar = ax.figure.colorbar(shown, ax=ax, shrink=0.8, extend="both")
        bar.outline.set_linewidth(0.4)
    return _titled(_framed(ax), title)


@style()
def plot_patch_map(
    ax: Axes, values: Array, pixel: Pixel | None = None, *, title: str | None = None
) -> Axes:
    """A patch map (P, P) with ten isocontours between its ends, and a cross at pixel (x, y)."""
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high if high > low else low + 1.0, LEVELS + 2)
    ax.contourf(values, levels=edges, cmap=SEQUENTIAL)
    ax.contour(
        values, levels=edges[1:-1], colors="white", linewidths=0.25, linestyles="solid", alpha=0.6
    )
    ax.set_aspect("equal")
    ax.invert_yaxis()
    if pixel is not None:
        ax.plot(*pixel, "x", color="white", markersize=6, markeredgewidth=2.4)
        ax.plot(*pixel, "x", color=VERMILION, markersize=5, markeredgewidth=1.2)
    return _titled(_framed(ax), title)


@style()
def plot_toy_patch(
    ax: Axes,
    patch_size: int,
    theta: float,
    *,
    pixel: Pixel | None = None,
    color: str = VERMILION,
    title: str | None = None,
) -> Axes:
    """A patch of constant gradient angle as arrows, or only its one pixel (x, y)."""
    if pixel is None:
        axis = (np.arange(4) + 0.5) * patch_size / 4 - 0.5
        x, y = (values.ravel() for values in np.meshgrid(axis, axis))
    else:
        x, y = (np.array([value], np.float64) for value in pixel)
    length = 0.18 * patch_size
    dx, dy = np.full(len(x), length * np.cos(theta)), np.full(len(x), length * np.sin(theta))
    ax.quiver(
        x, y, dx, dy, color=color, angles="xy", scale_units="xy", scale=1,
        pivot="mid" if pixel is None else "tail", width=0.018, headwidth=4, headlength=4.5,
        headaxislength=4,
    )  # fmt: skip
    if pixel is not None:
        ax.plot(x, y, "o", color=color, markersize=3)
    ax.set(xlim=(-0.5, patch_size - 0.5), ylim=(patch_size - 0.5, -0.5), aspect="equal")
    return _titled(_framed(ax), title)


@style()
def plot_explanation(
    explanation: Explanation, *, titles: Sequence[str] = ("", ""), figure: Any = None
) -> NDArray[Any]:
    """Both patches and their heat maps, one row an image: axes (2, 1 + number of heat maps).

    figure: an empty figure or subfigure to draw in; a new one if not given.
    """
    names = list(explanation.similarities)
    columns = 1 + len(names)
    if figure is None:
        figure = plt.figure(figsize=(1.35 * columns + 0.9, 3.25), layout="compressed")
    axes = figure.subplots(2, columns, squeeze=False)
    rows = (explanation.patch0, explanation.heat0), (explanation.patch1, explanation.heat1)
    for row, ((patch, heats), label) in enumerate(zip(rows, titles, strict=True)):
        plot_patch(axes[row, 0], patch, "patch" if row == 0 else None)
        axes[row, 0].set_ylabel(label)
        for ax, name in zip(axes[row, 1:], names, strict=True):
            plot_heatmap(ax, heats[name], limit=explanation.limit(name))
            if row == 0:
                ax.set_title(f"{name}\n{explanation.similarities[name]:.2f}")
    add_heat_key(figure, axes)
    return axes


@style()
def add_heat_key(figure: Any, axes: Any) -> None:
    """One colour bar for heat maps that are each drawn up to their own limit."""
    scale = mpl.cm.ScalarMappable(mpl.colors.Normalize(-1, 1), DIVERGING)
    bar = figure.colorbar(scale, ax=axes, shrink=0.6, aspect=25, pad=0.02)
    bar.set_ticks([-1, 0, 1], labels=["against", "neutral", "for the\nmatch"])
    bar.outline.set_linewidth(0.4)
    bar.ax.tick_params(length=0)


def _framed(ax: Axes) -> Axes:
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(visible=True, linewidth=0.4, color=GRAY)
    return ax


def _titled(ax: Axes, title: str | None) -> Axes:
    if title is not None:
        ax.set_title(title)
    return ax


# --------------------------------------------------------------------------------------------------
# Curves


@style()
def plot_similarities(
    ax: Axes,
    matching: ArrayLike,
    non_matching: ArrayLike,
    *,
    bins: int = 60,
    title: str | None = None,
) -> Axes:
    """Histograms of the similarities of matching and of non-matching pairs."""
    groups = np.asarray(non_matching, np.float64), np.asarray(matching, np.float64)
    low = min(float(values.min()) for values in groups)
    edges = np.linspace(low, 1.0, bins + 1).tolist()
    looks = (("non-matching", ORANGE), ("matching", BLUE))
    for values, (label, color) in zip(groups, looks, strict=True):
        ax.hist(values, edges, density=True, color=color, alpha=0.35)
        ax.hist(values, edges, density=True, color=color, histtype="step", lw=1.0, label=label)
    ax.set(xlabel="similarity", yticks=[])
    ax.spines["left"].set_visible(False)
    ax.set_xlim(min(low, 0.0), 1.0)
    return _titled(ax, title)


@style()
def plot_eigenvalues(
    ax: Axes,
    lam: ArrayLike,
    *,
    t: float = ATTENUATION,
    beta_index: int = BETA_INDEX,
    count: int = 120,
    title: str | None = None,
) -> Axes:
    """The eigenvalues that W, W_UA and W_US divide by, the largest being 1."""
    spectrum = np.asarray(lam, np.float64)
    spectrum = spectrum / spectrum.max()
    i = np.arange(1, len(spectrum) + 1)
    curves = (
        (spectrum, BLUE, "-", r"$W$:  $\lambda$"),
        (attenuation(spectrum, t) ** -2, ORANGE, "--", rf"$W_{{UA}}$:  $\lambda^t$,  $t = {t:g}$"),
        (
            shrinkage(spectrum, beta_index) ** -2,
            GREEN,
            "-.",
            rf"$W_{{US}}$:  $(1-\beta)\lambda + \beta$,  $\beta = \lambda_{{{beta_index}}}$",
        ),
    )
    for values, color, dashes, label in curves:
        ax.semilogy(i[:count], values[:count], dashes, color=color, label=label)
    ax.axvline(beta_index, color=GRAY, linewidth=0.6, linestyle=":")
    ax.set(xlabel=r"$i$", ylabel=r"$\lambda_i$", xlim=(1, min(count, len(spectrum))))
    ax.grid(True, linewidth=0.3, alpha=0.6)
    ax.legend()
    return _titled(ax, title)


@style()
def plot_curves(
    figure: Any, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], ylabel: str
) -> NDArray[Any]:
    """One panel for each title, in which each label has a curve of points (x, y): its axes."""
    looks = ((BLUE, "o-"), (ORANGE, "s--"), (GREEN, "^-."))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (title, curves) in zip(axes, panels.items(), strict=True):
        for (label, points), (color, marker) in zip(curves.items(), looks, strict=False):
            ax.plot(*np.transpose(points), marker, color=color, markersize=3, label=label)
            if len(points) <= 8:
                ax.set_xticks([x for x, _ in points])
        ax.set(xlabel=title)
        ax.grid(True, linewidth=0.3, alpha=0.6)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel(ylabel)
    axes[0].legend()
    return axes


@style()
def plot_tradeoff(ax: Axes, points: Mapping[str, Sequence[float]], ylabel: str) -> Axes:
    """Accuracy over time: label -> milliseconds, value, and the ends of its interval."""
    for label, (ms, value, low, high) in points.items():
        ours = label.startswith("kd")
        color, marker = (BLUE, "o") if ours else (GRAY, "s")
        ax.plot([ms, ms], [low, high], color=color, linewidth=0.8)
        ax.plot(ms, value, marker, color=color, markersize=4)
        ax.annotate(
            label, (ms, value), textcoords="offset points", xytext=(5, 3), color=color, fontsize=7
        )
    ax.set_xscale("log")
    ax.set(xlabel="milliseconds an image", ylabel=ylabel)
    ax.grid(True, which="both", linewidth=0.3, alpha=0.6)
    return ax

"""Images, their keypoints and their matches on Matplotlib axes.

Every function draws on axes and returns axes, so that they compose.

>>> from kd_cv.viz.style import save_plot
>>> axes = plot_images([image0, image1], ["query", "scene"])
>>> _ = plot_keypoints(axes[0], result.keypoints0)
>>> _ = plot_matches(*axes, result.points0, result.points1, result.inliers)
>>> save_plot("matches.png", axes)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.descriptor.frames import as_frames, radians
from kd_cv.io.images import reduced
from kd_cv.keypoints import from_keypoints
from kd_cv.types import Float64
from kd_cv.viz.palette import INLIER, OUTLIER, SKY, YELLOW
from kd_cv.viz.style import Axes, bare, plt, style

# After `style`, which says what to install where there is no Matplotlib.
# isort: split
from matplotlib.artist import Artist
from matplotlib.collections import EllipseCollection, LineCollection
from matplotlib.lines import Line2D
from matplotlib.transforms import IdentityTransform

MAX_SIDE = 1600  # pixels of an image that are worth drawing
MAX_WIDTH = 14.0  # inches of a new figure


@style()
def plot_images(
    images: Sequence[NDArray[Any]],
    titles: Sequence[str] | None = None,
    *,
    axes: Any = None,
    height: float = 3.2,
) -> NDArray[Any]:
    """Plot images, BGR or gray, side by side on `axes`, or in a new figure of `height` inches."""
    if not len(images):
        raise ValueError("there are no images to plot")
    if axes is None:
        ratios = [image.shape[1] / image.shape[0] for image in images]
        height = min(height, MAX_WIDTH / sum(ratios))
        figsize = height * sum(ratios) + 0.1 * len(images), height + 0.3 * bool(titles)
        _, axes = plt.subplots(
            1, len(images), figsize=figsize, width_ratios=ratios, squeeze=False, layout="compressed"
        )
    flat = np.ravel(np.asarray(axes, dtype=object))
    for ax, image, title in zip(flat, images, titles or [""] * len(images), strict=True):
        bare(ax).set_title(title)
        _show(ax, np.asarray(image))
    return flat


def _show(ax: Axes, image: NDArray[Any]) -> None:
    """Show an image in its own pixel coordinates."""
    height, width = image.shape[:2]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    image = reduced(image, MAX_SIDE)
    if image.ndim == 3:
        image = image[..., 0] if image.shape[2] == 1 else image[..., 2::-1]
    top = 255 if image.dtype == np.uint8 else max(1.0, float(image.max(initial=0.0)))
    if image.ndim == 3:
        ax.imshow(image if image.dtype == np.uint8 else image / top, extent=extent)
    else:
        ax.imshow(image, cmap="gray", vmin=0, vmax=top, extent=extent)


@style()
def plot_keypoints(
    ax: Axes,
    keypoints: cv2.KeyPoint | Sequence[cv2.KeyPoint] | Float64,
    *,
    color: str = YELLOW,
    linewidth: float = 0.7,
    magnification: float = 1.0,
    label: str | None = None,
) -> Axes:
    """Draw circles of the keypoints' size times `magnification`, with a radius at their angle.

    keypoints: cv2.KeyPoint, or frames (N, 4).
    """
    frames = _as_frames(keypoints)
    x, y, size, angle = frames.T
    diameter, turn = magnification * size, radians(angle)
    circles = EllipseCollection(
        diameter, diameter, np.zeros(len(frames)), units="xy", offsets=frames[:, :2],
        offset_transform=ax.transData, facecolors="none", edgecolors=color, linewidths=linewidth,
        label=label,
    )  # fmt: skip
    tips = np.stack([x + diameter / 2 * np.cos(turn), y + diameter / 2 * np.sin(turn)], axis=1)
    radii = LineCollection(
        list(np.stack([frames[:, :2], tips], axis=1)), colors=color, linewidths=linewidth
    )
    ax.add_collection(circles, autolim=False)
    ax.add_collection(radii, autolim=False)
    return ax


@style()
def plot_frame(ax: Axes, keypoint: Any, *, magnification: float) -> Axes:
    """Draw the square of the patch of a keypoint, with a tick at its angle."""
    frame = _as_frames(keypoint)[0]
    centre, size, turn = frame[:2], frame[2], radians(frame[3:])[0]
    along = magnification * size / 2 * np.array([np.cos(turn), np.sin(turn)])
    across = np.array([-along[1], along[0]])
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]])
    square, tick = centre + corners @ [along, across], np.array([centre, centre + along])
    for points in (square, tick):
        for shade, width in (("black", 2.6), (SKY, 1.4)):  # seen on any background
            ax.add_line(Line2D(*points.T, color=shade, linewidth=width))
    return ax


def _as_frames(keypoints: Any) -> NDArray[np.float64]:
    if isinstance(keypoints, cv2.KeyPoint):
        keypoints = [keypoints]
    if isinstance(keypoints, np.ndarray):
        return as_frames(np.atleast_2d(keypoints))
    return from_keypoints(tuple(keypoints))


class _Links(LineCollection):
    """Lines between points of two axes, placed when the figure is drawn."""

    def __init__(
        self, ax0: Axes, ax1: Axes, points0: Float64, points1: Float64, **settings: Any
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
    """Draw lines from points (M, 2) of one image to points (M, 2) of another.

    inliers (M,): blue if true, all by default; the others are drawn below, in vermilion.
    """
    points0, points1 = (np.asarray(p, np.float64).reshape(-1, 2) for p in (points0, points1))
    right = np.ones(len(points0), bool) if inliers is None else np.asarray(inliers, bool)
    if not len(points0) == len(points1) == len(right):
        raise ValueError(
            f"got {len(points0)} points in one image, {len(points1)} in the other, "
            f"{len(right)} inliers"
        )
    kinds = ((~right, OUTLIER, 0.75), (right, INLIER, 1.0))
    for zorder, (chosen, color, factor) in enumerate(kinds, start=5):
        ends, width = (points0[chosen], points1[chosen]), linewidth * factor
        links = _Links(ax0, ax1, *ends, colors=color, linewidths=width, alpha=alpha, zorder=zorder)
        ax0.figure.add_artist(links)
        for ax, points in zip((ax0, ax1), ends, strict=True):
            ax.scatter(
                points[:, 0], points[:, 1], s=9 * width, color=color, edgecolors="white",
                linewidths=0.25, zorder=zorder + 2,
            )  # fmt: skip
    if inliers is not None and legend:
        handles: list[Artist] = [
            Line2D([], [], color=INLIER, linewidth=2.0, label=f"{right.sum():,} inliers"),
            Line2D([], [], color=OUTLIER, linewidth=1.0, label=f"{(~right).sum():,} outliers"),
        ]
        ax0.figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return ax0, ax1

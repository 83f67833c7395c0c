"""The sheet of matches: keypoints, inliers and outliers of two images.

>>> sheet = draw_matches(image0, image1, {"KD": result})
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import from_corner
from kd_cv.gray import as_gray, to_8bit
from kd_cv.io.files import replacing
from kd_cv.keypoints import from_keypoints
from kd_cv.types import Image as AnyImage
from kd_cv.viz.images import plot_images, plot_matches
from kd_cv.viz.palette import INK, INLIER, KEYPOINT, OUTLIER, OUTLINE
from kd_cv.viz.style import Figure, style

# isort: split
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D

Image = NDArray[np.uint8]

DPI = 100
GAP, MARGIN, BAND = 12, 16, 48  # pixels between images, around them, and of a line of text
TEXT = 15  # points
MAX_WIDTH = 2400
MAX_LINES = 220  # more would hide the photographs


Matched = Any  # a MatchResult, whose module imports this one


@style()
def draw_matches(
    image0: AnyImage,
    image1: AnyImage,
    results: Mapping[str, Matched],
    height: int = 720,
    words: tuple[str, str] = ("", ""),
) -> Image:
    """Draw a sheet (H, W, 3) BGR with a row for each result, under its title, and a legend.

    image0, image1  gray or BGR; results  title -> MatchResult; height  of a row in pixels
    words  of inliers and of outliers in the legend, such as "on the plane", "off the plane"
    """
    if not results:
        raise ValueError("there are no results to draw")
    images = as_bgr(image0), as_bgr(image1)
    widths = [height * image.shape[1] / image.shape[0] for image in images]
    scale = min(1.0, MAX_WIDTH / sum(widths))
    row, (left, right) = max(1, round(height * scale)), (max(1, round(scale * w)) for w in widths)
    sheet = (left + right + GAP + 2 * MARGIN, len(results) * (row + BAND) + BAND)
    figure = Figure(figsize=(sheet[0] / DPI, sheet[1] / DPI), dpi=DPI)
    figure.set_layout_engine("none")
    size = min(TEXT, max(4.0, sheet[0] * 72 / DPI / 62))  # the legend fits
    for number, (title, result) in enumerate(results.items()):
        top = number * (row + BAND) + BAND
        axes = [
            figure.add_axes(
                (x / sheet[0], 1 - (top + row) / sheet[1], w / sheet[0], row / sheet[1])
            )
            for x, w in ((MARGIN, left), (MARGIN + left + GAP, right))
        ]
        _draw_row(axes, images, result, row)
        y = 1 - (top - BAND / 2) / sheet[1]
        name = figure.text(
            MARGIN / sheet[0], y, title, size=size, weight="bold", color=INK, va="center",
            parse_math=False,
        )  # fmt: skip
        shift = (1.5 * size, 0) if title else (0, 0)
        axes[0].annotate(
            _counts(result), (1, 0.5), shift, name, textcoords="offset points", size=size,
            color=INK, va="center", annotation_clip=False,
        )  # fmt: skip
    outlined = any(result.success and result.H_0to1 is not None for result in results.values())
    figure.legend(
        handles=_legend(words, outlined), loc="lower left", ncols=4, fontsize=size, frameon=False,
        bbox_to_anchor=(0, 0, 1, BAND / sheet[1]), labelcolor=INK, handletextpad=0.2,
        columnspacing=1.2,
    )  # fmt: skip
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[:, :, 2::-1])


def _draw_row(axes: Any, images: tuple[Image, Image], result: Matched, row: int) -> None:
    plot_images([pale(image) for image in images], axes=axes)
    for ax, keypoints in zip(axes, (result.keypoints0, result.keypoints1), strict=True):
        ax.autoscale(False)
        ax.scatter(*from_keypoints(keypoints)[:, :2].T, s=3, color=KEYPOINT, linewidths=0)
    # Every n-th match as a line: inliers and outliers in the proportion that was found.
    drawn = np.zeros(len(result.ratios), bool)
    drawn[np.argsort(result.ratios, kind="stable")[:: _stride(result)]] = True
    for chosen, color in ((~result.inliers, OUTLIER), (result.inliers, INLIER)):
        for ax, points in zip(axes, (result.points0, result.points1), strict=True):
            ax.scatter(*points[chosen].T, s=row / 100, color=color, linewidths=0, zorder=4)
    plot_matches(
        axes[0], axes[1], result.points0[drawn], result.points1[drawn], result.inliers[drawn],
        linewidth=0.9, alpha=0.7, legend=False,
    )  # fmt: skip
    if result.success and result.H_0to1 is not None:
        height, width = images[0].shape[:2]
        corners = np.array([[0, 0], [width, 0], [width, height], [0, height], [0, 0]], np.float64)
        seen = cv2.perspectiveTransform(from_corner(corners)[None], result.H_0to1)[0]
        axes[1].plot(*seen.clip(-1e5, 1e5).T, color=OUTLINE, linewidth=1.6)


def draw_result(
    result: Matched, path: str | os.PathLike[str] | None = None, words: tuple[str, str] = ("", "")
) -> Image:
    """Draw the sheet of one result on its own images, and write it to `path` if given."""
    image0, image1 = result.images
    if image0 is None or image1 is None:
        raise ValueError("this result holds no images: draw it with draw_matches(image0, image1)")
    sheet = draw_matches(image0, image1, {"": result}, words=words)
    if path is not None:
        write_picture(path, sheet)
    return sheet


def check_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a name; ValueError if OpenCV cannot write such a picture."""
    suffix = Path(path).suffix  # alone: some names of files crash OpenCV
    if not suffix.isascii() or not cv2.haveImageWriter(f"x{suffix}"):
        raise ValueError(f"{path}: OpenCV cannot write a picture with the suffix {suffix!r}")
    return suffix


def write_picture(path: str | os.PathLike[str], picture: Image) -> None:
    """Write a picture, whole or not at all, in the format that the name ends with."""
    encoded = cv2.imencode(check_suffix(path), picture)[1]
    with replacing(path) as temporary:
        temporary.write_bytes(encoded.tobytes())


def as_bgr(image: AnyImage) -> Image:
    """Convert any image to 8 bits and three channels."""
    if image.dtype != np.uint8 or image.ndim == 2 or image.shape[2] == 1:
        return cv2.cvtColor(to_8bit(as_gray(image)), cv2.COLOR_GRAY2BGR)
    return np.ascontiguousarray(image[:, :, :3])


def pale(image: Image) -> Image:
    """Reduce colour and contrast, so that the lines stand out."""
    gray = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    return cv2.addWeighted(image, 0.35, gray, 0.5, 20)


def _stride(result: Matched) -> int:
    return max(1, -(-len(result.ratios) // MAX_LINES))


def _counts(result: Matched) -> str:
    text = f"{int(result.inliers.sum())} inliers of {len(result.ratios)} matches"
    if not result.success:
        text += " · not enough to trust"
    if _stride(result) > 1:
        text += f" · 1 of {_stride(result)} drawn as a line"
    return text


def _legend(words: tuple[str, str], outlined: bool) -> list[Line2D]:
    inside, outside = (f", {word}" if word else "" for word in words)
    entries = {
        "inlier" + inside: INLIER,
        "outlier" + outside: OUTLIER,
        "unmatched keypoint": KEYPOINT,
    }
    if outlined:
        entries["image 0 seen in image 1"] = OUTLINE
    return [
        Line2D([], [], color="none", marker="o", mfc=color, mec=INK, mew=0.5, label=label)
        for label, color in entries.items()
    ]

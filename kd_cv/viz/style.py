"""The look of all Matplotlib pictures, and how they are written."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.io.files import replacing
from kd_cv.viz.palette import BLUE, GRAY, GREEN, ORANGE, PURPLE, SKY, VERMILION

try:
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib import pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError("pictures need matplotlib: pip install kd-cv[cli]") from error

__all__ = ["Axes", "Figure", "bare", "figure_of", "framed", "plt", "save_plot", "style"]

DPI = 150

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
    "axes.prop_cycle": cycler(color=[BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY]),
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
    """Use the look of kd_cv's figures in a block or a function."""
    # Not rc_context, which would turn off the interactive mode of a notebook's backend.
    before = {key: mpl.rcParams[key] for key in STYLE}
    mpl.rcParams.update(STYLE)
    try:
        yield
    finally:
        mpl.rcParams.update(before)


def save_plot(path: str | os.PathLike[str], target: Figure | Axes | NDArray[Any]) -> None:
    """Write the figure of `target` (a figure, axes or an array of axes), whole or not at all."""
    figure = figure_of(target)
    drawn = io.BytesIO()  # in which no disk is full: the writers of some formats hide that
    figure.savefig(drawn, dpi=DPI, format=Path(path).suffix[1:] or None)
    with replacing(path) as temporary:
        temporary.write_bytes(drawn.getbuffer())


def figure_of(target: Figure | Axes | NDArray[Any]) -> Figure:
    """Return the figure of a figure, axes or an array of axes."""
    return np.ravel(np.asarray(target, object))[0].get_figure(root=True)


def bare(ax: Axes) -> Axes:
    """Remove ticks and frame."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def framed(ax: Axes) -> Axes:
    """Remove ticks, and draw a thin frame."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(visible=True, linewidth=0.4, color=GRAY)
    return ax

"""Histograms, spectra and curves on Matplotlib axes: what a measurement says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.viz.palette import BLACK, BLUE, GRAY, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION
from kd_cv.viz.style import Axes, style
from kd_cv.whitening.variants import ATTENUATION, BETA_INDEX, attenuation, shrinkage

BINS = 60  # of a histogram
SHOWN = 120  # eigenvalues


@style()
def plot_similarities(
    ax: Axes, matching: ArrayLike, non_matching: ArrayLike, title: str | None = None
) -> Axes:
    """Histograms of the similarities of matching and of non-matching pairs."""
    groups = np.asarray(non_matching, np.float64), np.asarray(matching, np.float64)
    low = min(float(values.min()) for values in groups)
    edges = np.linspace(low, 1.0, BINS + 1).tolist()
    looks = (("non-matching", ORANGE), ("matching", BLUE))
    for values, (label, color) in zip(groups, looks, strict=True):
        ax.hist(values, edges, density=True, color=color, alpha=0.35)
        ax.hist(values, edges, density=True, color=color, histtype="step", lw=1.0, label=label)
    ax.set(xlabel="similarity", yticks=[])
    ax.spines["left"].set_visible(False)
    ax.set_xlim(min(low, 0.0), 1.0)
    ax.set_title(title or "")
    return ax


@style()
def plot_eigenvalues(
    ax: Axes, lam: ArrayLike, t: float = ATTENUATION, beta_index: int = BETA_INDEX
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
        ax.semilogy(i[:SHOWN], values[:SHOWN], dashes, color=color, label=label)
    ax.axvline(beta_index, color=GRAY, linewidth=0.6, linestyle=":")
    ax.set(xlabel=r"$i$", ylabel=r"$\lambda_i$", xlim=(1, min(SHOWN, len(spectrum))))
    ax.grid(True, linewidth=0.3, alpha=0.6)
    ax.legend()
    return ax


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
    """Accuracy over time: label -> milliseconds, value, and the ends of its interval.

    Labels that begin with "KD" are blue. The legend has the most accurate first.
    """
    of_kd = cycle([(BLUE, shape) for shape in "osD^"])
    colors = VERMILION, GREEN, ORANGE, PURPLE, BLACK, SKY, GRAY, INK
    of_rivals = cycle(zip(colors, "vos^DPX<", strict=True))
    for label, (ms, value, *ends) in sorted(points.items(), key=lambda item: -item[1][1]):
        color, shape = next(of_kd if label.startswith("KD") else of_rivals)
        ax.plot([ms, ms], ends, color=color, linewidth=0.8, alpha=0.5)
        ax.plot(ms, value, shape, color=color, markersize=5, label=label)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="milliseconds an image", ylabel=ylabel)
    ax.grid(True, which="both", linewidth=0.3, alpha=0.6)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax

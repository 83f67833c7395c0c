"""Patches, patch maps and heat maps on Matplotlib axes: what a similarity is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from kd_cv.explain import Array, Explanation, heat_limit
from kd_cv.viz.palette import diverging_colors
from kd_cv.viz.style import Axes, bare, framed, plt, style

# After `style`, which says what to install where there is no Matplotlib.
# isort: split
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize

DIVERGING = ListedColormap(diverging_colors().tolist(), name="kd_diverging")


@style()
def plot_patch(ax: Axes, patch: NDArray[Any], title: str | None = None) -> Axes:
    """Plot a patch (P, P) in gray, from its darkest to its brightest pixel."""
    ax.imshow(patch, cmap="gray")
    bare(ax).set_title(title or "")
    return ax


@style()
def plot_heatmap(
    ax: Axes, heat: Array, *, limit: float | None = None, title: str | None = None
) -> Axes:
    """Plot a heat map (P, P): vermilion speaks for the match, blue against it.

    limit: the magnitude of the strongest colour, by default that of the map itself.
    """
    limit = heat_limit(heat) if limit is None else limit
    ax.imshow(heat, cmap=DIVERGING, vmin=-limit, vmax=limit)
    framed(ax).set_title(title or "")
    return ax


@style()
def plot_explanation(
    explanation: Explanation, *, titles: Sequence[str] = ("", ""), figure: Any = None
) -> NDArray[Any]:
    """Plot both patches and their heat maps; return axes (2, 1 + number of heat maps).

    figure: an empty figure or subfigure; a new one by default.
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
    """Add one colour bar for heat maps of different limits."""
    scale = ScalarMappable(Normalize(-1, 1), DIVERGING)
    bar = figure.colorbar(scale, ax=axes, shrink=0.6, aspect=25, pad=0.02)
    bar.set_ticks([-1, 0, 1], labels=["against", "neutral", "for the\nmatch"])
    bar.outline.set_linewidth(0.4)
    bar.ax.tick_params(length=0)

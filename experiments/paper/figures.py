"""The figures of the paper, drawn from the descriptor itself: a drawing and its data for each.

>>> [path.name for path in save_figures(["kernels", "whitening"], "figures")]
['kernels.png', 'whitening.png']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from experiments.paper import drawings
from experiments.paper.data import FigureData
from kd_cv.viz.style import Figure, plt, save_plot

#: Name of a figure -> what draws it.
FIGURES: dict[str, Callable[[FigureData], Figure]] = {
    "kernels": lambda m: drawings.draw_kernels(),
    "parametrizations": lambda m: drawings.draw_parametrizations(m.patch_size),
    "rotation": lambda m: drawings.draw_rotation(m.patch_size),
    "combination": lambda m: drawings.draw_combination(m.patch_size),
    "whitening": lambda m: drawings.draw_whitening(m.whitening_columns(), m.source),
    "slices": lambda m: drawings.draw_slices(m.slices_columns(), m.source),
    "heat_maps": lambda m: drawings.draw_heat_maps(
        m.explanations(), f"below each map: its sum, the cosine of the descriptors; {m.source}"
    ),
    "histograms": lambda m: drawings.draw_histograms(m.similarities(), m.source),
    "eigenvalues": lambda m: drawings.draw_eigenvalues(m.whitening(), m.source),
    "robustness": lambda m: drawings.draw_robustness(*m.robustness(), m.source),
}


def check_names(names: Iterable[str]) -> list[str]:
    """The names of figures; all of them if none is given."""
    chosen = list(names) or list(FIGURES)
    unknown = [name for name in chosen if name not in FIGURES]
    if unknown:
        raise ValueError(f"unknown figures {unknown}: expected some of {list(FIGURES)}")
    return chosen


def save_figures(
    names: Iterable[str], folder: str | os.PathLike[str], data: FigureData | None = None
) -> Iterator[Path]:
    """Draw figures into NAME.png files of a folder, which is made if it is not there.

    No name means all of them. The path of each is given when it is drawn.
    """
    chosen, target = check_names(names), Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{str(target)!r} is a file, expected a folder for the figures")
    target.mkdir(parents=True, exist_ok=True)
    data = data or FigureData()
    for name in chosen:
        figure = FIGURES[name](data)
        try:
            save_plot(target / f"{name}.png", figure)
        finally:
            plt.close(figure)
        yield target / f"{name}.png"

"""How protocols show their scores: as a table, with the paper's numbers, or as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.protocols.scores import Score
from kd_cv.cli.tables import print_table


def cells(published: Mapping[str, Any]) -> dict[str, str]:
    """Kind of descriptor -> the paper's figures, as text."""
    return {
        kind: " ".join(f"{v:.1f}" for v in value) if isinstance(value, tuple) else f"{value:.2f}"
        for kind, value in published.items()
    }


def cell(values: Mapping[str, float], key: str, interval: bool) -> str:
    """A value, with its interval if that is wanted; empty where there is no value."""
    if key not in values:
        return ""
    sign = "+" if key.endswith(" gain") else ""
    text = f"{values[key]:{sign}.1f}"
    if not interval:
        return text
    return f"{text} ({values[f'{key} low']:{sign}.1f}..{values[f'{key} high']:{sign}.1f})"


def report_scores(
    scores: Sequence[Score],
    keys: Sequence[str],
    as_json: bool,
    header: Mapping[str, Any],
    note: str,
    *,
    published: Mapping[str, Mapping[str, str]] = {},
    intervals: Sequence[str] = (),
) -> None:
    """One row for each score; published columns only where they say something.

    intervals  the keys that are shown with intervals, followed by their gains where there are any
    """
    if as_json:
        print(json.dumps({**header, "scores": [asdict(score) for score in scores]}))
        return
    shown = {
        title: column
        for title, column in published.items()
        if any(score.kind in column for score in scores)
    }
    gained = [key for key in intervals if any(f"{key} gain" in score.values for score in scores)]
    titles = [t for key in keys for t in ((key, f"{key} gain") if key in gained else (key,))]
    rows = [
        [
            score.name,
            str(score.dim),
            *(cell(score.values, t, t.removesuffix(" gain") in intervals) for t in titles),
            *(column.get(score.kind, "") for column in shown.values()),
        ]
        for score in scores
    ]
    print_table(["descriptor", "dim", *titles, *shown], rows, note)


def draw_figure(output: Path, size: tuple[float, float], draw: Callable[[Any], Any]) -> None:
    """Write what draw(figure) draws in an empty figure of this size in inches."""
    from kd_cv.viz.style import Figure, save_plot, style

    with style():
        figure = Figure(figsize=size)  # not pyplot's, which might open a window
        draw(figure)
        save_plot(output, figure)


def say_picture(output: Path | None) -> None:
    """Print where the picture is, if there is one."""
    if output:
        print(f"picture: {output.resolve()}")

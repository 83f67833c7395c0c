"""How protocols show what they found: tables, JSON, curves, pictures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any


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
    scores: Sequence[Any],
    keys: Sequence[str],
    as_json: bool,
    published: Mapping[str, Mapping[str, str]],
    header: Mapping[str, Any],
    note: str,
    intervals: Sequence[str] = (),
) -> None:
    """One row for each score; published columns only where they say something.

    intervals  the keys that are shown with theirs, followed by their gains where there are any
    """
    from kd_cv.cli.tables import print_table

    if as_json:
        print_json({**header, "scores": [asdict(score) for score in scores]})
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


def print_json(content: Mapping[str, Any]) -> None:
    print(json.dumps(content))


def draw_curves(output: Path, panels: Mapping[str, Mapping[str, Any]]) -> None:
    """One panel for each title: label -> points (x, FPR95)."""

    def draw(figure: Any) -> None:
        from kd_cv.draw.curves import plot_curves

        plot_curves(figure, panels, "FPR95 (%)")

    draw_figure(output, (6.4, 2.5), draw)


def draw_figure(output: Path, size: tuple[float, float], draw: Any) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from kd_cv.draw.style import plt, save_plot, style

    with style():
        figure = plt.figure(figsize=size)
        try:
            draw(figure)
            save_plot(output, figure)
        finally:
            plt.close(figure)


def say_picture(output: Path | None) -> None:
    if output:
        print(f"picture: {output.resolve()}")

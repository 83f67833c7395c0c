"""What the protocols share: candidates that the options name, tables, curves, pictures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

ALL = "kd,raw,rootsift,sift"


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def candidates_of(
    descriptors: str,
    weights: str | None,
    whitening: str | None,
    kernels: str,
    patch_size: int,
    dim: int,
    **settings: Any,
) -> list[Any]:
    """What the options name."""
    from kd_cv.evaluate.candidates import make_candidates
    from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING

    names = _split(whitening) if whitening else [DEFAULT_WHITENING]
    variants = [None if name == "none" else name for name in names]
    return make_candidates(
        _split(descriptors),
        weights=_split(weights) if weights else [DEFAULT_WEIGHTS],
        whitening=variants,
        kernels=_split(kernels),
        patch_size=patch_size,
        dim=dim,
        **settings,
    )


def with_ws(
    candidates: list[Any],
    source: str | None,
    dim: int,
    patches: tuple[int, float] | None = None,
) -> list[Any]:
    """Each candidate that is not whitened followed by itself with W_S."""
    if source is None:
        return candidates
    from kd_cv.evaluate.readers import builtin_scenes, is_phototourism, scenes_of
    from kd_cv.evaluate.whitened import with_ws as fit

    if source != "builtin" and is_phototourism(source):
        raise ValueError(f"--fit-ws takes photographs or sequences, {source} holds patches")
    scenes = builtin_scenes() if source == "builtin" else list(scenes_of(source))
    shown = []
    for candidate in candidates:
        shown.append(candidate)
        if "+" not in candidate.kind:
            shown.append(fit(candidate, scenes, patches=patches, dim=dim))
    return shown


def curve_whitening(weights: str | None, kernel: str, patch_size: int) -> tuple[Any, str]:
    """Matrices for a curve, and what they are."""
    from kd_cv.descriptor.spec import Spec
    from kd_cv.whitening.registry import DEFAULT_WEIGHTS, resolve

    name = weights or DEFAULT_WEIGHTS
    dim = Spec(patch_size, kernel).dim
    return resolve(name, kernel, patch_size, dim, "patches"), f"whitening: {name}"


def raw_rows(patches: Any, patch_size: int) -> Any:
    from kd_cv.evaluate.candidates import KD
    from kd_cv.feature2d import KDDescriptor

    return KD(KDDescriptor(patch_size=patch_size, whitening=None)).of_patches(patches)


def cells(published: Mapping[str, Any]) -> dict[str, str]:
    """Kind of descriptor -> the paper's figures, as text."""
    return {
        kind: " ".join(f"{v:.1f}" for v in value) if isinstance(value, tuple) else f"{value:.2f}"
        for kind, value in published.items()
    }


def against_of(candidates: Sequence[Any], wanted: str | None) -> str | None:
    """The name of the candidate that --against means by its name or its kind."""
    if wanted is None:
        return None
    for candidate in candidates:
        if wanted.lower() in (candidate.name.lower(), candidate.kind.lower()):
            return str(candidate.name)
    known = ", ".join(candidate.kind for candidate in candidates)
    raise ValueError(f"--against {wanted}: none of the descriptors is that; there are {known}")


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
        from kd_cv.draw.plots import plot_curves

        plot_curves(figure, panels, "FPR95 (%)")

    draw_figure(output, (6.4, 2.5), draw)


def draw_figure(output: Path, size: tuple[float, float], draw: Any) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from kd_cv.draw.plots import plt, save_plot, style

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

"""`kd-cv explain`: which pixels made two patches match."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from kd_cv.cli.options import FIGURES, Figure, Json, Photos, Weights, check_output
from kd_cv.cli.pair import Options, Pair, load_pair, run
from kd_cv.explain import Explanation, explain
from kd_cv.io.files import printable
from kd_cv.matching.result import MatchResult
from kd_cv.matching.two_view import NAMES, WORDS


def command(
    photos: Photos = None,
    output: Figure = None,
    number: Annotated[
        int, typer.Option("--match", help="Which match to explain, counted from 1.")
    ] = 1,
    at: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Count from the match nearest to this point of A; by default from the most "
            "certain inlier.",
            metavar="X Y",
        ),
    ] = None,
    weights: Weights = None,
    as_json: Json = False,
) -> None:
    """Explain a match: which pixels made the two patches alike.

    The sum over a heat map is the similarity of the two descriptors.

    [bold]Examples[/bold]

        kd-cv explain -o explanation.png

        kd-cv explain left.jpg right.jpg --match 3 -o explanation.png

        kd-cv explain left.jpg right.jpg --at 420 180 -o explanation.png
    """
    photos = photos or []
    check_output(output, FIGURES, photos)
    if at is not None and not np.isfinite(at).all():
        raise ValueError(f"--at must be two finite numbers, got {at[0]} {at[1]}")
    pair = load_pair(photos)
    answer = run("kd", pair, Options(weights=weights, max_size=sys.maxsize))
    rows = ranked(answer.result, at)
    if not len(rows):
        print("kd-cv: nothing to explain: there are no matches", file=sys.stderr)
        raise typer.Exit(1)
    if not 1 <= number <= len(rows):
        raise ValueError(f"--match must be from 1 to {len(rows)}, got {number}")
    row = rows[number - 1]
    i, j = answer.result.matches[row]
    keypoints = answer.result.keypoints0[i], answer.result.keypoints1[j]
    why = explain(pair.image0, keypoints[0], pair.image1, keypoints[1], answer.feature)
    if output:
        _draw(output, pair, keypoints, why, answer.feature)
    if as_json:
        content = {
            "frames": [[*k.pt, k.size, k.angle] for k in keypoints],
            "ratio": float(answer.result.ratios[row]),
            "inlier": bool(answer.result.inliers[row]),
            "similarity": why.similarity,
            "similarities": dict(why.similarities),
            "shares": dict(why.shares),
        }
        print(json.dumps(content))
        return
    print(f"match {number} of {len(rows)}, {_kind(answer.result, row)}")
    if at is not None:
        away = np.linalg.norm(np.array(keypoints[0].pt) - at)
        print(f"  {away:.1f} px from {at[0]:g} {at[1]:g}")
    _print(pair.names, keypoints, answer.result.ratios[row], why)
    if output:
        print(f"\npicture: {printable(str(output.resolve()))}")


def _print(names: Sequence[str], keypoints: Any, ratio: float, why: Explanation) -> None:
    for label, keypoint in zip(names, keypoints, strict=True):
        x, y = keypoint.pt
        print(f"  {label}: x {x:.1f}, y {y:.1f}, size {keypoint.size:.1f}")
    print(f"ratio {ratio:.3f}, similarity {why.similarity:.3f}")
    if len(why.shares) > 1:
        print("  of it " + ", ".join(f"{part} {share:+.3f}" for part, share in why.shares.items()))


def ranked(result: MatchResult, at: tuple[float, float] | None) -> Any:
    """Indices of all matches, in the order to explain them.

    The inliers first, the most certain of them first; with `at`, the nearest to this point of
    image 0 first.
    """
    if at is not None:
        return np.argsort(np.linalg.norm(result.points0 - np.array(at), axis=1), kind="stable")
    return np.lexsort((result.ratios, ~result.inliers if result.success else 0 * result.ratios))


def _kind(result: MatchResult, row: int) -> str:
    if not result.success:
        return f"no {NAMES[result.model]} was found"
    inside, outside = WORDS[result.model]
    return f"an inlier, {inside}" if result.inliers[row] else f"an outlier, {outside}"


def _draw(output: Path, pair: Pair, keypoints: Any, why: Explanation, descriptor: Any) -> None:
    """The photographs with the patches above, the heat maps below."""
    from kd_cv.viz.images import plot_frame, plot_images
    from kd_cv.viz.maps import plot_explanation
    from kd_cv.viz.style import Figure, save_plot, style

    with style():
        figure: Any = Figure(figsize=(7.2, 5.9))  # not pyplot's, which might open a window
        upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.25))
        # A dollar sign in a file name would begin a formula.
        titles = [name.replace("$", r"\$") for name in pair.names]
        axes = plot_images([pair.image0, pair.image1], titles, axes=upper.subplots(1, 2))
        for ax, keypoint in zip(axes, keypoints, strict=True):
            plot_frame(ax, descriptor.frames([keypoint]), magnification=descriptor.settings.side)
        plot_explanation(why, titles=("first", "second"), figure=lower)
        save_plot(output, figure)

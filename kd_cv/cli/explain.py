"""`kd-cv explain`: which pixels made two patches match."""

import json
import sys
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
    result = answer.result
    order = ranked(result, at)
    if not len(order):
        print("kd-cv: nothing to explain: there are no matches", file=sys.stderr)
        raise typer.Exit(1)
    if not 1 <= number <= len(order):
        raise ValueError(f"--match must be from 1 to {len(order)}, got {number}")
    chosen = order[number - 1]
    i, j = result.matches[chosen]
    keypoints = result.keypoints0[i], result.keypoints1[j]
    why = explain(pair.image0, keypoints[0], pair.image1, keypoints[1], answer.feature)
    if output:
        _draw(output, pair, keypoints, why, answer.feature)
    if as_json:
        content = {
            "frames": [[*k.pt, k.size, k.angle] for k in keypoints],
            "ratio": float(result.ratios[chosen]),
            "inlier": bool(result.inliers[chosen]),
            "similarity": why.similarity,
            "similarities": dict(why.similarities),
            "shares": dict(why.shares),
        }
        print(json.dumps(content))
        return
    kind = f"no {NAMES[result.model]} was found"
    if result.success:
        words = (f"an inlier, {WORDS[result.model][0]}", f"an outlier, {WORDS[result.model][1]}")
        kind = words[not result.inliers[chosen]]
    print(f"match {number} of {len(order)}, {kind}")
    for label, keypoint in zip(pair.names, keypoints, strict=True):
        print(
            f"  {label}: x {keypoint.pt[0]:.1f}, y {keypoint.pt[1]:.1f}, size {keypoint.size:.1f}"
        )
    print(f"ratio {result.ratios[chosen]:.3f}, similarity {why.similarity:.3f}")
    if len(why.shares) > 1:
        print("  of it " + ", ".join(f"{part} {value:+.3f}" for part, value in why.shares.items()))
    if output:
        print(f"\npicture: {printable(str(output.resolve()))}")


def ranked(result: MatchResult, at: tuple[float, float] | None) -> Any:
    """Sort matches: inliers first, by their ratio; with `at`, by the distance to this point."""
    if at is not None:
        return np.argsort(np.linalg.norm(result.points0 - np.array(at), axis=1), kind="stable")
    return np.lexsort((result.ratios, ~result.inliers if result.success else 0 * result.ratios))


def _draw(output: Path, pair: Pair, keypoints: Any, why: Explanation, descriptor: Any) -> None:
    """Draw the photographs with the patches above, the heat maps below."""
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

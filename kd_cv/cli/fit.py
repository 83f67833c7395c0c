"""`kd-cv fit`: matrices from a folder of photographs, compared with the shipped ones."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kd_cv.cli.options import Json, Scheduler, check_output
from kd_cv.cli.tables import plain_warnings, print_table, telling
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.fit.held_out import TEST_VIEWS, held_out_precision
from kd_cv.fit.photographs import fit_photos, split_photos
from kd_cv.io.files import printable
from kd_cv.io.images import find_photos, list_photos, say_others
from kd_cv.settings import Settings
from kd_cv.whitening import Whitening, save
from kd_cv.whitening.registry import DEFAULT_WEIGHTS

SHIPPED, MINE = f"shipped ({DEFAULT_WEIGHTS})", "mine "


def command(
    photos: Annotated[Path, typer.Argument(help="A folder of photographs.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file of matrices to write, .npz.")
    ],
    pairs: Annotated[
        Literal["warp", "none"],
        typer.Option(
            help="Where matching pairs come from: warp (random warps of each photograph) or none."
        ),
    ] = "warp",
    patch_size: Annotated[
        list[int] | None,
        typer.Option(help="Samples per side of a patch, 32 by default; may be repeated."),
    ] = None,
    magnification: Annotated[
        float, typer.Option(help="Side of a patch in keypoint sizes.")
    ] = MAGNIFICATION,
    views: Annotated[int, typer.Option(help="Views of each photograph: itself and its warps.")] = 4,
    max_keypoints: Annotated[
        int, typer.Option(help="How many keypoints to keep in each view, the strongest first.")
    ] = 1000,
    trained: Annotated[
        bool, typer.Option("--train/--no-train", help="Train W_M too, where there are pairs.")
    ] = True,
    scheduler: Scheduler = None,
    as_json: Json = False,
) -> None:
    """Fit whitening matrices on your own photographs, and test them on held-out ones.

    Every fifth photograph is held out. Without pairs, W_UA and W_US are fitted; with
    pairs, W_S and the trained W_M too. The last line says whether to use them.

    Pairs from a reconstruction of the place that photographs show need a clone of the
    repository: python -m experiments weights --help.

    [bold]Examples[/bold]

        kd-cv fit photographs -o mine.npz

        kd-cv fit photographs -o mine.npz --pairs none --patch-size 32 --patch-size 64

        kd-cv fit /shared/photographs -o mine.npz --scheduler tcp://host:8786

        kd-cv match left.jpg right.jpg --weights mine.npz -o matches.png
    """
    check_output(output, (".npz",))
    training, held_out = split_photos(list_photos(photos))
    sizes = patch_size or [32]
    with plain_warnings(), ExitStack() as stack:
        run: Any = map
        if scheduler is not None:
            from kd_cv.collection.cluster import connected, in_order

            run = in_order(stack.enter_context(connected(scheduler)))
        entries = fit_photos(
            [path.absolute() for path in training], pairs,
            patch_sizes=sizes, magnification=magnification, views=views, trained=trained,
            max_keypoints=max_keypoints, run=run,
            progress=stack.enter_context(telling("Fitting", as_json)),
        )  # fmt: skip
        save(output, entries)
    fitted = entries["concat", sizes[0]]
    raw = Settings(sizes[0], whitening=None, magnification=magnification)
    compared = {"raw": raw, SHIPPED: replace(raw, whitening="best")}
    for name in ("wm", "ws", "wua", "wus"):
        if fitted.has(name):
            compared[MINE + name] = replace(raw, whitening=name, weights=fitted)
    with plain_warnings(), telling("Testing", as_json) as tell:
        precision, tested = held_out_precision(held_out, compared, tell)
    best, better = choose(precision, fitted)
    content = {
        "output": str(output.resolve()),
        "provenance": dict(fitted.provenance),
        "held_out": tested,
        "precision": precision,
        "best": best,
        "better": better,
        "others": dict(find_photos(photos).others),
    }
    if as_json:
        print(json.dumps(content))
    else:
        _print(content, f'KDDescriptor(weights="{output}", whitening="{best}")')


def _print(content: dict[str, Any], call: str) -> None:
    if content["precision"]:
        rows = [[name, f"{value:.1f}"] for name, value in content["precision"].items()]
        warps = f"each matched to {TEST_VIEWS - 1} random warps"
        note = f"average precision in %: {content['held_out']} held-out photographs, {warps}\n"
        print_table(["matrices", "AP"], rows, note)
    counts = "{patches:,} descriptors, {pairs:,} pairs of {fitted_on}"
    print("fitted on " + counts.format(**content["provenance"]))
    if content["others"]:
        print(printable(say_others(content["others"])))
    print(f"matrices: {content['output']}")
    print(verdict(content["better"], call))


def choose(precision: Mapping[str, float], fitted: Whitening) -> tuple[str, bool | None]:
    """Return the best fitted variant, and whether it beats the shipped matrices; None untested."""
    if not precision:
        return fitted.variant("best"), None
    best = max((name for name in precision if name.startswith(MINE)), key=precision.__getitem__)
    return best.removeprefix(MINE), precision[best] > precision[SHIPPED]


def verdict(better: bool | None, call: str) -> str:
    """Say whether to use the fitted matrices."""
    if better is None:
        return f"not tested: no held-out photograph has keypoints. To use them: {call}"
    if better:
        return f"better than the shipped matrices here: use {call}"
    return "no better than the shipped matrices here: keep the shipped ones, KDDescriptor()"

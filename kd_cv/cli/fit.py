"""`kd-cv fit`: matrices from a folder of photographs, compared with the shipped ones."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kd_cv.cli.options import Json, Magnification, check_output
from kd_cv.cli.tables import plain_warnings, print_table, telling
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.fit.held_out import TEST_VIEWS, held_out_precision
from kd_cv.fit.photographs import fit_photos, split_photos
from kd_cv.io.files import printable
from kd_cv.io.images import find_photos, list_photos, say_others
from kd_cv.settings import Settings
from kd_cv.whitening import Whitening, save
from kd_cv.whitening.registry import DEFAULT_WEIGHTS

SHIPPED = f"shipped ({DEFAULT_WEIGHTS})"


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
    magnification: Magnification = MAGNIFICATION,
    views: Annotated[int, typer.Option(help="Views of each photograph: itself and its warps.")] = 4,
    max_keypoints: Annotated[
        int, typer.Option(help="How many keypoints to keep in each view, the strongest first.")
    ] = 1000,
    trained: Annotated[
        bool, typer.Option("--train/--no-train", help="Train W_M too, where there are pairs.")
    ] = True,
    scheduler: Annotated[
        str | None, typer.Option(help="Run on Dask: the address of a scheduler.")
    ] = None,
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
    running = nullcontext(map) if scheduler is None else _on_cluster(scheduler)
    sizes = patch_size or [32]
    with plain_warnings(), telling("Fitting", as_json) as tell, running as run:
        entries = fit_photos(
            [path.absolute() for path in training], pairs,
            patch_sizes=sizes, magnification=magnification, views=views,
            max_keypoints=max_keypoints, trained=trained, progress=tell, run=run,
        )  # fmt: skip
        save(output, entries)
    fitted = entries["concat", sizes[0]]
    with plain_warnings(), telling("Testing", as_json) as tell:
        raw = Settings(sizes[0], whitening=None, magnification=magnification)
        precision, tested = held_out_precision(held_out, _compared(fitted, raw), tell)
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
    """The fitted variant of the highest precision, and whether that beats the shipped matrices.

    Without precisions: the variant that is usually best, and None.
    """
    if not precision:
        return fitted.variant("best"), None
    mine = {name: precision[f"mine {name}"] for name in _variants(fitted)}
    best = max(mine, key=lambda name: mine[name])
    return best, mine[best] > precision[SHIPPED]


def verdict(better: bool | None, call: str) -> str:
    """Whether to use the fitted matrices, in one sentence."""
    if better is None:
        return f"not tested: no photograph with keypoints was left for it. To use them: {call}"
    if better:
        return f"better than the shipped matrices here: use {call}"
    return "no better than the shipped matrices here: keep the shipped ones, KDDescriptor()"


def _variants(fitted: Whitening) -> Sequence[str]:
    return [name for name in ("wm", "ws", "wua", "wus") if fitted.has(name)]


def _compared(fitted: Whitening, raw: Settings) -> dict[str, Settings]:
    """The raw descriptor, the shipped default, and the fitted matrices in their variants."""
    shipped = {"raw": raw, SHIPPED: replace(raw, whitening="best")}
    mine = {name: replace(raw, whitening=name, weights=fitted) for name in _variants(fitted)}
    return shipped | {f"mine {name}": settings for name, settings in mine.items()}


@contextmanager
def _on_cluster(scheduler: str) -> Iterator[Any]:
    from kd_cv.collection.cluster import connected, in_order

    with connected(scheduler) as client:
        yield in_order(client)

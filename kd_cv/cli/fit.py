"""`kd-cv fit`: matrices from a folder of photographs, and what they are worth on held-out ones."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kd_cv.cli.options import Json, Magnification, Scheduler, check_output
from kd_cv.cli.tables import plain_warnings, print_table, telling
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.evaluate.held_out import TEST_VIEWS, before_and_after, best_variant, held_out_scores
from kd_cv.evaluate.scores import Score
from kd_cv.fit.photographs import fit_photos, split_photos
from kd_cv.io.files import printable
from kd_cv.io.images import find_photos, list_photos, say_others
from kd_cv.whitening import save


def command(
    photos: Annotated[Path, typer.Argument(help="A folder of photographs.")],
    output: Annotated[Path, "The file of matrices to write, .npz.", "-o", "--output"],
    pairs: Annotated[
        Literal["warp", "sfm", "none"],
        "Where matching pairs come from: warp (random warps of each photograph), "
        "sfm (a reconstruction of the place that they show) or none.",
    ] = "warp",
    patch_size: Annotated[
        list[int] | None, "Samples per side of a patch, 32 by default; may be repeated."
    ] = None,
    magnification: Magnification = MAGNIFICATION,
    views: Annotated[int, "Views of each photograph: itself and its warps."] = 4,
    max_keypoints: Annotated[
        int, "How many keypoints to keep in each view, the strongest first."
    ] = 1000,
    workspace: Annotated[
        Path | None, "Folder in which sfm keeps its work, so that a later run can continue."
    ] = None,
    scheduler: Scheduler = None,
    trained: Annotated[bool, "Train W_M too, where there are pairs.", "--train/--no-train"] = True,
    as_json: Json = False,
) -> None:
    """Fit whitening matrices on your own photographs, and test them on held-out ones.

    Every fifth photograph is held out. Without pairs, W_UA and W_US are fitted; with
    pairs, W_S and the trained W_M too. The last line names the one that did best.

    [bold]Examples[/bold]

        kd-cv fit photographs -o mine.npz

        kd-cv fit photographs -o mine.npz --pairs none --patch-size 32 --patch-size 64

        kd-cv fit /shared/photographs -o mine.npz --scheduler tcp://host:8786

        kd-cv match left.jpg right.jpg --weights mine.npz -o matches.png
    """
    check_output(output, (".npz",))
    training, held_out = split_photos(list_photos(photos))
    sizes = patch_size or [32]
    running = nullcontext(map) if scheduler is None else _on_cluster(scheduler)
    with plain_warnings(), telling("Fitting", as_json) as tell, running as run:
        entries = fit_photos(
            [path.absolute() for path in training], pairs,
            patch_sizes=sizes, magnification=magnification, views=views,
            max_keypoints=max_keypoints, workspace=workspace and workspace.absolute(),
            trained=trained, progress=tell, run=run,
        )  # fmt: skip
        save(output, entries)
    with plain_warnings(), telling("Testing", as_json) as tell:
        fitted = entries["concat", sizes[0]]
        variants = [name for name in ("wua", "wus", "ws", "wm") if fitted.has(name)]
        candidates = before_and_after(output, variants, sizes[0], magnification)
        scores, tested = held_out_scores(held_out, candidates, tell)
    best, provenance = best_variant(variants, scores), fitted.provenance
    others = find_photos(photos).others
    if as_json:
        content = {
            "output": str(output.resolve()),
            "provenance": dict(provenance),
            "held_out": tested,
            "best": best,
            "others": dict(others),
            "scores": [asdict(score) for score in scores],
        }
        print(json.dumps(content))
        return
    if scores:
        keys = {"ap": "AP", "precision": "precision", "auc5": "AUC 5 px"}
        rows = [[score.name, *(f"{score.values[key]:.1f}" for key in keys)] for score in scores]
        warps = f"each matched to {TEST_VIEWS - 1} random warps of itself"
        print_table(["held out", *keys.values()], rows, f"in %; held out: {tested}, {warps}\n")
    else:
        print("no photograph with keypoints is left to test on")
    if not_better(scores):
        print("kd-cv: these matrices are no better than the shipped ones here", file=sys.stderr)
    counts = f"{provenance['patches']:,} descriptors, {provenance['pairs']:,} pairs"
    print(f"fitted on {counts} of {provenance['fitted_on']}")
    if others:
        print(printable(say_others(others)))
    print(f"matrices: {output.resolve()}")
    print(f'use them: KDDescriptor(weights="{output}", whitening="{best}")')


def not_better(scores: Sequence[Score]) -> bool:
    """Whether the best of the fitted matrices reaches no higher AP than the shipped ones."""
    mine, shipped = (
        [score.values["ap"] for score in scores if score.name.startswith(kind)]
        for kind in ("mine", "shipped")
    )
    return bool(mine and shipped) and max(mine) <= max(shipped)


@contextmanager
def _on_cluster(scheduler: str) -> Iterator[Any]:
    from kd_cv.collection.cluster import connected, in_order

    with connected(scheduler) as client:
        yield in_order(client)

"""`kd-cv eval phototourism`: FPR95 on a set of labelled patches."""

from pathlib import Path
from typing import Annotated

import typer

from kd_cv.cli.evaluate.shared import (
    ALL,
    candidates_of,
    cells,
    report_scores,
    with_ws,
)
from kd_cv.cli.options import (
    CacheFolder,
    Descriptors,
    Dim,
    FitWs,
    Json,
    Kernels,
    PatchSize,
    SeveralWeights,
    Whitenings,
)
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.evaluate.candidates import PATCH_SIZE_OF_SETS


def command(
    data: Annotated[Path, typer.Argument(help="Folder with patchesNNNN.bmp and info.txt.")],
    descriptors: Descriptors = ALL,
    pairs: Annotated[
        str,
        typer.Option(help="Which pairs are compared: all, or m50 for those of the set's own file."),
    ] = "all",
    matches: Annotated[
        str | None, typer.Option(help="Name of the m50 file, where there are several.")
    ] = None,
    weights: SeveralWeights = None,
    whitening: Whitenings = None,
    kernels: Kernels = "concat",
    patch_size: PatchSize = PATCH_SIZE_OF_SETS,
    dim: Dim = 128,
    fit_ws: FitWs = None,
    cache: CacheFolder = None,
    as_json: Json = False,
) -> None:
    """False positives at 95 % recall (FPR95) on a Phototourism patch set.

    [bold]Examples[/bold]

        kd-cv eval phototourism liberty --weights multiview --whitening ws,wua,wus

        kd-cv eval phototourism liberty --kernel polar,cart,concat --whitening none,ws
    """
    from kd_cv.cli.tables import telling
    from kd_cv.evaluate.cache import Cache
    from kd_cv.evaluate.patch_sets import read_phototourism
    from kd_cv.evaluate.patches import pairs_of_set, patch_verification
    from kd_cv.paper import numbers as paper

    chosen = candidates_of(descriptors, weights, whitening, kernels, patch_size, dim)
    labelled = pairs_of_set(read_phototourism(data, matches), pairs)  # type: ignore[arg-type]
    with telling("Describing", as_json) as tell:
        chosen = with_ws(chosen, fit_ws, dim, patches=(64, MAGNIFICATION))
        scores = patch_verification(labelled, chosen, Cache(cache), data.resolve().name, tell)
    folder, tests = data.resolve().name.lower(), ("liberty", "notredame", "yosemite")
    test = next((name for name in tests if name in folder), "")
    columns = {train: errors for (tested, train), errors in paper.FPR95.items() if tested == test}
    note = f"{int(labelled.labels.sum())} matching of {len(labelled.labels)} pairs ({pairs})."
    if columns:
        note += f" Paper: whole {test} set; whitening fitted on the other set that is named."
    report_scores(
        scores, ["fpr95"], as_json,
        {f"paper ({train})": cells(errors) for train, errors in columns.items()},
        {"protocol": "phototourism", "pairs": pairs}, note,
    )  # fmt: skip

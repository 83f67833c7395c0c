"""`kd-cv eval phototourism`: FPR95 on a set of labelled patches."""

from pathlib import Path
from typing import Annotated

import typer

from kd_cv.cli.evaluate.options import Comparison
from kd_cv.cli.evaluate.output import cells, report_scores
from kd_cv.descriptor.frames import MAGNIFICATION


def command(
    options: Comparison,
    data: Annotated[Path, typer.Argument(help="Folder with patchesNNNN.bmp and info.txt.")],
    pairs: Annotated[
        str,
        typer.Option(help="Which pairs are compared: all, or m50 for those of the set's own file."),
    ] = "all",
    matches: Annotated[
        str | None, typer.Option(help="Name of the m50 file, if there are several.")
    ] = None,
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

    chosen = options.candidates()
    labelled = pairs_of_set(read_phototourism(data, matches), pairs)  # type: ignore[arg-type]
    with telling("Describing", options.as_json) as tell:
        chosen = options.with_ws(chosen, (64, MAGNIFICATION))
        scores = patch_verification(
            labelled, chosen, Cache(options.cache), data.resolve().name, tell
        )
    folder, tests = data.resolve().name.lower(), ("liberty", "notredame", "yosemite")
    test = next((name for name in tests if name in folder), "")
    columns = {train: errors for (tested, train), errors in paper.FPR95.items() if tested == test}
    note = f"{int(labelled.labels.sum())} matching of {len(labelled.labels)} pairs ({pairs})."
    if columns:
        note += f" Paper: whole {test} set; whitening fitted on the other set that is named."
    report_scores(
        scores, ["fpr95"], options.as_json,
        {f"paper ({train})": cells(errors) for train, errors in columns.items()},
        {"protocol": "phototourism", "pairs": pairs}, note,
    )  # fmt: skip

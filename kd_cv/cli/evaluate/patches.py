"""`kd-cv eval phototourism` and `hpatches`: patches that are cut out already."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from kd_cv.cli.evaluate.options import Comparison
from kd_cv.cli.evaluate.output import cells, report_scores
from kd_cv.cli.tables import telling
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.evaluate.cache import Cache
from kd_cv.evaluate.hpatches import hpatches as run
from kd_cv.evaluate.patch_sets import STRIP_SIDE, read_hpatches_release, read_phototourism
from kd_cv.evaluate.patches import pairs_of_set, patch_verification
from kd_cv.evaluate.readers import read_images
from kd_cv.evaluate.strips import save_sequences, strips_of_sequence
from kd_cv.evaluate.tasks import read_tasks
from kd_cv.paper import numbers as paper

TASKS = ("retrieval", "matching", "verification")


def phototourism(
    data: Annotated[Path, typer.Argument(help="Folder with patchesNNNN.bmp and info.txt.")],
    options: Comparison,
    pairs: Annotated[
        Literal["all", "m50"],
        "Which pairs are compared: all, or m50 for those of the set's own file.",
    ] = "all",
    matches: Annotated[str | None, "Name of the m50 file, if there are several."] = None,
) -> None:
    """False positives at 95 % recall (FPR95) on a Phototourism patch set.

    [bold]Examples[/bold]

        kd-cv eval phototourism liberty --weights multiview --whitening ws,wua,wus

        kd-cv eval phototourism liberty --kernel polar,cart,concat --whitening none,ws
    """
    chosen = options.candidates()
    labelled = pairs_of_set(read_phototourism(data, matches), pairs)
    with telling("Describing", options.as_json) as tell:
        chosen = options.with_ws(chosen, (64, MAGNIFICATION))
        scores = patch_verification(
            labelled, chosen, Cache(options.cache), data.resolve().name, tell
        )
    folder = data.resolve().name.lower()
    columns = {train: errors for (test, train), errors in paper.FPR95.items() if test in folder}
    note = f"{int(labelled.labels.sum())} matching of {len(labelled.labels)} pairs ({pairs})."
    if columns:
        note += " Paper: the whole set; whitening fitted on the other set that is named."
    report_scores(
        scores, ["fpr95"], options.as_json,
        {f"paper ({train})": cells(errors) for train, errors in columns.items()},
        {"protocol": "phototourism", "pairs": pairs}, note,
    )  # fmt: skip


def hpatches(
    data: Annotated[
        Path,
        typer.Argument(
            help="Folder of the patch release (ref.png, e1.png, ...) or of image sequences."
        ),
    ],
    options: Comparison,
    magnification: Annotated[
        float, "Side in keypoint sizes of patches that are cut from sequences."
    ] = 5.0,
    max_patches: Annotated[int, "How many patches are cut from each sequence."] = 500,
    tasks: Annotated[
        Path | None, "Folder of the benchmark's task files; without it, tasks are drawn at random."
    ] = None,
    split: Annotated[str, "Which split of the task files is used: a, b, c, full, ..."] = "full",
    save_strips: Annotated[
        Path | None, "Folder in which the patches of sequences and their tasks are written."
    ] = None,
) -> None:
    """Verification, matching and retrieval (mAP) as in HPatches.

    With the release and its task files, the numbers are those of the benchmark's own code.
    What --fit-ws fits is fitted on patches that are moved, turned and resized as its hard ones.

    [bold]Examples[/bold]

        kd-cv eval hpatches hpatches-release --tasks hpatches-benchmark/tasks --split a

        kd-cv eval hpatches sequences --descriptor raw,rootsift --fit-ws builtin
    """
    release = any(data.glob("*/ref.png"))
    if release and save_strips:
        raise ValueError(f"--save-strips is for image sequences, {data} holds strips already")
    chosen = options.candidates()
    asked = read_tasks(tasks, split) if tasks else None
    if release:
        strips = read_hpatches_release(data, asked.sequences if asked else None)
    else:
        strips = (
            (s.name, strips_of_sequence(s, magnification, max_patches)) for s in read_images(data)
        )
    with telling("Describing", options.as_json) as tell:
        if save_strips:
            asked = save_sequences(save_strips, strips)
            strips = read_hpatches_release(save_strips)
        # Fitted on patches with the noise of those that they are for
        chosen = options.with_ws(chosen, (STRIP_SIDE, magnification), jitter="hard")
        scores = run(strips, chosen, tasks=asked, cache=Cache(options.cache), progress=tell)
    report_scores(
        scores, [task for task in TASKS if task in scores[0].values], options.as_json,
        {
            "paper R, M, V": cells(paper.HPATCHES),
            "trained on HPatches": cells(paper.HPATCHES_TRAINED),
        },
        {"protocol": "hpatches", "release": release},
        "mAP in %. Paper: the whole release; whitening fitted on Liberty, and on HPatches."
        + ("" if release else " Ours: patches cut from the sequences by its recipe."),
    )  # fmt: skip

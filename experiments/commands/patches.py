"""`verification` and `hpatches`: patches that are cut out already."""

from collections.abc import Sequence
from pathlib import Path

from experiments.commands.options import add_comparison, add_ws, chosen_candidates, make_parser
from experiments.commands.output import cells, report_scores
from experiments.paper import numbers as paper
from experiments.protocols.cache import Cache
from experiments.protocols.hpatches import hpatches as score_hpatches
from experiments.protocols.patch_sets import STRIP_SIDE, read_hpatches_release, read_phototourism
from experiments.protocols.readers import read_images
from experiments.protocols.strips import save_sequences, strips_of_sequence
from experiments.protocols.tasks import read_tasks
from experiments.protocols.verification import pairs_of_set, patch_verification
from kd_cv.cli.tables import telling
from kd_cv.descriptor.frames import MAGNIFICATION

TASKS = ("retrieval", "matching", "verification")


def verification(arguments: Sequence[str]) -> None:
    """False positives at 95 % recall (FPR95) on a Phototourism patch set.

    python -m experiments verification liberty --weights multiview --whitening ws,wua,wus
    python -m experiments verification liberty --kernel polar,cart,concat --whitening none,ws
    """
    parser = make_parser(verification)
    parser.add_argument("data", type=Path, help="folder with patchesNNNN.bmp and info.txt")
    parser.add_argument("--pairs", choices=("all", "m50"), default="all",
                        help="compare all pairs, or those of the set's own file")  # fmt: skip
    parser.add_argument("--matches", help="name of the m50 file, if there are several")
    add_comparison(parser)
    args = parser.parse_args(arguments)
    chosen = chosen_candidates(args)
    labelled = pairs_of_set(read_phototourism(args.data, args.matches), args.pairs)
    name = args.data.resolve().name
    with telling("Describing", args.json) as tell:
        chosen = add_ws(args, chosen, (64, MAGNIFICATION))
        scores = patch_verification(labelled, chosen, Cache(args.cache), name, tell)
    columns = {t: errors for (test, t), errors in paper.FPR95.items() if test in name.lower()}
    note = f"{int(labelled.labels.sum())} matching of {len(labelled.labels)} pairs ({args.pairs})."
    if columns:
        note += " Paper: the whole set; whitening fitted on the other set that is named."
    report_scores(
        scores, ["fpr95"], args.json, {"protocol": "verification", "pairs": args.pairs}, note,
        published={f"paper ({train})": cells(errors) for train, errors in columns.items()},
    )  # fmt: skip


def hpatches(arguments: Sequence[str]) -> None:
    """Verification, matching and retrieval (mAP) as in HPatches.

    With the release and its task files, the numbers are those of the benchmark's own code.
    W_S of --fit-ws is fitted on patches with the jitter of the benchmark's hard ones.

    python -m experiments hpatches hpatches-release --tasks hpatches-benchmark/tasks --split a
    python -m experiments hpatches sequences --descriptor raw,rootsift --fit-ws builtin
    """
    parser = make_parser(hpatches)
    add = parser.add_argument
    add(
        "data",
        type=Path,
        help="folder of the patch release (ref.png, e1.png, ...) or of image sequences",
    )
    add(
        "--magnification",
        type=float,
        default=5.0,
        help="side in keypoint sizes of patches that are cut from sequences",
    )
    add("--max-patches", type=int, default=500, help="patches cut from each sequence")
    add(
        "--tasks",
        type=Path,
        help="folder of the benchmark's task files; without it, tasks are drawn at random",
    )
    add("--split", default="full", help="split of the task files: a, b, c, full, ...")
    add(
        "--save-strips",
        type=Path,
        help="folder in which the patches of sequences and their tasks are written",
    )
    add_comparison(parser)  # fmt: skip
    args = parser.parse_args(arguments)
    release = any(args.data.glob("*/ref.png"))
    if release and args.save_strips:
        raise ValueError(f"--save-strips is for image sequences, {args.data} holds strips already")
    chosen = chosen_candidates(args)
    asked = read_tasks(args.tasks, args.split) if args.tasks else None
    if release:
        strips = read_hpatches_release(args.data, asked.sequences if asked else None)
    else:
        size, most = args.magnification, args.max_patches
        sequences = read_images(args.data)
        strips = ((s.name, strips_of_sequence(s, size, most)) for s in sequences)
    with telling("Describing", args.json) as tell:
        if args.save_strips:
            asked = save_sequences(args.save_strips, strips)
            strips = read_hpatches_release(args.save_strips)
        chosen = add_ws(args, chosen, (STRIP_SIDE, args.magnification), jitter="hard")
        cache = Cache(args.cache)
        scores = score_hpatches(strips, chosen, tasks=asked, cache=cache, progress=tell)
    report_scores(
        scores, [task for task in TASKS if task in scores[0].values], args.json,
        {"protocol": "hpatches", "release": release},
        "mAP in %. Paper: the whole release; whitening fitted on Liberty, and on HPatches."
        + ("" if release else " Here: patches cut from the sequences by its recipe."),
        published={
            "paper R, M, V": cells(paper.HPATCHES),
            "trained on HPatches": cells(paper.HPATCHES_TRAINED),
        },
    )  # fmt: skip

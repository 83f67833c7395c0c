"""`kd-cv eval PROTOCOL`: measure descriptors, with the paper's figures beside ours."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from kd_cv.cli.options import (
    CacheFolder,
    CurveData,
    CurveWeights,
    Descriptors,
    Dim,
    Figure,
    FitWs,
    Json,
    Kernels,
    Magnification,
    PatchSize,
    SeveralWeights,
    Whitenings,
)
from kd_cv.cli.outputs import check_figure
from kd_cv.descriptor.frames import MAGNIFICATION

app = typer.Typer(
    help="Measure descriptors by the paper's protocols.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

ALL = "kd,raw,rootsift,sift"
TASKS = ("retrieval", "matching", "verification")


@app.command()
def phototourism(
    data: Annotated[Path, typer.Argument(help="Folder of patchesNNNN.bmp and info.txt.")],
    descriptors: Descriptors = ALL,
    pairs: Annotated[
        str, typer.Option(help="all: every two patches; m50: the set's own file.")
    ] = "all",
    matches: Annotated[
        str | None, typer.Option(help="Name of the m50 file, if there are several.")
    ] = None,
    weights: SeveralWeights = None,
    whitening: Whitenings = None,
    kernels: Kernels = "concat",
    patch_size: PatchSize = 64,
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

    chosen = _candidates(descriptors, weights, whitening, kernels, patch_size, dim)
    labelled = pairs_of_set(read_phototourism(data, matches), pairs)  # type: ignore[arg-type]
    with telling("Describing", as_json) as tell:
        chosen = _with_ws(chosen, fit_ws, dim, patches=(64, MAGNIFICATION))
        scores = patch_verification(labelled, chosen, Cache(cache), data.resolve().name, tell)
    test = next((name for name in ("liberty", "notredame", "yosemite") if name in _name(data)), "")
    columns = {train: own for (tested, train), own in paper.FPR95.items() if tested == test}
    note = f"{int(labelled.labels.sum())} matching of {len(labelled.labels)} pairs ({pairs})."
    if columns:
        note += f" Paper: whole {test} set; whitening fitted on the other set that is named."
    _report(
        scores, ["fpr95"], as_json,
        {f"paper ({train})": _cells(own) for train, own in columns.items()},
        {"protocol": "phototourism", "pairs": pairs}, note,
    )  # fmt: skip


@app.command()
def hpatches(
    data: Annotated[
        Path, typer.Argument(help="The patch release (ref.png, e1.png, ...), or image sequences.")
    ],
    descriptors: Descriptors = ALL,
    weights: SeveralWeights = None,
    whitening: Whitenings = None,
    kernels: Kernels = "concat",
    patch_size: PatchSize = 64,
    dim: Dim = 128,
    magnification: Annotated[
        float, typer.Option(help="Of patches cut from sequences: side in keypoint sizes.")
    ] = 5.0,
    max_patches: Annotated[
        int, typer.Option(help="Of each sequence, when patches are cut from sequences.")
    ] = 500,
    tasks: Annotated[
        Path | None,
        typer.Option(help="The benchmark's folder of task files; none: tasks are drawn."),
    ] = None,
    split: Annotated[str, typer.Option(help="Of the task files: a, b, c, full ...")] = "full",
    save_strips: Annotated[
        Path | None,
        typer.Option(help="Folder for the patches of sequences, and for their tasks."),
    ] = None,
    fit_ws: FitWs = None,
    cache: CacheFolder = None,
    as_json: Json = False,
) -> None:
    """Verification, matching and retrieval (mAP) as in HPatches.

    With the release and its task files, the numbers are those of the benchmark's own code.

    [bold]Examples[/bold]

        kd-cv eval hpatches hpatches-release --tasks hpatches-benchmark/tasks --split a

        kd-cv eval hpatches sequences --descriptor raw,rootsift --fit-ws builtin
    """
    from kd_cv.cli.tables import telling
    from kd_cv.evaluate.cache import Cache
    from kd_cv.evaluate.hpatches import hpatches as run
    from kd_cv.evaluate.patch_sets import STRIP_SIDE, read_hpatches_release
    from kd_cv.evaluate.readers import find_sequences
    from kd_cv.evaluate.strips import save_sequences, strips_of_sequence
    from kd_cv.evaluate.tasks import read_tasks
    from kd_cv.paper import numbers as paper

    release = any(data.glob("*/ref.png"))
    if release and save_strips:
        raise ValueError(f"--save-strips is for image sequences, {data} holds strips already")
    chosen = _candidates(descriptors, weights, whitening, kernels, patch_size, dim)
    asked = read_tasks(tasks, split) if tasks else None
    strips: Iterator[Any]
    if release:
        strips = (
            (name, strips)
            for name, strips in read_hpatches_release(data)
            if asked is None or name in asked.sequences
        )
    else:
        strips = (
            (s.name, strips_of_sequence(s, STRIP_SIDE, magnification, max_patches))
            for s in find_sequences(data)
        )
    with telling("Describing", as_json) as tell:
        if save_strips:
            asked = save_sequences(save_strips, strips)
            strips = read_hpatches_release(save_strips)
        chosen = _with_ws(chosen, fit_ws, dim, patches=(STRIP_SIDE, magnification))
        scores = run(strips, chosen, tasks=asked, cache=Cache(cache), progress=tell)
    _report(
        scores, [task for task in TASKS if task in scores[0].values], as_json,
        {
            "paper R, M, V": _cells(paper.HPATCHES),
            "trained on HPatches": _cells(paper.HPATCHES_TRAINED),
        },
        {"protocol": "hpatches", "release": release},
        "mAP in %. Paper: the whole release; whitening fitted on Liberty, and on HPatches."
        + ("" if release else " Ours: patches cut from the sequences by its recipe."),
    )  # fmt: skip


@app.command()
def matching(
    data: Annotated[
        Path | None,
        typer.Argument(help="Image sequences with homographies; none: built-in photographs."),
    ] = None,
    descriptors: Descriptors = ALL,
    weights: SeveralWeights = None,
    whitening: Whitenings = None,
    kernels: Kernels = "concat",
    patch_size: PatchSize = 32,
    dim: Dim = 128,
    magnification: Magnification = MAGNIFICATION,
    scales: Annotated[int, typer.Option(help="Patch sizes that kd averages over.")] = 1,
    max_keypoints: Annotated[int, typer.Option(help="SIFT keypoints of each image.")] = 1000,
    threshold: Annotated[float, typer.Option(help="Of a correct match, in pixels.")] = 3.0,
    fit_ws: FitWs = None,
    cache: CacheFolder = None,
    as_json: Json = False,
) -> None:
    """Match images with known homographies, all descriptors at the same keypoints.

    AP is the average precision of nearest neighbours ranked by ratio; precision is that of mutual
    matches; AUC is that of the homography's error up to 3, 5 and 10 pixels.

    [bold]Examples[/bold]

        kd-cv eval matching

        kd-cv eval matching sequences --weights multiview,mine.npz --scales 3
    """
    from kd_cv.cli.tables import telling
    from kd_cv.evaluate.cache import Cache
    from kd_cv.evaluate.images import image_matching
    from kd_cv.evaluate.readers import read_images, warped_images
    from kd_cv.io.builtin import builtin_photos

    chosen = _candidates(
        descriptors, weights, whitening, kernels, patch_size, dim,
        magnification=magnification,
        scales=scales,
    )  # fmt: skip
    sets = warped_images(builtin_photos()) if data is None else read_images(data)
    with telling("Matching", as_json) as tell:
        chosen = _with_ws(chosen, fit_ws, dim)
        scores = image_matching(
            sets, chosen, max_keypoints=max_keypoints, threshold=threshold, cache=Cache(cache),
            progress=tell,
        )  # fmt: skip
    pairs = int(scores[0].values["pairs"])
    _report(
        scores, ["ap", "precision", "auc3", "auc5", "auc10"], as_json, {},
        {"protocol": "matching", "pairs": pairs},
        f"in %, means over {pairs} pairs of images",
    )  # fmt: skip


@app.command()
def shrinkage(
    data: CurveData = None,
    weights: CurveWeights = None,
    patch_size: PatchSize = 64,
    dim: Dim = 128,
    output: Figure = None,
    as_json: Json = False,
) -> None:
    """FPR95 over the shrinkage of the unsupervised whitenings: t of W_UA, beta of W_US.

    [bold]Examples[/bold]

        kd-cv eval shrinkage -o shrinkage.png

        kd-cv eval shrinkage liberty --weights multiview
    """
    from kd_cv.cli.tables import print_table, telling
    from kd_cv.evaluate.curves import shrinkage_curves
    from kd_cv.evaluate.readers import labelled_pairs
    from kd_cv.paper import numbers as paper

    check_figure(output)
    with telling("Measuring", as_json):
        labelled = labelled_pairs(data, patch_size=max(64, patch_size))
        whitening, source = _curve_whitening(weights, "concat", patch_size)
        raw = _raw_rows(labelled.patches, patch_size)
        curves = shrinkage_curves(
            labelled, raw, whitening, paper.FPR95_OVER_T, paper.FPR95_OVER_BETA, dim
        )
    if output:
        _draw_curves(
            output,
            {
                "$t$ of $W_{UA}$": {
                    "here": curves["wua"],
                    "paper, Phototourism": [(t, v[0]) for t, v in paper.FPR95_OVER_T.items()],
                },
                r"$i$ of $W_{US}$, $\beta = \lambda_i$": {
                    "here": curves["wus"],
                    "paper, Phototourism": [(i, v[0]) for i, v in paper.FPR95_OVER_BETA.items()],
                },
            },
        )
    if as_json:
        _print_json({"protocol": "shrinkage", "whitening": source, **curves})
        return
    for variant, published in (("wua", paper.FPR95_OVER_T), ("wus", paper.FPR95_OVER_BETA)):
        rows = [
            [f"{x:g}", f"{error:.2f}", *(f"{value:.2f}" for value in published[x])]  # type: ignore[index]
            for x, error in curves[variant]
        ]
        name = {"wua": "t of W_UA", "wus": "i of W_US"}[variant]
        print_table([name, "FPR95", "paper, PT fit", "paper, HP fit"], rows)
        print()
    print(f"{source}; the paper's curves are for whole Phototourism sets")
    _say_picture(output)


@app.command()
def eigenvalues(
    data: CurveData = None,
    weights: Annotated[
        str | None, typer.Option(help="Matrices, instead of data: a shipped name or a file.")
    ] = None,
    patch_size: PatchSize = 64,
    output: Figure = None,
    as_json: Json = False,
) -> None:
    """The eigenvalues of the covariance, and what W_UA and W_US make of them.

    [bold]Examples[/bold]

        kd-cv eval eigenvalues -o eigenvalues.png

        kd-cv eval eigenvalues liberty
    """
    from kd_cv.cli.tables import print_table, telling
    from kd_cv.evaluate.readers import labelled_pairs
    from kd_cv.paper import numbers as paper
    from kd_cv.whitening.statistics import Statistics
    from kd_cv.whitening.variants import attenuation, eig
    from kd_cv.whitening.variants import shrinkage as shrink

    check_figure(output)
    if data is not None and weights is not None:
        raise ValueError("give data or --weights, not both: the eigenvalues are of one of them")
    with telling("Measuring", as_json):
        if data is None:
            whitening, source = _curve_whitening(weights, "concat", patch_size)
            lam = whitening.lam
        else:
            raw = _raw_rows(
                labelled_pairs(data, patch_size=max(64, patch_size)).patches, patch_size
            )
            lam = eig(Statistics(raw.shape[1]).update(raw[raw.any(axis=1)]).C)[1]
            source = f"{len(raw)} patches of {data}"
    lam = lam / lam[0]
    if output:
        from kd_cv.draw.plots import plot_eigenvalues

        _draw(output, (4.2, 2.7), lambda figure: plot_eigenvalues(figure.subplots(), lam))
    columns = {"w": lam, "wua": attenuation(lam) ** -2, "wus": shrink(lam) ** -2}
    if as_json:
        listed = {name: [float(value) for value in column] for name, column in columns.items()}
        _print_json({"protocol": "eigenvalues", "source": source, **listed})
        return
    rows = [
        [str(i), *(f"{column[i - 1]:.4g}" for column in columns.values()), f"{value:.4g}"]
        for i, value in paper.EIGENVALUES.items()
    ]
    print_table(["i", "W", "W_UA", "W_US", "paper, W"], rows, source)
    _say_picture(output)


@app.command()
def robustness(
    data: CurveData = None,
    weights: CurveWeights = None,
    whitening: Annotated[str, typer.Option(help="ws, wus, wua, w, pcasqrt or none.")] = "ws",
    patch_size: PatchSize = 64,
    dim: Dim = 128,
    output: Figure = None,
    as_json: Json = False,
) -> None:
    """FPR95 when one patch of each pair is turned or shifted, for each kernel.

    [bold]Examples[/bold]

        kd-cv eval robustness -o robustness.png

        kd-cv eval robustness liberty --weights multiview
    """
    from kd_cv.cli.tables import print_table, telling
    from kd_cv.descriptor.spec import KERNELS
    from kd_cv.evaluate.candidates import KD
    from kd_cv.evaluate.curves import robustness_curves
    from kd_cv.evaluate.readers import labelled_pairs
    from kd_cv.feature2d import KDDescriptor

    check_figure(output)
    variant = None if whitening == "none" else whitening
    if variant is None and weights is not None:
        raise ValueError(f"--whitening none needs no weights, got {weights}")
    with telling("Measuring", as_json):
        labelled = labelled_pairs(data, patch_size=64)
        source = "raw descriptors"
        chosen = []
        for kernel in KERNELS:
            fitted: Any = "multiview"
            if variant is not None:
                fitted, source = _curve_whitening(weights, kernel, patch_size)
            kd = KDDescriptor(
                patch_size=patch_size, kernel=kernel, whitening=variant, weights=fitted, dim=dim
            )
            chosen.append(KD(kd, "fitted"))
        turns = robustness_curves(labelled, chosen, turns=range(0, 31, 5))
        shifts = robustness_curves(labelled, chosen, shifts=range(0, 13, 2))
    short = dict(zip(turns, ("PC", "P", "C"), strict=True))
    panels = {
        "turn (degrees)": {short[name]: points for name, points in turns.items()},
        "shift (pixels of 64)": {short[name]: points for name, points in shifts.items()},
    }
    if output:
        _draw_curves(output, panels)
    if as_json:
        _print_json({"protocol": "robustness", "whitening": source, "curves": panels})
        return
    for title, curves in panels.items():
        points = zip(*curves.values(), strict=True)
        rows = [[f"{row[0][0]:g}", *(f"{error:.1f}" for _, error in row)] for row in points]
        print_table([title, *curves], rows)
        print()
    print(f"FPR95 in %; P polar, C Cartesian, PC both; {source}")
    _say_picture(output)


# --------------------------------------------------------------------------------------------------


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _candidates(
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


def _with_ws(
    candidates: list[Any],
    source: str | None,
    dim: int,
    patches: tuple[int, float] | None = None,
) -> list[Any]:
    """Each candidate that is not whitened followed by itself with W_S."""
    if source is None:
        return candidates
    from kd_cv.evaluate.readers import builtin_scenes, is_phototourism, scenes_of
    from kd_cv.evaluate.whitened import with_ws

    if source != "builtin" and is_phototourism(source):
        raise ValueError(f"--fit-ws takes photographs or sequences, {source} holds patches")
    scenes = builtin_scenes() if source == "builtin" else list(scenes_of(source))
    found = []
    for candidate in candidates:
        found.append(candidate)
        if "+" not in candidate.kind:
            found.append(with_ws(candidate, scenes, patches=patches, dim=dim))
    return found


def _curve_whitening(weights: str | None, kernel: str, patch_size: int) -> tuple[Any, str]:
    """Matrices for a curve, and what they are."""
    from kd_cv.descriptor.spec import Spec
    from kd_cv.whitening.registry import DEFAULT_WEIGHTS, resolve

    name = weights or DEFAULT_WEIGHTS
    return resolve(name, kernel, patch_size, Spec(patch_size, kernel).dim), f"whitening: {name}"


def _raw_rows(patches: Any, patch_size: int) -> Any:
    from kd_cv.evaluate.candidates import KD
    from kd_cv.feature2d import KDDescriptor

    return KD(KDDescriptor(patch_size=patch_size, whitening=None)).of_patches(patches)


def _name(path: Path) -> str:
    return path.resolve().name.lower()


def _cells(published: Mapping[str, Any]) -> dict[str, str]:
    """Kind of descriptor -> the paper's figures, as text."""
    return {
        kind: " ".join(f"{v:.1f}" for v in value) if isinstance(value, tuple) else f"{value:.2f}"
        for kind, value in published.items()
    }


def _report(
    scores: Sequence[Any],
    keys: Sequence[str],
    as_json: bool,
    published: Mapping[str, Mapping[str, str]],
    header: Mapping[str, Any],
    note: str,
) -> None:
    """One row for each score; published columns only where they say something."""
    from kd_cv.cli.tables import print_table

    if as_json:
        _print_json({**header, "scores": [asdict(score) for score in scores]})
        return
    shown = {
        title: column
        for title, column in published.items()
        if any(score.kind in column for score in scores)
    }
    rows = [
        [
            score.name,
            str(score.dim),
            *(f"{score.values[key]:.1f}" for key in keys),
            *(column.get(score.kind, "") for column in shown.values()),
        ]
        for score in scores
    ]
    print_table(["descriptor", "dim", *keys, *shown], rows, note)


def _print_json(content: Mapping[str, Any]) -> None:
    print(json.dumps(content))


def _draw_curves(output: Path, panels: Mapping[str, Mapping[str, Any]]) -> None:
    """One panel for each title: label -> points (x, FPR95)."""
    looks = ("o-", "s--", "^-.")

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(panels), sharey=True)
        for ax, (title, curves) in zip(axes, panels.items(), strict=True):
            for (label, points), look in zip(curves.items(), looks, strict=False):
                ax.plot(*zip(*points, strict=True), look, markersize=3, label=label)
            ax.set(xlabel=title)
            ax.grid(True, linewidth=0.3, alpha=0.6)
        axes[0].set(ylabel="FPR95 (%)")
        axes[0].set_ylim(bottom=0)
        axes[0].legend()

    _draw(output, (6.4, 2.5), draw)


def _draw(output: Path, size: tuple[float, float], draw: Any) -> None:
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


def _say_picture(output: Path | None) -> None:
    if output:
        print(f"picture: {output.resolve()}")

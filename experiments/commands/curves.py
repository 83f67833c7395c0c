"""`shrinkage`, `eigenvalues` and `robustness`: the paper's curves."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.commands.options import add_figure, add_json, make_parser
from experiments.commands.output import draw_figure, say_picture
from experiments.paper.numbers import EIGENVALUES, FPR95_OVER_BETA, FPR95_OVER_T
from experiments.protocols.candidates import PATCH_SIZE_OF_SETS, kd_candidate
from experiments.protocols.patch_curves import robustness_curves, shrinkage_curves
from experiments.protocols.readers import labelled_pairs
from kd_cv.cli.options import FIGURES, check_output
from kd_cv.cli.tables import print_table, telling
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.settings import Settings
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, resolve
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.variants import attenuation, eig
from kd_cv.whitening.variants import shrinkage as shrink
from kd_cv.whitening.whitening import Whitening

Tables = Sequence[tuple[list[str], list[list[str]]]]  # titles and rows of each


def shrinkage(arguments: Sequence[str]) -> None:
    """FPR95 over the shrinkage of the unsupervised whitenings: t of W_UA, beta of W_US.

    python -m experiments shrinkage -o shrinkage.png
    python -m experiments shrinkage liberty --weights multiview
    """
    from experiments.paper.plots import plot_curves

    parser = _parser(shrinkage)
    parser.add_argument("--dim", type=int, default=128, help="dimensions kept by the whitening")
    args = _parse(parser, arguments)
    with telling("Measuring", args.json):
        labelled, raw = _labelled(args)
        whitening, source = _whitening(args)
        curves = shrinkage_curves(labelled, raw, whitening, FPR95_OVER_T, FPR95_OVER_BETA, args.dim)
    panels, tables = {}, []
    for variant, axis, title, published in (
        ("wua", "$t$ of $W_{UA}$", "t of W_UA", FPR95_OVER_T),
        ("wus", r"$i$ of $W_{US}$, $\beta = \lambda_i$", "i of W_US", FPR95_OVER_BETA),
    ):
        pairs = zip(curves[variant], published.values(), strict=True)
        panels[axis] = {
            "here": curves[variant],
            "paper, Phototourism": [(x, values[0]) for x, values in published.items()],
        }
        rows = [
            [f"{x:g}", f"{error:.2f}", *(f"{value:.2f}" for value in values)]
            for (x, error), values in pairs
        ]
        tables.append(([title, "FPR95", "paper, PT fit", "paper, HP fit"], rows))
    _show(
        args,
        {"protocol": "shrinkage", "whitening": source, **curves},
        tables,
        f"{source}; the paper's curves are for whole Phototourism sets",
        lambda figure: plot_curves(figure, panels, "FPR95 (%)"),
    )


def eigenvalues(arguments: Sequence[str]) -> None:
    """The eigenvalues of the covariance, and what W_UA and W_US make of them.

    python -m experiments eigenvalues -o eigenvalues.png
    python -m experiments eigenvalues liberty
    """
    from experiments.paper.plots import plot_eigenvalues

    args = _parse(_parser(eigenvalues), arguments)
    if args.data is not None and args.weights is not None:
        raise ValueError("give data or --weights, not both: the eigenvalues are of one of them")
    with telling("Measuring", args.json):
        if args.data is None:
            whitening, source = _whitening(args)
            lam = whitening.lam
        else:
            _, raw = _labelled(args)
            lam = eig(Statistics(raw.shape[1]).update(raw[raw.any(axis=1)]).C)[1]
            source = f"{len(raw)} patches of {args.data}"
    lam = lam / lam[0]
    columns = {"w": lam, "wua": attenuation(lam) ** -2, "wus": shrink(lam) ** -2}
    rows = [
        [str(i), *(f"{column[i - 1]:.4g}" for column in columns.values()), f"{value:.4g}"]
        for i, value in EIGENVALUES.items()
    ]
    listed = {name: column.tolist() for name, column in columns.items()}
    _show(
        args,
        {"protocol": "eigenvalues", "source": source, **listed},
        [(["i", "W", "W_UA", "W_US", "paper, W"], rows)],
        source,
        lambda figure: plot_eigenvalues(figure.subplots(), lam),
    )


def robustness(arguments: Sequence[str]) -> None:
    """FPR95 when one patch of each pair is turned or shifted, for each kernel.

    python -m experiments robustness -o robustness.png
    python -m experiments robustness liberty --weights multiview
    """
    from experiments.paper.plots import plot_curves

    parser = _parser(robustness)
    parser.add_argument("--whitening", default="ws", help="ws, wm, wus, wua, w, pcasqrt or none")
    parser.add_argument("--dim", type=int, default=128, help="dimensions kept by the whitening")
    args = _parse(parser, arguments)
    if args.whitening == "none" and args.weights is not None:
        raise ValueError(f"--whitening none needs no weights, got {args.weights}")
    with telling("Measuring", args.json):
        labelled = labelled_pairs(args.data, patch_size=64)
        source, chosen = "raw descriptors", {}
        for kernel in KERNELS:
            settings = Settings(args.patch_size, kernel, None)
            if args.whitening != "none":
                matrices, source = _whitening(args, kernel)
                settings = Settings(args.patch_size, kernel, args.whitening, matrices, args.dim)
            chosen[kernel] = kd_candidate(settings)
        turns, shifts = robustness_curves(labelled, chosen)
        panels = {"turn (degrees)": turns, "shift (pixels of 64)": shifts}
    tables = []
    for title, curves in panels.items():
        points = zip(*curves.values(), strict=True)
        rows = [[f"{row[0][0]:g}", *(f"{error:.1f}" for _, error in row)] for row in points]
        tables.append(([title, *curves], rows))
    _show(
        args,
        {"protocol": "robustness", "whitening": source, "curves": panels},
        tables,
        f"FPR95 in %; polar, cart, and concat, which is both; {source}",
        lambda figure: plot_curves(figure, panels, "FPR95 (%)"),
    )


def _parser(command: Callable[..., Any]) -> argparse.ArgumentParser:
    parser = make_parser(command)
    add = parser.add_argument
    add(
        "data",
        type=Path,
        nargs="?",
        help="folder of a Phototourism set, of sequences or of "
        "photographs; without it, built-in photographs",
    )
    add("--weights", help="matrices that whiten kd: a shipped name, or a file")
    add("--patch-size", type=int, default=PATCH_SIZE_OF_SETS, help="samples per side of a patch")
    add_figure(parser)  # fmt: skip
    add_json(parser)
    return parser


def _parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    args = parser.parse_args(arguments)
    check_output(args.output, FIGURES)
    return args


def _whitening(args: argparse.Namespace, kernel: str = "concat") -> tuple[Whitening, str]:
    """Matrices, and their name."""
    name, spec = args.weights or DEFAULT_WEIGHTS, Spec(args.patch_size, kernel)
    return resolve(name, kernel, args.patch_size, spec.dim, "patches"), f"whitening: {name}"


def _labelled(args: argparse.Namespace) -> tuple[Any, Any]:
    """Pairs of patches, and the raw descriptors of the patches."""
    pairs = labelled_pairs(args.data, patch_size=max(64, args.patch_size))
    raw = kd_candidate(Settings(args.patch_size, whitening=None))
    return pairs, raw.of_patches(pairs.patches)


def _show(
    args: argparse.Namespace,
    content: Mapping[str, Any],
    tables: Tables,
    note: str,
    draw: Callable[[Any], Any],
) -> None:
    """Draw the picture, if there is to be one, and print the content as JSON or as tables."""
    if args.output:
        draw_figure(args.output, (6.4, 2.5), draw)
    if args.json:
        print(json.dumps(content))
        return
    for titles, rows in tables:
        print_table(titles, rows)
        print()
    print(note)
    say_picture(args.output)

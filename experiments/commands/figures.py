"""`figures`: the paper's figures."""

from collections.abc import Sequence
from pathlib import Path

from experiments.commands.options import make_parser
from kd_cv.whitening.registry import DEFAULT_WEIGHTS


def figures(arguments: Sequence[str]) -> None:
    """Draw the paper's figures with the descriptor's own constants.

    They are: kernels, parametrizations, rotation, combination, whitening, slices, heat_maps,
    histograms, eigenvalues, robustness.

    python -m experiments figures
    python -m experiments figures kernels heat_maps -o pictures
    """
    parser = make_parser(figures)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="names of figures; without any, all of them")
    add("-o", "--output", type=Path, default=Path("figures"), help="folder to write NAME.png in")
    add("--patch-size", type=int, default=64, help="samples per side of the patches and maps")
    add("--weights", default=DEFAULT_WEIGHTS, help="matrices: a shipped name, or a file")
    args = parser.parse_args(arguments)

    import matplotlib

    matplotlib.use("Agg")
    from experiments.paper.data import FigureData
    from experiments.paper.figures import check_names, save_figures

    chosen = check_names(args.names)
    for path in save_figures(chosen, args.output, FigureData(args.patch_size, args.weights)):
        print(path, flush=True)

"""`kd-cv figures`: the paper's figures."""

from pathlib import Path
from typing import Annotated

import typer

from kd_cv.cli.options import Weights


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names of figures; without any, all of them.", metavar="[NAME]..."),
    ] = None,
    output: Annotated[
        Path, "Folder to write NAME.png in; it is made if it is missing.", "-o", "--output"
    ] = Path("figures"),
    patch_size: Annotated[int, "Samples per side of the patches and maps."] = 64,
    weights: Weights = None,
) -> None:
    """Draw the paper's figures with the descriptor's own constants.

    They are: kernels, parametrizations, rotation, combination, whitening, slices,
    heat_maps, histograms, eigenvalues, robustness.

    [bold]Examples[/bold]

        kd-cv figures

        kd-cv figures kernels heat_maps -o pictures
    """
    import matplotlib
    from rich.console import Console

    matplotlib.use("Agg")
    from kd_cv.paper.figures import check_names, save_figures
    from kd_cv.paper.material import Material
    from kd_cv.whitening.registry import DEFAULT_WEIGHTS

    chosen = check_names(names or ())
    material = Material(patch_size, weights or DEFAULT_WEIGHTS)
    with Console(stderr=True).status("Drawing ...") as status:
        for number, path in enumerate(save_figures(chosen, output, material), start=1):
            print(path)
            status.update(f"{number} of {len(chosen)} figures drawn ...")

"""`kd-cv eval eigenvalues`: the spectrum of the covariance."""

from typing import Annotated

import typer

from kd_cv.cli.evaluate.shared import (
    curve_whitening,
    draw_figure,
    print_json,
    raw_rows,
    say_picture,
)
from kd_cv.cli.options import (
    CurveData,
    Figure,
    Json,
    PatchSize,
)
from kd_cv.cli.outputs import check_figure
from kd_cv.evaluate.candidates import PATCH_SIZE_OF_SETS


def command(
    data: CurveData = None,
    weights: Annotated[
        str | None, typer.Option(help="Matrices instead of data: a shipped name or a file.")
    ] = None,
    patch_size: PatchSize = PATCH_SIZE_OF_SETS,
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
            whitening, source = curve_whitening(weights, "concat", patch_size)
            lam = whitening.lam
        else:
            raw = raw_rows(labelled_pairs(data, patch_size=max(64, patch_size)).patches, patch_size)
            lam = eig(Statistics(raw.shape[1]).update(raw[raw.any(axis=1)]).C)[1]
            source = f"{len(raw)} patches of {data}"
    lam = lam / lam[0]
    if output:
        from kd_cv.draw.plots import plot_eigenvalues

        draw_figure(output, (4.2, 2.7), lambda figure: plot_eigenvalues(figure.subplots(), lam))
    columns = {"w": lam, "wua": attenuation(lam) ** -2, "wus": shrink(lam) ** -2}
    if as_json:
        listed = {name: [float(value) for value in column] for name, column in columns.items()}
        print_json({"protocol": "eigenvalues", "source": source, **listed})
        return
    rows = [
        [str(i), *(f"{column[i - 1]:.4g}" for column in columns.values()), f"{value:.4g}"]
        for i, value in paper.EIGENVALUES.items()
    ]
    print_table(["i", "W", "W_UA", "W_US", "paper, W"], rows, source)
    say_picture(output)

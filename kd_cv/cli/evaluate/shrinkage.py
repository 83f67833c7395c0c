"""`kd-cv eval shrinkage`: FPR95 over t and beta."""

from kd_cv.cli.evaluate.shared import (
    curve_whitening,
    draw_curves,
    print_json,
    raw_rows,
    say_picture,
)
from kd_cv.cli.options import (
    CurveData,
    CurveWeights,
    Dim,
    Figure,
    Json,
    PatchSize,
)
from kd_cv.cli.outputs import check_figure
from kd_cv.evaluate.candidates import PATCH_SIZE_OF_SETS


def command(
    data: CurveData = None,
    weights: CurveWeights = None,
    patch_size: PatchSize = PATCH_SIZE_OF_SETS,
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
        whitening, source = curve_whitening(weights, "concat", patch_size)
        raw = raw_rows(labelled.patches, patch_size)
        curves = shrinkage_curves(
            labelled, raw, whitening, paper.FPR95_OVER_T, paper.FPR95_OVER_BETA, dim
        )
    if output:
        draw_curves(
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
        print_json({"protocol": "shrinkage", "whitening": source, **curves})
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
    say_picture(output)

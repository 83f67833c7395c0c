"""`kd-cv eval shrinkage`: FPR95 over t and beta."""

from kd_cv.cli.evaluate.options import Curve
from kd_cv.cli.evaluate.output import draw_curves, print_json, say_picture
from kd_cv.cli.options import Dim
from kd_cv.cli.outputs import check_figure


def command(curve: Curve, dim: Dim = 128) -> None:
    """FPR95 over the shrinkage of the unsupervised whitenings: t of W_UA, beta of W_US.

    [bold]Examples[/bold]

        kd-cv eval shrinkage -o shrinkage.png

        kd-cv eval shrinkage liberty --weights multiview
    """
    from kd_cv.cli.tables import print_table, telling
    from kd_cv.evaluate.curves import shrinkage_curves
    from kd_cv.paper import numbers as paper

    check_figure(curve.output)
    with telling("Measuring", curve.as_json):
        labelled, raw = curve.labelled()
        whitening, source = curve.whitening()
        curves = shrinkage_curves(
            labelled, raw, whitening, paper.FPR95_OVER_T, paper.FPR95_OVER_BETA, dim
        )
    if curve.output:
        draw_curves(
            curve.output,
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
    if curve.as_json:
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
    say_picture(curve.output)

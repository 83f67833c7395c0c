"""`kd-cv eval eigenvalues`: the spectrum of the covariance."""

from kd_cv.cli.evaluate.options import Curve
from kd_cv.cli.evaluate.output import draw_figure, print_json, say_picture
from kd_cv.cli.outputs import check_figure


def command(curve: Curve) -> None:
    """The eigenvalues of the covariance, and what W_UA and W_US make of them.

    [bold]Examples[/bold]

        kd-cv eval eigenvalues -o eigenvalues.png

        kd-cv eval eigenvalues liberty
    """
    from kd_cv.cli.tables import print_table, telling
    from kd_cv.paper import numbers as paper
    from kd_cv.whitening.statistics import Statistics
    from kd_cv.whitening.variants import attenuation, eig
    from kd_cv.whitening.variants import shrinkage as shrink

    check_figure(curve.output)
    if curve.data is not None and curve.weights is not None:
        raise ValueError("give data or --weights, not both: the eigenvalues are of one of them")
    with telling("Measuring", curve.as_json):
        if curve.data is None:
            whitening, source = curve.whitening()
            lam = whitening.lam
        else:
            _, raw = curve.labelled()
            lam = eig(Statistics(raw.shape[1]).update(raw[raw.any(axis=1)]).C)[1]
            source = f"{len(raw)} patches of {curve.data}"
    lam = lam / lam[0]
    if curve.output:
        from kd_cv.draw.curves import plot_eigenvalues

        draw_figure(
            curve.output, (4.2, 2.7), lambda figure: plot_eigenvalues(figure.subplots(), lam)
        )
    columns = {"w": lam, "wua": attenuation(lam) ** -2, "wus": shrink(lam) ** -2}
    if curve.as_json:
        listed = {name: [float(value) for value in column] for name, column in columns.items()}
        print_json({"protocol": "eigenvalues", "source": source, **listed})
        return
    rows = [
        [str(i), *(f"{column[i - 1]:.4g}" for column in columns.values()), f"{value:.4g}"]
        for i, value in paper.EIGENVALUES.items()
    ]
    print_table(["i", "W", "W_UA", "W_US", "paper, W"], rows, source)
    say_picture(curve.output)

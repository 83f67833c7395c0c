"""`kd-cv eval shrinkage`, `eigenvalues` and `robustness`: the paper's curves."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kd_cv.cli.options import Dim, Figure, Json, PatchSize, Weights
from kd_cv.cli.outputs import FIGURES, check_output, draw_figure, say_picture
from kd_cv.cli.tables import print_table, telling
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.evaluate.candidates import PATCH_SIZE_OF_SETS, kd_candidate
from kd_cv.evaluate.curves import robustness_curves, shrinkage_curves
from kd_cv.evaluate.readers import labelled_pairs
from kd_cv.paper.numbers import EIGENVALUES, FPR95_OVER_BETA, FPR95_OVER_T
from kd_cv.settings import Settings
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, resolve
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.variants import attenuation, eig
from kd_cv.whitening.variants import shrinkage as shrink


@dataclass(frozen=True)
class Curve:
    """What a curve is drawn from, and where it is written."""

    data: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of a Phototourism set, of sequences or of photographs; without it, "
            "built-in photographs."
        ),
    ] = None
    weights: Weights = None
    patch_size: PatchSize = PATCH_SIZE_OF_SETS
    output: Figure = None
    as_json: Json = False

    def __post_init__(self) -> None:
        check_output(self.output, FIGURES)

    def whitening(self, kernel: str = "concat") -> tuple[Any, str]:
        """Matrices, and what they are."""
        name, spec = self.weights or DEFAULT_WEIGHTS, Spec(self.patch_size, kernel)
        return resolve(name, kernel, self.patch_size, spec.dim, "patches"), f"whitening: {name}"

    def labelled(self) -> tuple[Any, Any]:
        """Pairs of patches, and the raw descriptors of the patches."""
        pairs = labelled_pairs(self.data, patch_size=max(64, self.patch_size))
        raw = kd_candidate(Settings(self.patch_size, whitening=None))
        return pairs, raw.of_patches(pairs.patches)

    def show(
        self,
        content: Mapping[str, Any],
        tables: Sequence[tuple[list[str], list[list[str]]]],
        note: str,
        draw: Callable[[Any, Any], Any],
        size: tuple[float, float] = (6.4, 2.5),
    ) -> None:
        """Draw the picture, if there is to be one, and print the content as JSON or as tables.

        draw(plots, figure)  draws it by the functions of `kd_cv.draw.curves`
        """
        if self.output:
            from kd_cv.draw import curves as plots

            draw_figure(self.output, size, partial(draw, plots))
        if self.as_json:
            print(json.dumps(content))
            return
        for titles, rows in tables:
            print_table(titles, rows)
            print()
        print(note)
        say_picture(self.output)


def shrinkage(*, dim: Dim = 128, curve: Curve) -> None:
    """FPR95 over the shrinkage of the unsupervised whitenings: t of W_UA, beta of W_US.

    [bold]Examples[/bold]

        kd-cv eval shrinkage -o shrinkage.png

        kd-cv eval shrinkage liberty --weights multiview
    """
    with telling("Measuring", curve.as_json):
        labelled, raw = curve.labelled()
        whitening, source = curve.whitening()
        curves = shrinkage_curves(labelled, raw, whitening, FPR95_OVER_T, FPR95_OVER_BETA, dim)
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
    curve.show(
        {"protocol": "shrinkage", "whitening": source, **curves},
        tables,
        f"{source}; the paper's curves are for whole Phototourism sets",
        lambda plots, figure: plots.plot_curves(figure, panels, "FPR95 (%)"),
    )


def eigenvalues(curve: Curve) -> None:
    """The eigenvalues of the covariance, and what W_UA and W_US make of them.

    [bold]Examples[/bold]

        kd-cv eval eigenvalues -o eigenvalues.png

        kd-cv eval eigenvalues liberty
    """
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
    columns = {"w": lam, "wua": attenuation(lam) ** -2, "wus": shrink(lam) ** -2}
    rows = [
        [str(i), *(f"{column[i - 1]:.4g}" for column in columns.values()), f"{value:.4g}"]
        for i, value in EIGENVALUES.items()
    ]
    listed = {name: column.tolist() for name, column in columns.items()}
    content = {"protocol": "eigenvalues", "source": source, **listed}
    curve.show(
        content,
        [(["i", "W", "W_UA", "W_US", "paper, W"], rows)],
        source,
        lambda plots, figure: plots.plot_eigenvalues(figure.subplots(), lam),
        (4.2, 2.7),
    )


def robustness(
    *,
    whitening: Annotated[str, "Whitening: ws, wm, wus, wua, w, pcasqrt or none."] = "ws",
    dim: Dim = 128,
    curve: Curve,
) -> None:
    """FPR95 when one patch of each pair is turned or shifted, for each kernel.

    [bold]Examples[/bold]

        kd-cv eval robustness -o robustness.png

        kd-cv eval robustness liberty --weights multiview
    """
    if whitening == "none" and curve.weights is not None:
        raise ValueError(f"--whitening none needs no weights, got {curve.weights}")
    with telling("Measuring", curve.as_json):
        labelled = labelled_pairs(curve.data, patch_size=64)
        source, chosen = "raw descriptors", {}
        for kernel in KERNELS:
            settings = Settings(curve.patch_size, kernel, None)
            if whitening != "none":
                matrices, source = curve.whitening(kernel)
                settings = Settings(curve.patch_size, kernel, whitening, matrices, dim)
            chosen[kernel] = kd_candidate(settings)
        turns, shifts = robustness_curves(labelled, chosen)
        panels = {"turn (degrees)": turns, "shift (pixels of 64)": shifts}
    tables = []
    for title, curves in panels.items():
        points = zip(*curves.values(), strict=True)
        rows = [[f"{row[0][0]:g}", *(f"{error:.1f}" for _, error in row)] for row in points]
        tables.append(([title, *curves], rows))
    curve.show(
        {"protocol": "robustness", "whitening": source, "curves": panels},
        tables,
        f"FPR95 in %; polar, cart, and concat, which is both; {source}",
        lambda plots, figure: plots.plot_curves(figure, panels, "FPR95 (%)"),
    )

"""`kd-cv eval robustness`: FPR95 of turned and shifted patches."""

from typing import Annotated, Any

import typer

from kd_cv.cli.evaluate.options import Curve
from kd_cv.cli.evaluate.output import draw_curves, print_json, say_picture
from kd_cv.cli.options import Dim
from kd_cv.cli.outputs import check_figure


def command(
    curve: Curve,
    whitening: Annotated[
        str, typer.Option(help="Whitening: ws, wm, wus, wua, w, pcasqrt or none.")
    ] = "ws",
    dim: Dim = 128,
) -> None:
    """FPR95 when one patch of each pair is turned or shifted, for each kernel.

    [bold]Examples[/bold]

        kd-cv eval robustness -o robustness.png

        kd-cv eval robustness liberty --weights multiview
    """
    from kd_cv.cli.tables import print_table, telling
    from kd_cv.descriptor.spec import KERNELS
    from kd_cv.evaluate.candidates import kd_candidate
    from kd_cv.evaluate.curves import robustness_curves
    from kd_cv.evaluate.readers import labelled_pairs
    from kd_cv.settings import Settings
    from kd_cv.whitening.registry import DEFAULT_WEIGHTS

    check_figure(curve.output)
    variant = None if whitening == "none" else whitening
    if variant is None and curve.weights is not None:
        raise ValueError(f"--whitening none needs no weights, got {curve.weights}")
    with telling("Measuring", curve.as_json):
        labelled = labelled_pairs(curve.data, patch_size=64)
        source = "raw descriptors"
        chosen = []
        for kernel in KERNELS:
            matrices: Any = DEFAULT_WEIGHTS
            if variant is not None:
                matrices, source = curve.whitening(kernel)
            settings = Settings(curve.patch_size, kernel, variant, matrices, dim)
            chosen.append(kd_candidate(settings, source))
        turns = robustness_curves(labelled, chosen, turns=range(0, 31, 5))
        shifts = robustness_curves(labelled, chosen, shifts=range(0, 13, 2))
    short = dict(zip(turns, KERNELS, strict=True))
    panels = {
        "turn (degrees)": {short[name]: points for name, points in turns.items()},
        "shift (pixels of 64)": {short[name]: points for name, points in shifts.items()},
    }
    if curve.output:
        draw_curves(curve.output, panels)
    if curve.as_json:
        print_json({"protocol": "robustness", "whitening": source, "curves": panels})
        return
    for title, curves in panels.items():
        points = zip(*curves.values(), strict=True)
        rows = [[f"{row[0][0]:g}", *(f"{error:.1f}" for _, error in row)] for row in points]
        print_table([title, *curves], rows)
        print()
    print(f"FPR95 in %; polar, cart, and concat, which is both; {source}")
    say_picture(curve.output)

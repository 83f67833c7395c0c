"""`kd-cv eval PROTOCOL`: measure descriptors, with the paper's numbers beside ours."""

import typer

from kd_cv.cli.evaluate import (
    eigenvalues,
    hpatches,
    matching,
    phototourism,
    pipelines,
    pose,
    robustness,
    shrinkage,
)
from kd_cv.cli.evaluate.options import grouped
from kd_cv.cli.plain import Command, Group

app = typer.Typer(
    cls=Group,
    help="Measure descriptors by the paper's protocols and on real tasks.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
for name, module in {
    "phototourism": phototourism, "hpatches": hpatches, "matching": matching, "pose": pose,
    "pipelines": pipelines,
    "shrinkage": shrinkage, "eigenvalues": eigenvalues, "robustness": robustness,
}.items():  # fmt: skip
    app.command(name, cls=Command)(grouped(module.command))

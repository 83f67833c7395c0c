"""`kd-cv eval PROTOCOL`: measure descriptors, with the paper's numbers beside ours."""

from collections.abc import Callable

import typer

from kd_cv.cli.evaluate import curves, pairs, patches
from kd_cv.cli.options import grouped
from kd_cv.cli.plain import Command, Group

app = typer.Typer(
    cls=Group,
    help="Measure descriptors by the paper's protocols and on real tasks.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
commands: tuple[Callable[..., None], ...] = (
    patches.phototourism, patches.hpatches, pairs.matching, pairs.pose, pairs.pipelines,
    curves.shrinkage, curves.eigenvalues, curves.robustness,
)  # fmt: skip
for command in commands:
    app.command(cls=Command)(grouped(command))

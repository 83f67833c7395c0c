"""`kd-cv` and its commands: one file each, which imports what is heavy when it runs."""

from typing import Annotated

import typer

from kd_cv.cli import colmap, explain, export, extract, fit, match, weights
from kd_cv.cli.options import grouped
from kd_cv.cli.plain import Command, Group

app = typer.Typer(
    name="kd-cv",
    cls=Group,
    help="Kernel local descriptors: match photographs, and see why they match.",
    epilog="Try it: kd-cv match -o matches.png",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        from kd_cv import __version__

        print(f"kd-cv {__version__}")
        raise typer.Exit()


@app.callback()
def _app(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; anywhere on the line.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Kernel local descriptors: match photographs, and see why they match.

    Exit codes: 0 done, 1 nothing found, 2 bad input, 3 an error of kd_cv itself.
    """


for name, module in {
    "match": match, "explain": explain, "extract": extract, "colmap": colmap,
    "export": export, "fit": fit, "weights": weights,
}.items():  # fmt: skip
    app.command(name, cls=Command)(grouped(module.command))

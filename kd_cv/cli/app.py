"""`kd-cv` and its commands: one module each, imported when that command runs."""

from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

#: The commands, and the first line of the help of each.
COMMANDS = {
    "match": "Match two photographs and estimate a two-view model: one plane, or a scene.",
    "explain": "Explain a match: which pixels made the two patches alike.",
    "extract": "Extract the features of a whole collection into one file that hloc reads.",
    "colmap": "Reconstruct a scene with COLMAP from descriptors of KD, SIFT or RootSIFT.",
    "export": "Write the descriptor as an ONNX file and check it with onnxruntime.",
    "fit": "Fit whitening matrices on your own photographs, and test them on held-out ones.",
    "weights": "Describe the whitening matrices that are shipped, or those of a file.",
}

#: The error that typer raises for a command line that it cannot read.
usage_error: Any = typer.BadParameter.__base__


class LazyGroup(typer.core.TyperGroup):
    """`kd-cv`: its help needs no command's module, a call only that of one command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {n: typer.core.TyperCommand(n, help=text) for n, text in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else command, rest


def load(name: str) -> Any:
    """Import a command."""
    from kd_cv.extras import check_opencv

    check_opencv()
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(name)(import_module(f"kd_cv.cli.{name}").command)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="kd-cv",
    cls=LazyGroup,
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

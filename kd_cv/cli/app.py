"""`kd-cv` and its commands: one module each, imported when that command runs."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

#: The commands, and the first line of the help of each.
COMMANDS = {
    "match": "Match two photographs and find what they have in common: one plane, or a scene.",
    "explain": "Explain a match: which pixels made the two patches alike.",
    "extract": "Extract the features of a whole collection into one file that hloc reads.",
    "colmap": "Reconstruct a scene with COLMAP from descriptors of KD, SIFT or RootSIFT.",
    "export": "Write the descriptor as an ONNX file and check it with onnxruntime.",
    "fit": "Fit whitening matrices on your own photographs, and test them on held-out ones.",
    "weights": "Describe the whitening matrices that are shipped, or those of a file.",
}
LAST = ("as_json",)  # in the help of every command

#: What typer raises for a command line that it cannot read.
usage_error: Any = typer.BadParameter.__base__


def _plain(params: list[Any]) -> list[Any]:
    """The parameters of a command, without a type beside flags."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Command(typer.core.TyperCommand):
    """A command whose usage line names its arguments."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except usage_error as error:
            error.ctx = error.ctx or ctx  # which knows the name of the command
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words behind the name of the command: "[OPTIONS] PHOTOS", or "[OPTIONS] [A B]"."""
        pieces = ["[OPTIONS]"]
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                name = param.metavar or param.name.upper()
                optional = not param.required and not name.startswith("[")
                pieces.append(f"[{name}]" if optional else name)
        return pieces


class _Commands(Mapping[str, Any]):
    """The commands by name, each loaded when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Group(typer.core.TyperGroup):
    """`kd-cv` itself: its help needs no command, a call only one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        return Command(name, help=COMMANDS[name]) if name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load(name) if name in COMMANDS else command, rest


@lru_cache(maxsize=len(COMMANDS))
def _load(name: str) -> Any:
    from kd_cv.extras import check_opencv

    check_opencv()
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(name, cls=Command)(grouped(import_module(f"kd_cv.cli.{name}").command))
    return typer.main.get_command(alone)


def _with_help(annotation: Any) -> Any:
    """Annotated[type, help, names...] as typer takes it."""
    help_, *names = getattr(annotation, "__metadata__", [None])
    if not isinstance(help_, str):
        return annotation
    return Annotated[annotation.__origin__, typer.Option(*names, help=help_)]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the fields of its dataclass parameters as options of their own."""
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            # Not by typing.get_type_hints: Python 3.10 adds another | None to what is None by
            # default.
            options += [
                parameter.replace(name=field.name, default=field.default, annotation=field.type)
                for field in fields(parameter.annotation)
            ]
        else:
            options.append(parameter)

    @wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**made, **given)

    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            option.replace(
                kind=inspect.Parameter.KEYWORD_ONLY, annotation=_with_help(option.annotation)
            )
            for option in sorted(options, key=lambda option: option.name in LAST)
        ]
    )
    called.__annotations__ = {}
    return called


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

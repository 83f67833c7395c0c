"""Commands with readable help: flags without a type, and a usage line that names arguments."""

from typing import Any

import typer
import typer.core

#: What typer raises for a command line that it cannot read.
usage_error: Any = typer.BadParameter.__base__


def plain_params(params: list[Any]) -> list[Any]:
    """The parameters of a command, without a type beside flags."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Command(typer.core.TyperCommand):
    """A command of `kd-cv`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return plain_params(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except usage_error as error:
            error.ctx = error.ctx or ctx  # which knows the name of the command
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the name of the command: "[OPTIONS] PHOTOS", or "[OPTIONS] [A B]"."""
        pieces = ["[OPTIONS]"]
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                name = param.metavar or param.name.upper()
                optional = not param.required and not name.startswith("[")
                pieces.append(f"[{name}]" if optional else name)
        return pieces


class Group(typer.core.TyperGroup):
    """`kd-cv` itself."""

    def get_params(self, ctx: Any) -> list[Any]:
        return plain_params(super().get_params(ctx))

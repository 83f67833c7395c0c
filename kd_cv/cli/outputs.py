"""Outputs: what could not be written is refused before any work is done; figures are drawn."""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FIGURES = (".png", ".pdf", ".svg")


def check_writable(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Try what `replacing` will do: a file in the folder of `path`, and over none of `inputs`."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, expected a file to write")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"cannot write in {path.parent}: {error.strerror}") from error
    for given in inputs:
        if path.exists() and given.exists() and os.path.samefile(path, given):
            raise ValueError(f"{path} is one of the photographs: it would be overwritten")


def check_output(
    path: Path | None, suffixes: Sequence[str] = (), inputs: Sequence[Path] = ()
) -> None:
    """A file of one of these kinds that can be written, if one is asked for."""
    if path is None:
        return
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"{path}: unknown kind of file, expected {', '.join(suffixes)}")
    check_writable(path, inputs)


def draw_figure(output: Path, size: tuple[float, float], draw: Callable[[Any], Any]) -> None:
    """Write what draw(figure) draws in an empty figure of this size in inches."""
    from kd_cv.draw.style import Figure, save_plot, style

    with style():
        figure = Figure(figsize=size)  # not pyplot's, which might open a window
        draw(figure)
        save_plot(output, figure)


def say_picture(output: Path | None) -> None:
    """Where the picture is, if there is one."""
    if output:
        print(f"picture: {output.resolve()}")

"""Refuse, before any work is done, an output that could not be written."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import cv2

FIGURE_SUFFIXES = (".png", ".pdf", ".svg")


def check_writable(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Try what `replacing` will do: a file in the folder of `path`, and over none of `inputs`."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, expected a file to write")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent} to write {path.name} in")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"cannot write in {path.parent}: {error.strerror}") from error
    for given in inputs:
        if path.exists() and given.exists() and os.path.samefile(path, given):
            raise ValueError(f"{path} is one of the photographs: it would be overwritten")


def check_figure(path: Path | None, inputs: Sequence[Path] = ()) -> None:
    """A figure that can be written, if one is asked for."""
    if path is None:
        return
    if path.suffix not in FIGURE_SUFFIXES:
        kinds = ", ".join(FIGURE_SUFFIXES)
        raise ValueError(f"{path}: unknown kind of figure, expected {kinds}")
    check_writable(path, inputs)


def check_picture(path: Path) -> None:
    """OpenCV must know how to write the kind of picture that the suffix names."""
    # By the suffix alone: there are names of files that crash OpenCV.
    try:
        suffix = path.suffix if path.suffix.isascii() else ""
        known = bool(suffix) and cv2.haveImageWriter("x" + suffix)
    except cv2.error:
        known = False
    if not known:
        raise ValueError(f"{path}: unknown kind of picture, expected .png, .jpg, .webp ...")

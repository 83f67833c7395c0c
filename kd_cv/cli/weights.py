"""`kd-cv weights`: the shipped matrices, or those of a file."""

import json
import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from kd_cv.cli.options import Json
from kd_cv.io.files import printable


def command(
    file: Annotated[
        Path | None, typer.Argument(help="A fitted or trained file; without it, the shipped ones.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Describe the whitening matrices that are shipped, or those of a file.

    [bold]Examples[/bold]

        kd-cv weights

        kd-cv weights mine.npz

        kd-cv weights --json
    """
    from kd_cv.whitening.registry import registry

    if file is not None:
        _of_file(file, as_json)
        return

    entries = registry()
    if as_json:
        print(json.dumps({name: asdict(entry) for name, entry in entries.items()}))
        return
    for name, entry in entries.items():
        counts = {"patches": entry.patches, "pairs": entry.pairs, "scenes": entry.scenes}
        uses = {f"for {use}": text for use, text in entry.uses.items()}
        _show(name, {"fitted on": entry.fitted_on, **counts, **uses, **entry.figures})


def _of_file(path: Path, as_json: bool) -> None:
    from kd_cv.whitening import load

    entries = [
        {
            "kernel": key[0],
            "patch_size": key[1],
            **({"only_for": key[2]} if len(key) == 3 else {}),
            "dimensions": whitening.dim,
            "whitenings": whitening.variants(),
            **whitening.provenance,
        }
        for key, whitening in load(path).items()
    ]
    if as_json:
        print(json.dumps(entries, default=str))
        return
    for facts in entries:
        _show(printable(f"{path.name}: {facts.pop('kernel')} {facts.pop('patch_size')}"), facts)


def _show(title: str, facts: Mapping[str, Any]) -> None:
    """Print a title and its facts, one a line, none wider than the terminal."""
    wrapper = textwrap.TextWrapper(
        shutil.get_terminal_size().columns, initial_indent="  ", subsequent_indent="      "
    )
    print(title)
    for name, value in facts.items():
        text = f"{value:,}" if isinstance(value, int) else str(value)
        if isinstance(value, list | tuple):
            text = ", ".join(map(str, value))
        if isinstance(value, dict):  # of counts
            text = ", ".join(f"{count} {what}" for what, count in value.items())
        print(wrapper.fill(printable(f"{name}: {text}")))

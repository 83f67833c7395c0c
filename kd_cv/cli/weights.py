"""`kd-cv weights`: the shipped matrices."""

import json
from dataclasses import asdict

from kd_cv.cli.options import (
    Json,
)


def command(as_json: Json = False) -> None:
    """List the shipped whitening matrices: what they were fitted on, and what they reach.

    [bold]Examples[/bold]

        kd-cv weights

        kd-cv weights --json
    """
    from rich.console import Console
    from rich.table import Table

    from kd_cv.whitening.registry import folder, registry

    entries = registry()
    if as_json:
        print(json.dumps({name: asdict(entry) for name, entry in entries.items()}))
        return
    if not entries:
        raise FileNotFoundError(f"no matrices are shipped: there is no index in {folder()}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("name")
    table.add_column("fitted on")
    for title in ("patches", "pairs", "scenes"):
        table.add_column(title, justify="right")
    table.add_column("measured")
    for name, entry in entries.items():
        measured = "\n".join(f"{title} {value:g}" for title, value in entry.figures.items())
        counts = (f"{count:,}" for count in (entry.patches, entry.pairs, entry.scenes))
        table.add_row(name, entry.fitted_on, *counts, measured)
    Console(highlight=False, markup=False).print(table)

"""Tables, progress and warnings of the commands that take a while."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> None:
    """Print a table, its first column aligned to the left, with a note below."""
    console = Console(highlight=False, markup=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if note:
        console.print(note, style="dim")


@contextmanager
def telling(what: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a status line on stderr; the yielded function counts the items done and names one."""
    with Console(stderr=True, quiet=quiet).status(f"{what} ...") as status:
        done = 0

        def tell(name: str) -> None:
            nonlocal done
            done += 1
            status.update(f"{what} ... {done} done, {name} last")

        yield tell


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show each warning once, as a single line."""

    def show(message: Any, *_: Any, **__: Any) -> None:
        print(f"kd-cv: warning: {' '.join(str(message).split())[:500]}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show
        yield


@contextmanager
def foreign_silence() -> Iterator[None]:
    """Silence the warnings and log lines of other packages."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

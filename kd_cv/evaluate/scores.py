"""What a protocol gives: a `Score` for each candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Score:
    """What a candidate reached; values in percent."""

    name: str
    kind: str
    dim: int
    values: Mapping[str, float]


def tell(progress: Progress | None, what: str) -> None:
    """Report what was done, if somebody asked for it."""
    if progress:
        progress(what)

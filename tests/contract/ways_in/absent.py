"""A module as if it were not installed."""

import importlib.abc
from typing import Any


class Absent(importlib.abc.MetaPathFinder):
    """Finds first, and then says that it is not there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] == self.name:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)

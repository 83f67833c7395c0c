"""Docstrings for the site: columns of names become lists, examples become blocks of code.

Default values in signatures are shown as such, where the code has the name of a constant.

The docstrings of this package are written to be read in a terminal:

    ratio    accept a match whose nearest neighbour is closer
    mutual   and is the nearest neighbour in both directions
"""

import importlib
import re
from typing import Any

import griffe

ENTRY = re.compile(r"(\S(?:.*?\S)?) {2,}\S")  # a name, and two spaces or more before what it means


class Columns(griffe.Extension):
    """Rewrites every docstring and every default before they are rendered."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = rewritten(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        for parameter in func.parameters:
            if isinstance(parameter.default, griffe.ExprName):
                module = importlib.import_module(func.module.path)
                value = getattr(module, parameter.default.name, None)
                if isinstance(value, (int, float, str, tuple)):
                    parameter.default = repr(value)


def rewritten(docstring: str) -> str:
    """A docstring in Markdown, paragraph by paragraph."""
    paragraphs = re.split(r"\n\s*\n", docstring.strip("\n"))
    return "\n\n".join(map(_paragraph, paragraphs))


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if lines[0].lstrip().startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    column = next((found.end() - 1 for line in lines if (found := ENTRY.match(line))), None)
    if column is None:
        return text if not lines[0].startswith("    ") else "\n".join(["```text", *lines, "```"])
    entries: list[tuple[str, str]] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        alone = not line.startswith(" ") and not ENTRY.match(line) and len(line) > column
        if alone and following.startswith(" " * column):  # names that fill a line of their own
            entries.append((line, ""))
            continue
        # The longest names may leave one space before the column, or reach beyond it.
        here = found.end() - 1 if (found := ENTRY.match(line)) else column
        name, meaning = line[:here].strip(), line[here:].strip()
        if name and line[here - 1 : here] == " ":
            entries.append((name, meaning))
        elif entries:
            entries[-1] = entries[-1][0], f"{entries[-1][1]} {line.strip()}".strip()
        else:
            return text  # a sentence with two spaces in it
    return "\n\n".join(f"`{name}`\n:   {meaning}" for name, meaning in entries)

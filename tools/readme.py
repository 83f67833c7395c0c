"""The README as the package index shows it: a hook of Hatchling.

The index serves no files of the repository, so pictures are left out and links to files become
plain text; links to the web stay.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """Fills in the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_the_index(text)}


def for_the_index(text: str) -> str:
    """Markdown without pictures, their captions and links that lead nowhere."""
    text = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n\n(\*[^\n]*\*\n\n)?", "", text, flags=re.M)
    return re.sub(r"\[([^\]]*)\]\((?![a-z]+:)[^)]*\)", r"\1", text)

"""The README and the links of the project as the package index shows them: a hook of Hatchling.

The index serves no files of the repository. In a build on GitHub, as the releases are, links and
pictures lead to the files of that very commit; elsewhere nobody knows where they will be, so
pictures are left out and links to files become plain text. Links to the web stay. The addresses of
source, issues and changelog, too, are those of the repository that the build runs in.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = r"^!\[([^\]]*)\]\(([^)]*)\)\n\n(\*[^\n]*\*\n\n)?"  # and its caption, if it has one
LINK = r"\[([^\]]*)\]\((?![a-z]+:)([^)]*)\)"  # to a file


class Readme(MetadataHookInterface):
    """Fills in the field `readme`, and adds to the field `urls` in a build on GitHub."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        name, commit = (os.environ.get(f"GITHUB_{key}", "") for key in ("REPOSITORY", "SHA"))
        text = for_the_index(text, f"{name}/{{}}/{commit}" if name and commit else None)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if name:
            home = f"https://github.com/{name}"
            pages = {"Source": "", "Issues": "/issues", "Changelog": "/blob/main/CHANGELOG.md"}
            metadata["urls"] |= {page: home + path for page, path in pages.items()}


def for_the_index(text: str, place: str | None = None) -> str:
    """Markdown without links that lead nowhere.

    place  "OWNER/REPOSITORY/{}/COMMIT" on GitHub, or None if there is no such place
    """
    if place is None:
        return re.sub(LINK, r"\1", re.sub(PICTURE, "", text, flags=re.M))
    raw, page = (f"https://github.com/{place.format(kind)}" for kind in ("raw", "blob"))
    text = re.sub(f"!{LINK}", rf"![\1]({raw}/\2)", text)
    return re.sub(LINK, rf"[\1]({page}/\2)", text)

"""Pages of the site that are made, not written: files of the root, and the command line.

A hook of MkDocs. Links work in the repository and on the site: one that leads out of docs/ goes to
the page made from that file, or becomes plain text if there is none.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
#: Files outside docs/ that are pages too.
INCLUDED = {
    "README.md": "index.md",
    "experiments/README.md": "experiments.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that have no file in docs/."""
    for source, page in INCLUDED.items():
        if (ROOT / source).is_file():
            text = (ROOT / source).read_text(encoding="utf-8")
            files.append(File.generated(config, page, content=relinked(text, source)))
    files.append(File.generated(config, "commands.md", content=commands_page()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn the links of a page of docs/ that lead out of it."""
    return markdown if page.file.generated_by else relinked(markdown, f"docs/{page.file.src_uri}")


def relinked(text: str, source: str) -> str:
    """Markdown of a file of the repository with its relative links as the site has them."""

    def turned(found: re.Match[str]) -> str:
        picture, label, target, anchor = found[1], found[2], found[3], found[4] or ""
        if re.match("[a-z]+:", target):
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        if path in INCLUDED:
            return f"{picture}[{label}]({INCLUDED[path]}{anchor})"
        if path.startswith("docs/"):
            return f"{picture}[{label}]({path.removeprefix('docs/')}{anchor})"
        if not (ROOT / path).exists():
            raise ValueError(f"{source}: the link to {target} leads nowhere")
        return label

    return LINK.sub(turned, text)


# --------------------------------------------------------------------------------------------------
# The command line, from the commands themselves


def commands_page() -> str:
    """What commands there are; then one section each: help, examples, arguments and options."""
    from kd_cv.cli.app import COMMANDS, load

    commands = [(f"kd-cv {name}", load(name)) for name in COMMANDS]
    lines = ["# Command line", "", "| command | |", "|---|---|"]
    for path, command in commands:
        what = _marked(" ".join((command.help or "").split("\n\n")[0].split()))
        lines.append(f"| [`{path}`](#{path.replace(' ', '-')}) | {what} |")
    for path, command in commands:
        lines += ["", f"## `{path}`", "", *_help(command), "", *_options(command)]
    return "\n".join([*lines, ""])


def _help(command: Any) -> list[str]:
    """The help text as Markdown: examples are indented in it, headings bold."""
    text = re.sub(r"\[/?bold\]", "**", command.help or "")
    paragraphs = [p for p in re.split(r"\n\s*\n", text.replace("\b", "")) if p.strip()]
    lines: list[str] = []
    examples: list[str] = []
    for paragraph in paragraphs:
        if re.match(r"\s*kd-cv ", paragraph):
            examples.append(paragraph.strip())
            continue
        lines += [*_block(examples), _marked(" ".join(paragraph.split())), ""]
        examples = []
    return [*lines, *_block(examples)]


def _block(examples: list[str]) -> list[str]:
    return ["```bash", *examples, "```", ""] if examples else []


def _marked(text: str) -> str:
    """A text in which the names of options stand as such."""
    return re.sub(r"(?<![\w`-])--[a-z][a-z-]*", r"`\g<0>`", text)


def _options(command: Any) -> list[str]:
    """A table of what the command takes, arguments first."""
    rows = []
    for parameter in sorted(command.params, key=lambda p: p.param_type_name != "argument"):
        if parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            name = f"`{parameter.metavar or parameter.name.upper()}`"
        else:
            names = (*parameter.opts, *parameter.secondary_opts)
            name = ", ".join(f"`{option}`" for option in names)
        text = _marked((parameter.help or "").replace("|", "\\|"))
        rows.append(f"| {name} | {text} | {_default(parameter)} |")
    return ["| option | | default |", "|---|---|---|", *rows] if rows else []


def _default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "required"
    if default is True:
        return f"`{parameter.opts[0]}`"
    if default is None or default is False or callable(default):
        return ""
    return f"`{default}`"

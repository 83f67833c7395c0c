"""`kd-cv colmap`: a reconstruction."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kd_cv.cli.options import (
    Compare,
    Descriptor,
    Images,
    Json,
    MaxKeypoints,
    MaxSize,
    Overwrite,
    Ratio,
    Root,
    Views,
    Weights,
    make_extraction,
)
from kd_cv.io.files import printable
from kd_cv.io.images import say_others
from kd_cv.matching.neighbours import RATIO
from kd_cv.opencv.rootsift import DESCRIPTORS


def command(
    images: Images,
    workspace: Annotated[
        Path,
        typer.Option(
            "-o", "--workspace", "--output", help="Folder for features, database and model."
        ),
    ],
    *,
    compare: Compare = False,
    descriptor: Descriptor = "kd",
    weights: Weights = None,
    max_keypoints: MaxKeypoints = 8192,
    max_size: MaxSize = 3200,
    views: Views = 1,
    root: Root = None,
    overwrite: Overwrite = False,
    matcher: Annotated[
        Literal["kd", "colmap"],
        typer.Option(help="kd: mutual nearest neighbours; colmap: COLMAP's own matcher."),
    ] = "kd",
    ratio: Ratio = RATIO,
    pairs: Annotated[
        Path | None,
        typer.Option(help="File of the pairs to match, two names per line; by default all pairs."),
    ] = None,
    camera: Annotated[
        Literal["auto", "single", "per-folder", "per-image"],
        typer.Option(
            help="Which photographs share a camera: auto, single, per-folder or per-image.",
            metavar="<str>",
        ),
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of the extraction and of COLMAP; by default one for each core."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Reconstruct a scene with COLMAP from descriptors of KD, SIFT or RootSIFT.

    [bold]Examples[/bold]

        kd-cv colmap photographs --workspace scene

        kd-cv colmap photographs --workspace scene --compare
    """
    from kd_cv.collection import Collection
    from kd_cv.collection.colmap import compare as run_all
    from kd_cv.collection.colmap import reconstruct, table

    names = list(DESCRIPTORS) if compare else [descriptor]
    given = {name: (None, 1) for name in names if name != "kd" and compare}  # weights and views
    extractions = [
        make_extraction(name, *given.get(name, (weights, views)), max_keypoints, max_size)
        for name in names
    ]
    options: dict[str, Any] = {
        "matcher": matcher, "ratio": ratio, "pairs": pairs, "camera": camera, "threads": threads,
        "overwrite": overwrite, "progress": not as_json and sys.stderr.isatty(),
    }  # fmt: skip
    collection = Collection.of(images, root)
    if compare:
        rows = run_all(collection, workspace, extractions, **options)
    else:
        rows = [reconstruct(collection, workspace, extractions[0], **options)]
    if as_json:  # which knows no NaN
        listed = [{k: None if v != v else v for k, v in asdict(row).items()} for row in rows]
        print(json.dumps(listed))
    else:
        print(table(rows))
        folder = workspace / rows[0].descriptor if compare else workspace
        if rows[0].registered:
            print(how_to_open(folder, collection.root))
    for name, reason in rows[0].skipped.items():
        print(printable(f"skipped {name}: {reason}"), file=sys.stderr)
    if rows[0].others:
        print(printable(say_others(rows[0].others)), file=sys.stderr)
    raise typer.Exit(0 if all(row.registered for row in rows) else 1)


def how_to_open(folder: Path, images: Path) -> str:
    """Where the model of a workspace is, and the command that shows it, to be pasted as it is."""
    from kd_cv.collection.colmap import MODEL

    model, database = folder.resolve() / MODEL, folder.resolve() / "database.db"
    options = {"import_path": model, "database_path": database, "image_path": images}
    shown = " ".join(f"--{name} {shlex.quote(str(path))}" for name, path in options.items())
    return f"model: {model}\nopen it: colmap gui {shown}"

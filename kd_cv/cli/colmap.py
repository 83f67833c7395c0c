"""`kd-cv colmap`: a reconstruction."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kd_cv.cli import options
from kd_cv.io.files import printable
from kd_cv.io.images import say_others
from kd_cv.matching.neighbours import RATIO


def command(
    images: options.Images,
    workspace: Annotated[
        Path,
        typer.Option(
            "-o", "--workspace", "--output", help="Folder for features, database and model."
        ),
    ],
    *,
    compare: options.Compare = False,
    descriptor: options.Descriptor = "kd",
    weights: options.Weights = None,
    max_keypoints: options.MaxKeypoints = 8192,
    max_size: options.MaxSize = 3200,
    views: options.Views = 1,
    root: options.Root = None,
    overwrite: options.Overwrite = False,
    matcher: Annotated[
        Literal["kd", "colmap"],
        typer.Option(help="kd: mutual nearest neighbours; colmap: COLMAP's own matcher."),
    ] = "kd",
    ratio: options.Ratio = RATIO,
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
    as_json: options.Json = False,
) -> None:
    """Reconstruct a scene with COLMAP from descriptors of KD, SIFT or RootSIFT.

    [bold]Examples[/bold]

        kd-cv colmap photographs --workspace scene

        kd-cv colmap photographs --workspace scene --compare
    """
    from kd_cv.collection import Collection
    from kd_cv.collection.colmap import MODEL, reconstruct, table
    from kd_cv.collection.colmap import compare as run_all

    how: dict[str, Any] = {
        "matcher": matcher, "ratio": ratio, "pairs": pairs, "camera": camera, "threads": threads,
        "overwrite": overwrite, "progress": not as_json and sys.stderr.isatty(),
    }  # fmt: skip
    collection, sizes = Collection.of(images, root), (max_keypoints, max_size)
    if compare:
        kd = options.make_extraction("kd", weights, views, *sizes)
        others = [options.make_extraction(name, None, 1, *sizes) for name in ("sift", "rootsift")]
        rows = run_all(collection, workspace, [kd, *others], **how)
    else:
        extraction = options.make_extraction(descriptor, weights, views, *sizes)
        rows = [reconstruct(collection, workspace, extraction, **how)]
    if as_json:  # which knows no NaN
        listed = [{k: None if v != v else v for k, v in asdict(row).items()} for row in rows]
        print(json.dumps(listed))
    else:
        print(table(rows))
        if rows[0].registered:
            folder = (workspace / rows[0].descriptor if compare else workspace).resolve()
            model, database = (shlex.quote(str(folder / name)) for name in (MODEL, "database.db"))
            photos = shlex.quote(str(collection.root))
            print(
                f"model: {folder / MODEL}\nopen it: colmap gui --import_path {model} "
                f"--database_path {database} --image_path {photos}"
            )
    for name, reason in rows[0].skipped.items():
        print(printable(f"skipped {name}: {reason}"), file=sys.stderr)
    if rows[0].others:
        print(printable(say_others(rows[0].others)), file=sys.stderr)
    raise typer.Exit(0 if all(row.registered for row in rows) else 1)

"""`kd-cv extract`: the features of a collection, in one file."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from kd_cv.cli import options


def command(
    images: options.Images,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HDF5 file to write.")],
    descriptor: options.Descriptor = "kd",
    weights: options.Weights = None,
    max_keypoints: options.MaxKeypoints = 8192,
    max_size: options.MaxSize = 3200,
    views: options.Views = 1,
    root: options.Root = None,
    overwrite: options.Overwrite = False,
    dtype: Annotated[
        str,
        typer.Option(
            help="Type of the stored descriptors: float16 or float32, which hloc reads; or uint8, "
            "for kd only, which only kd_cv can use."
        ),
    ] = "float16",
    workers: Annotated[
        int | None, typer.Option(help="Number of processes; by default one with many threads.")
    ] = None,
    scheduler: options.Scheduler = None,
    as_json: options.Json = False,
) -> None:
    """Extract the features of a whole collection into one file that hloc reads.

    A run that was stopped continues where it left off. The exit code is 1 if images were skipped.

    [bold]Examples[/bold]

        kd-cv extract photographs -o features.h5

        kd-cv extract "photographs/*.jpg" -o features.h5 --dtype uint8

        kd-cv extract list.txt -o features.h5 --root /photographs --scheduler tcp://host:8786
    """
    from kd_cv.collection import extract as run

    extraction = options.make_extraction(descriptor, weights, views, max_keypoints, max_size, dtype)
    progress = not as_json and sys.stderr.isatty()
    how: dict[str, Any] = {"root": root, "overwrite": overwrite, "progress": progress}
    if scheduler is None:
        summary = run(images, output, extraction, workers=workers, **how)
    elif workers is not None:
        raise ValueError("--workers is for this machine, --scheduler has workers of its own")
    else:
        from kd_cv.collection.cluster import connected
        from kd_cv.collection.cluster import extract as run_on_cluster

        with connected(scheduler) as client:
            summary = run_on_cluster(images, output, extraction, client=client, **how)
    print(json.dumps(asdict(summary), default=str) if as_json else summary)
    raise typer.Exit(summary.exit_code)

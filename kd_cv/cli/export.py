"""`kd-cv export`: the descriptor, or detector and descriptor, as an ONNX file."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kd_cv.cli.options import Dim, Json, Weights
from kd_cv.descriptor.frames import MAGNIFICATION


def command(
    output: Annotated[Path, typer.Option("-o", "--output", help="The ONNX file to write.")],
    image: Annotated[
        bool, typer.Option("--image", help="Take an image and frames instead of patches.")
    ] = False,
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Take an image alone, and detect keypoints.")
    ] = False,
    size: Annotated[
        str | None, typer.Option(help="Height and width of the image, as 480x640; with --pipeline.")
    ] = None,
    keypoints: Annotated[
        int, typer.Option(help="Largest number of keypoints; with --pipeline.")
    ] = 2048,
    patch_size: Annotated[int, typer.Option(help="Samples per side of a patch.")] = 32,
    kernel: Annotated[str, typer.Option(help="Kernel: concat, polar or cart.")] = "concat",
    whitening: Annotated[
        str | None, typer.Option(help="Whitening: best, wm, ws, wus, wua, w, pcasqrt or none.")
    ] = None,
    weights: Weights = None,
    dim: Dim = 128,
    magnification: Annotated[
        float, typer.Option(help="Side of a patch in keypoint sizes; with --image or --pipeline.")
    ] = MAGNIFICATION,
    scales: Annotated[
        int, typer.Option(help="Number of patch sizes to average; with --image or --pipeline.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Write the descriptor as an ONNX file and check it with onnxruntime.

    It takes patches (B, 1, P, P) in 0..1 and gives descriptors (B, D); with --image
    it takes an image (1, 1, H, W) and frames (N, 4): x, y, size, angle; with --pipeline
    it takes an image of one size, and gives keypoints, scores and descriptors.

    [bold]Examples[/bold]

        kd-cv export -o kd.onnx

        kd-cv export -o kd_image.onnx --image --scales 3

        kd-cv export -o kd_480x640.onnx --pipeline --size 480x640
    """
    from rich.console import Console

    from kd_cv.cli.options import check_output
    from kd_cv.cli.tables import foreign_silence
    from kd_cv.nn.export import export_onnx
    from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING

    check_output(output)
    with Console(stderr=True, quiet=as_json).status("Exporting ..."), foreign_silence():
        difference = export_onnx(
            output, image=image, size=_size(pipeline, size), num_features=keypoints,
            magnification=magnification, scales=scales,
            patch_size=patch_size, kernel=kernel, dim=dim, weights=weights or DEFAULT_WEIGHTS,
            whitening=None if whitening == "none" else whitening or DEFAULT_WHITENING,
        )  # fmt: skip
    if as_json:
        print(json.dumps({"output": str(output.resolve()), "difference": difference}))
    else:
        print(f"largest difference to the module: {difference:.2g}")
        print(f"file: {output.resolve()}")


def _size(pipeline: bool, size: str | None) -> tuple[int, int] | None:
    """Parse "480x640" to height and width."""
    if pipeline != (size is not None):
        raise ValueError("--pipeline and --size belong together: --pipeline --size 480x640")
    if size is None:
        return None
    sides = size.lower().split("x")
    if len(sides) != 2 or not all(side.isdecimal() and int(side) >= 16 for side in sides):
        raise ValueError(f"--size must be HxW, each 16 or more, as 480x640, got {size!r}")
    return int(sides[0]), int(sides[1])

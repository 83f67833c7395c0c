"""The options that commands share: one home for the name and the help of each."""

from pathlib import Path
from typing import Annotated

import typer

# What all or many commands take.
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]
Figure = Annotated[Path | None, typer.Option("-o", "--output", help="Draw it: .png, .pdf or .svg.")]
Weights = Annotated[
    str | None, typer.Option(help="Whitening of kd: a shipped name, or a fitted file.")
]
PatchSize = Annotated[int, typer.Option(help="Samples per side of kd's patches.")]
Dim = Annotated[int, typer.Option(help="Dimensions that the whitening keeps.")]
Magnification = Annotated[float, typer.Option(help="Side of a patch in keypoint sizes.")]

# Of two photographs, or of a collection.
Photos = Annotated[
    list[Path] | None,
    typer.Argument(help="Two photographs; none: a built-in one and its warp.", metavar="[A B]"),
]
Images = Annotated[
    str, typer.Argument(help="A folder, a glob pattern in quotes, or a list of names (.txt).")
]
Root = Annotated[
    Path | None,
    typer.Option(help="What the names are relative to; of a list, its own folder by default."),
]
Descriptor = Annotated[str, typer.Option(help="kd, sift or rootsift.")]
Compare = Annotated[
    bool, typer.Option("--compare", help="All three descriptors on the same keypoints.")
]
Detector = Annotated[
    str, typer.Option(help="sift, orb, fast, gftt, mser, ..., as OpenCV has them.")
]
MaxKeypoints = Annotated[int, typer.Option(help="The strongest of each image.")]
MaxSize = Annotated[int, typer.Option(help="Longer side; larger images are reduced.")]
Ratio = Annotated[float, typer.Option(help="Nearest over second nearest distance, at most.")]
Workers = Annotated[
    int | None, typer.Option(help="At a time; as many as there are cores by default.")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Run on Dask: the address of a scheduler, or local for a cluster of processes on "
        "this machine, --workers of them."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Begin anew.")]

# Of an evaluation, where several descriptors stand side by side.
Descriptors = Annotated[
    str,
    typer.Option("--descriptor", help="Of kd, raw, sift, rootsift, kornia:CLASS; by commas."),
]
SeveralWeights = Annotated[
    str | None,
    typer.Option("--weights", help="Matrices of kd: shipped names or files, by commas."),
]
Whitenings = Annotated[
    str | None,
    typer.Option("--whitening", help="Of kd: ws, wus, wua, w, pcasqrt, none; by commas."),
]
Kernels = Annotated[str, typer.Option("--kernel", help="Of kd: concat, polar, cart; by commas.")]
FitWs = Annotated[
    str | None,
    typer.Option(
        help="Fit W_S for what is not whitened and show it too: a folder of photographs or "
        "sequences to fit on, or builtin."
    ),
]
CacheFolder = Annotated[
    Path | None, typer.Option("--cache", help="Folder that keeps the descriptors for next time.")
]
CurveWeights = Annotated[
    str | None,
    typer.Option(
        "--weights", help="Matrices: a shipped name or a file; else the shipped or fitted ones."
    ),
]
CurveData = Annotated[
    Path | None,
    typer.Argument(
        help="A Phototourism set, image sequences or photographs; none: built-in photographs."
    ),
]

"""The options that commands share: one home for the name and the help of each."""

from pathlib import Path
from typing import Annotated

import typer

# What all or many commands take.
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Figure = Annotated[
    Path | None, typer.Option("-o", "--output", help="Draw the result: .png, .pdf or .svg.")
]
Weights = Annotated[
    str | None, typer.Option(help="Matrices that whiten kd: a shipped name, or a file.")
]
PatchSize = Annotated[int, typer.Option(help="Samples per side of kd's patches.")]
Dim = Annotated[int, typer.Option(help="Dimensions that the whitening keeps.")]
Magnification = Annotated[float, typer.Option(help="Side of a patch in keypoint sizes.")]

# What commands on two photographs or on a collection take.
Photos = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Two photographs; without them, a built-in one and its warp.", metavar="[A B]"
    ),
]
Images = Annotated[
    str, typer.Argument(help="A folder, a glob pattern in quotes, or a list of names (.txt).")
]
Root = Annotated[
    Path | None,
    typer.Option(help="Folder that the names are relative to; by default that of the list."),
]
Descriptor = Annotated[str, typer.Option(help="Descriptor: kd, sift or rootsift.")]
Compare = Annotated[
    bool, typer.Option("--compare", help="Compare all three descriptors on the same keypoints.")
]
Detector = Annotated[str, typer.Option(help="Detector of OpenCV: sift, orb, fast, gftt, mser, ...")]
MaxKeypoints = Annotated[
    int, typer.Option(help="How many keypoints of each image, the strongest first.")
]
MaxSize = Annotated[
    int, typer.Option(help="Longer side of an image in pixels; larger images are reduced.")
]
TwoViewModel = Annotated[
    str,
    typer.Option(
        help="What the photographs have in common: homography (one plane), fundamental (a scene), "
        "essential (a scene, and the pose of the camera) or auto."
    ),
]
Focal = Annotated[
    float | None,
    typer.Option(help="Focal length of the camera in pixels; by default what EXIF says."),
]
Ratio = Annotated[
    float,
    typer.Option(
        help="Largest ratio of the distances to the nearest and the second nearest neighbour."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help="How many images are worked on at a time; by default one for each core."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Run on Dask: the address of a scheduler, or local for a cluster of processes on "
        "this machine, --workers of them."
    ),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Begin anew instead of going on with what is there.")
]

# What an evaluation takes, where several descriptors stand side by side.
Descriptors = Annotated[
    str,
    typer.Option(
        "--descriptor",
        help="Descriptors, with commas between: kd, raw (kd without whitening), sift, "
        "rootsift, kornia:CLASS.",
    ),
]
SeveralWeights = Annotated[
    str | None,
    typer.Option(
        "--weights", help="Matrices that whiten kd, with commas between: shipped names or files."
    ),
]
Whitenings = Annotated[
    str | None,
    typer.Option(
        "--whitening",
        help="Whitenings of kd, commas between: best, wm, ws, wus, wua, w, pcasqrt, none.",
    ),
]
Kernels = Annotated[
    str, typer.Option("--kernel", help="Kernels of kd, with commas between: concat, polar, cart.")
]
Seeds = Annotated[int, typer.Option(help="How often the robust estimate is made of each pair.")]
Against = Annotated[
    str | None,
    typer.Option(help="Show by how much the others are above this one, on the same pairs."),
]
FitWs = Annotated[
    str | None,
    typer.Option(
        help="Show what is not whitened also with a W_S that is fitted on this: a folder of "
        "photographs or sequences, or builtin."
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option("--cache", help="Folder in which descriptors are kept for the next time."),
]
CurveWeights = Annotated[
    str | None,
    typer.Option(
        "--weights", help="Matrices: a shipped name or a file; by default the shipped ones."
    ),
]
CurveData = Annotated[
    Path | None,
    typer.Argument(
        help="Folder of a Phototourism set, of sequences or of photographs; without it, "
        "built-in photographs."
    ),
]

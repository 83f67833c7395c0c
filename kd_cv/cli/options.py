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
Detector = Annotated[
    str, typer.Option(help="Detector: dog, ours; or OpenCV's sift, orb, fast, gftt, mser, ...")
]
MaxKeypoints = Annotated[
    int, typer.Option(help="How many keypoints to keep in each image, the strongest first.")
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
    bool, typer.Option("--overwrite", help="Start over instead of continuing from what is there.")
]

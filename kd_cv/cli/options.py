"""Options that commands share, and checks of outputs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

# Of all or many commands.
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Figure = Annotated[
    Path | None, typer.Option("-o", "--output", help="Draw the result: .png, .pdf or .svg.")
]
Weights = Annotated[
    str | None, typer.Option(help="Matrices that whiten kd: a shipped name, or a file.")
]
Dim = Annotated[int, typer.Option(help="Dimensions that the whitening keeps.")]

# Of commands on two photographs or on a collection.
Photos = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Two photographs; without them, a built-in one and its warp.", metavar="A B"
    ),
]
Images = Annotated[
    str, typer.Argument(help="A folder, a glob pattern in quotes, or a list of names (.txt).")
]
Descriptor = Annotated[str, typer.Option(help="Descriptor: kd, sift or rootsift.")]
Compare = Annotated[
    bool, typer.Option("--compare", help="Compare all three descriptors on the same keypoints.")
]
MaxKeypoints = Annotated[
    int, typer.Option(help="How many keypoints to keep in each image, the strongest first.")
]
MaxSize = Annotated[
    int, typer.Option(help="Longer side of an image in pixels; larger images are reduced.")
]
Ratio = Annotated[
    float,
    typer.Option(
        help="Largest ratio of the distances to the nearest and the second nearest neighbour."
    ),
]
Views = Annotated[
    int, typer.Option(help="Synthetic views of each image that kd searches: 1, 3, 5 or 11.")
]
Root = Annotated[
    Path | None,
    typer.Option(help="Folder that the names are relative to; by default that of the list."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Start over instead of continuing an earlier run.")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Run on a Dask cluster: the address of its scheduler, such as tcp://host:8786."
    ),
]

FIGURES = (".png", ".pdf", ".svg")


def make_extraction(
    descriptor: str,
    weights: str | None,
    views: int,
    max_keypoints: int,
    max_size: int,
    dtype: str = "float16",
) -> Any:
    """Make the Extraction of a collection."""
    from kd_cv.collection import Extraction

    plain = weights is None and views == 1
    feature = descriptor if plain else make_feature(descriptor, weights, views)
    return Extraction(feature, max_keypoints, max_size, dtype)


def make_feature(name: str, weights: str | None = None, views: int = 1) -> Any:
    """Make the descriptor of a name."""
    from kd_cv.opencv.kd_descriptor import KDDescriptor
    from kd_cv.opencv.rootsift import as_feature
    from kd_cv.whitening.registry import DEFAULT_WEIGHTS

    if weights is None and views == 1:
        return as_feature(name)
    if name != "kd":
        given = "--weights" if weights else "--views"
        raise ValueError(f"{given} is for the descriptor kd, not for {name}")
    return KDDescriptor(weights=weights or DEFAULT_WEIGHTS, views=views)


def check_output(
    path: Path | None, suffixes: Sequence[str] = (), inputs: Sequence[Path] = ()
) -> None:
    """Check an output before any work: its suffix, its folder, and that it is no input."""
    if path is None:
        return
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"{path}: unknown kind of file, expected {', '.join(suffixes)}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, expected a file to write")
    if not os.access(path.parent, os.W_OK):
        raise OSError(f"cannot write in {path.parent}")
    if path.exists() and any(os.path.samefile(path, given) for given in inputs if given.exists()):
        raise ValueError(f"{path} is one of the photographs: it would be overwritten")

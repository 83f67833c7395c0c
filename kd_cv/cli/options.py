"""Options that commands share: the name and the help of each, and checks of outputs.

An option is annotated with its type and its help, and its names if it is not called after the
parameter. Those that belong together are the fields of a class; a command has a parameter for the
group, and its help lists them in the place of that parameter.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

# Of all or many commands.
Json = Annotated[bool, "Print one JSON object and nothing else.", "--json"]
Figure = Annotated[Path | None, "Draw the result: .png, .pdf or .svg.", "-o", "--output"]
Weights = Annotated[str | None, "Matrices that whiten kd: a shipped name, or a file."]
PatchSize = Annotated[int, "Samples per side of kd's patches."]
Dim = Annotated[int, "Dimensions that the whitening keeps."]
Magnification = Annotated[float, "Side of a patch in keypoint sizes."]

# Of commands on two photographs or on a collection.
Photos = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Two photographs; without them, a built-in one and its warp.", metavar="[A B]"
    ),
]
Images = Annotated[
    str, typer.Argument(help="A folder, a glob pattern in quotes, or a list of names (.txt).")
]
Descriptor = Annotated[str, "Descriptor: kd, sift or rootsift."]
Compare = Annotated[bool, "Compare all three descriptors on the same keypoints.", "--compare"]
MaxKeypoints = Annotated[int, "How many keypoints to keep in each image, the strongest first."]
MaxSize = Annotated[int, "Longer side of an image in pixels; larger images are reduced."]
Ratio = Annotated[
    float, "Largest ratio of the distances to the nearest and the second nearest neighbour."
]
Scheduler = Annotated[
    str | None, "Run on a Dask cluster: the address of its scheduler, such as tcp://host:8786."
]

FIGURES = (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class Extracting:
    """How the features of a collection are extracted, and where a run begins."""

    descriptor: Descriptor = "kd"
    weights: Weights = None
    max_keypoints: MaxKeypoints = 8192
    max_size: MaxSize = 3200
    views: Annotated[int, "Synthetic views of each image that kd searches: 1, 3, 5 or 11."] = 1
    root: Annotated[
        Path | None, "Folder that the names are relative to; by default that of the list."
    ] = None
    overwrite: Annotated[
        bool, "Start over instead of continuing from what is there.", "--overwrite"
    ] = False
    as_json: Json = False

    @property
    def progress(self) -> bool:
        """Whether stderr is a terminal that may show progress."""
        return not self.as_json and sys.stderr.isatty()

    def extraction(self, dtype: str = "float16") -> Any:
        """The Extraction that the options name."""
        from kd_cv.collection import Extraction

        named: Any = self.descriptor
        if self.weights or self.views != 1:
            named = make_feature(self.descriptor, self.weights, self.views)
        return Extraction(named, self.max_keypoints, self.max_size, dtype)


def make_feature(name: str, weights: str | None = None, views: int = 1) -> Any:
    """The descriptor of a name; `weights` replaces the matrices of "kd"."""
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
    """Refuse, before any work, an output of another kind, that cannot be written, or an input."""
    if path is None:
        return
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"{path}: unknown kind of file, expected {', '.join(suffixes)}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, expected a file to write")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"cannot write in {path.parent}: {error.strerror}") from error
    for given in inputs:
        if path.exists() and given.exists() and os.path.samefile(path, given):
            raise ValueError(f"{path} is one of the photographs: it would be overwritten")

"""The options that commands share: one home for the name and the help of each.

An option is annotated with its type and its help, and its names if it is not called after the
parameter. Those that belong together are the fields of a class; a command has a parameter for the
group, and its help lists them in the place of that parameter.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from kd_cv.opencv.kd_descriptor import KDDescriptor
from kd_cv.opencv.rootsift import as_feature

# What all or many commands take.
Json = Annotated[bool, "Print one JSON object and nothing else.", "--json"]
Figure = Annotated[Path | None, "Draw the result: .png, .pdf or .svg.", "-o", "--output"]
Weights = Annotated[str | None, "Matrices that whiten kd: a shipped name, or a file."]
PatchSize = Annotated[int, "Samples per side of kd's patches."]
Dim = Annotated[int, "Dimensions that the whitening keeps."]
Magnification = Annotated[float, "Side of a patch in keypoint sizes."]

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
Descriptor = Annotated[str, "Descriptor: kd, sift or rootsift."]
Compare = Annotated[bool, "Compare all three descriptors on the same keypoints.", "--compare"]
MaxKeypoints = Annotated[int, "How many keypoints to keep in each image, the strongest first."]
MaxSize = Annotated[int, "Longer side of an image in pixels; larger images are reduced."]
Ratio = Annotated[
    float, "Largest ratio of the distances to the nearest and the second nearest neighbour."
]
Scheduler = Annotated[
    str | None,
    "Run on Dask: the address of a scheduler, or local for a cluster of processes on "
    "this machine, --workers of them.",
]


@dataclass(frozen=True)
class Extracting:
    """What is extracted from the photographs of a collection, and where a run begins."""

    descriptor: Descriptor = "kd"
    weights: Weights = None
    max_keypoints: MaxKeypoints = 8192
    max_size: MaxSize = 3200
    root: Annotated[
        Path | None, "Folder that the names are relative to; by default that of the list."
    ] = None
    overwrite: Annotated[
        bool, "Start over instead of continuing from what is there.", "--overwrite"
    ] = False
    as_json: Json = False

    @property
    def progress(self) -> bool:
        """Whether somebody looks on."""
        return not self.as_json and sys.stderr.isatty()

    def extraction(self, dtype: str = "float16") -> Any:
        """The Extraction that the options name."""
        from kd_cv.collection import Extraction

        named = make_feature(self.descriptor, self.weights) if self.weights else self.descriptor
        return Extraction(named, self.max_keypoints, self.max_size, dtype)


def make_feature(name: str, weights: str | None = None) -> Any:
    """The descriptor of a name; `weights` replaces the matrices of "kd"."""
    if weights is None:
        return as_feature(name)
    if name != "kd":
        raise ValueError(f"--weights is for the descriptor kd, not for {name}")
    return KDDescriptor(weights=weights)


LAST = ("cache", "as_json")  # in the help of every command


def _with_help(annotation: Any) -> Any:
    """Annotated[type, help, names...] in the words of typer."""
    help_, *names = getattr(annotation, "__metadata__", [None])
    if not isinstance(help_, str):
        return annotation
    return Annotated[annotation.__origin__, typer.Option(*names, help=help_)]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command as typer reads it: with the options of a group in place of the group."""
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            # Not by typing.get_type_hints: Python 3.10 adds another | None to what is None by
            # default.
            options += [
                parameter.replace(name=field.name, default=field.default, annotation=field.type)
                for field in fields(parameter.annotation)
            ]
        else:
            options.append(parameter)

    @wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**made, **given)

    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            option.replace(
                kind=inspect.Parameter.KEYWORD_ONLY, annotation=_with_help(option.annotation)
            )
            for option in sorted(options, key=lambda option: option.name in LAST)
        ]
    )
    called.__annotations__ = {}
    return called

"""Options that the protocols share: which descriptors are compared, and how."""

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.protocols.candidates import COMPARED, Candidate, make_candidates, with_ws
from experiments.protocols.pairs import SEEDS
from experiments.protocols.readers import builtin_scenes, is_phototourism, scenes_of
from kd_cv.matching.neighbours import RATIO
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING


def make_parser(command: Callable[..., Any]) -> argparse.ArgumentParser:
    """A parser named after the command, with its docstring as the description."""
    return argparse.ArgumentParser(
        f"python -m experiments {command.__name__}",
        description=inspect.getdoc(command),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def words(text: str) -> list[str]:
    """Words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def add_comparison(parser: argparse.ArgumentParser) -> None:
    """Which descriptors stand side by side."""
    add = parser.add_argument
    add(
        "--descriptor",
        type=words,
        default=list(COMPARED),
        metavar="NAMES",
        help="kd, raw (kd without whitening), sift, rootsift, kornia:CLASS",
    )
    add(
        "--weights",
        type=words,
        default=[DEFAULT_WEIGHTS],
        metavar="NAMES",
        help="matrices that whiten kd: shipped names or files",
    )
    add(
        "--whitening",
        type=words,
        default=[DEFAULT_WHITENING],
        metavar="NAMES",
        help="best, wm, ws, wus, wua, w, pcasqrt, none",
    )
    add("--kernel", type=words, default=["concat"], metavar="NAMES", help="concat, polar, cart")
    add(
        "--patch-size",
        type=int,
        help="samples per side; by default 32 for images, 64 for ready-made patches",
    )
    add("--dim", type=int, default=128, help="dimensions that the whitening keeps")
    add(
        "--fit-ws",
        metavar="FOLDER",
        help="also show each descriptor that is not whitened with a W_S fitted on this: a folder "
        "of photographs or sequences, or builtin",
    )
    add("--cache", type=Path, help="folder that keeps descriptors for the next run")
    add_json(parser)  # fmt: skip


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )


def add_figure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, help="draw the result: .png, .pdf or .svg")


def add_measure(parser: argparse.ArgumentParser) -> None:
    """How pairs of images are matched."""
    add = parser.add_argument
    add("--ratio", type=float, default=RATIO, help="largest ratio of the distances of a match")
    add("--seeds", type=int, default=SEEDS, help="robust estimates made for each pair")
    add("--against", help="show the gain of the others over this one, on the same pairs")


def chosen_candidates(args: argparse.Namespace, **settings: Any) -> list[Candidate]:
    """The candidates that the options of `add_comparison` name."""
    return make_candidates(
        args.descriptor,
        weights=args.weights,
        whitening=[None if name == "none" else name for name in args.whitening],
        kernels=args.kernel,
        patch_size=args.patch_size,
        dim=args.dim,
        **settings,
    )


def add_ws(
    args: argparse.Namespace,
    candidates: list[Candidate],
    patches: tuple[int, float] | None = None,
    jitter: Any = None,
) -> list[Candidate]:
    """With --fit-ws, each candidate that is not whitened followed by itself with W_S.

    patches, jitter: those of `candidates.with_ws` and of `scenes_of`.
    """
    if args.fit_ws is None:
        return candidates
    if args.fit_ws == "builtin":
        scenes = builtin_scenes(jitter=jitter)
    elif is_phototourism(args.fit_ws):
        raise ValueError(f"--fit-ws takes photographs or sequences, {args.fit_ws} holds patches")
    else:
        scenes = list(scenes_of(args.fit_ws, jitter))
    shown = []
    for candidate in candidates:
        shown.append(candidate)
        if "+" not in candidate.kind:
            shown.append(with_ws(candidate, scenes, patches=patches, dim=args.dim))
    return shown

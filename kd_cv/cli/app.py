"""The commands of `kd-cv`. Each imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="kd-cv",
    help="Kernel local descriptors: match photographs, and see why they match.",
    epilog="Try it: kd-cv match -o matches.png",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
#: What typer raises for a command line that it cannot read.
usage_error: Any = typer.BadParameter.__base__

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")]


@app.callback()
def _app(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; anywhere on the line.")
    ] = False,
) -> None:
    """Kernel local descriptors: match photographs, and see why they match.

    Exit codes: 0 done, 1 nothing found, 2 bad input, 3 an error of kd_cv itself.
    """


@app.command()
def match(
    photos: Annotated[
        list[Path] | None,
        typer.Argument(help="Two photographs; none: a built-in one and its warp.", metavar="[A B]"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Draw the matches: .png, .jpg, ...")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write one HTML page to explore the matches in.")
    ] = None,
    save_homography: Annotated[
        Path | None, typer.Option(help="Write H_0to1: .txt, .npy or .json.")
    ] = None,
    descriptor: Annotated[str, typer.Option(help="kd, sift or rootsift.")] = "kd",
    compare: Annotated[
        bool, typer.Option("--compare", help="All three descriptors on the same keypoints.")
    ] = False,
    detector: Annotated[
        str, typer.Option(help="sift, orb, fast, gftt, mser, ..., as OpenCV has them.")
    ] = "sift",
    weights: Annotated[
        str | None, typer.Option(help="Whitening of kd: a shipped name, or a fitted file.")
    ] = None,
    ratio: Annotated[
        float, typer.Option(help="Nearest over second nearest distance, at most.")
    ] = 0.85,
    threshold: Annotated[float, typer.Option(help="Of inliers, in pixels of B.")] = 3.0,
    max_keypoints: Annotated[int, typer.Option(help="The strongest of each image.")] = 5000,
    as_json: Json = False,
) -> None:
    """Match two photographs and find the homography between them.

    Without photographs it shows itself on a built-in one and its turned, dark, noisy copy.

    [bold]Examples[/bold]

        kd-cv match -o matches.png

        kd-cv match left.jpg right.jpg -o matches.png --save-homography H.txt

        kd-cv match left.jpg right.jpg --compare -o compared.png

        kd-cv match left.jpg right.jpg --report report.html

        kd-cv match left.jpg right.jpg --json | jq .inliers

    The exit code is 1, with the picture drawn, if no homography can be believed:
    fewer than 4 matches, or no more inliers than chance gives.
    With --compare, the one of --descriptor decides.
    """
    from kd_cv.cli.match import match_command
    from kd_cv.cli.matcher import Options

    options = Options(detector, ratio, threshold, max_keypoints, weights)
    raise typer.Exit(
        match_command(
            photos or (), output, report, save_homography, descriptor, compare, options, as_json
        )
    )

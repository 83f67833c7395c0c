"""`kd-cv match`: two photographs, their matches, the homography, and a picture of it."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import cv2
import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from kd_cv.cli.images import Image, check_count, load_pair
from kd_cv.cli.matcher import Answer, Options, make_feature, run
from kd_cv.cli.options import (
    Compare,
    Descriptor,
    Detector,
    Json,
    MaxKeypoints,
    Photos,
    Ratio,
    Weights,
)
from kd_cv.cli.outputs import check_picture, check_writable
from kd_cv.descriptor.frames import as_gray
from kd_cv.draw.matches import draw_matches
from kd_cv.evaluate.metrics import homography_corner_error
from kd_cv.io.files import replacing
from kd_cv.matching import DESCRIPTORS, RATIO, STEPS

ROW_HEIGHTS = (720, 480)  # of a picture with one row, and with several
HOMOGRAPHY_SUFFIXES = (".txt", ".npy", ".json")


def command(
    photos: Photos = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Draw the matches in a picture: .png, .jpg, ..."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write one HTML page to explore the matches in.")
    ] = None,
    save_homography: Annotated[
        Path | None, typer.Option(help="Write the homography from A to B: .txt, .npy or .json.")
    ] = None,
    descriptor: Descriptor = "kd",
    compare: Compare = False,
    detector: Detector = "dog",
    weights: Weights = None,
    ratio: Ratio = RATIO,
    threshold: Annotated[
        float,
        typer.Option(
            help="How far an inlier may be from where the homography says, in pixels of B."
        ),
    ] = 3.0,
    max_keypoints: MaxKeypoints = 5000,
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
    photos = photos or []
    options = Options(detector, ratio, threshold, max_keypoints, weights)
    make_feature(descriptor, options.weights)
    _check_outputs(photos, output, report, save_homography)
    image0, image1, names, H_true = load_pair(photos)
    gray0, gray1 = as_gray(image0), as_gray(image1)
    with Console(stderr=True, quiet=as_json).status("Matching ...") as status:
        answers = {}
        for name in DESCRIPTORS if compare else (descriptor,):
            status.update(f"Matching with {DESCRIPTORS[name]} ...")
            answers[name] = run(name, gray0, gray1, options)
        chosen = answers[descriptor]
        status.update("Drawing ...")
        if output:
            _write_picture(output, image0, image1, list(answers.values()))
        if report:
            from kd_cv.draw.report import write_report

            write_report(
                report, image0, image1, chosen.result,
                names=names, descriptor=chosen.feature, title=DESCRIPTORS[descriptor],
                ratio=options.ratio, threshold=options.threshold,
                compared={DESCRIPTORS[name]: (own.result, own.feature)
                          for name, own in answers.items()},
            )  # fmt: skip
    if save_homography and chosen.result.success:
        _write_homography(save_homography, chosen.result.H_0to1)

    if as_json:
        content = summary(chosen)
        if compare:
            content["compare"] = {name: summary(answer) for name, answer in answers.items()}
        print(json.dumps(content))
    else:
        _print(answers, chosen, image0, H_true, options)
        _print_files(output, report, save_homography if chosen.result.success else None)
    if not chosen.result.success:
        print(f"kd-cv: {failure(chosen)}", file=sys.stderr)
        raise typer.Exit(1)


def summary(answer: Answer) -> dict[str, Any]:
    """What --json prints: H_0to1 is null where success is false."""
    result = answer.result
    return {
        "descriptor": answer.name,
        "keypoints": [len(result.keypoints0), len(result.keypoints1)],
        "matches": len(result.matches),
        "inliers": int(result.inliers.sum()),
        "success": bool(result.success),
        "H_0to1": _rows(result.H_0to1) if result.success else None,
        "seconds": round(sum(answer.seconds.values()), 6),
        "steps": {step: round(answer.seconds[step], 6) for step in STEPS},
    }


def failure(answer: Answer) -> str:
    """Why there is no homography, in one line."""
    matches, inliers = len(answer.result.matches), int(answer.result.inliers.sum())
    if matches < 4:
        return f"no homography: {matches} matches, at least 4 are needed (a larger --ratio?)"
    return f"no homography: {inliers} inliers of {matches} matches are no more than chance gives"


def _check_outputs(photos: Sequence[Path], *outputs: Path | None) -> None:
    """Refuse before any work what could not be written after it."""
    check_count(photos)
    picture, _, homography = outputs
    if picture:
        check_picture(picture)
    if homography and homography.suffix not in HOMOGRAPHY_SUFFIXES:
        kinds = ", ".join(HOMOGRAPHY_SUFFIXES)
        raise ValueError(f"{homography}: unknown kind of file, expected {kinds}")
    for path in filter(None, outputs):
        check_writable(path, photos)


def _write_picture(path: Path, image0: Image, image1: Image, answers: Sequence[Answer]) -> None:
    results = {DESCRIPTORS[answer.name]: answer.result for answer in answers}
    sheet = draw_matches(image0, image1, results, ROW_HEIGHTS[len(results) > 1])
    encoded = cv2.imencode(path.suffix, sheet)[1]
    with replacing(path) as temporary:
        temporary.write_bytes(encoded.tobytes())


def _write_homography(path: Path, H_0to1: Any) -> None:
    with replacing(path) as temporary:
        if path.suffix == ".npy":
            np.save(temporary, H_0to1)
        elif path.suffix == ".json":
            temporary.write_text(json.dumps({"H_0to1": _rows(H_0to1)}) + "\n")
        else:
            np.savetxt(temporary, H_0to1, fmt="%.12g")


def _rows(H_0to1: Any) -> list[list[float]]:
    return [[float(value) for value in row] for row in H_0to1]


def _print(
    answers: dict[str, Answer],
    chosen: Answer,
    image0: Image,
    H_true: NDArray[np.float64] | None,
    options: Options,
) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for answer in answers.values():
        table.add_column(DESCRIPTORS[answer.name], justify="right", style="bold")
    results = [answer.result for answer in answers.values()]
    table.add_row("keypoints", *(f"{len(r.keypoints0)} + {len(r.keypoints1)}" for r in results))
    table.add_row("matches", *(str(len(r.matches)) for r in results))
    table.add_row("inliers", *(str(int(r.inliers.sum())) for r in results))
    table.add_row("homography", *("found" if r.success else "not found" for r in results))
    if H_true is not None:
        errors = [homography_corner_error(r.H_0to1, H_true, image0.shape) for r in results]
        table.add_row("its corner error", *(f"{error:.2f} px" for error in errors))
    table.add_section()
    for step in STEPS:
        label = f"{step} ({options.detector})" if step == "detect" else step
        table.add_row(label, *(_ms(a.seconds[step]) for a in answers.values()), style="dim")
    table.add_row("total", *(_ms(sum(a.seconds.values())) for a in answers.values()))
    console.print(table)
    if chosen.result.success and chosen.result.H_0to1 is not None:
        console.print("\nH_0to1, from the first image to the second:")
        for row in chosen.result.H_0to1:
            console.print("  " + " ".join(f"{value:13.6g}" for value in row))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def _print_files(output: Path | None, report: Path | None, homography: Path | None) -> None:
    print()
    for what, path in (("homography", homography), ("report", report), ("picture", output)):
        if path:
            print(f"{what}: {path.resolve()}")
    if not output and not report:
        print("-o matches.png draws the matches, --report report.html makes a page of them")

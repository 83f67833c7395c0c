"""`kd-cv match`: two photographs, their matches, what they have in common, and a picture of it."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from kd_cv.cli.images import Image, Pair, check_count, load_pair
from kd_cv.cli.matcher import Answer, Options, make_feature, run
from kd_cv.cli.options import (
    Compare,
    Descriptor,
    Detector,
    Focal,
    Json,
    MaxKeypoints,
    MaxSize,
    Photos,
    Ratio,
    TwoViewModel,
    Weights,
)
from kd_cv.cli.outputs import check_picture, check_writable
from kd_cv.evaluate.metrics import homography_corner_error
from kd_cv.features import DESCRIPTORS
from kd_cv.io.files import replacing
from kd_cv.matching import STEPS, MatchResult, named_failure
from kd_cv.models import NAMES
from kd_cv.neighbours import RATIO
from kd_cv.pictures.matches import draw_matches, write_picture

ROW_HEIGHTS = (720, 480)  # of a picture with one row, and with several
#: What `auto` took, in a sentence.
SAID = {
    "homography": "One plane, or a camera that only turned: off it, a match need not be wrong.",
    "fundamental": "A scene with depth: an outlier is off its epipolar line.",
    "essential": "A scene with depth, seen by known cameras: an outlier is off its epipolar line.",
}
MATRICES = {
    "H_0to1": "from the first image to the second",
    "F_0to1": "x1^T F x0 = 0 for pixels of both",
    "R_0to1": "how the camera turned: X1 = R X0 + t",
    "t_0to1": "where it went, of unit length",
}
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
        float, typer.Option(help="How far an inlier may be from where the model says, in pixels.")
    ] = 3.0,
    model: TwoViewModel = "auto",
    focal: Focal = None,
    max_keypoints: MaxKeypoints = 5000,
    max_size: MaxSize = 3200,
    as_json: Json = False,
) -> None:
    """Match two photographs and find what they have in common: one plane, or a scene.

    Without photographs, it takes a built-in one and a turned, darkened, noisy copy of it.

    [bold]Examples[/bold]

        kd-cv match -o matches.png

        kd-cv match left.jpg right.jpg -o matches.png --save-homography H.txt

        kd-cv match left.jpg right.jpg --compare -o compared.png

        kd-cv match left.jpg right.jpg --report report.html

        kd-cv match left.jpg right.jpg --model essential --focal 1200

        kd-cv match left.jpg right.jpg --json | jq .inliers

    The exit code is 1 if the result cannot be trusted: too few matches, or no more
    inliers than chance would give. The picture is drawn all the same.
    --save-homography implies --model homography.
    With --compare, --descriptor says which result decides.
    """
    photos = photos or []
    if save_homography and model == "auto":
        model = "homography"
    options = Options(detector, ratio, threshold, max_keypoints, weights, model, focal, max_size)
    make_feature(descriptor, options.weights)
    _check_outputs(photos, output, report, save_homography)
    if save_homography and model != "homography":
        raise ValueError(f"--save-homography is for --model homography, got {model}")
    pair = load_pair(photos)
    image0, image1 = pair.image0, pair.image1
    with Console(stderr=True, quiet=as_json).status("Matching ...") as status:
        answers = {}
        for name in DESCRIPTORS if compare else (descriptor,):
            status.update(f"Matching with {DESCRIPTORS[name]} ...")
            answers[name] = run(name, pair, options)
        chosen = answers[descriptor]
        status.update("Drawing ...")
        if output:
            _write_picture(output, image0, image1, list(answers.values()))
        if report:
            from kd_cv.draw.report import write_report

            results = {
                DESCRIPTORS[name]: (answer.result, answer.feature)
                for name, answer in {descriptor: chosen, **answers}.items()
            }
            write_report(
                report, image0, image1, results,
                names=pair.names, ratio=options.ratio, threshold=options.threshold,
            )  # fmt: skip
    if save_homography and chosen.result.success:
        _write_homography(save_homography, chosen.result.H_0to1)

    if as_json:
        content = summary(chosen)
        if compare:
            content["compare"] = {name: summary(answer) for name, answer in answers.items()}
        print(json.dumps(content))
    else:
        _print(answers, chosen, pair, options)
        _print_files(output, report, save_homography if chosen.result.success else None)
    if not chosen.result.success:
        print(f"kd-cv: {failure(chosen, pair.names)}", file=sys.stderr)
        raise typer.Exit(1)


def summary(answer: Answer) -> dict[str, Any]:
    """What --json prints: matrices are null where success is false."""
    result = answer.result
    matrices = {
        name: getattr(result, name).tolist()
        if result.success and getattr(result, name) is not None
        else None
        for name in ("H_0to1", "F_0to1", "E_0to1", "R_0to1", "t_0to1")
    }
    return {
        "descriptor": answer.name,
        "keypoints": [len(result.keypoints0), len(result.keypoints1)],
        "matches": len(result.matches),
        "inliers": int(result.inliers.sum()),
        "success": bool(result.success),
        "model": result.model,
        **matrices,
        "seconds": round(sum(answer.seconds.values()), 6),
        "steps": {step: round(answer.seconds[step], 6) for step in STEPS},
    }


def failure(answer: Answer, names: tuple[str, str]) -> str:
    """Why nothing was found, in one line, with the names of the photographs."""
    why = named_failure(answer.result, names).replace("a larger ratio?", "a larger --ratio?")
    return f"no {NAMES[answer.result.model]}: {why}"


def _check_outputs(photos: Sequence[Path], *outputs: Path | None) -> None:
    """Refuse, before any work is done, an output that could not be written."""
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
    write_picture(path, sheet)


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


def _print(answers: dict[str, Answer], chosen: Answer, pair: Pair, options: Options) -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for answer in answers.values():
        table.add_column(DESCRIPTORS[answer.name], justify="right", style="bold")
    results = [answer.result for answer in answers.values()]
    table.add_row("keypoints", *(f"{len(r.keypoints0)} + {len(r.keypoints1)}" for r in results))
    table.add_row("matches", *(str(len(r.matches)) for r in results))
    table.add_row("inliers", *(str(int(r.inliers.sum())) for r in results))
    models = {result.model for result in results}
    title = NAMES[models.pop()] if len(models) == 1 else "found"
    table.add_row(
        title, *("found" if r.success and title != "found" else _taken(r) for r in results)
    )
    if pair.H_true is not None:
        shape = pair.image0.shape
        errors = [homography_corner_error(r.H_0to1, pair.H_true, shape) for r in results]
        table.add_row("its corner error", *(f"{error:.2f} px" for error in errors))
    table.add_section()
    for step in STEPS:
        label = f"{step} ({options.detector})" if step == "detect" else step
        table.add_row(label, *(_ms(a.seconds[step]) for a in answers.values()), style="dim")
    table.add_row("total", *(_ms(sum(a.seconds.values())) for a in answers.values()))
    console.print(table)
    result = chosen.result
    if not result.success:
        return
    if options.model == "auto":
        console.print(f"\n{SAID[result.model]}")
    for name, what in MATRICES.items():
        matrix = getattr(result, name)
        if matrix is not None and not (name == "F_0to1" and result.E_0to1 is not None):
            console.print(f"\n{name}, {what}:")
            for row in np.atleast_2d(matrix):
                console.print("  " + " ".join(f"{value:13.6g}" for value in row))


def _taken(result: MatchResult) -> str:
    return NAMES[result.model] if result.success else "not found"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def _print_files(output: Path | None, report: Path | None, homography: Path | None) -> None:
    print()
    for what, path in (("homography", homography), ("report", report), ("picture", output)):
        if path:
            print(f"{what}: {path.resolve()}")
    if not output and not report:
        print("-o matches.png draws the matches, --report report.html makes a page of them")

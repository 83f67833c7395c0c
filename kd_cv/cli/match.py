"""`kd-cv match`: two photographs, their matches, a two-view model, and a picture."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console

from kd_cv.cli.options import (
    Compare,
    Descriptor,
    Json,
    MaxKeypoints,
    MaxSize,
    Photos,
    Weights,
    check_output,
    make_feature,
)
from kd_cv.cli.pair import Answer, Options, Pair, load_pair, run
from kd_cv.cli.tables import print_table
from kd_cv.io.files import printable, replacing
from kd_cv.matching.pipeline import STEPS
from kd_cv.matching.result import named_failure
from kd_cv.matching.two_view import NAMES, WORDS
from kd_cv.opencv.rootsift import DESCRIPTORS

ROW_HEIGHTS = (720, 480)  # of a picture with one row, and with several
#: Explanations of the model that `--model auto` has chosen.
SAID = {
    "homography": "One plane, or a camera that only turned; a match off it need not be wrong.",
    "fundamental": "A scene with depth: an outlier is off its epipolar line.",
    "essential": "A scene with depth, seen by known cameras: an outlier is off its epipolar line.",
}
MATRICES = {
    "H_0to1": "from the first image to the second",
    "F_0to1": "x1^T F x0 = 0 for pixels of both",
    "R_0to1": "rotation of the camera: X1 = R X0 + t",
    "t_0to1": "translation, of unit length",
}


def command(
    photos: Photos = None,
    *,
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
    matches: Annotated[
        Path | None,
        typer.Option(help="Write the matches: points, ratios and inliers, .npz or .txt."),
    ] = None,
    descriptor: Descriptor = "kd",
    compare: Compare = False,
    weights: Weights = None,
    detector: Annotated[
        str, typer.Option(help="Detector: dog, or OpenCV's sift, orb, fast, gftt, mser, ...")
    ] = "dog",
    max_keypoints: MaxKeypoints = 5000,
    max_size: MaxSize = 3200,
    ratio: Annotated[
        float | None,
        typer.Option(
            help="Largest ratio of the distances to the nearest neighbour and to the nearest at "
            "another place; by default 0.85 for kd, 0.8 for sift and rootsift."
        ),
    ] = None,
    model: Annotated[
        Literal["auto", "homography", "fundamental", "essential"],
        typer.Option(
            help="Two-view model: homography (one plane), fundamental (a scene), essential (a "
            "scene, and the pose of the camera) or auto.",
            metavar="<str>",
        ),
    ] = "auto",
    threshold: Annotated[
        float, typer.Option(help="Largest distance of an inlier from the model, in pixels.")
    ] = 3.0,
    views: Annotated[
        str,
        typer.Option(
            help="Synthetic views of each photograph that kd searches: 1, 3, 5 or 11; auto "
            "searches more views if there are few inliers."
        ),
    ] = "auto",
    focal: Annotated[
        float | None,
        typer.Option(help="Focal length of the camera in pixels; by default from EXIF."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Match two photographs and estimate a two-view model: one plane, or a scene.

    Without photographs, it uses a built-in one and a rotated, darkened, noisy copy.

    [bold]Examples[/bold]

        kd-cv match -o matches.png

        kd-cv match left.jpg right.jpg -o matches.png --save-homography H.txt

        kd-cv match left.jpg right.jpg --compare -o compared.png

        kd-cv match left.jpg right.jpg --report report.html

        kd-cv match left.jpg right.jpg --model essential --focal 1200

        kd-cv match left.jpg right.jpg --matches matches.npz

        kd-cv match left.jpg right.jpg --json | jq .inliers

    The exit code is 1 if there are too few matches or inliers; the picture is still drawn.
    --save-homography implies --model homography.
    With --compare, --descriptor says which result decides.
    """
    photos = photos or []
    if save_homography and model == "auto":
        model = "homography"
    options = Options(
        weights, detector, max_keypoints, max_size, ratio, model, threshold, views, focal
    )
    make_feature(descriptor, options.weights)
    if output:
        from kd_cv.viz.matches import check_suffix

        check_suffix(output)
    check_output(output, inputs=photos)
    check_output(matches, (".npz", ".txt"), photos)
    check_output(report, inputs=photos)
    check_output(save_homography, (".txt", ".npy", ".json"), photos)
    if save_homography and model != "homography":
        raise ValueError(f"--save-homography is for --model homography, got {model}")
    pair = load_pair(photos)
    images = pair.image0, pair.image1
    with Console(stderr=True, quiet=as_json).status("Matching ...") as status:
        answers = {}
        for name in DESCRIPTORS if compare else (descriptor,):
            answers[name] = run(name, pair, options, status.update)
        chosen = answers[descriptor]
        status.update("Drawing ...")
        if output:
            _draw(output, images, answers)
        if report:
            from kd_cv.report import write_report

            described = {
                DESCRIPTORS[name]: (answer.result, answer.feature)
                for name, answer in {descriptor: chosen, **answers}.items()
            }
            write_report(
                report, *images, described,
                names=pair.names, threshold=options.threshold,
            )  # fmt: skip
    if save_homography and chosen.result.success:
        _write_homography(save_homography, chosen.result.H_0to1)

    if matches:
        chosen.result.save(matches)

    if as_json:
        content = {**summary(chosen), **points(chosen)}
        if compare:
            content["compare"] = {name: summary(answer) for name, answer in answers.items()}
        print(json.dumps(content))
    else:
        _print(answers, chosen, pair, options)
        written = save_homography if chosen.result.success else None
        print()
        files = {"homography": written, "matches": matches, "report": report, "picture": output}
        for what, file in files.items():
            if file:
                print(f"{what}: {printable(str(file.resolve()))}")
        if not output and not report:
            print("-o matches.png draws the matches, --report report.html makes a page of them")
    if not chosen.result.success:
        why = named_failure(chosen.result, pair.names)
        why = why.replace("a larger ratio?", "a larger --ratio?")
        print(printable(f"kd-cv: no {NAMES[chosen.result.model]}: {why}"), file=sys.stderr)
        raise typer.Exit(1)


def summary(answer: Answer) -> dict[str, Any]:
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
        "views": result.views,
        **matrices,
        "seconds": round(sum(answer.seconds.values()), 6),
        "steps": {step: round(answer.seconds[step], 6) for step in STEPS},
    }


def _draw(output: Path, images: tuple[Any, Any], answers: dict[str, Answer]) -> None:
    from kd_cv.viz.matches import draw_matches, write_picture

    results = {DESCRIPTORS[name]: answer.result for name, answer in answers.items()}
    models = {result.model for result in results.values()}
    found = any(result.success for result in results.values())
    words = WORDS[models.pop()] if len(models) == 1 and found else ("", "")
    write_picture(output, draw_matches(*images, results, ROW_HEIGHTS[len(results) > 1], words))


def points(answer: Answer) -> dict[str, Any]:
    result = answer.result
    return {
        "points0": result.points0.round(3).tolist(),
        "points1": result.points1.round(3).tolist(),
        "ratios": result.ratios.astype(float).round(5).tolist(),
        "is_inlier": result.inliers.tolist(),
    }


def _write_homography(path: Path, H_0to1: Any) -> None:
    with replacing(path) as temporary:
        if path.suffix == ".npy":
            np.save(temporary, H_0to1)
        elif path.suffix == ".json":
            temporary.write_text(json.dumps({"H_0to1": H_0to1.tolist()}) + "\n")
        else:
            np.savetxt(temporary, H_0to1, fmt="%.12g")


def _print(answers: dict[str, Answer], chosen: Answer, pair: Pair, options: Options) -> None:
    results = [answer.result for answer in answers.values()]
    models = {result.model for result in results}
    title = NAMES[models.pop()] if len(models) == 1 else "found"
    found = [
        (NAMES[r.model] if title == "found" else "found") if r.success else "not found"
        for r in results
    ]
    rows = [
        ["keypoints", *(f"{len(r.keypoints0)} + {len(r.keypoints1)}" for r in results)],
        ["matches", *(str(len(r.matches)) for r in results)],
        ["inliers", *(str(int(r.inliers.sum())) for r in results)],
        [title, *found],
    ]
    if pair.H_true is not None:
        from kd_cv.matching.metrics import homography_corner_error  # it imports SciPy

        shape = pair.image0.shape
        errors = [homography_corner_error(r.H_0to1, pair.H_true, shape) for r in results]
        rows.append(["its corner error", *(f"{error:.2f} px" for error in errors)])
    seconds = [{**a.seconds, "total": sum(a.seconds.values())} for a in answers.values()]
    for step in (*STEPS, "total"):
        label = f"{step} ({options.detector})" if step == "detect" else step
        rows.append([label, *(f"{1000 * taken[step]:.1f} ms" for taken in seconds)])
    print_table(["", *(DESCRIPTORS[name] for name in answers)], rows)
    result = chosen.result
    if not result.success:
        return
    if options.model == "auto":
        print(f"\n{SAID[result.model]}")
    for name, what in MATRICES.items():
        matrix = getattr(result, name)
        if matrix is not None and not (name == "F_0to1" and result.E_0to1 is not None):
            print(f"\n{name}, {what}:")
            for row in np.atleast_2d(matrix):
                print("  " + " ".join(f"{value:13.6g}" for value in row))

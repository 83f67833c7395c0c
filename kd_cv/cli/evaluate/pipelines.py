"""`kd-cv eval pipelines`: whole pipelines, accuracy beside time."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from kd_cv.cli.evaluate.options import Against, Seeds, words
from kd_cv.cli.evaluate.output import draw_figure, report_scores, say_picture
from kd_cv.cli.options import Figure, Json, Ratio
from kd_cv.cli.outputs import check_figure
from kd_cv.evaluate.pairs import SEEDS
from kd_cv.features import DESCRIPTORS
from kd_cv.io.files import read_text
from kd_cv.neighbours import RATIO

MAX_BYTES = 10**6  # of a file of --times
TITLES = DESCRIPTORS | {
    "kd3": "KD, scales=3", "kd64": "KD, dim=64", "kd+sift": "KD at SIFT's",
    "orb": "ORB", "akaze": "AKAZE", "brisk": "BRISK", "xfeat": "XFeat", "disk": "DISK",
    "aliked": "ALIKED",
}  # fmt: skip


def command(
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders of image sequences with homographies; with --cameras, of photographs, "
            "one for a scene. Without any, built-in photographs."
        ),
    ] = None,
    cameras: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of the cameras of a scene, once for each (see eval pose)."),
    ] = None,
    pipelines: Annotated[
        str,
        typer.Option(
            help="Separated by commas: kd, kd3, kd64, kd+sift, sift, rootsift, orb, akaze, brisk; "
            "from other packages xfeat, disk, aliked, kornia:CLASS."
        ),
    ] = "kd,kd+sift,rootsift,sift,orb",
    max_keypoints: Annotated[
        int, typer.Option(help="How many keypoints to keep in each image.")
    ] = 2000,
    max_size: Annotated[
        int | None,
        typer.Option(help="Longer side in pixels to which images of sequences are reduced."),
    ] = None,
    ratio: Ratio = RATIO,
    seeds: Seeds = SEEDS,
    against: Against = None,
    times: Annotated[
        Path | None,
        typer.Option(
            help="Show the milliseconds of this file in place of those of this run: what --json "
            "gave with the same options on fewer images, while the machine had nothing else to do."
        ),
    ] = None,
    output: Figure = None,
    as_json: Json = False,
) -> None:
    """Run whole pipelines, detector included: homography or pose, and milliseconds per image.

    Repeatability is the share of the places seen in both images at which both have a keypoint,
    within 1.5 pixels. In parentheses: where a value lies in 95 % of random draws of the pairs. The
    picture shows accuracy over time, on a logarithmic axis.

    [bold]Examples[/bold]

        kd-cv eval pipelines sequences -o pipelines.png

        kd-cv eval pipelines one_sequence --json > idle.json

        kd-cv eval pipelines sequences --times idle.json -o pipelines.png

        kd-cv eval pipelines castle --cameras castle_dense --pipelines kd,kd3,orb
    """
    from kd_cv.cli.tables import telling
    from kd_cv.evaluate.cameras import read_cameras
    from kd_cv.evaluate.pairs import Measure
    from kd_cv.evaluate.pipelines import make_pipelines, on_homographies, on_poses
    from kd_cv.evaluate.readers import read_images, warped_images
    from kd_cv.io.builtin import builtin_photos

    check_figure(output)
    folders = data or []
    if cameras is not None and len(cameras) != len(folders):
        raise ValueError(f"{len(folders)} scenes need as many --cameras, got {len(cameras)}")
    chosen = make_pipelines(words(pipelines), max_keypoints)
    header = {"protocol": "pipelines", "max_keypoints": max_keypoints, "max_size": max_size}
    idle = _times(times, header, [pipeline.name for pipeline in chosen]) if times else {}
    with telling("Matching", as_json) as tell:
        measure = Measure(ratio=ratio, seeds=seeds, against=against, progress=tell)
        if cameras is not None:
            pairs = zip(folders, cameras, strict=True)
            scenes = [
                (folder.resolve().name, read_cameras(folder, poses)) for folder, poses in pairs
            ]
            scores = on_poses(scenes, chosen, measure)
            shown, keys, unit = "auc10", ["auc5", "auc10", "auc20", "inliers"], "degrees"
        else:
            sets = [images for folder in folders for images in read_images(folder)]
            material = sets or warped_images(builtin_photos())
            scores = on_homographies(material, chosen, measure, max_size)
            keys = ["auc1", "auc3", "auc5", "auc10", "repeatability", "precision", "correct"]
            shown, unit = "auc5", "pixels"

    if idle:
        scores = [replace(s, values={**s.values, "ms": idle[s.name]}) for s in scores]

    def draw(figure: Any) -> None:
        from kd_cv.draw.curves import plot_tradeoff

        wanted = ("ms", shown, f"{shown} low", f"{shown} high")
        points = {_title(score.name): [score.values[key] for key in wanted] for score in scores}
        plot_tradeoff(figure.subplots(), points, f"AUC up to {shown[3:]} {unit} (%)")

    if output:
        draw_figure(output, (6.0, 3.4), draw)
    count = int(scores[0].values["pairs"])
    report_scores(
        scores, [*keys, "keypoints", "ms"], as_json, {}, {**header, "pairs": count},
        f"AUC in % up to so many {unit}, over {count} pairs; keypoints and ms of an image, medians",
        intervals=[shown],
    )  # fmt: skip
    if not as_json:
        say_picture(output)


def _title(name: str) -> str:
    """A pipeline as the picture calls it."""
    return TITLES.get(name, name.removeprefix("kornia:"))


def _times(path: Path, header: dict[str, Any], names: list[str]) -> dict[str, float]:
    """Milliseconds of each pipeline, of an earlier run with the same header."""
    try:
        content = json.loads(read_text(path, MAX_BYTES, "utf-8"))
        other = {key: content[key] for key in header}
        ms = {score["name"]: float(score["values"]["ms"]) for score in content["scores"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not what kd-cv eval pipelines --json gives") from error
    if other != header:
        raise ValueError(f"the times of {path} are of other options: {other}, not {header}")
    missing = [name for name in names if name not in ms]
    if missing:
        raise ValueError(f"{path} has no time of {', '.join(missing)}")
    return ms

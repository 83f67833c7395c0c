"""`kd-cv eval pipelines`: whole pipelines, accuracy beside time."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kd_cv.cli.evaluate.options import Against, Seeds, words
from kd_cv.cli.evaluate.output import draw_figure, report_scores, say_picture
from kd_cv.cli.options import Figure, Json
from kd_cv.cli.outputs import check_figure
from kd_cv.evaluate.intervals import SEEDS


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
            help="With commas between: kd, kd3, kd64, kd+sift, sift, rootsift, orb, akaze, brisk; "
            "of other packages xfeat, disk, aliked, kornia:CLASS."
        ),
    ] = "kd,kd+sift,rootsift,sift,orb",
    max_keypoints: Annotated[int, typer.Option(help="How many keypoints of each image.")] = 2000,
    max_size: Annotated[
        int | None,
        typer.Option(help="Reduce the images of sequences to so many pixels of the longer side."),
    ] = None,
    seeds: Seeds = SEEDS,
    against: Against = None,
    output: Figure = None,
    as_json: Json = False,
) -> None:
    """Run whole pipelines, detector included: homography or pose, and milliseconds an image.

    Repeatability is the share of the places seen by both images where both have a keypoint, to 1.5
    pixels. Behind each AUC is where it lies in 95 % of draws of the pairs. The picture has accuracy
    over time, on a logarithmic axis.

    [bold]Examples[/bold]

        kd-cv eval pipelines sequences -o pipelines.png

        kd-cv eval pipelines castle --cameras castle_dense --pipelines kd,kd3,orb
    """
    from kd_cv.cli.tables import telling
    from kd_cv.evaluate.cameras import read_cameras
    from kd_cv.evaluate.pipelines import make_pipelines, on_homographies, on_poses
    from kd_cv.evaluate.readers import read_images, warped_images
    from kd_cv.io.builtin import builtin_photos

    check_figure(output)
    folders = data or []
    if cameras is not None and len(cameras) != len(folders):
        raise ValueError(f"{len(folders)} scenes need as many --cameras, got {len(cameras)}")
    chosen = make_pipelines(words(pipelines), max_keypoints)
    with telling("Matching", as_json) as tell:
        if cameras is not None:
            pairs = zip(folders, cameras, strict=True)
            scenes = [
                (folder.resolve().name, read_cameras(folder, poses)) for folder, poses in pairs
            ]
            scores = on_poses(scenes, chosen, seeds=seeds, against=against, progress=tell)
            shown, keys, unit = "auc10", ["auc5", "auc10", "auc20", "inliers"], "degrees"
        else:
            sets = [images for folder in folders for images in read_images(folder)]
            scores = on_homographies(
                sets or warped_images(builtin_photos()), chosen, seeds=seeds, max_size=max_size,
                against=against, progress=tell,
            )  # fmt: skip
            keys = ["auc1", "auc3", "auc5", "auc10", "repeatability", "precision", "correct"]
            shown, unit = "auc5", "pixels"

    def draw(figure: Any) -> None:
        from kd_cv.draw.curves import plot_tradeoff

        wanted = ("ms", shown, f"{shown} low", f"{shown} high")
        points = {score.name: [score.values[key] for key in wanted] for score in scores}
        plot_tradeoff(figure.subplots(), points, f"AUC up to {shown[3:]} {unit} (%)")

    if output:
        draw_figure(output, (4.2, 3.0), draw)
    count = int(scores[0].values["pairs"])
    report_scores(
        scores, [*keys, "keypoints", "ms"], as_json, {}, {"protocol": "pipelines", "pairs": count},
        f"AUC in % up to so many {unit}, over {count} pairs; keypoints and ms of an image, medians",
        intervals=[shown],
    )  # fmt: skip
    if not as_json:
        say_picture(output)

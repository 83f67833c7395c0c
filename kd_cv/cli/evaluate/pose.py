"""`kd-cv eval pose`: the relative pose of photographs with known cameras."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kd_cv.cli.evaluate.options import AtKeypoints
from kd_cv.cli.evaluate.output import report_scores
from kd_cv.evaluate.pose import MAX_ANGLE


def command(
    options: AtKeypoints,
    photos: Annotated[
        list[Path], typer.Argument(help="Folders of photographs, one for each scene.")
    ],
    cameras: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of the cameras of a scene (NAME.camera, a model of COLMAP, or poses.txt), "
            "once for each scene; without it, they are beside the photographs."
        ),
    ] = None,
    max_keypoints: Annotated[
        int, typer.Option(help="How many SIFT keypoints of each photograph are described.")
    ] = 2000,
    max_angle: Annotated[
        float,
        typer.Option(help="Degrees by which the viewing directions of a pair may be apart."),
    ] = MAX_ANGLE,
) -> None:
    """Estimate the pose between photographs, all descriptors at the same keypoints.

    AUC is that of the error, the larger of the angles by which rotation and direction of
    translation are wrong, up to 5, 10 and 20 degrees. In parentheses: where it, or its gain over
    --against, lies in 95 % of random draws of the pairs.

    [bold]Examples[/bold]

        kd-cv eval pose fountain

        kd-cv eval pose castle entry --cameras castle_dense --cameras entry_dense --scales 3

        kd-cv eval pose fountain --max-angle 90 --against rootsift
    """
    from kd_cv.evaluate.cameras import read_cameras
    from kd_cv.evaluate.pose import THRESHOLDS, relative_pose

    if cameras and len(cameras) != len(photos):
        raise ValueError(f"{len(photos)} scenes need as many --cameras, got {len(cameras)}")
    folders = zip(photos, cameras or photos, strict=True)
    scenes = [(folder.resolve().name, read_cameras(folder, poses)) for folder, poses in folders]
    protocol = partial(relative_pose, max_angle=max_angle)
    scores = options.run(protocol, scenes, max_keypoints)
    values = scores[0].values
    areas = [f"auc{t}" for t in THRESHOLDS]
    keys = [*areas, "inliers"]
    keys += [key for key in values if re.fullmatch(r"auc10 \d+-\d+", key)]
    pairs = int(values["pairs"])
    report_scores(
        scores, keys, options.as_json, {}, {"protocol": "pose", "pairs": pairs},
        f"in %, {pairs} pairs; auc10 A-B: of those whose viewing directions are so far apart",
        intervals=areas,
    )  # fmt: skip

"""`kd-cv eval matching`: images with known homographies."""

from pathlib import Path
from typing import Annotated

import typer

from kd_cv.cli.evaluate.options import AtKeypoints
from kd_cv.cli.evaluate.output import report_scores


def command(
    options: AtKeypoints,
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of image sequences with homographies; without it, built-in photographs."
        ),
    ] = None,
    max_keypoints: Annotated[
        int, typer.Option(help="How many SIFT keypoints of each image are described.")
    ] = 1000,
    threshold: Annotated[
        float, typer.Option(help="How far a correct match may be from the true place, in pixels.")
    ] = 3.0,
) -> None:
    """Match images with known homographies, all descriptors at the same keypoints.

    AP is the average precision of nearest neighbours ranked by ratio; precision is that of mutual
    matches; AUC is that of the homography's error up to 3, 5 and 10 pixels. In parentheses: where
    a value, or its gain over --against, lies in 95 % of random draws of the pairs.

    [bold]Examples[/bold]

        kd-cv eval matching

        kd-cv eval matching sequences --against rootsift

        kd-cv eval matching sequences --weights multiview,mine.npz --scales 3
    """
    from kd_cv.evaluate.images import image_matching
    from kd_cv.evaluate.readers import read_images, warped_images
    from kd_cv.io.builtin import builtin_photos

    sets = warped_images(builtin_photos()) if data is None else read_images(data)
    scores = options.run(image_matching, sets, max_keypoints, threshold)
    pairs = int(scores[0].values["pairs"])
    report_scores(
        scores, ["ap", "precision", "auc3", "auc5", "auc10"], options.as_json, {},
        {"protocol": "matching", "pairs": pairs},
        f"in %, means over {pairs} pairs of images",
        intervals=["ap", "auc5"],
    )  # fmt: skip

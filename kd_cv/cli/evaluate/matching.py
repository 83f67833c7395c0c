"""`kd-cv eval matching`: images with known homographies."""

from pathlib import Path
from typing import Annotated

import typer

from kd_cv.cli.evaluate.shared import (
    ALL,
    against_of,
    candidates_of,
    report_scores,
    with_ws,
)
from kd_cv.cli.options import (
    Against,
    CacheFolder,
    Descriptors,
    Dim,
    FitWs,
    Json,
    Kernels,
    Magnification,
    PatchSize,
    Seeds,
    SeveralWeights,
    Whitenings,
)
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.evaluate.candidates import PATCH_SIZE
from kd_cv.evaluate.intervals import SEEDS


def command(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of image sequences with homographies; without it, built-in photographs."
        ),
    ] = None,
    descriptors: Descriptors = ALL,
    weights: SeveralWeights = None,
    whitening: Whitenings = None,
    kernels: Kernels = "concat",
    patch_size: PatchSize = PATCH_SIZE,
    dim: Dim = 128,
    magnification: Magnification = MAGNIFICATION,
    scales: Annotated[int, typer.Option(help="How many patch sizes kd averages over.")] = 1,
    max_keypoints: Annotated[
        int, typer.Option(help="How many SIFT keypoints of each image are described.")
    ] = 1000,
    threshold: Annotated[
        float, typer.Option(help="How far a correct match may be from the true place, in pixels.")
    ] = 3.0,
    seeds: Seeds = SEEDS,
    against: Against = None,
    fit_ws: FitWs = None,
    cache: CacheFolder = None,
    as_json: Json = False,
) -> None:
    """Match images with known homographies, all descriptors at the same keypoints.

    AP is the average precision of nearest neighbours ranked by ratio; precision is that of mutual
    matches; AUC is that of the homography's error up to 3, 5 and 10 pixels. In parentheses: where
    a value, or its gain over that of --against, lies in 95 % of draws of the pairs.

    [bold]Examples[/bold]

        kd-cv eval matching

        kd-cv eval matching sequences --against rootsift

        kd-cv eval matching sequences --weights multiview,mine.npz --scales 3
    """
    from kd_cv.cli.tables import telling
    from kd_cv.evaluate.cache import Cache
    from kd_cv.evaluate.images import image_matching
    from kd_cv.evaluate.readers import read_images, warped_images
    from kd_cv.io.builtin import builtin_photos

    chosen = candidates_of(
        descriptors, weights, whitening, kernels, patch_size, dim,
        magnification=magnification,
        scales=scales,
    )  # fmt: skip
    sets = warped_images(builtin_photos()) if data is None else read_images(data)
    with telling("Matching", as_json) as tell:
        chosen = with_ws(chosen, fit_ws, dim)
        scores = image_matching(
            sets, chosen, max_keypoints=max_keypoints, threshold=threshold, seeds=seeds,
            against=against_of(chosen, against), cache=Cache(cache), progress=tell,
        )  # fmt: skip
    pairs = int(scores[0].values["pairs"])
    report_scores(
        scores, ["ap", "precision", "auc3", "auc5", "auc10"], as_json, {},
        {"protocol": "matching", "pairs": pairs},
        f"in %, means over {pairs} pairs of images",
        intervals=["ap", "auc5"],
    )  # fmt: skip

"""`kd-cv eval pose`: the relative pose of photographs with known cameras."""

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
    photos: Annotated[list[Path], typer.Argument(help="Folders of photographs, one for a scene.")],
    cameras: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of the cameras of a scene (NAME.camera, COLMAP's text, or poses.txt), "
            "once for each scene; without it, they are beside the photographs."
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
        int, typer.Option(help="How many SIFT keypoints of each photograph are described.")
    ] = 2000,
    seeds: Seeds = SEEDS,
    against: Against = None,
    fit_ws: FitWs = None,
    cache: CacheFolder = None,
    as_json: Json = False,
) -> None:
    """Estimate the pose between photographs, all descriptors at the same keypoints.

    AUC is that of the larger of two angles, by which rotation and direction of translation are
    wrong, up to 5, 10 and 20 degrees. In parentheses: where it, or its gain over that of --against,
    lies in 95 % of draws of the pairs.

    [bold]Examples[/bold]

        kd-cv eval pose fountain

        kd-cv eval pose castle entry --cameras castle_dense --cameras entry_dense --scales 3
    """
    from kd_cv.cli.tables import telling
    from kd_cv.evaluate.cache import Cache
    from kd_cv.evaluate.cameras import read_cameras
    from kd_cv.evaluate.pose import THRESHOLDS, relative_pose

    if cameras and len(cameras) != len(photos):
        raise ValueError(f"{len(photos)} scenes need as many --cameras, got {len(cameras)}")
    folders = zip(photos, cameras or photos, strict=True)
    scenes = [(folder.resolve().name, read_cameras(folder, own)) for folder, own in folders]
    chosen = candidates_of(
        descriptors, weights, whitening, kernels, patch_size, dim,
        magnification=magnification, scales=scales,
    )  # fmt: skip
    with telling("Matching", as_json) as tell:
        chosen = with_ws(chosen, fit_ws, dim)
        scores = relative_pose(
            scenes, chosen, max_keypoints=max_keypoints, seeds=seeds,
            against=against_of(chosen, against), cache=Cache(cache), progress=tell,
        )  # fmt: skip
    values = scores[0].values
    areas = [f"auc{t}" for t in THRESHOLDS]
    keys = [*areas, "inliers"]
    keys += [key for key in values if key.startswith("auc10 ") and key[6].isdigit()]
    pairs = int(values["pairs"])
    report_scores(
        scores, keys, as_json, {}, {"protocol": "pose", "pairs": pairs},
        f"in %, {pairs} pairs; auc10 A-B: of those whose viewing directions are so far apart",
        intervals=areas,
    )  # fmt: skip

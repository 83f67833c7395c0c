"""`kd-cv eval matching`, `pose` and `pipelines`: pairs of images of which the truth is known."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kd_cv.cli.evaluate.options import Comparison, words
from kd_cv.cli.evaluate.output import report_scores
from kd_cv.cli.options import Figure, Json, Magnification, Ratio
from kd_cv.cli.outputs import FIGURES, check_output, draw_figure, say_picture
from kd_cv.cli.tables import telling
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.evaluate.cache import Cache
from kd_cv.evaluate.cameras import read_scenes
from kd_cv.evaluate.images import image_matching
from kd_cv.evaluate.pairs import SEEDS, Measure
from kd_cv.evaluate.pipelines import make_pipelines, on_homographies, on_poses
from kd_cv.evaluate.pose import MAX_ANGLE, THRESHOLDS, relative_pose
from kd_cv.evaluate.readers import image_sets
from kd_cv.io.files import read_text
from kd_cv.matching.neighbours import RATIO
from kd_cv.opencv.rootsift import DESCRIPTORS

MAX_BYTES = 10**6  # of a file of --times
TITLES = DESCRIPTORS | {
    "kd3": "KD, scales=3", "kd64": "KD, dim=64", "kd+sift": "KD at SIFT's",
    "orb": "ORB", "akaze": "AKAZE", "brisk": "BRISK", "xfeat": "XFeat", "disk": "DISK",
    "aliked": "ALIKED",
}  # fmt: skip

Seeds = Annotated[int, "How many robust estimates are made for each pair."]
Against = Annotated[str | None, "Show the gain of the others over this one, on the same pairs."]


@dataclass(frozen=True)
class AtKeypoints(Comparison):
    """The same for pairs of images, all descriptors at the same keypoints."""

    magnification: Magnification = MAGNIFICATION
    scales: Annotated[int, "How many patch sizes kd averages over."] = 1
    ratio: Ratio = RATIO
    seeds: Seeds = SEEDS
    against: Against = None

    def run(
        self, protocol: Callable[..., Any], material: Any, keypoints: int, threshold: float = 3.0
    ) -> Any:
        """The scores of a protocol."""
        chosen = self.candidates(magnification=self.magnification, scales=self.scales)
        with telling("Matching", self.as_json) as tell:
            chosen = self.with_ws(chosen)
            against = _name_of(self.against, chosen)
            measure = Measure(threshold, self.ratio, self.seeds, against, tell)
            return protocol(
                material, chosen, measure, max_keypoints=keypoints, cache=Cache(self.cache)
            )


def _name_of(against: str | None, compared: Sequence[Any]) -> str | None:
    """The full name of what --against means by its name or its kind."""
    if against is None:
        return None
    for one in compared:
        if against.lower() in (one.name.lower(), one.kind.lower()):
            return str(one.name)
    known = ", ".join(one.kind for one in compared)
    raise ValueError(f"--against {against}: there is none of that name, but {known}")


def matching(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of image sequences with homographies; without it, built-in photographs."
        ),
    ] = None,
    *,
    options: AtKeypoints,
    max_keypoints: Annotated[int, "How many SIFT keypoints of each image are described."] = 1000,
    threshold: Annotated[
        float, "How far a correct match may be from the true place, in pixels."
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
    sets = image_sets([] if data is None else [data])
    scores = options.run(image_matching, sets, max_keypoints, threshold)
    pairs = int(scores[0].values["pairs"])
    report_scores(
        scores, ["ap", "precision", "auc3", "auc5", "auc10"], options.as_json, {},
        {"protocol": "matching", "pairs": pairs},
        f"in %, means over {pairs} pairs of images",
        intervals=["ap", "auc5"],
    )  # fmt: skip


def pose(
    photos: Annotated[
        list[Path], typer.Argument(help="Folders of photographs, one for each scene.")
    ],
    options: AtKeypoints,
    cameras: Annotated[
        list[Path] | None,
        "Folder of the cameras of a scene (NAME.camera, a model of COLMAP, or poses.txt), "
        "once for each scene; without it, they are beside the photographs.",
    ] = None,
    max_keypoints: Annotated[
        int, "How many SIFT keypoints of each photograph are described."
    ] = 2000,
    max_angle: Annotated[
        float, "Degrees by which the viewing directions of a pair may be apart."
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
    protocol = partial(relative_pose, max_angle=max_angle)
    scores = options.run(protocol, read_scenes(photos, cameras or photos), max_keypoints)
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


def pipelines(
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders of image sequences with homographies; with --cameras, of photographs, "
            "one for a scene. Without any, built-in photographs."
        ),
    ] = None,
    cameras: Annotated[
        list[Path] | None, "Folder of the cameras of a scene, once for each (see eval pose)."
    ] = None,
    pipelines: Annotated[
        str,
        "Separated by commas: kd, kd3, kd64, kd+sift, sift, rootsift, orb, akaze, brisk; "
        "from other packages xfeat, disk, aliked, kornia:CLASS.",
    ] = "kd,kd+sift,rootsift,sift,orb",
    max_keypoints: Annotated[int, "How many keypoints to keep in each image."] = 2000,
    max_size: Annotated[
        int | None, "Longer side in pixels to which images of sequences are reduced."
    ] = None,
    ratio: Ratio = RATIO,
    seeds: Seeds = SEEDS,
    against: Against = None,
    times: Annotated[
        Path | None,
        "Show the milliseconds of this file in place of those of this run: what --json "
        "gave with the same options on fewer images, while the machine had nothing else to do.",
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
    check_output(output, FIGURES)
    chosen = make_pipelines(words(pipelines), max_keypoints)
    against = _name_of(against, chosen)
    header = {"protocol": "pipelines", "max_keypoints": max_keypoints, "max_size": max_size}
    idle = _times(times, header, [pipeline.name for pipeline in chosen]) if times else {}
    scenes = None if cameras is None else read_scenes(data or [], cameras)
    with telling("Matching", as_json) as tell:
        measure = Measure(ratio=ratio, seeds=seeds, against=against, progress=tell)
        if scenes is not None:
            scores = on_poses(scenes, chosen, measure)
            shown, keys, unit = "auc10", ["auc5", "auc10", "auc20", "inliers"], "degrees"
        else:
            scores = on_homographies(image_sets(data or []), chosen, measure, max_size)
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

"""`matching`, `pose` and `pipelines`: pairs of images whose geometry is known."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.commands.options import (
    add_comparison,
    add_figure,
    add_json,
    add_measure,
    add_ws,
    chosen_candidates,
    make_parser,
    words,
)
from experiments.commands.output import draw_figure, report_scores, say_picture
from experiments.protocols.cache import Cache
from experiments.protocols.cameras import read_scenes
from experiments.protocols.matching import image_matching
from experiments.protocols.pairs import Measure
from experiments.protocols.pipelines import make_pipelines, on_homographies, on_poses
from experiments.protocols.pose import MAX_ANGLE, THRESHOLDS, relative_pose
from experiments.protocols.readers import image_sets
from experiments.protocols.scores import Score
from kd_cv.cli.options import FIGURES, check_output
from kd_cv.cli.tables import telling
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.opencv.rootsift import DESCRIPTORS

TITLES = DESCRIPTORS | {
    "kd3": "KD, scales=3", "kd64": "KD, dim=64", "kd+sift": "KD at SIFT's",
    "orb": "ORB", "akaze": "AKAZE", "brisk": "BRISK", "xfeat": "XFeat", "disk": "DISK",
    "aliked": "ALIKED",
}  # fmt: skip


def matching(arguments: Sequence[str]) -> None:
    """Match images with known homographies, all descriptors at the same keypoints.

    AP is the average precision of nearest neighbours ranked by ratio; precision is that of mutual
    matches; AUC is that of the homography's error up to 3, 5 and 10 pixels. In parentheses: the
    95 % interval over the pairs of a value, or of its gain over --against.

    python -m experiments matching
    python -m experiments matching sequences --against rootsift
    python -m experiments matching sequences --weights multiview,mine.npz --scales 3
    """
    parser = _at_keypoints_parser(matching, max_keypoints=1000)
    parser.add_argument("data", type=Path, nargs="?", help="folder of image sequences with "
                        "homographies; without it, built-in photographs")  # fmt: skip
    parser.add_argument("--threshold", type=float, default=3.0,
                        help="pixels of error up to which a match is correct")  # fmt: skip
    args = parser.parse_args(arguments)
    sets = image_sets([] if args.data is None else [args.data])
    scores = _run_at_keypoints(args, image_matching, sets, args.threshold)
    pairs = int(scores[0].values["pairs"])
    report_scores(
        scores, ["ap", "precision", "auc3", "auc5", "auc10"], args.json,
        {"protocol": "matching", "pairs": pairs}, f"in %, means over {pairs} pairs of images",
        intervals=["ap", "auc5"],
    )  # fmt: skip


def pose(arguments: Sequence[str]) -> None:
    """Estimate the pose between photographs, all descriptors at the same keypoints.

    AUC is that of the error, the larger of the angles by which rotation and direction of
    translation are wrong, up to 5, 10 and 20 degrees. In parentheses: the 95 % interval over the
    pairs of a value, or of its gain over --against.

    python -m experiments pose fountain
    python -m experiments pose castle entry --cameras castle_dense entry_dense --scales 3
    python -m experiments pose fountain --max-angle 90 --against rootsift
    """
    parser = _at_keypoints_parser(pose, max_keypoints=2000)
    parser.add_argument("photos", type=Path, nargs="+", help="folders of photographs, a scene each")
    parser.add_argument(
        "--cameras", type=Path, action="extend", nargs="+",
        help="folder of the cameras of each scene (NAME.camera, a model of COLMAP, or poses.txt); "
        "without it, they are beside the photographs",
    )  # fmt: skip
    parser.add_argument("--max-angle", type=float, default=MAX_ANGLE,
                        help="largest angle between the viewing directions of a pair")  # fmt: skip
    args = parser.parse_args(arguments)
    protocol = partial(relative_pose, max_angle=args.max_angle)
    scenes = read_scenes(args.photos, args.cameras or args.photos)
    scores = _run_at_keypoints(args, protocol, scenes)
    values = scores[0].values
    areas = [f"auc{t}" for t in THRESHOLDS]
    keys = [*areas, "inliers"]
    keys += [key for key in values if re.fullmatch(r"auc10 \d+-\d+", key)]
    pairs = int(values["pairs"])
    report_scores(
        scores, keys, args.json, {"protocol": "pose", "pairs": pairs},
        f"in %, {pairs} pairs; auc10 A-B: pairs whose viewing directions differ by A to B degrees",
        intervals=areas,
    )  # fmt: skip


def pipelines(arguments: Sequence[str]) -> None:
    """Run whole pipelines, detector included: homography or pose, and milliseconds per image.

    Repeatability is the fraction of the places seen in both images at which both have a keypoint,
    within 1.5 pixels. In parentheses: the 95 % interval over the pairs. The picture shows accuracy
    over time, on a logarithmic axis.

    python -m experiments pipelines sequences -o pipelines.png
    python -m experiments pipelines one_sequence --json > idle.json
    python -m experiments pipelines sequences --times idle.json -o pipelines.png
    python -m experiments pipelines castle --cameras castle_dense --pipelines kd,kd3,orb
    """
    args = _pipelines_parser().parse_args(arguments)
    check_output(args.output, FIGURES)
    chosen = make_pipelines(args.pipelines, args.max_keypoints)
    against = _name_of(args.against, chosen)
    header = {
        "protocol": "pipelines", "max_keypoints": args.max_keypoints, "max_size": args.max_size
    }  # fmt: skip
    names = [pipeline.name for pipeline in chosen]
    idle = _times(args.times, header, names) if args.times else {}
    scenes = None if args.cameras is None else read_scenes(args.data, args.cameras)
    with telling("Matching", args.json) as tell:
        measure = Measure(ratio=args.ratio, seeds=args.seeds, against=against, progress=tell)
        if scenes is not None:
            scores = on_poses(scenes, chosen, measure)
            shown, keys, unit = "auc10", ["auc5", "auc10", "auc20", "inliers"], "degrees"
        else:
            scores = on_homographies(image_sets(args.data), chosen, measure, args.max_size)
            keys = ["auc1", "auc3", "auc5", "auc10", "repeatability", "precision", "correct"]
            shown, unit = "auc5", "pixels"
    if idle:
        scores = [replace(s, values={**s.values, "ms": idle[s.name]}) for s in scores]
    if args.output:
        draw_figure(args.output, (6.0, 3.4), partial(_draw_tradeoff, scores, shown, unit))
    count = int(scores[0].values["pairs"])
    report_scores(
        scores, [*keys, "keypoints", "ms"], args.json, {**header, "pairs": count},
        f"AUC in % up to so many {unit}, over {count} pairs; keypoints and ms of an image, medians",
        intervals=[shown],
    )  # fmt: skip
    if not args.json:
        say_picture(args.output)


def _pipelines_parser() -> argparse.ArgumentParser:
    parser = make_parser(pipelines)
    add = parser.add_argument
    add(
        "data",
        type=Path,
        nargs="*",
        help="folders of image sequences with homographies; with --cameras, of photographs, a "
        "scene each. Without any, built-in photographs",
    )
    add(
        "--cameras",
        type=Path,
        action="extend",
        nargs="+",
        help="folder of the cameras of each scene (see pose)",
    )
    add(
        "--pipelines",
        type=words,
        default="kd,kd+sift,rootsift,sift,orb",
        help="kd, kd3, kd64, kd+sift, sift, rootsift, orb, akaze, brisk; from other packages "
        "xfeat, disk, aliked, kornia:CLASS",
    )
    add("--max-keypoints", type=int, default=2000, help="keypoints kept in each image")
    add("--max-size", type=int, help="longer side in pixels to which images are reduced")
    add(
        "--times",
        type=Path,
        help="show the milliseconds of this file: the output of --json with the same options on "
        "fewer images, while the machine was idle",
    )
    add_measure(parser)  # fmt: skip
    add_figure(parser)
    add_json(parser)
    return parser


def _at_keypoints_parser(
    command: Callable[..., Any], max_keypoints: int
) -> argparse.ArgumentParser:
    """The options of a protocol in which all descriptors are compared at the same keypoints."""
    parser = make_parser(command)
    add = parser.add_argument
    add("--max-keypoints", type=int, default=max_keypoints, help="SIFT keypoints of each image")
    add("--magnification", type=float, default=MAGNIFICATION, help="patch side in keypoint sizes")
    add("--scales", type=int, default=1, help="patch sizes that kd averages over")
    add_measure(parser)
    add_comparison(parser)
    return parser


def _run_at_keypoints(
    args: argparse.Namespace,
    protocol: Callable[..., list[Score]],
    data: Any,
    threshold: float = 3.0,
) -> list[Score]:
    chosen = chosen_candidates(args, magnification=args.magnification, scales=args.scales)
    with telling("Matching", args.json) as tell:
        chosen = add_ws(args, chosen)
        against = _name_of(args.against, chosen)
        measure = Measure(threshold, args.ratio, args.seeds, against, tell)
        return protocol(
            data, chosen, measure, max_keypoints=args.max_keypoints, cache=Cache(args.cache)
        )


def _name_of(against: str | None, compared: Sequence[Any]) -> str | None:
    """The full name of the candidate that --against means by its name or its kind."""
    if against is None:
        return None
    for one in compared:
        if against.lower() in (one.name.lower(), one.kind.lower()):
            return str(one.name)
    known = ", ".join(one.kind for one in compared)
    raise ValueError(f"--against {against}: there is none of that name, but {known}")


def _draw_tradeoff(scores: Sequence[Score], shown: str, unit: str, figure: Any) -> None:
    from experiments.paper.plots import plot_tradeoff

    wanted = ("ms", shown, f"{shown} low", f"{shown} high")
    points = {
        TITLES.get(score.name, score.name.removeprefix("kornia:")): [
            score.values[key] for key in wanted
        ]
        for score in scores
    }
    plot_tradeoff(figure.subplots(), points, f"AUC up to {shown[3:]} {unit} (%)")


def _times(path: Path, header: dict[str, Any], names: list[str]) -> dict[str, float]:
    """Milliseconds of each pipeline, of an earlier run with the same header."""
    try:
        content = json.loads(path.read_text("utf-8"))
        other = {key: content[key] for key in header}
        ms = {score["name"]: float(score["values"]["ms"]) for score in content["scores"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not an output of pipelines --json") from error
    if other != header:
        raise ValueError(f"the times of {path} are of other options: {other}, not {header}")
    missing = [name for name in names if name not in ms]
    if missing:
        raise ValueError(f"{path} has no time of {', '.join(missing)}")
    return ms

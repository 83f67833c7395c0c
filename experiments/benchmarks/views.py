"""A plane or a scene: what `auto` takes, and how many matches fit.

python -m experiments views --planes FOLDER ... --scenes FOLDER ... [--sift]

Planes are sequences with homographies, image 1 with each other; scenes are folders of photographs
of a place, each with the next.
"""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.protocols.readers import read_images
from kd_cv.io.images import list_photos, read_gray
from kd_cv.matching import two_view
from kd_cv.matching.geometry import reprojection_errors
from kd_cv.matching.pipeline import match

THRESHOLD = 3.0
KEYPOINTS = 2000
OFF = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1)
KEPT = (1.0, 0.25)  # of the matches: with few, chance counts more
View = tuple[bool, NDArray[np.float64], NDArray[np.float64]]  # whether a scene; matching points


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("views", description=str(__doc__).splitlines()[0])
    parser.add_argument("--planes", nargs="*", type=Path, default=[])
    parser.add_argument("--scenes", nargs="*", type=Path, default=[])
    parser.add_argument("--sift", action="store_true", help="count SIFT's matches too")
    parser.add_argument("--pairs", type=int, default=5, help="of images, of each folder")
    args = parser.parse_args(arguments)
    planes = {
        f"{folder.name}/{images.name}": [
            (images.load(0), images.load(k), images.H_1tok[k])
            for k in range(1, min(args.pairs + 1, len(images.images)))
        ]
        for folder in args.planes
        for images in read_images(folder)
    }
    scenes = {
        folder.name: [
            (read_gray(a), read_gray(b), None)
            for a, b in itertools.islice(itertools.pairwise(list_photos(folder)), args.pairs)
        ]
        for folder in args.scenes
    }
    cv2.setRNGSeed(0)
    which(planes, scenes, ("kd", "sift") if args.sift else ("kd",))
    return 0


def which(planes: Any, scenes: Any, features: Sequence[str]) -> None:
    """Tables: inliers of either model by each descriptor; how often `auto` is right."""
    columns = [f"{feature}: {kind}" for feature in features for kind in ("plane", "scene")]
    print(f"| views | pairs | {' | '.join(columns)} | auto: scene |")
    print(f"|---|---|{'---|' * (len(columns) + 1)}")
    views: dict[str, list[View]] = {}
    for is_scene, group in ((False, planes), (True, scenes)):
        for name, pairs in group.items():
            counts, taken, views[name] = [], 0, []
            for image0, image1, _ in pairs:
                found = [
                    match(image0, image1, feature, max_keypoints=KEYPOINTS, threshold=THRESHOLD)
                    for feature in features
                ]
                both = [(own, of_model(own.points0, own.points1, "fundamental")) for own in found]
                counts.append([int(model.inliers.sum()) for pair in both for model in pair])
                points = found[0].points0, found[0].points1
                taken += of_model(*points, "auto").model != "homography"
                views[name].append((is_scene, *points))
            means = " | ".join(f"{mean:.0f}" for mean in np.mean(counts, axis=0))
            kind = "scene" if is_scene else "plane"
            row = f"| {kind} {name} | {len(pairs)} | {means} | {taken} of {len(pairs)} |"
            print(row, flush=True)
    for kept in KEPT:
        limits(views, kept)


def of_model(points0: Any, points1: Any, model: str) -> two_view.TwoViews:
    return two_view.estimate(points0, points1, model, threshold=THRESHOLD)


def limits(views: dict[str, list[View]], kept: float) -> None:
    """Table: how often each limit off the plane is right, and the one best elsewhere."""
    rng = np.random.default_rng(0)
    kinds, right = [], []  # of each folder; the second by limit
    for own in views.values():
        rows = []
        for is_scene, *points in own:
            some = rng.random(len(points[0])) < kept
            taken = taken_as_scene(points[0][some], points[1][some])
            if taken is not None:
                rows.append(taken == is_scene)
        if rows:
            kinds.append(own[0][0])
            right.append(np.mean(rows, axis=0))
    scenes, table = np.array(kinds, bool), np.array(right)
    if len(set(kinds)) < 2:
        return

    def of_kinds(table: Any, scenes: Any) -> Any:
        """Mean over planes and over scenes: (2, limits)."""
        return np.array([table[~scenes].mean(axis=0), table[scenes].mean(axis=0)])

    print(f"\n| fraction off the plane, {100 * kept:g} % of the matches | planes | scenes |")
    print("|---|---|---|")
    for limit, (plane, scene) in zip(OFF, of_kinds(table, scenes).T, strict=True):
        print(f"| {limit:g} | {100 * plane:.1f} % | {100 * scene:.1f} % |")
    if min(scenes.sum(), (~scenes).sum()) < 2:
        return
    elsewhere = []
    for i, own_scores in enumerate(table):
        others = np.arange(len(table)) != i
        best = of_kinds(table[others], scenes[others]).mean(axis=0).argmax()
        elsewhere.append(own_scores[best])
    plane, scene = of_kinds(np.array(elsewhere), scenes)
    print(f"| best on the other folders | {100 * plane:.1f} % | {100 * scene:.1f} % |", flush=True)


def taken_as_scene(points0: Any, points1: Any) -> NDArray[np.bool_] | None:
    """Whether `auto` would take the scene, by limit; None if there is none to take."""
    plane, scene = (of_model(points0, points1, model) for model in ("homography", "fundamental"))
    if not scene.success:
        return None
    if plane.matrix is None or not plane.success:
        return np.ones(len(OFF), bool)
    errors = reprojection_errors(points0, points1, plane.matrix)[scene.inliers]
    off = (errors > 2 * THRESHOLD).sum()
    return off > two_view.MANY + np.array(OFF) * len(errors)

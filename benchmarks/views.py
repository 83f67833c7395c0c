"""A plane or a scene: what `auto` takes, how many matches fit, and how exact the estimators are.

python -m benchmarks views --planes FOLDER ... --scenes FOLDER ... [--sift] [--estimators]
                           [--cameras PHOTOS CAMERAS ...]

Planes are sequences with homographies, image 1 with each other; scenes are folders of photographs
of a place, each with the next. Cameras are folders of photographs and of their true cameras. With
PoseLib installed, its estimators stand beside those of `kd_cv.models`.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv import models
from kd_cv.evaluate import metrics
from kd_cv.evaluate.cameras import read_cameras
from kd_cv.evaluate.pose import direction_angle, relative, rotation_angle, viewing_angle
from kd_cv.evaluate.readers import read_images
from kd_cv.geometry import reprojection_errors
from kd_cv.io.images import list_photos, read_gray
from kd_cv.matching import match

THRESHOLD = 3.0
KEYPOINTS = 2000
OFF = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1)
KEPT = (1.0, 0.25)  # of the matches: of few, chance has another share
View = tuple[bool, NDArray[np.float64], NDArray[np.float64]]  # whether a scene; matching points
Points = tuple[NDArray[np.float64], NDArray[np.float64]]


def main(arguments: Sequence[str]) -> int:
    """Run it with these arguments of the command line; the exit code."""
    parser = argparse.ArgumentParser("views", description=str(__doc__).splitlines()[0])
    parser.add_argument("--planes", nargs="*", type=Path, default=[])
    parser.add_argument("--scenes", nargs="*", type=Path, default=[])
    parser.add_argument("--cameras", nargs="*", type=Path, default=[], help="PHOTOS CAMERAS, ...")
    parser.add_argument("--sift", action="store_true", help="count SIFT's matches too")
    parser.add_argument("--estimators", action="store_true", help="compare them on the planes")
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
    if args.estimators:
        homographies(planes)
    for photos, cameras in zip(args.cameras[::2], args.cameras[1::2], strict=True):
        poses(photos, cameras)
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


def of_model(points0: Any, points1: Any, model: str) -> models.TwoViews:
    return models.estimate(points0, points1, model, threshold=THRESHOLD)


def limits(views: dict[str, list[View]], kept: float) -> None:
    """Table: how often each share off the plane is right, and the one that is best elsewhere."""
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

    print(f"\n| share off the plane, {100 * kept:g} % of the matches | planes | scenes |")
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
    return off > models.MANY + np.array(OFF) * len(errors)


def homographies(planes: Any) -> None:
    """Table: area under the curve of the corner error of each estimator."""
    errors: dict[str, list[float]] = {}
    for pairs in planes.values():
        for image0, image1, H_0to1 in pairs:
            found = match(image0, image1, max_keypoints=KEYPOINTS, threshold=THRESHOLD)
            for name, estimate in estimators("homography"):
                H = estimate((found.points0, found.points1), None, None)
                errors.setdefault(name, []).append(
                    metrics.homography_corner_error(H, H_0to1, image0.shape)
                )
    _table("corner error of the homography, AUC at 3, 5, 10 px", errors, (3, 5, 10))


def poses(photos: Path, cameras: Path) -> None:
    """Table: area under the curve of the pose error of each estimator."""
    views = read_cameras(photos, cameras)
    errors: dict[str, list[float]] = {}
    pairs = [p for p in itertools.combinations(views, 2) if viewing_angle(*p) <= 60]
    for view0, view1 in pairs[:: max(1, len(pairs) // 60)]:
        images = read_gray(view0.image), read_gray(view1.image)
        found = match(*images, max_keypoints=KEYPOINTS, threshold=THRESHOLD)
        R_true, t_true = relative(view0, view1)
        for name, estimate in estimators("essential"):
            pose = estimate((found.points0, found.points1), view0.K, view1.K)
            wrong = np.inf
            if pose is not None:
                wrong = max(rotation_angle(pose[0] @ R_true.T), direction_angle(pose[1], t_true))
            errors.setdefault(name, []).append(wrong)
    _table(f"pose of {photos.name}, AUC at 5, 10, 20 degrees", errors, (5, 10, 20))


def estimators(model: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Name and function of each: (points, K0, K1) to a homography, or to R and t."""

    def ours(points: Points, K0: Any, K1: Any) -> Any:
        found = models.estimate(*points, model, threshold=THRESHOLD, K0=K0, K1=K1)
        if model == "homography":
            return found.matrix
        return None if found.R_0to1 is None else (found.R_0to1, found.t_0to1)

    yield "kd_cv.models", ours
    try:
        import poselib
    except ImportError:
        return
    options = {"max_iterations": models.ITERATIONS}

    def homography(points: Points, K0: Any, K1: Any) -> Any:
        H, info = poselib.estimate_homography(
            *points, {**options, "max_reproj_error": THRESHOLD}, {}
        )
        return H if info["num_inliers"] else None

    def pose(points: Points, K0: Any, K1: Any) -> Any:
        if len(points[0]) < models.NEEDED["essential"]:
            return None
        width, height = (int(2 * K0[k, 2]) for k in (0, 1))
        cameras = [
            {
                "model": "PINHOLE", "width": width, "height": height,
                "params": [K[0, 0], K[1, 1], K[0, 2], K[1, 2]],
            }
            for K in (K0, K1)
        ]  # fmt: skip
        found, _ = poselib.estimate_relative_pose(
            *points, *cameras, {**options, "max_epipolar_error": 1.0}, {}
        )
        return found.R, found.t

    yield "PoseLib", homography if model == "homography" else pose


def _table(title: str, errors: dict[str, list[float]], limits: tuple[int, ...]) -> None:
    print(f"\n| {title} | pairs |{' |' * len(limits)}\n|---|---|{'---|' * len(limits)}")
    for name, own in errors.items():
        areas = " | ".join(f"{100 * float(a):.1f}" for a in metrics.auc(own, limits))
        print(f"| {name} | {len(own)} | {areas} |")

"""Synthetic views: homographies and poses of `match`, and of KDDescriptor in other code.

python -m experiments viewpoints [--planes FOLDER ...] [--cameras PHOTOS CAMERAS ...]
    [--extreme FOLDER ...] [--keypoints 2000] [--max-size 640] [--seeds 6] [--views auto 3 5 11]

Planes are sequences with homographies, cameras are folders of photographs and of their true
cameras, each pair up to 90 degrees apart. Extreme pairs are image 1 of a sequence and its image 2
compressed 4 and 6 times: solved, if at least 15 inliers are right within 5 pixels and at least half
of all inliers are. "Own code" is cv2.BFMatcher with crossCheck and MAGSAC, not refined. Each seed
gives the keypoints in another order. In brackets: where the gain over the first lies in 95 % of
random draws of the pairs.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.benchmarks.estimators import report
from experiments.protocols.cameras import read_cameras
from experiments.protocols.matching import of_homographies
from experiments.protocols.pairs import Views
from experiments.protocols.pose import (
    direction_angle,
    of_cameras,
    relative,
    rotation_angle,
    viewing_angle,
)
from experiments.protocols.readers import read_images
from experiments.protocols.scores import PairScore
from kd_cv import KDDescriptor
from kd_cv.matching.geometry import reprojection_errors
from kd_cv.matching.metrics import homography_corner_error
from kd_cv.matching.neighbours import RATIO
from kd_cv.matching.pipeline import AUTO, Found, search, search_views
from kd_cv.matching.result import positions

#: The argument `views` of match -> the numbers of views that are searched.
WAYS: dict[str, tuple[int, ...]] = {"1": (1,), "auto": AUTO, "3": (3,), "5": (5,), "11": (11,)}
Ways = dict[str, tuple[int, ...]]
FIRST, THRESHOLD, MAX_ANGLE, PARTS = "match, views=1", 3.0, 90.0, (0, 30, 60, 90)
TILTS, RIGHT, ENOUGH_RIGHT = (4.0, 6.0), 5.0, 15
Look = Callable[[int, int], Found]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("viewpoints", description=str(__doc__).splitlines()[0])
    for name in ("--planes", "--cameras", "--extreme"):
        parser.add_argument(name, nargs="*", type=Path, default=[])
    parser.add_argument("--keypoints", type=int, default=2000, help="of an image, at most")
    parser.add_argument("--max-size", type=int, help="longer side of a plane, in pixels")
    parser.add_argument("--seeds", type=int, default=6, help="orders of the same keypoints")
    parser.add_argument("--views", nargs="*", choices=WAYS, default=list(WAYS), help="beside 1")
    args = parser.parse_args(arguments)
    ways = {f"match, views={name}": WAYS[name] for name in dict.fromkeys(["1", *args.views])}
    if args.planes:
        sets = itertools.chain.from_iterable(map(read_images, args.planes))
        data = of_homographies(sets, args.max_size)
        tables = planes(data, args.keypoints, args.seeds, ways)
        report("homography, AUC of the corner error", tables, (1, 3, 5, 10), FIRST)
    if args.cameras:
        folders = zip(args.cameras[::2], args.cameras[1::2], strict=True)
        scenes = ((photos.name, read_cameras(photos, cameras)) for photos, cameras in folders)
        data = of_cameras(scenes, MAX_ANGLE)
        by_angle = poses(data, args.keypoints, args.seeds, ways)
        for part, tables in by_angle.items():
            report(
                f"pose, AUC of the error, views {part} degrees apart", tables, (5, 10, 20), FIRST
            )
    if args.extreme:
        sets = itertools.chain.from_iterable(map(read_images, args.extreme))
        extreme(of_homographies(sets, args.max_size), args.keypoints, ways)
    return 0


class Images:
    """Keypoints and descriptors of the images of a place, extracted once for each setting."""

    def __init__(self, grays: Sequence[NDArray[Any]], keypoints: int) -> None:
        self._grays, self._keypoints, self._known = grays, keypoints, {}  # type: ignore[var-annotated]

    def of(self, number: int, count: int, more: int = 1, seed: int = 0) -> tuple[Any, Any]:
        """Keypoints and descriptors with `count` views, in an order of their own for each seed."""
        key = number, count, more
        if key not in self._known:
            feature = KDDescriptor(more * self._keypoints, views=count)
            self._known[key] = feature.detectAndCompute(self._grays[number], None)
        keypoints, descriptors = self._known[key]
        order = np.random.default_rng(seed).permutation(len(keypoints))
        return tuple(keypoints[k] for k in order), descriptors[order]

    def look(self, i: int, j: int, model: str, cameras: Any, seed: int) -> Look:
        tests = RATIO, True, THRESHOLD

        def look(count: int, more: int) -> Found:
            extracted = [self.of(number, count, more, seed) for number in (i, j)]
            return search(extracted, tests, model, cameras)

        return look


def planes(
    data: Iterator[Views], keypoints: int, seeds: int, ways: Ways
) -> dict[str, list[PairScore]]:
    """Corner errors of each way on the pairs of all sequences."""
    tables: dict[str, list[PairScore]] = {}
    for views in data:
        images = Images(views.grays, keypoints)
        for i, j, plane in views.pairs:
            errors: dict[str, list[float]] = {}
            for seed in range(seeds):
                look = images.look(i, j, "homography", (None, None), seed)
                found = {name: search_views(look, counts)[0] for name, counts in ways.items()}
                matrices = {name: one.two_views.matrix for name, one in found.items()}
                for count in (1, 3):
                    both = images.of(i, count, 1, seed), images.of(j, count, 1, seed)
                    matrices[f"own code, views={count}"] = own_code(*both)
                for name, H in matrices.items():
                    error = homography_corner_error(H, plane.H_0to1, plane.shape0)
                    errors.setdefault(name, []).append(error)
            for name, each in errors.items():
                tables.setdefault(name, []).append(PairScore(each))
    return tables


def own_code(image0: tuple[Any, Any], image1: tuple[Any, Any]) -> NDArray[np.float64] | None:
    """The homography as a user of OpenCV estimates it."""
    (keypoints0, d0), (keypoints1, d1) = image0, image1
    matches = cv2.BFMatcher(cv2.NORM_L2, crossCheck=True).match(d0, d1)
    points0 = positions(keypoints0)[[m.queryIdx for m in matches]]
    points1 = positions(keypoints1)[[m.trainIdx for m in matches]]
    H, _ = cv2.findHomography(points0, points1, cv2.USAC_MAGSAC, THRESHOLD)
    return None if H is None or H.shape != (3, 3) else H


def poses(
    data: Iterator[Views], keypoints: int, seeds: int, ways: Ways
) -> dict[str, dict[str, list[PairScore]]]:
    """Angle errors of each way on the pairs of all scenes, by the angle between the views."""
    tables: dict[str, dict[str, list[PairScore]]] = {}
    for views in data:
        images = Images(views.grays, keypoints)
        for i, j, (view0, view1) in views.pairs:
            R_true, t_true = relative(view0, view1)
            part = int(np.searchsorted(PARTS, viewing_angle(view0, view1), side="right"))
            label = f"{PARTS[part - 1]} to {PARTS[min(part, len(PARTS) - 1)]}"
            for name, counts in ways.items():
                errors = []
                for seed in range(seeds):
                    look = images.look(i, j, "essential", (view0.K, view1.K), seed)
                    pose = search_views(look, counts)[0].two_views
                    errors.append(np.inf)
                    if pose.R_0to1 is not None and pose.t_0to1 is not None:
                        turned = rotation_angle(pose.R_0to1 @ R_true.T)
                        errors[-1] = max(turned, direction_angle(pose.t_0to1, t_true))
                for key in (f"0 to {PARTS[-1]}", label):
                    tables.setdefault(key, {}).setdefault(name, []).append(PairScore(errors))
    return tables


def extreme(data: Iterator[Views], keypoints: int, ways: Ways) -> None:
    """Table: how many extreme pairs each way solves."""
    solved = dict.fromkeys(ways, 0)
    pairs = 0
    for number, views in enumerate(data):
        rng = np.random.default_rng(number)
        _, _, plane = views.pairs[0]
        for tilt in TILTS:
            seen, M = tilted(views.grays[1], tilt, rng.uniform(0, np.pi))
            images = Images([views.grays[0], seen], keypoints)
            pairs += 1
            for name, counts in ways.items():
                look = images.look(0, 1, "homography", (None, None), 0)
                solved[name] += is_solved(search_views(look, counts)[0], M @ plane.H_0to1)
    print(f"\n| extreme pairs | solved of {pairs} |\n|---|---|")
    for name, count in solved.items():
        print(f"| {name} | {count} |", flush=True)


def is_solved(found: Found, H_true: NDArray[np.float64]) -> bool:
    """At least ENOUGH_RIGHT inliers are right, and half of all."""
    matches = found.matches[found.two_views.inliers]
    points0, points1 = (positions(k)[m] for k, m in zip(found.keypoints, matches.T, strict=True))
    right = int((reprojection_errors(points0, points1, H_true) <= RIGHT).sum())
    return right >= max(ENOUGH_RIGHT, len(matches) / 2)


def tilted(gray: NDArray[Any], tilt: float, turn: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """An image turned, blurred along x and compressed `tilt` times along it; and the map to it."""
    height, width = gray.shape
    c, s = np.cos(turn), np.sin(turn)
    M = np.array([[c, s, 0], [-s, c, 0], [0, 0, 1.0]])
    corners = np.array([[0, 0, 1], [width, 0, 1], [width, height, 1], [0, height, 1.0]]) @ M.T
    M[:2, 2] = -corners.min(axis=0)[:2]
    size = np.ceil(np.ptp(corners, axis=0)[:2]).astype(int).tolist()
    turned = cv2.warpAffine(gray, M[:2], size, flags=cv2.INTER_CUBIC)
    blurred = cv2.GaussianBlur(turned, (0, 0), sigmaX=0.6 * tilt, sigmaY=1e-3)
    M = np.diag([1 / tilt, 1, 1]) @ M
    narrow = cv2.warpAffine(blurred, np.diag([1 / tilt, 1, 1])[:2], (int(size[0] / tilt), size[1]))
    return narrow, M

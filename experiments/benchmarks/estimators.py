"""Homographies and poses by the estimators of `two_view`, PoseLib and pycolmap, side by side.

python -m experiments estimators [--planes FOLDER ...] [--cameras PHOTOS CAMERAS ...] [--seeds 6]
    [--synthetic]

All estimate from the same matches of KD. Planes are sequences with homographies, image 1 with each
other; cameras are folders of photographs and of their true cameras, each pair that looks the same
way. In brackets: where the gain over `two_view` lies in 95 % of random draws of the pairs. What
is not installed is skipped.
"""

import argparse
import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.protocols.cameras import read_cameras
from experiments.protocols.pairs import SEEDS
from experiments.protocols.pose import direction_angle, of_cameras, relative, rotation_angle
from experiments.protocols.readers import read_images
from experiments.protocols.scores import PairScore, summaries
from kd_cv import KDDescriptor
from kd_cv.io.images import reduced
from kd_cv.matching import two_view
from kd_cv.matching.geometry import epipolar_errors
from kd_cv.matching.metrics import homography_corner_error
from kd_cv.matching.neighbours import RATIO, match_descriptors

THRESHOLD = 3.0  # pixels, of an inlier; of a pose, those of others have the 1 pixel of our samples
OURS = "kd_cv.matching.two_view"
Points = NDArray[np.float64]
#: Points (M, 2) of both images, their cameras or None, and a seed, to H_0to1, or to R and t.
Estimator = Callable[[Points, Points, Any, Any, int], Any]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("estimators", description=str(__doc__).splitlines()[0])
    parser.add_argument("--planes", nargs="*", type=Path, default=[])
    parser.add_argument("--cameras", nargs="*", type=Path, default=[], help="PHOTOS CAMERAS, ...")
    parser.add_argument("--keypoints", type=int, default=2000, help="of an image, at most")
    parser.add_argument("--max-size", type=int, help="longer side of a plane, in pixels")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="orders of the same matches")
    parser.add_argument("--synthetic", action="store_true", help="points with known truth")
    args = parser.parse_args(arguments)
    if args.synthetic:
        synthetic(args.seeds)
    feature = KDDescriptor(args.keypoints)
    if args.planes:
        errors = homographies(args.planes, feature, args.seeds, args.max_size)
        report("homography, AUC of the corner error", errors, (1, 3, 5, 10))
    if args.cameras:
        errors = poses(
            list(zip(args.cameras[::2], args.cameras[1::2], strict=True)), feature, args.seeds
        )
        report("pose, AUC of the error in degrees", errors, (5, 10, 20))
    return 0


def report(
    title: str, tables: dict[str, list[PairScore]], limits: tuple[int, ...], against: str = OURS
) -> None:
    """A table of the areas of each estimator, and what it gains over one of them."""
    print(
        f"\n| {title} | pairs | {' | '.join(map(str, limits))} |\n|---|---|{'---|' * len(limits)}"
    )
    for name, values in summaries(tables, limits, against).items():
        cells = []
        for key in (f"auc{limit}" for limit in limits):
            gain = ""
            if name != against:
                gain = f" ({values[f'{key} gain low']:+.1f} to {values[f'{key} gain high']:+.1f})"
            cells.append(f"{values[key]:.1f}{gain}")
        print(f"| {name} | {values['pairs']} | {' | '.join(cells)} |", flush=True)


def homographies(
    folders: Sequence[Path], feature: KDDescriptor, seeds: int, max_size: int | None = None
) -> dict[str, list[PairScore]]:
    tables: dict[str, list[PairScore]] = {name: [] for name, _ in estimators("homography")}
    for images in itertools.chain.from_iterable(map(read_images, folders)):
        whole = [images.load(k) for k in range(len(images.images))]
        grays = [reduced(gray, max_size) for gray in whole]
        to_small = [_smaller(*both) for both in zip(whole, grays, strict=True)]
        found = [described(feature, gray) for gray in grays]
        for k in range(1, len(grays)):
            points = matched(found[0], found[k])
            H_true = to_small[k] @ images.H_1tok[k] @ np.linalg.inv(to_small[0])
            for name, estimate in estimators("homography"):
                errors = [
                    homography_corner_error(
                        estimate(*shuffled(points, seed), None, None, seed), H_true, grays[0].shape
                    )
                    for seed in range(seeds)
                ]  # fmt: skip
                tables[name].append(PairScore(errors))
    return tables


def poses(
    folders: Sequence[tuple[Path, Path]], feature: KDDescriptor, seeds: int
) -> dict[str, list[PairScore]]:
    tables: dict[str, list[PairScore]] = {name: [] for name, _ in estimators("essential")}
    scenes = ((photos.name, read_cameras(photos, cameras)) for photos, cameras in folders)
    for views in of_cameras(scenes):
        found = [described(feature, gray) for gray in views.grays]
        for i, j, (view0, view1) in views.pairs:
            points, (R_true, t_true) = matched(found[i], found[j]), relative(view0, view1)
            for name, estimate in estimators("essential"):
                errors = []
                for seed in range(seeds):
                    pose = estimate(*shuffled(points, seed), view0.K, view1.K, seed)
                    wrong = np.inf
                    if pose is not None:
                        turned = rotation_angle(pose[0] @ R_true.T)
                        wrong = max(turned, direction_angle(pose[1], t_true))
                    errors.append(wrong)
                tables[name].append(PairScore(errors))
    return tables


def synthetic(seeds: int) -> None:
    """Median error and time of the searches with PoseLib and with OpenCV, both refined.

    Points of a scene, seen by two cameras of 1280 x 960 pixels, with a noise of
    0.5 pixels; outliers are anywhere.
    """
    print("| model | matches | inliers | PoseLib: error | ms | OpenCV: error | ms |")
    print("|---|---|---|---|---|---|---|")
    found: Any = two_view._poselib
    for model, count, inliers in itertools.product(
        ("fundamental", "essential"), (50, 500, 5000), (0.2, 0.5, 0.9)
    ):
        cells = []
        for library in (found, lambda: None):
            two_view._poselib = library  # type: ignore[assignment]
            errors, seconds = zip(
                *(_on_synthetic(model, count, inliers, seed) for seed in range(seeds)), strict=True
            )
            cells += [f"{np.median(errors):.2f}", f"{1000 * np.median(seconds):.1f}"]
        two_view._poselib = found
        print(f"| {model} | {count} | {inliers:.0%} | {' | '.join(cells)} |", flush=True)


class Scene(NamedTuple):
    """Matching points of two images, exact ones and those seen, and the true camera and pose."""

    exact: tuple[Points, Points]
    points: tuple[Points, Points]
    K: NDArray[np.float64]
    R: NDArray[np.float64]
    t: NDArray[np.float64]


def scene(count: int, inliers: float, seed: int) -> Scene:
    rng = np.random.default_rng(seed)
    K = two_view.camera_of(1000.0, (960, 1280))
    R, t = cv2.Rodrigues(rng.normal(0, 0.1, 3))[0], rng.normal(0, 0.5, 3)
    X = rng.uniform([-3, -2, 5], [3, 2, 9], (count, 3))
    exact = [(x @ K.T)[:, :2] / (x @ K.T)[:, 2:] for x in (X, X @ R.T + t)]
    points0, points1 = (points + rng.normal(0, 0.5, points.shape) for points in exact)
    wrong = rng.permutation(count)[round(inliers * count) :]
    points1[wrong] = rng.uniform((0, 0), (1280, 960), (len(wrong), 2))
    return Scene((exact[0], exact[1]), (points0, points1), K, R, t)


def _on_synthetic(model: str, count: int, inliers: float, seed: int) -> tuple[float, float]:
    """The error, in pixels of the true matches or degrees of the pose, and the seconds."""
    exact, (points0, points1), K, R, t = scene(count, inliers, seed)
    start = time.perf_counter()
    views = two_view.estimate(points0, points1, model, threshold=THRESHOLD, K0=K, K1=K)
    seconds = time.perf_counter() - start
    if views.matrix is None:
        return np.inf, seconds
    if views.R_0to1 is not None and views.t_0to1 is not None:
        turned = rotation_angle(views.R_0to1 @ R.T)
        return max(turned, direction_angle(views.t_0to1, t)), seconds
    errors = epipolar_errors(exact[0], exact[1], views.matrix)
    return float(np.sqrt((errors**2).mean())), seconds


def described(feature: KDDescriptor, gray: NDArray[Any]) -> tuple[Points, Any]:
    keypoints, rows = feature.detectAndCompute(gray, None)
    return np.array([keypoint.pt for keypoint in keypoints]).reshape(-1, 2), rows


def matched(image0: tuple[Points, Any], image1: tuple[Points, Any]) -> tuple[Points, Points]:
    """Points of the matches that the ratio test lets pass, (M, 2) of both images."""
    matches, _ = match_descriptors(
        image0[1], image1[1], ratio=RATIO, points0=image0[0], points1=image1[0]
    )
    return image0[0][matches[:, 0]], image1[0][matches[:, 1]]


def shuffled(points: tuple[Points, Points], seed: int) -> tuple[Points, Points]:
    order = np.random.default_rng(seed).permutation(len(points[0]))
    return points[0][order], points[1][order]


def estimators(model: str) -> Iterator[tuple[str, Estimator]]:
    yield OURS, _ours(model)
    if model == "homography":
        yield "MAGSAC, not refined", _with_enough(_magsac, two_view.NEEDED[model])
    for name, module, both in (
        ("PoseLib", "poselib", (_poselib_homography, _poselib_pose)),
        ("pycolmap", "pycolmap", (_pycolmap_homography, _pycolmap_pose)),
    ):
        if importlib.util.find_spec(module):
            yield name, _with_enough(both[model == "essential"], two_view.NEEDED[model])


def _with_enough(estimate: Estimator, needed: int) -> Estimator:
    def checked(points0: Points, points1: Points, *others: Any) -> Any:
        return estimate(points0, points1, *others) if len(points0) >= needed else None

    return checked


def _ours(model: str) -> Estimator:
    def estimate(points0: Points, points1: Points, K0: Any, K1: Any, seed: int) -> Any:
        cv2.setRNGSeed(seed)
        found = two_view.estimate(points0, points1, model, threshold=THRESHOLD, K0=K0, K1=K1)
        if model == "homography":
            return found.matrix
        return None if found.R_0to1 is None else (found.R_0to1, found.t_0to1)

    return estimate


def _magsac(points0: Points, points1: Points, K0: Any, K1: Any, seed: int) -> Any:
    cv2.setRNGSeed(seed)
    return two_view._by_opencv(
        cv2.findHomography, points0, points1, cv2.USAC_MAGSAC, THRESHOLD,
        maxIters=two_view.ITERATIONS, confidence=two_view.CONFIDENCE,
    )[0]  # fmt: skip


def _smaller(whole: NDArray[Any], small: NDArray[Any]) -> NDArray[np.float64]:
    """The map (3, 3) from an image to the same reduced: centres of pixels are whole numbers."""
    y, x = (a / b for a, b in zip(small.shape, whole.shape, strict=True))
    return np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2], [0, 0, 1]])


def _poselib_homography(points0: Points, points1: Points, K0: Any, K1: Any, seed: int) -> Any:
    import poselib

    options = {"max_iterations": two_view.ITERATIONS, "max_reproj_error": THRESHOLD, "seed": seed}
    H, found = poselib.estimate_homography(points0, points1, options, {})
    return H if found["num_inliers"] else None


def _poselib_pose(points0: Points, points1: Points, K0: Any, K1: Any, seed: int) -> Any:
    import poselib

    options = {
        "max_iterations": two_view.ITERATIONS,
        "max_epipolar_error": 1.0,
        "min_iterations": 200,
    }
    cameras = [{"model": "PINHOLE", **_camera(K)} for K in (K0, K1)]
    pose, _ = poselib.estimate_relative_pose(
        points0, points1, *cameras, {**options, "seed": seed}, {}
    )
    return pose.R, pose.t


def _pycolmap_homography(points0: Points, points1: Points, K0: Any, K1: Any, seed: int) -> Any:
    import pycolmap

    options = pycolmap.RANSACOptions(
        max_error=THRESHOLD, max_num_trials=two_view.ITERATIONS, random_seed=seed
    )
    found = pycolmap.estimate_homography_matrix(points0, points1, options)
    return None if found is None else found["H"]


def _pycolmap_pose(points0: Points, points1: Points, K0: Any, K1: Any, seed: int) -> Any:
    import pycolmap

    options = pycolmap.RANSACOptions(
        max_error=1.0, max_num_trials=two_view.ITERATIONS, random_seed=seed
    )
    cameras = [pycolmap.Camera(model="PINHOLE", **_camera(K)) for K in (K0, K1)]
    found = pycolmap.estimate_relative_pose(cameras[0], points0, cameras[1], points1, options)
    if found is None:
        return None
    first, inliers = found["cam2_from_cam1"], found["inlier_mask"]
    refined = pycolmap.refine_relative_pose(
        first, cameras[0], points0, cameras[1], points1, inliers
    )
    pose = first if refined is None else refined["cam2_from_cam1"]
    return pose.rotation.matrix(), pose.translation


def _camera(K: NDArray[np.float64]) -> dict[str, Any]:
    """A pinhole of PoseLib and COLMAP; its size is not used."""
    width, height = int(2 * K[0, 2]), int(2 * K[1, 2])
    return {"width": width, "height": height, "params": [K[0, 0], K[1, 1], K[0, 2], K[1, 2]]}

"""Whole pipelines, each with its own detector: what they reach, and how long they take.

Unlike the other protocols, keypoints are not shared: a pipeline is judged by what it is used for,
the homography or the pose of two images, beside the milliseconds that an image takes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.detector.keypoints import opencv_factory, strongest
from kd_cv.evaluate import learned, metrics
from kd_cv.evaluate.cameras import CameraView
from kd_cv.evaluate.images import CORNERS, corner_errors
from kd_cv.evaluate.intervals import SEEDS, PairTable, summaries
from kd_cv.evaluate.pose import BASELINES, THRESHOLDS, pose_errors, viewing_angle
from kd_cv.evaluate.scores import Progress, Score, tell
from kd_cv.feature2d import KDDescriptor
from kd_cv.features import RootSIFT
from kd_cv.fit.sequences import ImageSet
from kd_cv.io.images import read_gray
from kd_cv.neighbours import RATIO, as_ratio, match_descriptors
from kd_cv.types import Feature

Gray = NDArray[np.uint8]
Float64 = NDArray[np.float64]
Rows = NDArray[np.float32] | None


@dataclass(frozen=True)
class Pipeline:
    """A name, and what detects and describes; bits  rows are bits, compared by Hamming distance."""

    name: str
    feature: Feature
    bits: bool = False
    max_keypoints: int = 2000

    def run(self, gray: Gray) -> tuple[Float64, Rows, float]:
        """Positions (N, 2) and rows (N, D) of an image, None without any, and the milliseconds.

        Bits become zeros and ones: the square of their Euclidean distance is Hamming's.
        """
        start = time.perf_counter()
        keypoints, rows = self.feature.detectAndCompute(gray, None)
        taken = 1000 * (time.perf_counter() - start)
        if rows is None or not len(keypoints):
            return np.empty((0, 2)), None, taken
        if len(keypoints) > self.max_keypoints:
            number = {id(keypoint): n for n, keypoint in enumerate(keypoints)}
            chosen = [number[id(k)] for k in strongest(keypoints, self.max_keypoints)]
            keypoints, rows = [keypoints[n] for n in chosen], rows[chosen]
        rows = np.unpackbits(rows, axis=1) if self.bits else rows
        return np.array([k.pt for k in keypoints]), rows.astype(np.float32), taken


def make_pipelines(names: Iterable[str], max_keypoints: int = 2000) -> list[Pipeline]:
    """Pipelines by name: "kd", "kd3" (three scales), "kd64" (64 dimensions), all with our detector;
    "kd+sift" with SIFT's; "sift", "rootsift", "orb", and where OpenCV has them "akaze", "brisk";
    learned ones where their packages are installed (see `learned`): "xfeat", "disk", "aliked",
    "kornia:CLASS".
    """
    n = max_keypoints
    makers: dict[str, Callable[[], Any]] = {
        "kd": lambda: KDDescriptor(n),
        "kd3": lambda: KDDescriptor(n, scales=3),
        "kd64": lambda: KDDescriptor(n, dim=64),
        "kd+sift": lambda: KDDescriptor(detector=cv2.SIFT_create(n)),
        "sift": lambda: cv2.SIFT_create(n),
        "rootsift": lambda: RootSIFT(n),
        "orb": lambda: cv2.ORB_create(n),
        "akaze": lambda: _opencv("AKAZE_create"),
        "brisk": lambda: _opencv("BRISK_create"),
        "xfeat": lambda: learned.xfeat(n),
        "disk": lambda: learned.disk(n),
        "aliked": lambda: learned.aliked(n),
    }
    chosen = []
    for name in names:
        make = makers.get(name)
        if name.startswith("kornia:"):
            make = partial(learned.AtOurKeypoints, name.removeprefix("kornia:"), n)
        if make is None:
            raise ValueError(f"unknown pipeline {name!r}: expected one of {list(makers)}")
        bits = name in ("orb", "akaze", "brisk")
        chosen.append(Pipeline(name, make(), bits, n))
    if not chosen:
        raise ValueError("no pipeline was named")
    return chosen


def _opencv(maker: str) -> Any:
    make = opencv_factory(maker)
    if make is None:
        raise ValueError(f"OpenCV {cv2.__version__} has no {maker} without its contributed modules")
    return make()


def on_homographies(
    sets: Iterable[ImageSet],
    pipelines: Sequence[Pipeline],
    *,
    threshold: float = 3.0,
    ratio: float = RATIO,
    seeds: int = SEEDS,
    max_size: int | None = None,
    against: str | None = None,
    progress: Progress | None = None,
) -> list[Score]:
    """Match image 1 of every set to images 2, 3, ...

    Values: "auc1", "auc3", "auc5", "auc10" (%) of the homography's corner error in pixels;
    "repeatability" (%) of the keypoints, "precision" (%) of the matches and how many are "correct",
    means over the pairs; `summaries` adds intervals, gains and "pairs". "ms" and "keypoints" of an
    image are medians. max_size: pixels of the longer side that larger images are reduced to.
    """
    ratio = as_ratio(ratio)
    tables = {pipeline.name: _Run() for pipeline in pipelines}
    for images in sets:
        grays, H_1tok = images.load_all(max_size)
        for pipeline in pipelines:
            table = tables[pipeline.name]
            (x0, d0), *others = table.run(pipeline, grays)
            for (x1, d1), gray, H in zip(others, grays[1:], H_1tok[1:], strict=True):
                matches, _ = match_descriptors(d0, d1, ratio=ratio)
                a, b = x0[matches[:, 0]], x1[matches[:, 1]]
                off = np.linalg.norm(metrics.warp_points(a, H) - b, axis=1)
                correct = int((off <= threshold).sum())
                wrong = corner_errors(a, b, H, grays[0].shape, threshold, seeds)
                again = metrics.repeatability(x0, x1, H, (grays[0].shape, gray.shape))
                table.pairs.add(
                    wrong,
                    repeatability=100 * again,
                    precision=100 * correct / max(1, len(a)),
                    correct=correct,
                )
        tell(progress, images.name)
    return _scores(tables, CORNERS, against)


def on_poses(
    scenes: Iterable[tuple[str, Sequence[CameraView]]],
    pipelines: Sequence[Pipeline],
    *,
    threshold: float = 3.0,
    ratio: float = RATIO,
    seeds: int = SEEDS,
    against: str | None = None,
    progress: Progress | None = None,
) -> list[Score]:
    """Estimate the pose between views of scenes with known cameras (see `relative_pose`).

    Values: "auc5", "auc10", "auc20" (%) of the larger angle and "inliers" of a pair; `summaries`
    adds intervals, gains and "pairs". "ms" and "keypoints" of an image are medians.
    """
    ratio = as_ratio(ratio)
    tables = {pipeline.name: _Run() for pipeline in pipelines}
    for name, views in scenes:
        pairs = [
            (i, j)
            for i, j in itertools.combinations(range(len(views)), 2)
            if viewing_angle(views[i], views[j]) <= BASELINES[-1]
        ]
        grays = [read_gray(view.image) for view in views]
        for pipeline in pipelines:
            table = tables[pipeline.name]
            described = table.run(pipeline, grays)
            for i, j in pairs:
                (x0, d0), (x1, d1) = described[i], described[j]
                wrong, agree = pose_errors(
                    d0, d1, x0, x1, views[i], views[j], threshold, seeds, ratio
                )
                table.pairs.add(wrong, inliers=agree)
        tell(progress, name)
    return _scores(tables, THRESHOLDS, against)


class _Run:
    """What one pipeline did: its pairs, and the times of its images."""

    def __init__(self) -> None:
        self.pairs = PairTable()
        self.dim = 0
        self._ms: list[float] = []
        self._keypoints: list[int] = []

    def run(self, pipeline: Pipeline, grays: Sequence[Gray]) -> list[tuple[Float64, Rows]]:
        """Positions and rows of images; the first is run twice, because first calls are slow."""
        if not self._ms:
            pipeline.run(grays[0])
        results = []
        for gray in grays:
            points, rows, taken = pipeline.run(gray)
            self._ms.append(taken)
            self._keypoints.append(len(points))
            self.dim = self.dim if rows is None else rows.shape[1]
            results.append((points, rows))
        return results

    @property
    def medians(self) -> dict[str, float]:
        """Of an image."""
        return {"ms": float(np.median(self._ms)), "keypoints": float(np.median(self._keypoints))}


def _scores(
    runs: Mapping[str, _Run], thresholds: Sequence[int], against: str | None
) -> list[Score]:
    if not any(run.pairs for run in runs.values()):
        raise ValueError("there is no pair of images to match")
    values = summaries({name: run.pairs for name, run in runs.items()}, thresholds, against)
    return [Score(name, name, run.dim, values[name] | run.medians) for name, run in runs.items()]

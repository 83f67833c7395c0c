"""Whole pipelines with their own detectors: accuracy and time.

Unlike the other protocols, keypoints are not shared: a pipeline is judged by what it is used for,
the homography or the pose of two images, beside the milliseconds that an image takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cv2
import numpy as np

from experiments.protocols import learned, metrics
from experiments.protocols.matching import CORNERS, Plane, corner_errors, of_homographies
from experiments.protocols.pairs import AS_USUAL, Gray, Measure, PointDescriptors, Views
from experiments.protocols.pose import THRESHOLDS, Scenes, of_cameras, pose_scores
from experiments.protocols.scores import PairScore, Score
from experiments.scenes.sequences import ImageSet
from kd_cv.cli.pair import opencv_factory
from kd_cv.keypoints import strongest
from kd_cv.matching.geometry import reprojection_errors
from kd_cv.matching.neighbours import match_descriptors
from kd_cv.opencv.kd_descriptor import KDDescriptor
from kd_cv.opencv.rootsift import RootSIFT
from kd_cv.types import Feature


@dataclass(frozen=True)
class Pipeline:
    """A detector and descriptor by its name.

    bits           descriptors are bits, compared by their Hamming distance
    max_keypoints  how many are kept of an image, the strongest
    """

    name: str
    feature: Feature
    bits: bool = False
    max_keypoints: int = 2000

    @property
    def kind(self) -> str:
        return self.name

    def run(self, gray: Gray) -> tuple[PointDescriptors, float]:
        """Return positions (N, 2) and descriptors (N, D), or None, and the milliseconds.

        Bits become zeros and ones: the square of their Euclidean distance is Hamming's.
        """
        start = time.perf_counter()
        keypoints, descriptors = self.feature.detectAndCompute(gray, None)
        taken = 1000 * (time.perf_counter() - start)
        if descriptors is None or not len(keypoints):
            return (np.empty((0, 2)), None), taken
        if len(keypoints) > self.max_keypoints:
            number = {id(keypoint): n for n, keypoint in enumerate(keypoints)}
            chosen = [number[id(k)] for k in strongest(keypoints, self.max_keypoints)]
            keypoints, descriptors = [keypoints[n] for n in chosen], descriptors[chosen]
        descriptors = np.unpackbits(descriptors, axis=1) if self.bits else descriptors
        return (np.array([k.pt for k in keypoints]), descriptors.astype(np.float32)), taken


def make_pipelines(names: Iterable[str], max_keypoints: int = 2000) -> list[Pipeline]:
    """Pipelines by name: "kd", "kd-views" (three views), "kd3" (three scales), "kd64" (64
    dimensions), all with `DoG`;
    "kd+sift" with SIFT's; "sift", "rootsift", "orb", and where OpenCV has them "akaze", "brisk";
    learned ones where their packages are installed (see `learned`): "xfeat", "disk", "aliked",
    "kornia:CLASS".
    """
    n = max_keypoints
    makers: dict[str, Callable[[], Any]] = {
        "kd": lambda: KDDescriptor(n),
        "kd-views": lambda: KDDescriptor(n, views=3),
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
    measure: Measure = AS_USUAL,
    max_size: int | None = None,
) -> list[Score]:
    """Match image 1 of every set to images 2, 3, ...

    Values: "auc1", "auc3", "auc5", "auc10" (%) of the homography's corner error in pixels;
    "repeatability" (%) of the keypoints, "precision" (%) of the matches and how many are "correct",
    means over the pairs; `summaries` adds intervals, gains and "pairs". "ms" and "keypoints" of an
    image are medians. max_size: pixels of the longer side that larger images are reduced to.
    """
    runs = _Runs(pipelines)
    data = of_homographies(sets, max_size)
    return runs.timed(measure.scores(data, runs, plane_scores, CORNERS))


def on_poses(
    scenes: Scenes, pipelines: Sequence[Pipeline], measure: Measure = AS_USUAL
) -> list[Score]:
    """Estimate the pose between views of scenes with known cameras (see `relative_pose`).

    Values: those of `relative_pose`; "ms" and "keypoints" of an image are medians.
    """
    runs = _Runs(pipelines)
    return runs.timed(measure.scores(of_cameras(scenes), runs, pose_scores, THRESHOLDS))


def plane_scores(
    image0: PointDescriptors, image1: PointDescriptors, plane: Plane, measure: Measure
) -> PairScore:
    (x0, d0), (x1, d1) = image0, image1
    matches, _ = match_descriptors(d0, d1, ratio=measure.ratio, points0=x0, points1=x1)
    a, b = x0[matches[:, 0]], x1[matches[:, 1]]
    correct = int((reprojection_errors(a, b, plane.H_0to1) <= measure.threshold).sum())
    again = metrics.repeatability(x0, x1, plane.H_0to1, (plane.shape0, plane.shape1))
    values = {
        "repeatability": 100 * again,
        "precision": 100 * correct / max(1, len(a)),
        "correct": correct,
    }
    return PairScore(corner_errors(a, b, plane, measure), values)


class _Runs:
    """Runs pipelines on images, and keeps the milliseconds and keypoints of each image."""

    def __init__(self, pipelines: Sequence[Pipeline]) -> None:
        self._pipelines = pipelines
        self._costs: dict[str, list[tuple[float, int]]] = {p.name: [] for p in pipelines}

    def __call__(self, views: Views) -> Iterator[tuple[Pipeline, list[PointDescriptors]]]:
        for pipeline in self._pipelines:
            costs = self._costs[pipeline.name]
            if not costs:
                pipeline.run(views.grays[0])  # first calls are slow
            results = [pipeline.run(gray) for gray in views.grays]
            costs += [(taken, len(points)) for (points, _), taken in results]
            yield pipeline, [features for features, _ in results]

    def timed(self, scores: Sequence[Score]) -> list[Score]:
        """Scores of the pipelines, with the medians of what an image costs."""
        medians = [np.median(self._costs[score.name], axis=0).tolist() for score in scores]
        return [
            replace(score, values={**score.values, "ms": ms, "keypoints": keypoints})
            for score, (ms, keypoints) in zip(scores, medians, strict=True)
        ]

"""Sections on matching: whole calls of `match`, nearest neighbours, poses, synthetic views."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.benchmarks.estimators import scene
from experiments.benchmarks.inputs import Config, Inputs
from experiments.benchmarks.measure import Row, Spread, Target, ratio_row, take_turns
from experiments.benchmarks.report import Say
from kd_cv.matching.neighbours import nearest
from kd_cv.matching.pipeline import match
from kd_cv.matching.two_view import estimate
from kd_cv.opencv.kd_descriptor import KDDescriptor

SIZE = (2048, 1365)
#: Keypoints asked for to how many times SIFT's pipeline must take, at least.
TARGETS = {2000: 7.0, 8000: 3.0}
ROWS, OVER_PRODUCT = 6000, 1.4
MATCHES, POSE_MS = 400, 15.0
SCENES = 25  # whose poses are timed


def match_calls(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """`match` against cv2.SIFT, BFMatcher.knnMatch with Lowe's ratio, and MAGSAC: whole calls."""
    width, height = SIZE
    image = cv2.resize(inputs.image, SIZE, interpolation=cv2.INTER_CUBIC)
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), 8, 0.95)
    pair = image, cv2.warpAffine(image, turn, SIZE)
    for count, target in TARGETS.items():
        say(f"{count} keypoints")
        times = take_turns(
            {
                "SIFT": partial(sift_pipeline, *pair, count),
                "match": partial(match, *pair, max_keypoints=count),
            },
            config.rounds,
            config.seconds,
        )
        found = match(*pair, max_keypoints=count)
        inliers = sift_pipeline(*pair, count)
        note = f"{int(found.inliers.sum())} inliers, SIFT's {inliers}; {found.views} view"
        name = f"match, {width} x {height}, {count} keypoints"
        yield ratio_row(name, times["SIFT"], times["match"], target=Target(target), note=note)


def sift_pipeline(image0: NDArray[Any], image1: NDArray[Any], count: int) -> int:
    """The inliers of a homography, as tutorials of OpenCV find it."""
    sift = cv2.SIFT_create(count)
    (keypoints0, d0), (keypoints1, d1) = (
        sift.detectAndCompute(image, None) for image in (image0, image1)
    )
    pairs = cv2.BFMatcher().knnMatch(d0, d1, k=2)
    good = [m for m, n in pairs if m.distance < 0.8 * n.distance]
    points0 = np.float32([keypoints0[m.queryIdx].pt for m in good])  # type: ignore[arg-type]
    points1 = np.float32([keypoints1[m.trainIdx].pt for m in good])  # type: ignore[arg-type]
    _, inliers = cv2.findHomography(points0, points1, cv2.USAC_MAGSAC, 3.0)
    return int(inliers.sum())


def neighbours(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """The search, both ways, against the bare product of the same float32 matrices."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(ROWS, 128)).astype(np.float32) for _ in range(2))
    out = np.empty((ROWS, ROWS), np.float32)
    times = take_turns(
        {"product": lambda: np.matmul(a, b.T, out=out), "kd_cv": lambda: nearest(a, b)},
        config.rounds,
        config.seconds,
    )
    over = Spread.of(times["kd_cv"] / times["product"])
    yield Row(
        f"nearest neighbours, {ROWS} x {ROWS} / the product", over,
        against=Spread.of(times["product"]), kd_cv=Spread.of(times["kd_cv"]),
        target=Target(OVER_PRODUCT, at_most=True), note="time of kd_cv over the product",
    )  # fmt: skip


def poses(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """Median time of a pose of 400 matches, half of them right, over several scenes."""
    scenes = [scene(MATCHES, 0.5, seed) for seed in range(SCENES)]
    seconds = []
    for made in scenes:
        estimate_pose = partial(estimate, model="essential", K0=made.K, K1=made.K)
        times = take_turns({"pose": partial(estimate_pose, *made.points)}, 1)
        seconds.append(1000 * times["pose"][0])
    target = Target(POSE_MS, at_most=True)
    yield Row(f"pose of {MATCHES} matches", Spread.of(seconds), "ms", target=target)


def views(inputs: Inputs, config: Config, say: Say) -> Iterator[Row]:
    """detectAndCompute with three views against one, and against cv2.SIFT, 640 x 480."""
    image = cv2.resize(inputs.image, (640, 480), interpolation=cv2.INTER_AREA)
    features: dict[str, Any] = {
        "cv2.SIFT": cv2.SIFT_create(2000),
        "views=1": KDDescriptor(2000),
        "views=3": KDDescriptor(2000, views=3),
    }
    times = take_turns(
        {name: partial(f.detectAndCompute, image, None) for name, f in features.items()},
        config.rounds,
        config.seconds,
    )
    three = times["views=3"]
    yield ratio_row("cv2.SIFT / views=3, 640 x 480", times["cv2.SIFT"], three, target=Target(2.0))
    yield Row(
        "views=3 / views=1, 640 x 480", Spread.of(three / times["views=1"]),
        against=Spread.of(three), kd_cv=Spread.of(times["views=1"]),
        target=Target(1.7, at_most=True),
    )  # fmt: skip

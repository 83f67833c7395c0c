"""Matching of images with known homographies, all candidates at the same keypoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.protocols.cache import NO_CACHE, Cache
from experiments.protocols.candidates import Candidate
from experiments.protocols.pairs import (
    AS_USUAL,
    Float64,
    Measure,
    PointDescriptors,
    Views,
    at_keypoints,
    orders,
)
from experiments.protocols.scores import PairScore, Score
from experiments.scenes.sequences import ImageSet
from kd_cv.checks import as_int
from kd_cv.matching.metrics import homography_corner_error, match_precision, near_truth
from kd_cv.matching.neighbours import match_descriptors
from kd_cv.matching.two_view import find_homography

CORNERS = (1, 3, 5, 10)  # pixels, of the homography's corners


class Plane(NamedTuple):
    """The true homography of two images of these shapes."""

    H_0to1: Float64
    shape0: tuple[int, ...]
    shape1: tuple[int, ...]


def of_homographies(sets: Iterable[ImageSet], max_size: int | None = None) -> Iterator[Views]:
    """Image 1 of every set with images 2, 3, ..., reduced to a longer side of max_size pixels."""
    for images in sets:
        grays, H_1tok = images.load_all(max_size)
        planes = [
            (0, k, Plane(H, grays[0].shape, gray.shape))
            for k, (H, gray) in enumerate(zip(H_1tok, grays, strict=True))
        ]
        yield Views(images.name, grays, planes[1:])


def image_matching(
    sets: Iterable[ImageSet],
    candidates: Iterable[Candidate],
    measure: Measure = AS_USUAL,
    *,
    max_keypoints: int = 1000,
    cache: Cache = NO_CACHE,
) -> list[Score]:
    """Match image 1 of every set to images 2, 3, ... at the same SIFT keypoints for all.

    Values in percent, means over the pairs of images: "ap" and "precision" (see `match_scores`),
    "auc1", "auc3", "auc5", "auc10" of the homography's corner error in pixels; `summaries` adds
    intervals, gains and "pairs".
    """
    describe = at_keypoints(candidates, as_int(max_keypoints, "max_keypoints", 2), cache)
    return measure.scores(of_homographies(sets), describe, match_scores, CORNERS)


def match_scores(
    image0: PointDescriptors, image1: PointDescriptors, plane: Plane, measure: Measure
) -> PairScore | None:
    """Of one pair of images; None if no keypoint could be matched correctly.

    "ap" (%): see `match_precision`. "precision": percentage of correct mutual matches. Errors: see
    `corner_errors`.
    """
    (points0, rows0), (points1, rows1) = image0, image1
    if rows0 is None or rows1 is None:
        return None
    ap = match_precision((points0, rows0), (points1, rows1), plane.H_0to1, measure.threshold)
    if ap is None:
        return None
    near = near_truth(points0, points1, plane.H_0to1, measure.threshold)
    mutual, mutual_ratios = match_descriptors(rows0, rows1, mutual=True)
    good = near[mutual[:, 0], mutual[:, 1]]
    clear = mutual[mutual_ratios <= measure.ratio]
    values = {
        "ap": 100 * ap,
        "precision": 100 * (float(good.mean()) if len(good) else 0.0),
    }
    return PairScore(
        corner_errors(points0[clear[:, 0]], points1[clear[:, 1]], plane, measure), values
    )


def corner_errors(
    points0: NDArray[np.float64], points1: NDArray[np.float64], plane: Plane, measure: Measure
) -> list[float]:
    errors = []
    for order in orders(len(points0), measure.seeds):
        H_0to1, _ = find_homography(points0[order], points1[order], measure.threshold)
        errors.append(homography_corner_error(H_0to1, plane.H_0to1, plane.shape0))
    return errors

"""Matching of images with known homographies, all candidates at the same keypoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_int, as_positive
from kd_cv.descriptor.frames import from_keypoints
from kd_cv.descriptor.threads import opencv
from kd_cv.evaluate import metrics
from kd_cv.evaluate.cache import Cache
from kd_cv.evaluate.candidates import Array32, Candidate
from kd_cv.evaluate.intervals import SEEDS, PairTable, summaries
from kd_cv.evaluate.scores import Progress, Score, tell
from kd_cv.fit.sequences import ImageSet
from kd_cv.models import find_homography
from kd_cv.neighbours import RATIO, as_ratio, match_descriptors

CORNERS = (1, 3, 5, 10)  # pixels, of the homography's corners


class NothingToMatch(ValueError):
    """No two images have a keypoint in common."""


def image_matching(
    sets: Iterable[ImageSet],
    candidates: Sequence[Candidate],
    *,
    max_keypoints: int = 1000,
    threshold: float = 3.0,
    ratio: float = RATIO,
    seeds: int = SEEDS,
    against: str | None = None,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> list[Score]:
    """Match image 1 of every set to images 2, 3, ... at the same SIFT keypoints for all.

    Values in percent, means over the pairs of images: "ap" (see `match_scores`), "precision" of
    mutual matches, "auc3", "auc5", "auc10" of the homography's corner error in pixels. The
    homography is estimated `seeds` times, from the mutual matches up to a ratio. `summaries` adds
    intervals, gains and "pairs".
    """
    detector = cv2.SIFT_create(as_int(max_keypoints, "max_keypoints", 2))
    threshold, ratio = as_positive(threshold, "threshold"), as_ratio(ratio)
    seeds = as_int(seeds, "seeds")
    tables = {candidate.name: PairTable() for candidate in candidates}
    dims: dict[str, int] = {}
    for images in sets:
        grays, H_1tok = images.load_all()
        with opencv:
            frames = [from_keypoints(detector.detect(gray, None)) for gray in grays]
        for candidate in candidates:
            rows = [
                (cache or Cache()).frames(f"{images.name}.{k}", candidate, gray, seen)
                for k, (gray, seen) in enumerate(zip(grays, frames, strict=True), start=1)
            ]
            dims[candidate.name] = rows[0].shape[1]
            for k in range(1, len(grays)):
                score = match_scores(
                    rows[0], rows[k], frames[0][:, :2], frames[k][:, :2], H_1tok[k],
                    grays[0].shape, threshold, seeds, ratio,
                )  # fmt: skip
                if score is not None:
                    tables[candidate.name].add(
                        score.corner_errors, ap=100 * score.ap, precision=100 * score.precision
                    )
        tell(progress, images.name)
    if not any(tables.values()):
        raise NothingToMatch("there is no pair of images with keypoints in common")
    values = summaries(tables, CORNERS, against)
    return [Score(c.name, c.kind, dims[c.name], values[c.name]) for c in candidates]


class PairScore(NamedTuple):
    """Of one pair of images; ap and precision in [0, 1]."""

    ap: float
    precision: float
    corner_errors: list[float]  # of the homography, in pixels, for each seed


def match_scores(
    rows0: Array32,
    rows1: Array32,
    points0: NDArray[np.float64],
    points1: NDArray[np.float64],
    H_0to1: NDArray[np.float64],
    shape: tuple[int, ...],
    threshold: float = 3.0,
    seeds: int = 1,
    ratio: float = RATIO,
) -> PairScore | None:
    """Scores of one pair of images, from rows and positions of their keypoints.

    ap: average precision of the nearest neighbours of all keypoints of image 0, ranked by ratio.
    A match is correct within threshold pixels of the true place; recall is relative to the
    keypoints of image 0 with any keypoint of image 1 there. precision: share of correct ones of the
    mutual matches. corner_errors: see `corner_errors`.
    None if no keypoint could be matched correctly.
    """
    if not len(points0) or not len(points1):
        return None
    truth = metrics.warp_points(points0, H_0to1)
    distance = np.linalg.norm(truth[:, None] - points1[None], axis=2)
    possible = int((distance.min(axis=1) <= threshold).sum())
    if not possible:
        return None
    matches, ratios = match_descriptors(rows0, rows1, mutual=False)
    correct = distance[matches[:, 0], matches[:, 1]] <= threshold
    mutual, mutual_ratios = match_descriptors(rows0, rows1, mutual=True)
    good = distance[mutual[:, 0], mutual[:, 1]] <= threshold
    clear = mutual[mutual_ratios <= ratio]
    return PairScore(
        ap=metrics.average_precision(-ratios, correct, possible),
        precision=float(good.mean()) if len(good) else 0.0,
        corner_errors=corner_errors(
            points0[clear[:, 0]], points1[clear[:, 1]], H_0to1, shape, threshold, seeds
        ),
    )


def corner_errors(
    points0: NDArray[np.float64],
    points1: NDArray[np.float64],
    H_0to1: NDArray[np.float64],
    shape: tuple[int, ...],
    threshold: float,
    seeds: int,
) -> list[float]:
    """Of the homography estimated from matching points (M, 2), in pixels, for each seed.

    The robust estimator draws by itself; a seed puts the matches in another order.
    """
    errors = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(points0))
        H_found, _ = find_homography(points0[order], points1[order], threshold)
        errors.append(metrics.homography_corner_error(H_found, H_0to1, shape))
    return errors

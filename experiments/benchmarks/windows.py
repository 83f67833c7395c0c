"""Patch sizes for the keypoints of each detector, on sequences with homographies.

python -m experiments windows FOLDER ... [--detectors orb mser] [--pairs 3] [--max-size 640]

Average precision of KD's nearest neighbours at keypoints of each detector, in %, by patch size in
keypoint sizes. "known": the size for the detector; "alone": inferred from each keypoint's fields.
"elsewhere": the fixed size that is best on all other sequences.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from experiments.protocols import metrics
from experiments.protocols.candidates import sift_keypoints
from experiments.protocols.readers import read_images
from experiments.scenes.sequences import ImageSet
from kd_cv import KDDescriptor
from kd_cv.cli.pair import available, make_detector
from kd_cv.keypoints import from_keypoints
from kd_cv.matching.neighbours import match_descriptors

SIDES = (1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 15.0, 19.0, 24.0)
WAYS = ("SIFT", "known", "alone")
MORE = {"blob": "SimpleBlobDetector_create", "star": "StarDetector_create"}
TILTED = {"affine-sift": "sift", "affine-orb": "orb"}  # AffineFeature, and the detector inside it
CORRECT = 3.0  # pixels


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("windows", description=str(__doc__).splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="of sequences, as HPatches has them")
    parser.add_argument("--detectors", nargs="+", help="by default all that this OpenCV has")
    parser.add_argument("--pairs", type=int, default=5, help="of images, of each sequence")
    parser.add_argument("--keypoints", type=int, default=1000, help="of an image, at most")
    parser.add_argument("--max-size", type=int, help="pixels a side; larger images are reduced")
    args = parser.parse_args(arguments)
    sets = [
        ImageSet(images.name, *images.load_all(args.max_size))
        for folder in args.folders
        for images in read_images(folder)
    ]
    print(f"OpenCV {cv2.__version__}, {len(sets)} sequences, {args.pairs} pairs of each\n")
    titles = ["detector", *WAYS, "best fixed", "elsewhere", *(f"{side:g}" for side in SIDES)]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for name in args.detectors or detectors():
        scores = [of_sequence(images, name, args.pairs, args.keypoints) for images in sets]
        print(line(name, np.array([own for own in scores if len(own)])), flush=True)
    return 0


def detectors() -> list[str]:
    """The names of those that this OpenCV has."""
    homes = (cv2, getattr(cv2, "xfeatures2d", None))
    more = (name for name, made in MORE.items() if any(hasattr(home, made) for home in homes))
    return [*available(), *more, *TILTED]


def detector_of(name: str, keypoints: int) -> Any:
    if name in TILTED:  # of one tilt, since each takes as long again
        return cv2.AffineFeature_create(make_detector(TILTED[name], keypoints), 1)
    if name not in MORE:
        return make_detector(name, keypoints)
    homes = (cv2, getattr(cv2, "xfeatures2d", None))
    return next(getattr(home, MORE[name]) for home in homes if hasattr(home, MORE[name]))()


def some(keypoints: Sequence[cv2.KeyPoint], most: int) -> list[cv2.KeyPoint]:
    """The strongest; of those without a response, evenly spread over their order."""
    responses = np.array([keypoint.response for keypoint in keypoints])
    if not responses.any():
        spread = np.linspace(0, len(keypoints) - 1, most).astype(int)
        return [keypoints[i] for i in np.unique(spread)]
    kept = np.sort(np.argsort(-responses, kind="stable")[:most])
    return [keypoints[i] for i in kept]


def of_sequence(
    images: ImageSet, name: str, pairs: int, most: int
) -> NDArray[np.float64] | list[float]:
    """Mean average precision of each of WAYS, then of each of SIDES; nothing without keypoints."""
    detector = detector_of(name, most)
    count = len(images.images)
    chosen = np.unique(np.linspace(1, count - 1, min(pairs, count - 1)).round().astype(int))
    points, rows = {}, {}
    for k in (0, *chosen.tolist()):
        gray = images.load(k)
        found = detector.detect(gray, None)
        keypoints = some(found, most) if len(found) else []
        points[k] = np.array([keypoint.pt for keypoint in keypoints]).reshape(-1, 2)
        if not keypoints:
            continue
        # In the octaves of their sizes: those of other detectors lead SIFT outside its pyramid.
        for_sift = sift_keypoints(from_keypoints(keypoints), gray.shape)
        ways = [KDDescriptor(detector=detector), KDDescriptor()]
        ways += [KDDescriptor(magnification=side) for side in SIDES]
        rows[k] = [cv2.SIFT_create().compute(gray, for_sift)[1]]
        rows[k] += [way.compute(gray, keypoints)[1] for way in ways]
    scores = []
    for k in chosen.tolist():
        if 0 in rows and k in rows:
            there = metrics.warp_points(points[0], images.H_1tok[k])
            distance = np.linalg.norm(there[:, None] - points[k], axis=2)
            both = zip(rows[0], rows[k], strict=True)
            scores.append([average_precision(a, b, distance) for a, b in both])
    return 100 * np.mean(scores, axis=0) if scores else []


def average_precision(rows0: Any, rows1: Any, distance: NDArray[np.float64]) -> float:
    """Of the nearest neighbours of all keypoints of image 0, ranked by ratio.

    distance  (N0, N1) pixels in image 1 between where a keypoint belongs and each there is
    """
    possible = int((distance.min(axis=1) <= CORRECT).sum())
    matches, ratios = match_descriptors(rows0, rows1, mutual=False)
    correct = distance[matches[:, 0], matches[:, 1]] <= CORRECT
    return metrics.average_precision(-ratios, correct, possible)


def line(name: str, scores: NDArray[np.float64]) -> str:
    """A row of the table, of scores (sequences, ways and sides)."""
    if not len(scores):
        return f"| {name} | no keypoints |"
    ways, fixed = scores[:, : len(WAYS)], scores[:, len(WAYS) :]
    total = fixed.sum(axis=0)
    elsewhere = [own[int((total - own).argmax())] for own in fixed]
    best = fixed.mean(axis=0)
    cells = [*ways.mean(axis=0), best.max(), np.mean(elsewhere), *best]
    return f"| {name} | {' | '.join(f'{cell:.1f}' for cell in cells)} |"

"""Settings of the detector on sequences with homographies, chosen by leaving sequences out.

python -m experiments settings FOLDER ... [--keypoints 2000] [--max-size 640] [--seeds 2]

KD at our keypoints, one setting changed at a time: AUC of the homography's corner error in pixels,
places found in both images, correct matches, and how many of these are at places of their own.
"chosen": for how many sequences it has the best mean AUC on all others. "left out": the AUC on each
sequence of what is chosen on the others, and by how much that is above the default, with the
interval in which this lies in 95 % of draws of the pairs.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from experiments.protocols import metrics
from experiments.protocols.matching import CORNERS, Plane, corner_errors
from experiments.protocols.pairs import Measure
from experiments.protocols.pipelines import Pipeline
from experiments.protocols.readers import read_images
from experiments.protocols.scores import area, areas, interval
from experiments.scenes.sequences import ImageSet
from kd_cv import KDDescriptor
from kd_cv.detector import detect, orientation, scale_space, settings
from kd_cv.detector.settings import SIGMA
from kd_cv.matching.neighbours import RATIO, match_descriptors

CORRECT = 3.0  # pixels
#: What is changed, where it stands (None: an argument of the descriptor), and to what.
CHANGES: dict[str, tuple[Any, str, tuple[float, ...]]] = {
    "second angle": (orientation, "SECOND", (0.8, 0.85, 0.9)),
    "second yields by the power": (detect, "YIELDING", (0, 2, 4)),
    "contrast": (settings, "COUNTED_CONTRAST", (0.04, 0.03, 0.02)),
    "for size": (scale_space, "FOR_SIZE", (0, 0.1, 0.2)),
    "standard deviation": (detect, "DEVIATION", (0.23, 0.25, 0.27)),
    "filled up to": (detect, "FEW", (250, 500, 1000)),
    "sigma": (None, "sigma", (1.6, SIGMA, 2.0)),
}


class Pairs(NamedTuple):
    """What was reached, pair by pair: whose sequence, errors (N, seeds), and means."""

    sequence: NDArray[Any]
    errors: NDArray[Any]
    again: NDArray[Any]
    correct: NDArray[Any]
    places: NDArray[Any]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("settings", description=str(__doc__).splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="of sequences, as HPatches has them")
    parser.add_argument("--changes", nargs="+", default=list(CHANGES), choices=list(CHANGES))
    parser.add_argument("--keypoints", type=int, default=2000, help="of an image, at most")
    parser.add_argument("--max-size", type=int, help="pixels a side; larger images are reduced")
    parser.add_argument("--seeds", type=int, default=2, help="of the estimate of each pair")
    args = parser.parse_args(arguments)
    sets = [
        ImageSet(images.name, *images.load_all(args.max_size))
        for folder in args.folders
        for images in read_images(folder)
    ]
    default = _measured(sets, args.keypoints, args.seeds, {})
    print(f"{len(sets)} sequences, {len(default.errors)} pairs, {args.keypoints} keypoints\n")
    titles = [*(f"AUC {t} px" for t in CORNERS), "repeatability", "correct", "places", "chosen"]
    print(f"| setting | {' | '.join(titles)} |\n|{'---|' * (len(titles) + 1)}")
    for change in args.changes:
        home, name, values = CHANGES[change]
        now = SIGMA if home is None else getattr(home, name)
        tried = {
            value: default if value == now else _measured(
                sets, args.keypoints, args.seeds, {change: value}
            )
            for value in values
        }  # fmt: skip
        for line in _lines(change, now, tried, default):
            print(line, flush=True)
    return 0


def _measured(
    sets: Sequence[ImageSet], keypoints: int, seeds: int, changed: dict[str, float]
) -> Pairs:
    """KD on all pairs, with some settings changed."""
    rows = []
    with ExitStack() as stack:
        arguments: dict[str, Any] = {}
        for change, value in changed.items():
            home, name, _ = CHANGES[change]
            if home is None:
                arguments[name] = value
            else:
                stack.enter_context(patch.object(home, name, value))
        pipeline = Pipeline("kd", KDDescriptor(keypoints, **arguments), max_keypoints=keypoints)
        for images in sets:
            grays = [images.load(k) for k in range(len(images.images))]
            (x0, d0), *others = (pipeline.run(gray)[0] for gray in grays)
            for k, (x1, d1) in enumerate(others, start=1):
                H = images.H_1tok[k]
                plane = Plane(H, grays[0].shape, grays[k].shape)
                matches, _ = match_descriptors(d0, d1, ratio=RATIO)
                a, b = x0[matches[:, 0]], x1[matches[:, 1]]
                good = np.linalg.norm(metrics.warp_points(a, H) - b, axis=1) <= CORRECT
                again = metrics.repeatability(x0, x1, H, plane[1:])
                errors = corner_errors(a, b, plane, Measure(CORRECT, seeds=seeds))
                places = len(np.unique(a[good], axis=0))
                rows.append((images.name, errors, 100 * again, int(good.sum()), places))
    return Pairs(*(np.array(column) for column in zip(*rows, strict=True)))


def _mean_area(errors: NDArray[Any]) -> float:
    return float(np.mean([area(errors, t) for t in CORNERS]))


def _lines(change: str, now: float, tried: dict[float, Pairs], default: Pairs) -> Iterator[str]:
    chosen = {}
    for sequence in np.unique(default.sequence):
        others = default.sequence != sequence
        chosen[sequence] = max(tried, key=lambda value: _mean_area(tried[value].errors[others]))
    for value, pairs in tried.items():
        title = f"{change} {value:g}" + (" (default)" if value == now else "")
        count = list(chosen.values()).count(value)
        cells = [*(area(pairs.errors, t) for t in CORNERS), *(p.mean() for p in pairs[2:])]
        yield f"| {title} | {' | '.join(f'{cell:.1f}' for cell in cells)} | {count} |"
    owners = [tried[chosen[sequence]] for sequence in default.sequence]
    left_out = Pairs(
        *(np.array([own[c][i] for i, own in enumerate(owners)]) for c in range(len(default)))
    )
    gains = [_gain(left_out.errors, default.errors, t) for t in CORNERS]
    means = [f"{column.mean():.1f}" for column in left_out[2:]]
    yield f"| {change}, left out | {' | '.join([*gains, *means])} | |"


def _gain(errors: NDArray[Any], others: NDArray[Any], threshold: int) -> str:
    def above(drawn: NDArray[Any]) -> NDArray[Any]:
        return areas(drawn[:, :, 0], threshold) - areas(drawn[:, :, 1], threshold)

    both = np.stack([errors, others], axis=1)
    low, high = interval(both, above)
    return f"{area(errors, threshold):.1f}, {above(both[None])[0]:+.1f} ({low:+.1f} to {high:+.1f})"

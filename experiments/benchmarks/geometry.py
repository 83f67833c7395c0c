"""How keypoints follow a photograph that is shifted, turned, scaled, darkened or mirrored.

python -m experiments geometry [IMAGE]

Prints the fraction of the 600 strongest keypoints found again (1.5 pixels, a quarter of an octave,
20 degrees), and their median errors in pixels of the changed image, in size and in angle; kd_cv
first, then cv2.SIFT.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv import DoG
from kd_cv.io.images import read_gray
from kd_cv.keypoints import from_keypoints

Float64 = NDArray[np.float64]
Frames = Callable[[NDArray[Any], int], Float64]
COUNT = 600


class Change(NamedTuple):
    """An image, its changed copy, and the map x -> A x + b from one to the other."""

    name: str
    before: NDArray[Any]
    after: NDArray[Any]
    A: Float64
    b: Float64
    smallest: float = 0.0  # size of keypoints that are large enough for the copy


class Followed(NamedTuple):
    """The fraction of keypoints found again, and medians: pixels, octaves, degrees."""

    again: float
    pixels: float
    octaves: float
    degrees: float


def changes(gray: NDArray[np.uint8]) -> Iterator[Change]:
    large = cv2.GaussianBlur(np.float32(gray), (0, 0), 1.0)  # free of aliasing at half its size
    one = np.eye(2)
    for dx, dy in ((1, 0), (0, 1), (1, 1), (3, 1)):
        height, width = (n // 2 - 2 for n in gray.shape)
        still, moved = (
            np.ascontiguousarray(large[y::2, x::2][:height, :width]) for x, y in ((0, 0), (dx, dy))
        )
        name = f"shifted by {dx / 2}, {dy / 2} px"
        yield Change(name, still, moved, one, -np.array([dx, dy]) / 2)
    side = (min(gray.shape) - 1) // 64 * 64 + 1  # every octave begins alike from all sides
    square = np.ascontiguousarray(gray[:side, :side])
    centre = (side - 1) / 2
    for degrees in (10, 45, 90, 133):
        M = cv2.getRotationMatrix2D((centre, centre), -degrees, 1.0)
        turned = cv2.warpAffine(square, M, (side, side), flags=cv2.INTER_LANCZOS4)
        yield Change(f"turned by {degrees} degrees", square, turned, M[:, :2], M[:, 2])
    for factor in (0.5, 0.7, 1.4, 2.0):
        size = tuple(round(n * factor) for n in gray.shape[::-1])
        way = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
        ratio = np.array(size) / gray.shape[::-1]
        scaled = cv2.resize(gray, size, interpolation=way)
        yield Change(
            f"scaled by {factor}", gray, scaled, np.diag(ratio), (ratio - 1) / 2, 2.6 / factor
        )
    yield Change(
        "darkened to a fifth", gray, np.rint(gray * 0.2).astype(np.uint8), one, np.zeros(2)
    )
    mirrored = np.ascontiguousarray(square[:, ::-1])
    yield Change("mirrored", square, mirrored, np.diag([-1.0, 1.0]), np.array([side - 1.0, 0.0]))


def follow(frames_of: Frames, change: Change) -> Followed:
    first = frames_of(change.before, COUNT)
    points = first[:, :2] @ change.A.T + change.b
    height, width = change.after.shape
    # Those at the border, which may have left the copy, say nothing.
    inside = (points > 8).all(1) & (points < [width - 8, height - 8]).all(1)
    corners = change.before.shape[1] - 9, change.before.shape[0] - 9
    inside &= (first[:, :2] > 8).all(1) & (first[:, :2] < corners).all(1)
    inside &= first[:, 2] > change.smallest
    return followed(first[inside], frames_of(change.after, 5 * COUNT), change.A, change.b)


def followed(first: Float64, second: Float64, A: Float64, b: Float64) -> Followed:
    """How frames (N, 4) are found again among (M, 4), where x lies at A x + b."""
    points = first[:, :2] @ A.T + b
    scale = np.sqrt(abs(np.linalg.det(A)))
    apart = np.linalg.norm(points[:, None] - second[:, :2], axis=2)
    ratio = np.abs(np.log2(first[:, None, 2] * scale / second[:, 2]))
    direction = np.stack([np.cos(np.deg2rad(first[:, 3])), np.sin(np.deg2rad(first[:, 3]))], 1)
    turned = direction @ A.T
    angle = np.rad2deg(np.arctan2(turned[:, 1], turned[:, 0]))
    turn = np.abs((angle[:, None] - second[:, 3] + 180) % 360 - 180)
    best = (apart + 3 * ratio + turn / 20).argmin(1)
    rows = np.arange(len(first))
    again = (apart[rows, best] < 1.5) & (ratio[rows, best] < 0.35) & (turn[rows, best] < 20)
    picked = rows[again], best[again]
    return Followed(again.mean(), *(float(np.median(v[picked])) for v in (apart, ratio, turn)))


def of_kd(image: NDArray[Any], count: int) -> Float64:
    """The strongest keypoints of `DoG`."""
    return DoG(count).detect_frames(image).frames


def of_sift(image: NDArray[Any], count: int) -> Float64:
    return from_keypoints(cv2.SIFT_create(count).detect(np.uint8(np.rint(image)), None))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("geometry", description=str(__doc__).splitlines()[0])
    parser.add_argument("image", nargs="?", help="a photograph instead of scikit-image's")
    args = parser.parse_args(arguments)
    if args.image:
        gray = read_gray(args.image)
    else:
        from skimage import data

        gray = cv2.cvtColor(data.astronaut(), cv2.COLOR_RGB2GRAY)
    print("| | found again, % | pixels | size, % | degrees |")
    print("|---|---|---|---|---|")
    for change in changes(gray):
        cells = [
            (f"{100 * f.again:.0f}", f"{f.pixels:.3f}", f"{100 * (2**f.octaves - 1):.1f}",
             f"{f.degrees:.2f}")
            for f in (follow(of_kd, change), follow(of_sift, change))
        ]  # fmt: skip
        pairs = [f"{a} ({b})" for a, b in zip(*cells, strict=True)]
        print(f"| {change.name} | {' | '.join(pairs)} |")
    return 0

"""Reconstructions with KD, RootSIFT and SIFT, at KD's own keypoints and at SIFT's.

python -m experiments colmap FOLDER [--scenes NAME ...] [--workspace DIR]

FOLDER has a folder of photographs for each scene. The table says what COLMAP made of each.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
from numpy.typing import NDArray

from kd_cv import KDDescriptor
from kd_cv.collection import Extraction
from kd_cv.collection.colmap import compare
from kd_cv.gray import to_8bit
from kd_cv.matching.neighbours import RATIO
from kd_cv.opencv.rootsift import DESCRIPTORS

CHOICES = ("kd", "kd+sift", *(name for name in DESCRIPTORS if name != "kd"))


class AtSIFT(Extraction):
    """KD at the keypoints of cv2.SIFT."""

    def __reduce__(self) -> tuple[Any, ...]:
        return AtSIFT, super().__reduce__()[1]

    @property
    def settings(self) -> dict[str, Any]:
        return super().settings | {"detector": {"detector": "sift"}}

    def extract(self, gray: NDArray[Any]) -> Any:
        keypoints = cv2.SIFT_create(self.max_keypoints).detect(to_8bit(gray), None)
        return self.arrays(*self.feature.compute(gray, keypoints))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("colmap", description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenes", nargs="*", help="folders below it; all by default")
    parser.add_argument("--workspace", type=Path, help="keeps databases and models")
    parser.add_argument("--descriptors", nargs="+", default=list(CHOICES), choices=CHOICES)
    parser.add_argument("--max-keypoints", type=int, default=2000)
    parser.add_argument("--max-size", type=int, default=1280)
    parser.add_argument("--matcher", default="kd", choices=("kd", "colmap"))
    parser.add_argument("--ratio", type=float, default=RATIO)
    parser.add_argument("--weights", help="file of matrices for KD instead of the default")
    parser.add_argument("--camera", default="auto")
    args = parser.parse_args(arguments)
    scenes = args.scenes or sorted(path.name for path in args.folder.iterdir() if path.is_dir())
    matrices = {"whitening": "ws", "weights": args.weights} if args.weights else {}
    kd = KDDescriptor(**matrices)
    limits = args.max_keypoints, args.max_size
    makers: dict[str, Callable[..., Extraction]]
    makers = {"kd": partial(Extraction, kd), "kd+sift": partial(AtSIFT, kd)}
    extractions = {n: makers.get(n, partial(Extraction, n))(*limits) for n in args.descriptors}
    print(f"matcher {args.matcher}, ratio {args.ratio}, {args.max_keypoints} keypoints at most\n")
    print("| scene | descriptor | registered | points | track | error (px) | verified | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        workspace = args.workspace or Path(temporary)
        for scene in scenes:
            for name, extraction in extractions.items():
                start = time.perf_counter()
                (r,) = compare(
                    args.folder / scene,
                    workspace / scene / name,
                    [extraction],
                    matcher=args.matcher,
                    ratio=args.ratio,
                    camera=args.camera,
                )
                print(
                    f"| {scene} | {name} | {r.registered} of {r.images} | {r.points} "
                    f"| {r.track_length:.2f} | {r.error:.2f} | {r.matches} "
                    f"| {time.perf_counter() - start:.0f} |",
                    flush=True,
                )
    return 0

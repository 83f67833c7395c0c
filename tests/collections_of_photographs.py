"""Folders of photographs and descriptors for them, which the tests of collections share."""

from functools import lru_cache
from pathlib import Path

import cv2
from skimage import data

from kd_cv import KDDescriptor
from kd_cv.collection import Extraction
from kd_cv.whitening import Statistics, Whitening

PHOTOGRAPHS = ("astronaut", "camera", "coffee", "chelsea", "brick", "gravel")
RAW = KDDescriptor(whitening=None)
SMALL = Extraction(RAW, max_keypoints=200, dtype="float32")


def photographs(folder: Path, count: int = 6, side: int = 200) -> Path:
    """`count` crops of photographs, some of them in a folder below."""
    (folder / "below").mkdir(parents=True, exist_ok=True)
    for i in range(count):
        image = getattr(data, PHOTOGRAPHS[i % len(PHOTOGRAPHS)])()
        x = 7 * (i // len(PHOTOGRAPHS))
        name = f"below/{i:02}.png" if i % 3 == 0 else f"{i:02}.jpg"
        cv2.imwrite(str(folder / name), image[20 : 20 + side, x : x + side])
    return folder


@lru_cache(maxsize=1)
def whitened() -> KDDescriptor:
    """A 128-D descriptor fitted on the photographs themselves."""
    statistics = Statistics(238)
    for name in PHOTOGRAPHS:
        statistics.update(RAW.detectAndCompute(getattr(data, name)(), None)[1])
    return KDDescriptor(whitening="wua", weights=Whitening.fit(statistics))


def whole_parts(output: Path) -> int:
    return len(list(output.with_name(output.name + ".partial").glob("[0-9a-f]*.h5")))

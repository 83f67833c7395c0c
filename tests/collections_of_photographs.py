"""Folders of photographs and descriptors for them, which the tests of collections share."""

from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from skimage import data

from kd_cv import KDDescriptor
from kd_cv.collection import Extraction
from kd_cv.whitening import Statistics, Whitening

WIDTH, HEIGHT = 480, 360  # of photographs of a room
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


def corner(folder: Path, views: int = 5) -> Path:
    """Photographs of the corner of a room, whose two walls show pictures, from several places."""
    folder.mkdir(parents=True)
    walls = [cv2.resize(image, (600, 450)) for image in (data.astronaut(), data.coffee())]
    # Corners of the picture on the walls z = 4 and x = 3, clockwise from the top left.
    places = np.float64(
        [
            [[-3, -2.2, 4], [3, -2.2, 4], [3, 2.2, 4], [-3, 2.2, 4]],
            [[3, -2.2, 4], [3, -2.2, -1], [3, 2.2, -1], [3, 2.2, 4]],
        ]
    )
    K = np.array([[420, 0, WIDTH / 2], [0, 420, HEIGHT / 2], [0, 0, 1.0]])
    texture = np.float32([[0, 0], [599, 0], [599, 449], [0, 449]])
    for i, step in enumerate(np.linspace(-1, 1, views)):
        R, _ = cv2.Rodrigues(np.array([0.02 * step, 0.45 - 0.08 * step, 0.03 * step]))
        centre = np.array([1.4 * step - 0.6, 0.6 * step**2, -1.2 + 0.6 * step])
        canvas = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
        for wall, place in zip(walls, places, strict=True):
            x = (place - centre) @ R @ K.T
            assert (x[:, 2] > 0.2).all()
            H = cv2.getPerspectiveTransform(texture, np.float32(x[:, :2] / x[:, 2:]))
            cv2.warpPerspective(
                wall, H, (WIDTH, HEIGHT), dst=canvas, borderMode=cv2.BORDER_TRANSPARENT
            )
        cv2.imwrite(str(folder / f"{i}.png"), canvas)
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

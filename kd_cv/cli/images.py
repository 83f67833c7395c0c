"""Photographs for the command line: from files, and one that is built in."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kd_cv.io.builtin import example_pair
from kd_cv.io.sources import read_source

Image = NDArray[np.uint8]


class Pair(NamedTuple):
    """Two photographs, their names, the true H_0to1 and focal lengths where they are known."""

    image0: Image
    image1: Image
    names: tuple[str, str]
    H_true: NDArray[np.float64] | None
    focals_in_widths: tuple[float | None, float | None] = (None, None)

    def cameras(self, focal: float | None) -> tuple[float | None, float | None]:
        """Focal lengths in pixels: as given, else from EXIF if it has both."""
        if focal is not None:
            return focal, focal
        known = [
            None if widths is None else widths * max(image.shape[:2])
            for widths, image in zip(self.focals_in_widths, self[:2], strict=True)
        ]
        return (known[0], known[1]) if None not in known else (None, None)


def check_count(photos: Sequence[Path]) -> None:
    """Two photographs, or none for the example."""
    if len(photos) not in (0, 2):
        raise ValueError(f"expected two photographs, or none for the example; got {len(photos)}")


def load_pair(photos: Sequence[Path]) -> Pair:
    """The photographs of two files; of none, the example."""
    if not photos:
        image0, image1, H_true = example_pair()
        return Pair(image0, image1, ("astronaut", "astronaut, warped"), H_true)
    first, second = (read_source(path) for path in photos)
    focals = first.focal_in_widths, second.focal_in_widths
    return Pair(first.pixels, second.pixels, (photos[0].name, photos[1].name), None, focals)

"""The colours of all pictures: those of Okabe and Ito, for colour-blind people too.

>>> rgb(VERMILION)
(213, 94, 0)
"""

from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Color = tuple[int, int, int]

BLACK, ORANGE, SKY, GREEN = "#000000", "#e69f00", "#56b4e9", "#009e73"
YELLOW, BLUE, VERMILION, PURPLE = "#f0e442", "#0072b2", "#d55e00", "#cc79a7"
GRAY, PALE, INK, PAPER = "#7f7f7f", "#bebebe", "#23282d", "#ffffff"

INLIER, OUTLIER, KEYPOINT, OUTLINE = SKY, VERMILION, PALE, YELLOW  # in pictures of matches

# Of heat maps: blue is against a match, vermilion for it. The ends are darkened.
DIVERGING = ("#00243f", BLUE, "#f7f7f7", VERMILION, "#4a1a00")


def rgb(color: str) -> Color:
    """Convert "#rrggbb" to red, green and blue, 0..255."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue


def hexadecimal(color: NDArray[np.float64]) -> str:
    """Convert RGB 0..1 to "#rrggbb"."""
    return "#" + "".join(f"{round(255 * float(value)):02x}" for value in color)


@lru_cache(maxsize=1)
def diverging_colors() -> NDArray[np.float64]:
    """Return 256 colours (256, 3), RGB 0..1, zero in the middle, mixed in CIELAB."""
    stops = np.array([rgb(color) for color in DIVERGING], np.float32) / 255
    lab = cv2.cvtColor(stops[None], cv2.COLOR_RGB2Lab)[0]
    t, places = np.linspace(0, 1, 256), np.linspace(0, 1, len(stops))
    mixed = np.stack([np.interp(t, places, lab[:, i]) for i in range(3)], axis=1)
    colors = cv2.cvtColor(mixed[None].astype(np.float32), cv2.COLOR_Lab2RGB)[0]
    return np.clip(colors, 0, 1).astype(np.float64)


def heat_levels(heat: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert values from -1 to 1 to indices of `diverging_colors`."""
    return np.clip(np.rint(127.5 * (1 + heat)), 0, 255).astype(np.uint8)

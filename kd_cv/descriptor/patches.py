"""Sample patches from an image pyramid.

A patch is read from the level where its samples are about one pixel apart, so large keypoints are
not aliased and small ones lose no detail.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_float
from kd_cv.descriptor.frames import (
    MAGNIFICATION,
    PatchRegions,
    as_frames,
    as_magnification,
    patch_regions,
)
from kd_cv.descriptor.spec import Spec
from kd_cv.gray import as_gray

# Ratio of the largest to the smallest patch for `scales=n`, evenly spread on a log scale.
SPREAD = 2.56
MAX_SCALES = 100

# Beyond the border of a level its last pixels are repeated, and fade within FADE pixels into the
# mean of the patch: unknown pixels have little gradient, and the border is no edge.
FADE = 6.0

# Samples of a frame lie between 2^-SHARPNESS and 2^(1 - SHARPNESS) pixels apart in its level.
SHARPNESS = 0.5


@dataclass(frozen=True)
class Pyramid:
    """An image and its halvings. Level l holds the pixel (x, y) of level 0 at (x, y) / 2^l.

    finest   (H * W,) the image itself, not a copy
    coarser  all further levels, one after the other, and one pixel more
    levels   (L, 3) offset in its array, height and width of each level
    gain     factor that maps the pixels to 0..1
    pairs    every pixel of both with the next one, as one word: the same memory
    """

    finest: NDArray[Any]
    coarser: NDArray[Any]
    levels: NDArray[np.int64]
    gain: np.float32
    pairs: tuple[NDArray[Any], NDArray[Any]] = field(init=False, repr=False)

    @classmethod
    def of(cls, gray: NDArray[Any], depth: int | None = None) -> "Pyramid":
        """Halve an image (H, W) `depth` times, by default as often as any frame may need."""
        # A read-only array is another type to Numba, which would compile everything again.
        gray = np.require(gray, requirements=["C", "W"])
        depth = max_depth(gray.shape) if depth is None else depth
        shapes = [gray.shape]
        for _ in range(depth):
            shapes.append(tuple((side + 1) // 2 for side in shapes[-1]))
        sizes = [height * width for height, width in shapes]
        offsets = [0, *np.cumsum([0, *sizes[1:-1]]).tolist()] if depth else [0]
        coarser = np.zeros(sum(sizes[1:]) + 1, dtype=gray.dtype)
        level = gray
        for (height, width), offset in zip(shapes[1:], offsets[1:], strict=True):
            halved = coarser[offset : offset + height * width].reshape(height, width)
            cv2.pyrDown(level, dst=halved)
            level = halved
        table = [(offset, *shape) for offset, shape in zip(offsets, shapes, strict=True)]
        brightest = 255.0 if gray.dtype == np.uint8 else max(1.0, float(gray.max(initial=0.0)))
        gain = np.float32(1 / brightest)
        return cls(gray.reshape(-1), coarser, np.array(table, dtype=np.int64), gain)

    def __post_init__(self) -> None:
        narrow = self.levels[0, 2] == 1  # its last pixel may be asked for the one to its right
        finest = np.append(self.finest, self.finest[-1:]) if narrow else self.finest
        object.__setattr__(self, "pairs", (_pairs(finest), _pairs(self.coarser)))

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.levels[0, 1]), int(self.levels[0, 2])

    def level(self, index: int) -> NDArray[Any]:
        offset, height, width = self.levels[index].tolist()
        flat = self.finest if index == 0 else self.coarser[offset : offset + height * width]
        return flat.reshape(height, width)


def _pairs(pixels: NDArray[Any]) -> NDArray[Any]:
    word = np.dtype(f"u{2 * pixels.itemsize}")
    return np.ndarray((max(0, len(pixels) - 1),), word, pixels, strides=(pixels.itemsize,))


def as_scales(scales: int | Sequence[float]) -> tuple[float, ...]:
    """Return factors of the magnification: n of them evenly spread, or as given.

    >>> as_scales(3)
    (0.625, 1.0, 1.6)
    """
    if isinstance(scales, int | np.integer) and not isinstance(scales, bool):
        if not 1 <= scales <= MAX_SCALES:
            raise ValueError(f"scales must be from 1 to {MAX_SCALES}, got {scales}")
        if scales == 1:
            return (1.0,)
        exponents = np.linspace(-0.5, 0.5, int(scales))
        return tuple(np.round(SPREAD**exponents, 6).tolist())
    if isinstance(scales, str) or not isinstance(scales, Sequence | np.ndarray):
        raise TypeError(f"scales must be a count or positive factors, got {scales!r}")
    factors = tuple(as_float(factor, "a factor of scales") for factor in scales)
    if not 1 <= len(factors) <= MAX_SCALES or not all(np.isfinite(f) and f > 0 for f in factors):
        raise ValueError(
            f"scales must be a count or positive factors, at most {MAX_SCALES}, got {scales!r}"
        )
    return factors


def max_depth(shape: tuple[int, int]) -> int:
    """Return how often an image can be halved before its shorter side is one pixel."""
    return max(0, int(np.ceil(np.log2(max(1, min(shape))))))


def sampling_steps(
    regions: PatchRegions, shape: tuple[int, int], patch_size: int
) -> NDArray[np.float64]:
    """Return steps (N, S, 5) that sample regions (N, S, 4) of an image of `shape` (H, W).

    The columns are the level (-1: no patch), the centre x and y in that level, and the step (ax,
    ay) from one sample to the next along a row; down a column it is (-ay, ax).
    """
    steps = np.full((*regions.shape[:2], 5), -1.0)
    good = regions[..., 2] > 0
    x, y, side, turn = regions[good].T
    pitch = side / patch_size
    level = np.clip(np.floor(np.log2(pitch) + SHARPNESS), 0, max_depth(shape))
    shrink = np.exp2(-level)
    step = pitch * shrink
    steps[good] = np.stack(
        [level, x * shrink, y * shrink, step * np.cos(turn), step * np.sin(turn)], axis=1
    )
    return steps


def sample(pyramid: Pyramid, steps: NDArray[np.float64], patch_size: int) -> NDArray[np.float32]:
    """Sample bilinear patches (N, P, P) at steps (N, 5); zeros where the level is -1."""
    patches = np.zeros((len(steps), patch_size, patch_size), dtype=np.float32)
    offset = np.arange(patch_size) - (patch_size - 1) / 2
    v, u = np.meshgrid(offset, offset, indexing="ij")
    for index in np.unique(steps[steps[:, 0] >= 0, 0]).astype(int):
        level = pyramid.level(index)
        height, width = level.shape
        members = np.flatnonzero(steps[:, 0] == index)
        _, cx, cy, ax, ay = steps[members, :, None, None].swapaxes(0, 1)
        x_there, y_there = cx + ax * u - ay * v, cy + ay * u + ax * v
        x, y = np.clip(x_there, 0, width - 1), np.clip(y_there, 0, height - 1)
        x0, y0 = x.astype(np.int64), y.astype(np.int64)
        x1, y1 = np.minimum(x0 + 1, width - 1), np.minimum(y0 + 1, height - 1)
        fx, fy = (x - x0).astype(np.float32), (y - y0).astype(np.float32)
        a, b, c, d = (
            level[rows, columns].astype(np.float32)
            for rows, columns in ((y0, x0), (y0, x1), (y1, x0), (y1, x1))
        )
        upper = a + fx * (b - a)
        repeated = upper + fy * (c + fx * (d - c) - upper)
        beyond = np.abs(x_there - x) + np.abs(y_there - y)
        mean = repeated.mean(axis=(1, 2), keepdims=True, dtype=np.float64)
        kept = np.maximum(1 - beyond / FADE, 0)
        patches[members] = np.where(beyond > 0, mean + kept * (repeated - mean), repeated)
    return patches * pyramid.gain


def pyramid_for(gray: NDArray[Any] | Pyramid, steps: NDArray[np.float64]) -> Pyramid:
    """Return the pyramid of an image, as deep as `steps` need; a pyramid as it is."""
    if isinstance(gray, Pyramid):
        return gray
    return Pyramid.of(gray, int(max(0, steps[..., 0].max(initial=0))))


def pyramid_of_patches(
    patches: NDArray[Any], gain: np.float32
) -> tuple[Pyramid, NDArray[np.float64]]:
    """Return patches (N, P, P) as levels, and steps (N, 1, 5) that read each pixel."""
    N, P = patches.shape[:2]
    levels = np.full((N, 3), P, dtype=np.int64)
    levels[:, 0] = P * P * np.arange(N)
    steps = np.tile([0.0, (P - 1) / 2, (P - 1) / 2, 1.0, 0.0], (N, 1, 1))
    steps[:, 0, 0] = np.arange(N)
    pixels = patches.reshape(-1)
    return Pyramid(pixels, pixels, levels, gain), steps


def extract_patches(
    image: Any, frames: Any, patch_size: int, magnification: float | str = MAGNIFICATION
) -> NDArray[np.float32]:
    """Sample patches (N, P, P) of an image at frames (N, 4), in 0..1; zeros without a patch.

    >>> image = np.arange(100 * 100).reshape(100, 100) / 1e4
    >>> extract_patches(image, [[50, 50, 6, 90]], patch_size=32).shape
    (1, 32, 32)
    """
    patch_size = Spec(patch_size).patch_size
    gray, frames = as_gray(image), as_frames(frames)
    regions = patch_regions(frames, gray.shape, as_magnification(magnification))
    return sample_regions(gray, regions, patch_size)[:, 0]


def sample_regions(
    gray: NDArray[Any], regions: PatchRegions, patch_size: int
) -> NDArray[np.float32]:
    """Sample patches (N, S, P, P) of regions (N, S, 4) of a gray image, in 0..1."""
    steps = sampling_steps(regions, gray.shape, patch_size)
    patches = sample(pyramid_for(gray, steps), steps.reshape(-1, 5), patch_size)
    return patches.reshape(*regions.shape[:2], patch_size, patch_size)

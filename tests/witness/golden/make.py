"""Write descriptors.npz beside this file: what `kd_cv` gave at fixed keypoints of photographs.

    python tests/witness/golden/make.py

The numbers are those of `core` in float64. They are to change only when the descriptor is meant
to: other constants, or other shipped matrices. Keypoints are stored, because detectors differ
between versions of OpenCV; photographs are those inside scikit-image, by their checksum.
"""

import argparse
import hashlib
import itertools
from functools import lru_cache
from pathlib import Path

import numpy as np
import skimage.data

from kd_cv.descriptor import reference
from kd_cv.descriptor.frames import MAGNIFICATION, patch_regions
from kd_cv.descriptor.patches import as_scales, pyramid_for, sample, sampling_steps
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import KERNELS, Spec
from kd_cv.whitening.files import use_of_images
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, projection_for

PATH = Path(__file__).with_name("descriptors.npz")
# kernel, patch size, whitening, number of scales
CASES = list(itertools.product(KERNELS, (16, 32, 64), (None, "best"), (1, 3)))

# x, y, size, angle in eighths, which cv2.KeyPoint keeps exactly. On each photograph: a small one,
# a common one, an upright one whose patch crosses the border, one read from a coarse level.
FRAMES = {
    "camera": [
        [243.375, 177.875, 1.875, 44.875],
        [331.25, 236.25, 8.875, 70.625],
        [7.375, 252.0, 4.25, -1.0],
        [163.5, 227.625, 40.25, 259.375],
    ],
    "coffee": [
        [402.375, 85.5, 2.625, 153.5],
        [324.875, 273.125, 5.125, 18.875],
        [593.625, 34.875, 2.875, -1.0],
        [286.875, 250.0, 27.75, 274.375],
    ],
}


@lru_cache(maxsize=2)
def photograph(name: str) -> np.ndarray:
    """Gray (H, W): the cameraman as uint8, the cup of coffee as float32 with finer values."""
    image = getattr(skimage.data, name)()
    if image.ndim == 2:
        return image
    return (image @ np.array([0.299, 0.587, 0.114]) / 255).astype(np.float32)


def checksum(name: str) -> np.ndarray:
    """SHA-256 of a photograph as scikit-image gives it: (32,) uint8."""
    image = np.ascontiguousarray(getattr(skimage.data, name)())
    return np.frombuffer(hashlib.sha256(image.tobytes()).digest(), np.uint8)


def case_name(kernel: str, P: int, whitening: str | None, scales: int) -> str:
    return f"{kernel}-{P}-{whitening or 'raw'}-{scales}"


def patches_at(gray: np.ndarray, frames: np.ndarray, P: int, scales: int) -> np.ndarray:
    """(N, scales, P, P) float32 in 0..1."""
    regions = patch_regions(frames, gray.shape, MAGNIFICATION, as_scales(scales))
    steps = sampling_steps(regions, gray.shape, P)
    pyramid = pyramid_for(gray, steps)
    return np.stack([sample(pyramid, steps[:, s], P) for s in range(scales)], axis=1)


def in_float64(
    gray: np.ndarray, frames: np.ndarray, kernel: str, P: int, whitening: str | None, scales: int
) -> np.ndarray:
    """Descriptors (N, D) by `core`, in float64 from the patches on."""
    spec = Spec(P, kernel)
    c = spec.constants
    patches = patches_at(gray, frames, P, scales).astype(np.float64)
    raw = [
        reference.raw(patches[:, s], c.smooth, c.diff, c.Phi, c.T, c.parts) for s in range(scales)
    ]
    V = reference.normalised(sum(raw))
    use = use_of_images(as_scales(scales))
    projection = projection_for(spec, whitening, DEFAULT_WEIGHTS, 128, use)
    if projection is None:
        return V
    return Projection(projection.mu.astype(np.float64), projection.A.astype(np.float64))(V)


def compute() -> dict[str, np.ndarray]:
    """Everything that is stored, by name."""
    stored: dict[str, np.ndarray] = {}
    for name, rows in FRAMES.items():
        frames = np.array(rows)
        stored[f"{name}/frames"], stored[f"{name}/sha256"] = frames, checksum(name)
        for case in CASES:
            rows = in_float64(photograph(name), frames, *case)
            stored[f"{name}/{case_name(*case)}"] = rows.astype(np.float32)
    return stored


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    np.savez_compressed(PATH, **compute())
    print(f"{PATH}: {PATH.stat().st_size / 1000:.0f} kB")

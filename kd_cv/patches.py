"""`describe`: descriptors of patches that are already cut out."""

import numpy as np
from numpy.typing import ArrayLike

from kd_cv.descriptor.frames import in_range
from kd_cv.settings import Settings
from kd_cv.types import Array32
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING, Weights


def describe(
    patches: ArrayLike,
    *,
    patch_size: int | None = None,
    kernel: str = "concat",
    whitening: str | None = DEFAULT_WHITENING,
    weights: Weights = DEFAULT_WEIGHTS,
    dim: int = 128,
) -> Array32:
    """Descriptors (N, D) of patches (N, P, P), uint8 or float in 0..1.

    `patch_size`, if given, must be the patches' own; the other keywords are those of
    `KDDescriptor`. A patch without texture gives a row of zeros.

    >>> describe(np.zeros((5, 32, 32), np.uint8), whitening=None).shape
    (5, 238)
    """
    patches = np.asarray(patches)
    if patches.ndim != 3 or patches.shape[1] != patches.shape[2]:
        hint = ""
        if patches.ndim == 4 and patches.shape[1] == 1:
            hint = ": take patches[:, 0], or give tensors (B, 1, P, P) to KDModule"
        raise ValueError(f"patches must have shape (N, P, P), got {patches.shape}{hint}")
    if patches.dtype != np.uint8 and patches.dtype.kind != "f":
        raise TypeError(f"patches must be uint8 or float, got {patches.dtype}")
    if patch_size is not None and patch_size != patches.shape[1]:
        raise ValueError(f"patch_size is {patch_size}, but the patches are {patches.shape[1:]}")
    if patches.dtype.kind == "f":
        with np.errstate(over="ignore"):  # infinity is refused
            patches = in_range(patches.astype(np.float32, copy=False), "float patches")
    settings = Settings(patches.shape[1], kernel, whitening, weights, dim)
    return settings.rows_of_patches(patches)

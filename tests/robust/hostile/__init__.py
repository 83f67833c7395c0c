"""Hostile calls: each must end in a result or in a clear error, never in a crash or a hang.

Images of every kind are in `tests/contract/test_kinds_of_images.py`. `make hostile` runs all of
them by name, so that one that crashes the interpreter is the last that was named.
"""

from typing import Any

import cv2
import numpy as np

RNG = np.random.default_rng(0)
IMAGE = cv2.GaussianBlur(RNG.integers(0, 256, (60, 80)).astype(np.uint8), (0, 0), 1.0)
POINTS = [cv2.KeyPoint(20.0, 20.0, 3.0, 0.0), cv2.KeyPoint(40.0, 30.0, 2.0, 90.0)]


def has_rows(result: Any, count: int = 2, zero: bool | None = None) -> bool:
    """(keypoints, rows): `count` finite rows of norm 1 or 0; all 0, none, or as it comes."""
    kept, rows = result
    rows = rows.get() if isinstance(rows, cv2.UMat) else rows
    assert len(kept) == count and rows.shape == (count, 128) and rows.dtype == np.float32
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert np.all((norms == 0) | (np.abs(norms - 1) < 1e-4))
    assert zero is None or np.all((norms == 0) == zero)
    return True


def has_none(result: Any, count: int = 2) -> bool:
    """(keypoints, None)."""
    return len(result[0]) == count and result[1] is None

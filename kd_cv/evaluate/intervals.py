"""How sure a score is: bootstrap intervals over what it is a mean of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 1000
LEVEL = 0.95


def interval(
    values: ArrayLike,
    statistic: Callable[[NDArray[Any]], float] = np.mean,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Between which the statistic of values (N, ...) lies in 95 % of draws of N with replacement.

    For a difference of two descriptors give the values of both, (N, 2), so that a draw has the same
    pairs of images for both.

    >>> low, high = interval([1.0] * 50 + [0.0] * 50)
    >>> 0.35 < low < 0.45 and 0.55 < high < 0.65
    True
    """
    values = np.asarray(values, np.float64)
    if not len(values):
        raise ValueError("an interval needs one value or more")
    rng = np.random.default_rng(seed)
    drawn = [
        statistic(values[rng.integers(len(values), size=len(values))]) for _ in range(resamples)
    ]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)

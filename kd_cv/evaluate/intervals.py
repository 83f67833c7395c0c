"""How sure a score is: bootstrap intervals over what it is a mean of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.evaluate import metrics

RESAMPLES = 1000
LEVEL = 0.95
SEEDS = 3  # how often the robust estimate is made of each pair, its matches in another order

Statistic = Callable[[NDArray[Any]], float]


def interval(
    values: ArrayLike,
    statistic: Statistic = np.mean,
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


class PairTable:
    """What one candidate did, pair of images by pair of images.

    errors  (pairs, seeds) of the estimated model; infinite where there is none
    others  named values of each pair, of which the mean is reported
    """

    def __init__(self) -> None:
        self._errors: list[Sequence[float]] = []
        self._others: list[Mapping[str, float]] = []

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, errors: Sequence[float], **others: float) -> None:
        """One pair more: the errors of its seeds, and its other values."""
        self._errors.append(errors)
        self._others.append(others)

    def part(self, chosen: NDArray[np.bool_]) -> PairTable:
        """The table of some of the pairs, by a mask."""
        part = PairTable()
        for n in np.flatnonzero(chosen):
            part.add(self._errors[n], **self._others[n])
        return part

    def errors(self) -> NDArray[np.float64]:
        """(pairs, seeds), of all pairs."""
        return np.array(self._errors, np.float64)

    def columns(self, thresholds: Sequence[int]) -> dict[str, tuple[NDArray[Any], Statistic]]:
        """By name: what is drawn from, a row for each pair, and the statistic of a draw."""
        columns: dict[str, tuple[NDArray[Any], Statistic]] = {
            key: (np.array([values[key] for values in self._others]), _mean)
            for key in (self._others[0] if self._others else ())
        }
        errors = self.errors()
        return columns | {f"auc{t}": (errors, partial(area, threshold=t)) for t in thresholds}


def summaries(
    tables: Mapping[str, PairTable], thresholds: Sequence[int], against: str | None = None
) -> dict[str, dict[str, float]]:
    """The values of each candidate, from what it did on the same pairs as the others.

    Each has "KEY", and "KEY low" and "KEY high" between which it lies in 95 % of draws of the
    pairs. KEY: the others of the table, and "auc5" and so on (%) of the errors. With `against`, the
    name of a candidate, "KEY gain" (with low and high) is by how much each is above that one, on
    the same draws: its interval is narrower than those of the two, because hard pairs are hard for
    both. And "pairs".
    """
    if against is not None and against not in tables:
        raise ValueError(f"to be compared with {against!r}: expected one of {list(tables)}")
    all_columns = {name: table.columns(thresholds) for name, table in tables.items()}
    summary: dict[str, dict[str, float]] = {}
    for name, columns in all_columns.items():
        values: dict[str, float] = {}
        for key, (own, statistic) in columns.items():
            values[key] = statistic(own)
            values[f"{key} low"], values[f"{key} high"] = interval(own, statistic)
            if against is None or against == name:
                continue
            other = all_columns[against][key][0]
            values[f"{key} gain"] = statistic(own) - statistic(other)
            values[f"{key} gain low"], values[f"{key} gain high"] = interval(
                np.stack([own, other], axis=1),
                lambda drawn, of=statistic: of(drawn[:, 0]) - of(drawn[:, 1]),  # type: ignore[misc]
            )
        summary[name] = values | {"pairs": len(tables[name])}
    return summary


def _mean(values: NDArray[Any]) -> float:
    return float(np.mean(values))


def area(errors: NDArray[Any], threshold: float) -> float:
    """AUC of errors up to a threshold, in percent."""
    return 100 * float(metrics.auc(errors.ravel(), (threshold,))[0])

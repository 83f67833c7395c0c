"""What a protocol gives: a `Score` for each candidate, and how sure it is.

Means over pairs of images have bootstrap intervals over these pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.protocols import metrics

RESAMPLES = 1000
LEVEL = 0.95

Progress = Callable[[str], None]
#: Draws (R, N, ...) of N values each -> their statistics (R,).
Statistic = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class Score:
    """What a candidate reached; values in percent."""

    name: str
    kind: str
    dim: int
    values: Mapping[str, float]


def tell(progress: Progress | None, what: str) -> None:
    """Report what was done, if somebody asked for it."""
    if progress:
        progress(what)


class PairScore(NamedTuple):
    """What one candidate did on one pair of images.

    errors  of the estimated model, one for each seed; infinite where there is none
    others  named values, of which the mean is reported
    part    "from" and "to" of the part of all pairs that it belongs to, which is also reported by
            itself
    """

    errors: Sequence[float]
    others: Mapping[str, float] = {}
    part: tuple[int, int] | None = None


def mean(drawn: NDArray[Any]) -> NDArray[Any]:
    """Means (R,) of draws (R, N)."""
    return drawn.mean(axis=1)


def interval(
    values: ArrayLike,
    statistic: Statistic = mean,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Where the statistic of values (N, ...) lies in 95 % of draws of N values with replacement.

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
    drawn = values[rng.integers(len(values), size=(resamples, len(values)))]
    low, high = np.quantile(statistic(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def summaries(
    tables: Mapping[str, Sequence[PairScore]],
    thresholds: Sequence[int],
    against: str | None = None,
) -> dict[str, dict[str, float]]:
    """The values of each candidate, from what it did on the same pairs as the others.

    Each has "KEY", and "KEY low" and "KEY high" between which it lies in 95 % of draws of the
    pairs. KEY: the others of a pair, and "auc5" and so on (%) of the errors. With `against`, the
    name of a candidate, "KEY gain" (with low and high) is by how much each is above that one, on
    the same draws: its interval is narrower than those of the two, because hard pairs are hard for
    both. And "pairs". Those of a part have it in their names: "auc10 0-15 gain low".
    """
    if against is not None and against not in tables:
        raise ValueError(f"to be compared with {against!r}: expected one of {list(tables)}")
    values: dict[str, dict[str, float]] = {name: {} for name in tables}
    parts = {pair.part for table in tables.values() for pair in table if pair.part}
    for part in (None, *sorted(parts)):
        label = f" {part[0]}-{part[1]}" if part else ""
        chosen = {
            name: [pair for pair in table if part in (None, pair.part)]
            for name, table in tables.items()
        }
        columns = {name: _columns(table, thresholds) for name, table in chosen.items()}
        for name, summary in values.items():
            for key, (own, statistic) in columns[name].items():
                summary |= _with_interval(key + label, own, statistic)
                if against not in (None, name):
                    both = np.stack([own, columns[against][key][0]], axis=1)
                    gain = partial(_gain, statistic=statistic)
                    summary |= _with_interval(f"{key}{label} gain", both, gain)
            summary[f"pairs{label}"] = len(chosen[name])
    return values


def _with_interval(key: str, values: NDArray[Any], statistic: Statistic) -> dict[str, float]:
    low, high = interval(values, statistic)
    return {key: float(statistic(values[None])[0]), f"{key} low": low, f"{key} high": high}


def _gain(both: NDArray[Any], statistic: Statistic) -> NDArray[Any]:
    return statistic(both[:, :, 0]) - statistic(both[:, :, 1])


def _columns(
    table: Sequence[PairScore], thresholds: Sequence[int]
) -> dict[str, tuple[NDArray[Any], Statistic]]:
    """By name: what is drawn from, a row for each pair, and the statistic of a draw."""
    columns: dict[str, tuple[NDArray[Any], Statistic]] = {
        key: (np.array([pair.others[key] for pair in table]), mean) for key in table[0].others
    }
    errors = np.array([pair.errors for pair in table], np.float64)
    return columns | {f"auc{t}": (errors, partial(areas, threshold=t)) for t in thresholds}


def areas(drawn: NDArray[Any], threshold: float) -> NDArray[Any]:
    """AUC (R,) of draws (R, N, ...) of errors up to a threshold, in percent."""
    return 100 * np.asarray(metrics.auc(drawn.reshape(len(drawn), -1), threshold))


def area(errors: NDArray[Any], threshold: float) -> float:
    """AUC of errors up to a threshold, in percent."""
    return float(areas(errors[None], threshold)[0])

"""W_M: a mean and a matrix, trained from W_S on.

W_M lowers, over matching pairs (a, b) of one scene, the triplet loss

    max(0, 1 + d(a, b) - min over the other pairs (a', b') of d(a, b'), d(a', b))        [hardest]

with d the distance of the projected, normalised descriptors (Mishchuk et al., 2017). Scenes take
turns. A first training without every fifth scene finds the number of steps with the lowest loss on
those scenes; it may be 0, and W_M is W_S then.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_int

Array = NDArray[Any]
Pair = tuple[Array, Array]

STEPS = 400
PAIRS = 768  # of a draw, at most
RATE = 1e-3  # of Adam, falling to 0 like a cosine
MARGIN = 1.0
LEFT_OUT = 5  # every fifth scene decides how many steps are taken
CHECKS = 10  # how often
_WARM_UP = 50  # steps over which the rate rises
_DECAY1, _DECAY2 = 0.9, 0.999  # of Adam's moments


@dataclass(frozen=True)
class Sample:
    """Descriptors of one scene, X (N, D), and their points (N,)."""

    X: NDArray[np.float32]
    points: NDArray[np.int64]


def train(
    samples: Sequence[Sample],
    mu: Array,
    A: Array,
    dim: int,
    *,
    steps: int = STEPS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Array, Array]:
    """Train a mean (D,) and a matrix (D, dim) from mu (D,) and the first columns of A (D, K).

    The new columns combine all K >= dim columns of A. progress(step, steps) is called after each
    step. The same samples and seed give the same result on the same machine.
    """
    as_int(steps, "steps")
    as_int(dim, "dim", 1, A.shape[1])
    scenes = [_Points(sample, mu, A) for sample in samples]
    scenes = [scene for scene in scenes if len(scene) >= 2]
    training, left_out = _split(scenes)
    if not training:
        raise ValueError("no scene shows two points, each of them twice: there is nothing to train")
    rng = np.random.default_rng(seed)
    checked = [scene.draw(rng) for scene in left_out]

    def descend(scenes: Sequence[_Points]) -> Iterator[tuple[int, Array, Array]]:
        rng = np.random.default_rng([seed, 1])
        M, c = np.eye(A.shape[1], dim, dtype=np.float32), np.zeros(dim, np.float32)
        moments = [(np.zeros_like(p), np.zeros_like(p)) for p in (M, c)]
        yield 0, M, c
        for step, scene in zip(range(1, steps + 1), _in_turn(scenes, rng), strict=False):
            _, gradients = hardest(*scene.draw(rng), M, c)
            fall = (1 + np.cos(np.pi * (step - 1) / steps)) / 2
            rate = np.float32(RATE * fall * min(1.0, step / _WARM_UP))
            for parameter, gradient, moment in zip((M, c), gradients, moments, strict=True):
                _adam(parameter, gradient, moment, rate, step)
            yield step, M, c

    losses = {}
    for step, M, c in descend(training):
        if step % max(1, steps // CHECKS) == 0:
            losses[step] = float(np.mean([hardest(a, b, M, c)[0] for a, b in checked]))
        if progress:
            progress(step, 2 * steps)
    enough = min(losses, key=lambda step: losses[step])
    for step, M, c in descend(scenes):  # noqa: B007  (used after the loop)
        if progress:
            progress(steps + step, 2 * steps)
        if step == enough:
            break
    trained = A @ M.astype(np.float64)
    return moved_mean(mu, trained, c.astype(np.float64)), trained


def moved_mean(mu: Array, A: Array, c: Array) -> Array:
    """Return the nearest mean mu' (D,) to mu with A^T (v - mu) - c = A^T (v - mu')."""
    return mu + A @ np.linalg.solve(A.T @ A, c)


def hardest(a: Array, b: Array, M: Array, c: Array) -> tuple[float, tuple[Array, Array]]:
    """Compute the mean loss of pairs a, b (n, K) under y = (x M - c) / |x M - c|, and gradients.

    M (K, dim), c (dim,).
    """
    n = len(a)
    x = np.concatenate([a, b])
    z = x @ M - c
    norm = np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    y = z / norm
    similarity = y[:n] @ y[n:].T
    match = similarity.diagonal().copy()
    np.fill_diagonal(similarity, -2)
    there, back = similarity.argmax(axis=1), similarity.argmax(axis=0)
    pair = np.arange(n)
    by_row = similarity[pair, there] >= similarity[back, pair]
    # The nearest wrong pair of each, as indices of y.
    first = np.where(by_row, pair, back)
    second = np.where(by_row, there, pair)
    d_match, d_wrong = (
        np.sqrt(np.maximum(2 - 2 * s, 1e-6)) for s in (match, similarity[first, second])
    )
    excess = MARGIN + d_match - d_wrong
    # d = sqrt(2 - 2 s), so dd/ds = -1 / d
    weight = (excess > 0) / x.dtype.type(n)
    down, up = (weight / d_match)[:, None], (weight / d_wrong)[:, None]
    gradient = np.concatenate([-down * y[n:], -down * y[:n]])
    np.add.at(gradient, first, up * y[n + second])
    np.add.at(gradient, n + second, up * y[first])
    # Through the normalisation, which removes the component along y.
    gradient -= y * (y * gradient).sum(axis=1, keepdims=True)
    gradient /= norm
    loss = float(np.maximum(excess, 0).mean())
    return loss, (x.T @ gradient, -gradient.sum(axis=0))


def _adam(parameter: Array, gradient: Array, moment: Pair, rate: Any, step: int) -> None:
    """One step of Adam (Kingma and Ba, 2015), in place."""
    mean, square = moment
    mean += np.float32(1 - _DECAY1) * (gradient - mean)
    square += np.float32(1 - _DECAY2) * (gradient * gradient - square)
    scale = np.sqrt(square / np.float32(1 - _DECAY2**step)) + np.float32(1e-8)
    parameter -= rate * (mean / np.float32(1 - _DECAY1**step)) / scale


class _Points:
    """The points of a sample that were seen twice or more; its descriptors as A^T (x - mu)."""

    def __init__(self, sample: Sample, mu: Array, A: Array) -> None:
        self._order = np.argsort(sample.points, kind="stable")
        _, start, count = np.unique(
            sample.points[self._order], return_index=True, return_counts=True
        )
        self._start, self._count = start[count >= 2], count[count >= 2]
        self._projected = (sample.X - mu.astype(np.float32)) @ A.astype(np.float32)

    def __len__(self) -> int:
        return len(self._start)

    def part(self, chosen: Array) -> _Points:
        """Select points by a mask."""
        points = copy.copy(self)
        points._start, points._count = self._start[chosen], self._count[chosen]
        return points

    def draw(self, rng: np.random.Generator) -> Pair:
        """Draw two different descriptors of each of at most PAIRS points."""
        points = rng.permutation(len(self))[:PAIRS]
        start, count = self._start[points], self._count[points]
        first = rng.integers(count)
        second = (first + rng.integers(1, count)) % count
        first, second = self._order[start + first], self._order[start + second]
        return self._projected[first], self._projected[second]


def _split(scenes: Sequence[_Points]) -> tuple[list[_Points], list[_Points]]:
    """Leave out every fifth scene; of a single scene, every fifth point."""
    if len(scenes) == 1:
        out = np.arange(len(scenes[0])) % LEFT_OUT == LEFT_OUT - 1
        parts = scenes[0].part(~out), scenes[0].part(out)
        return ([parts[0]], [parts[1]]) if all(len(part) >= 2 for part in parts) else ([], [])
    left_out = list(scenes[LEFT_OUT - 1 :: LEFT_OUT] or scenes[-1:])
    return [scene for scene in scenes if scene not in left_out], left_out


def _in_turn(scenes: Sequence[_Points], rng: np.random.Generator) -> Iterator[_Points]:
    while True:
        for index in rng.permutation(len(scenes)):
            yield scenes[index]

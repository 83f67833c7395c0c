"""Extrema and their fit, for NumPy arrays and torch tensors.

Only operators and indexing common to both libraries are used. It tests `compiled`, and replaces it
without Numba.

D (..., n + 2, H, W) are the differences of one octave; a cube (3, 5, 5) is D around a candidate:
scale, y, x.
"""

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from kd_cv.detector.scale_space import CANDIDATE, FARTHEST, IN_SCALE, IN_SPACE, REACH, STEPS


def candidates(D, threshold: float):  # type: ignore[no-untyped-def]
    """Where |D| is above the threshold and D is extreme among its 26 neighbours.

    Of layers 1..n, without a border of REACH pixels: (..., n, H - 4, W - 4). Of equal neighbours
    the last one counts.
    """
    far, n, height, width = REACH, D.shape[-3] - 2, D.shape[-2], D.shape[-1]

    def moved(layer: int, y: int, x: int):  # type: ignore[no-untyped-def]
        rows = slice(far + y, height - far + y)
        return D[..., 1 + layer : 1 + layer + n, rows, far + x : width - far + x]

    c = moved(0, 0, 0)
    peak, pit = c > threshold, c < -threshold
    neighbours = list(product((-1, 0, 1), repeat=3))
    for step in neighbours[: len(neighbours) // 2]:
        before, after = moved(*step), moved(*(-s for s in step))
        peak = peak & (c >= before) & (c > after)
        pit = pit & (c <= before) & (c < after)
    return peak | pit


def fitted(cubes, constants: "Fit", contrast: float, roundness: float):  # type: ignore[no-untyped-def]
    """Find the extremum of D near the middle of each cube (3, 5, 5, N), by Newton's method.

    D is interpolated by polynomials through all samples: of degree 4 in x and y, 2 in scale.
    constants: `FIT`, as arrays of the cubes' library. Returns the offset t (3, N) in x, y and
    layers, its D (N,), and flags (N,): not too far, |D| at least `contrast`, and (a + b)^2 / (a b)
    of its curvatures below `roundness`.
    """
    highest, *lower = constants.polynomials
    factors = list(constants.cofactors)
    t = cubes[0, 0, :3] * 0
    # Sums, not products of matrices: BLAS rounds by where in memory a cube lies.
    for step in range(STEPS + 1):
        at, weights = t[:, None, None], highest
        for polynomial in lower:  # Horner's rule
            weights = weights * at + polynomial
        in_x, in_y, in_l = weights[0], weights[1], weights[2, :3]
        rows = (cubes[:, :, None] * in_y[:, :, None]).sum(1)
        planes = (rows[:, :, :, None] * in_x).sum(2)
        # J[9 a + 3 b + c]: a-th, b-th, c-th derivative in scale, y, x
        J = (planes[:, None] * in_l[:, :, None, None]).sum(0).reshape(27, -1)
        if step == STEPS:
            break
        # Cramer's rule for -H^-1 g, at most half a pixel a step
        a, b, c, d = (J[orders] for orders in factors)
        cofactors = a * b - c * d
        determinant = (J[constants.row] * cofactors[0]).sum(0)
        moves = (cofactors * J[constants.gradient]).sum(1) / (determinant + (determinant == 0))
        t = (t - moves.clip(-0.5, 0.5)).clip(-1.0, 1.0)
    far = abs(moves).sum(0) > 0.1
    value, xx, xy, yy, ll = J[0], J[2], J[4], J[6], J[18]
    trace, area = xx + yy, xx * yy - xy * xy
    good = ~far & (abs(t) <= FARTHEST).all(0) & (abs(value) >= contrast)
    good = good & (abs(cubes[1, REACH, REACH]) >= CANDIDATE * abs(value))
    good = good & (area > 0) & (trace * trace < roundness * area)
    return t, value, good & (value * trace < 0) & (value * ll < 0)


class Fit(NamedTuple):
    """Constants of `fitted`: polynomials, and indices of derivatives among 27.

    polynomials  (5, 3, 5, 3, 1) highest power first: of x, y and scale, sample, derivative; at t
                 they weigh the samples of D and of its derivatives (see `derivatives`)
    gradient     (3,) first derivatives in x, y and scale
    row          (3,) first row of the Hessian H
    cofactors    (4, 3, 3) the factors of H's cofactors, a b - c d
    """

    polynomials: Any
    gradient: Any
    row: Any
    cofactors: Any


def _fit() -> Fit:
    polynomials = np.zeros((3, *IN_SPACE.shape))
    polynomials[:2] = IN_SPACE
    polynomials[2, :, :3, :3] = IN_SCALE
    polynomials = polynomials.transpose(2, 0, 3, 1)[::-1, ..., None]
    first = 3 ** np.arange(3)
    H = first[:, None] + first
    after, before = np.roll(np.arange(3), -1), np.roll(np.arange(3), 1)
    pairs = ((after, after), (before, before), (after, before), (before, after))
    return Fit(polynomials, first, H[0], np.stack([H[np.ix_(*pair)] for pair in pairs]))


FIT = _fit()

"""Extrema and their fit, written once for NumPy arrays and torch tensors.

Only operators and indexing that both libraries share are used. It is the witness of `fused`, and
stands in for it where Numba is not there.

D (..., n + 2, H, W) are the differences of one octave; a cube (3, 5, 5) is D around a candidate:
scale, y, x.
"""

from itertools import product

from kd_cv.detector.scale_space import CANDIDATE, FARTHEST, REACH, STEPS


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


def fitted(cubes, in_space, in_scale, contrast: float, roundness: float):  # type: ignore[no-untyped-def]
    """The extremum of D near the middle of each cube (N, 3, 5, 5), by Newton's method.

    D is interpolated by polynomials through all samples: of degree 4 in x and y, 2 in scale.
    in_space, in_scale: those of `scale_space`. Returns t (N, 3), the way to it in x, y and layers,
    its D (N,), and whether it is one (N,): not too far, |D| at least `contrast`, and (a + b)^2 /
    (a b) of its curvatures below `roundness`.
    """
    t = cubes[:, 0, 0, :3] * 0
    for step in range(STEPS + 1):
        # J[:, a, b, c]: a-th, b-th, c-th derivative in scale, y, x
        in_x, in_y, in_l = (
            _weights(t[:, i], of) for i, of in enumerate((in_space, in_space, in_scale))
        )
        rows = cubes @ in_x[:, None].swapaxes(-1, -2)  # scale, y, derivative in x
        planes = in_y[:, None] @ rows
        J = (in_l @ planes.reshape(len(t), 3, 9)).reshape(len(t), 3, 3, 3)
        value, gx, gy, gl = J[:, 0, 0, 0], J[:, 0, 0, 1], J[:, 0, 1, 0], J[:, 1, 0, 0]
        xx, yy, ll = J[:, 0, 0, 2], J[:, 0, 2, 0], J[:, 2, 0, 0]
        xy, xl, yl = J[:, 0, 1, 1], J[:, 1, 0, 1], J[:, 1, 1, 0]
        if step == STEPS:
            break
        # Cramer's rule for -H^-1 g, at most half a pixel a step
        a, b, c = yy * ll - yl * yl, xl * yl - xy * ll, xy * yl - xl * yy
        determinant = xx * a + xy * b + xl * c
        over = -1.0 / (determinant + (determinant == 0))
        moves = (
            (a * gx + b * gy + c * gl) * over,
            (b * gx + (xx * ll - xl * xl) * gy + (xy * xl - xx * yl) * gl) * over,
            (c * gx + (xy * xl - xx * yl) * gy + (xx * yy - xy * xy) * gl) * over,
        )
        for i, move in enumerate(moves):
            t[:, i] += move.clip(-0.5, 0.5)
            t[:, i] = t[:, i].clip(-1.0, 1.0)
        far = abs(moves[0]) + abs(moves[1]) + abs(moves[2]) > 0.1
    trace, area = xx + yy, xx * yy - xy * xy
    good = ~far & (abs(t) <= FARTHEST).all(1) & (abs(value) >= contrast)
    good = good & (abs(cubes[:, 1, REACH, REACH]) >= CANDIDATE * abs(value))
    good = good & (area > 0) & (trace * trace < roundness * area)
    return t, value, good & (value * trace < 0) & (value * ll < 0)


def _weights(t, polynomials):  # type: ignore[no-untyped-def]
    """Weights (N, 3, 2r + 1) of the samples at t (N,): for value, first and second derivative."""
    # Horner's rule
    value = polynomials[:, -1] + 0 * t[:, None, None]
    for p in range(polynomials.shape[1] - 2, -1, -1):
        value = value * t[:, None, None] + polynomials[:, p]
    return value

"""`core` for the CPU, compiled by Numba: blurs, the scan for candidates, their fit and angles.

The scan reduces six neighbours of every pixel by comparisons that the compiler vectorises, and
looks at the other 20 only where one of eight pixels passed. The fit runs down `LANES` candidates at
once. Both give the same numbers whatever thread runs them, and whatever else the image holds.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.compiled import LANES
from kd_cv.detector.scale_space import (
    CANDIDATE,
    FARTHEST,
    IN_SCALE,
    IN_SPACE,
    REACH,
    STEPS,
    Array,
)
from kd_cv.jit import jit

Array32 = NDArray[np.float32]

_in_space = IN_SPACE.astype(np.float32)
_in_scale = IN_SCALE.astype(np.float32)
_candidate = np.float32(CANDIDATE)
_farthest = np.float32(FARTHEST)
_zero = np.float32(0.0)
_half = np.float32(0.5)
_one = np.float32(1.0)
_tenth = np.float32(0.1)
_two = np.float32(2.0)
SIDE = 2 * REACH + 1


def blurred(
    image: NDArray[Any],
    taps: Array32,
    gain: float,
    top: int,
    out: Array32,
    difference: Array32 | None,
    first: int,
) -> None:
    """Rows of an image times its gain, blurred both ways and mirrored at its borders, into `out`.

    From row `top` on. What they differ by from the image goes to `difference`, from row `first` on.
    """
    reach, width = len(taps) // 2, image.shape[1]
    line = np.empty(width + 2 * reach, np.float32)
    D = np.empty((0, width), np.float32) if difference is None else difference
    blur(_writeable(image), taps[reach:], np.float32(gain), top, line, out, first, D)


def _writeable(image: NDArray[Any]) -> NDArray[Any]:
    # A read-only array is another type to Numba, which would compile everything again.
    return np.require(image, requirements=["C", "W"])


def extrema(D: Array32, top: int, bottom: int, weakest: float, roundness: float) -> Array:
    """Extrema (N, 5) of D (n + 2, rows, W) in rows top..bottom: x, y, layer, D, sole.

    sole: 1 if it lies in the cell of its candidate, so that no other candidate leads to it; else 0.
    """
    width, least = D.shape[2], np.float32(CANDIDATE * weakest)
    hits = np.zeros(-(-width // 8) * 8, np.uint8)
    candidates = np.empty((max(64, (bottom - top) * width // 32), 3), np.int32)
    count = scan(D, top, bottom, least, hits, hits.view(np.uint64), candidates)
    if count > len(candidates):
        candidates = np.empty((count, 3), np.int32)
        scan(D, top, bottom, least, hits, hits.view(np.uint64), candidates)
    rows = np.empty((count, 5))
    cubes = np.empty((3 * SIDE * SIDE, LANES), np.float32)
    scratch = np.empty((3 + 2 * 3 * SIDE + 9 + 3 * 3 * SIDE + 3 * 6 + 11, LANES), np.float32)
    limits = np.float32(weakest), np.float32(roundness)
    kept = fit(D, candidates[:count], _in_space, _in_scale, *limits, cubes, scratch, rows)
    return rows[:kept]


def angles(V: Array32, psi: Array32, second: float) -> tuple[NDArray[np.int64], Array, Array32]:
    """Of all rows of V (N, 7): whose angle it is, the angle in degrees, and its share, each (M,).

    They are those of `orientation.maxima`: psi (7, A) has the columns of as many angles.
    """
    most = psi.shape[1] // 2 * len(V)  # maxima that so many samples of f can have
    index, turns, shares = np.empty(most, np.int64), np.empty(most), np.empty(most, np.float32)
    f = np.empty(psi.shape[1], np.float32)
    count = turn(V, psi, np.float32(second), f, index, turns, shares)
    return index[:count], turns[:count], shares[:count]


@jit
def mirrored(a, size):
    """Where pixel a, or its mirror image about the outermost centres, lies in 0..size - 1."""
    while a < 0 or a >= size:
        a = -a if a < 0 else 2 * (size - 1) - a
    return a


@jit
def blur(image, taps, gain, top, line, out, first, D):
    """`blurred` by symmetric taps, the middle one first; line (W + 2 reach,) is scratch."""
    height, width = image.shape
    reach = taps.shape[0] - 1
    inner = line[reach : reach + width]
    for i in range(out.shape[0]):
        y = top + i
        here, row = image[y], out[i]
        # Three pairs of rows at a time; those beyond the last tap count with the weight 0.
        for j in range(1, reach + 1, 3):
            k, m = min(j + 1, reach), min(j + 2, reach)
            s, t = taps[0] * gain, taps[j] * gain
            u, v = (taps[k] * gain if k > j else _zero), (taps[m] * gain if m > k else _zero)
            a, b = image[mirrored(y - j, height)], image[mirrored(y + j, height)]
            c, d = image[mirrored(y - k, height)], image[mirrored(y + k, height)]
            e, f = image[mirrored(y - m, height)], image[mirrored(y + m, height)]
            if j == 1:
                for x in range(width):
                    inner[x] = (
                        s * np.float32(here[x])
                        + t * (np.float32(a[x]) + np.float32(b[x]))
                        + u * (np.float32(c[x]) + np.float32(d[x]))
                        + v * (np.float32(e[x]) + np.float32(f[x]))
                    )
            else:
                for x in range(width):
                    inner[x] += (
                        t * (np.float32(a[x]) + np.float32(b[x]))
                        + u * (np.float32(c[x]) + np.float32(d[x]))
                        + v * (np.float32(e[x]) + np.float32(f[x]))
                    )
        for j in range(1, reach + 1):
            line[reach - j] = inner[mirrored(j, width)]
            line[reach + width - 1 + j] = inner[width - 1 - mirrored(j, width)]
        for j in range(1, reach + 1, 3):
            k, m = min(j + 1, reach), min(j + 2, reach)
            s, t = taps[0], taps[j]
            u, v = (taps[k] if k > j else _zero), (taps[m] if m > k else _zero)
            p, q = line[reach - j :], line[reach + j :]
            g, h = line[reach - k :], line[reach + k :]
            n, o = line[reach - m :], line[reach + m :]
            if j == 1:
                for x in range(width):
                    row[x] = (
                        s * inner[x] + t * (p[x] + q[x]) + u * (g[x] + h[x]) + v * (n[x] + o[x])
                    )
            else:
                for x in range(width):
                    row[x] += t * (p[x] + q[x]) + u * (g[x] + h[x]) + v * (n[x] + o[x])
        if first <= y < first + D.shape[0]:
            difference = D[y - first]
            for x in range(width):
                difference[x] = row[x] - np.float32(here[x])


@jit
def scan(D, top, bottom, threshold, hits, words, candidates):
    """`core.candidates` in rows top..bottom: layer, y and x of each; how many there are.

    hits (W rounded up to 8,) is scratch, words the same memory, eight pixels at a time.
    """
    layers, _, width = D.shape
    count, inner = 0, width - 2 * REACH
    for layer in range(1, layers - 1):
        for y in range(top, bottom):
            c = D[layer, y, REACH : width - REACH]
            left, right = D[layer, y, REACH - 1 :], D[layer, y, REACH + 1 :]
            up, down = D[layer, y - 1, REACH:], D[layer, y + 1, REACH:]
            fine, coarse = D[layer - 1, y, REACH:], D[layer + 1, y, REACH:]
            for x in range(inner):
                v = c[x]
                before = max(max(left[x], up[x]), fine[x])
                after = max(max(right[x], down[x]), coarse[x])
                peak = (v > threshold) & (v >= before) & (v > after)
                before = min(min(left[x], up[x]), fine[x])
                after = min(min(right[x], down[x]), coarse[x])
                hits[x] = peak | ((v < -threshold) & (v <= before) & (v < after))
            for w in range(words.shape[0]):
                if words[w] != 0:
                    for x in range(8 * w, 8 * w + 8):
                        extreme = hits[x] != 0
                        if extreme:
                            v = D[layer, y, REACH + x]
                            sign = _one if v > _zero else -_one
                            for i in range(9):  # rows of three neighbours
                                row = D[layer - 1 + i // 3, y - 1 + i % 3, REACH - 1 + x :]
                                e, f, g = (
                                    (row[0] - v) * sign,
                                    (row[1] - v) * sign,
                                    (row[2] - v) * sign,
                                )
                                if i < 4:
                                    extreme = e <= _zero and f <= _zero and g <= _zero
                                elif i == 4:
                                    extreme = e <= _zero and g < _zero
                                else:
                                    extreme = e < _zero and f < _zero and g < _zero
                                if not extreme:
                                    break
                        if extreme:
                            if count < candidates.shape[0]:
                                candidates[count, 0] = layer
                                candidates[count, 1] = y
                                candidates[count, 2] = REACH + x
                            count += 1
    return count


@jit
def fit(D, candidates, in_space, in_scale, contrast, roundness, cubes, scratch, rows):
    """`core.fitted` of the candidates: x, y, layer, D and sole of those that are extrema.

    Scratch: cubes (75, LANES) of D around LANES candidates, and scratch for all else.
    """
    t = scratch[:3]
    in_x = scratch[3 : 3 + 3 * SIDE]  # derivative, sample
    in_y = scratch[3 + 3 * SIDE : 3 + 6 * SIDE]
    in_l = scratch[3 + 6 * SIDE : 12 + 6 * SIDE]
    lines = scratch[12 + 6 * SIDE : 12 + 15 * SIDE]  # derivative in x; scale, y
    planes = scratch[12 + 15 * SIDE : 30 + 15 * SIDE]  # (y, x) derivatives 00 01 02 10 11 20; scale
    J = scratch[30 + 15 * SIDE : 40 + 15 * SIDE]
    far = scratch[40 + 15 * SIDE]
    kept, lines_of = 0, 3 * SIDE
    for start in range(0, candidates.shape[0], LANES):
        for n in range(LANES):
            k = min(start + n, candidates.shape[0] - 1)
            layer, y, x = candidates[k, 0], candidates[k, 1], candidates[k, 2]
            for i in range(3):
                for j in range(SIDE):
                    for q in range(SIDE):
                        cubes[(i * SIDE + j) * SIDE + q, n] = D[
                            layer - 1 + i, y - REACH + j, x - REACH + q
                        ]
            t[0, n] = t[1, n] = t[2, n] = _zero
        for step in range(STEPS + 1):
            for d in range(3):
                for s in range(SIDE):
                    for n in range(LANES):
                        u, v = in_space[d, SIDE - 1, s], in_space[d, SIDE - 1, s]
                        for p in range(SIDE - 2, -1, -1):
                            u = u * t[0, n] + in_space[d, p, s]
                            v = v * t[1, n] + in_space[d, p, s]
                        in_x[d * SIDE + s, n] = u
                        in_y[d * SIDE + s, n] = v
                for s in range(3):
                    for n in range(LANES):
                        in_l[3 * d + s, n] = (in_scale[d, 2, s] * t[2, n] + in_scale[d, 1, s]) * t[
                            2, n
                        ] + in_scale[d, 0, s]
            for d in range(3):
                for line in range(lines_of):
                    for n in range(LANES):
                        total = _zero
                        for s in range(SIDE):
                            total += cubes[line * SIDE + s, n] * in_x[d * SIDE + s, n]
                        lines[d * lines_of + line, n] = total
            pair = 0
            for dy in range(3):
                for dx in range(3 - dy):
                    for i in range(3):
                        for n in range(LANES):
                            total = _zero
                            for s in range(SIDE):
                                total += (
                                    lines[dx * lines_of + i * SIDE + s, n] * in_y[dy * SIDE + s, n]
                                )
                            planes[3 * pair + i, n] = total
                    pair += 1
            # J: value, x, xx, y, xy, yy; then l, xl, yl, ll
            for pair in range(6):
                for n in range(LANES):
                    J[pair, n] = (
                        planes[3 * pair, n] * in_l[0, n]
                        + planes[3 * pair + 1, n] * in_l[1, n]
                        + planes[3 * pair + 2, n] * in_l[2, n]
                    )
            for n in range(LANES):
                for i, pair in enumerate((0, 1, 3)):
                    J[6 + i, n] = (
                        planes[3 * pair, n] * in_l[3, n]
                        + planes[3 * pair + 1, n] * in_l[4, n]
                        + planes[3 * pair + 2, n] * in_l[5, n]
                    )
                J[9, n] = (
                    planes[0, n] * in_l[6, n]
                    + planes[1, n] * in_l[7, n]
                    + planes[2, n] * in_l[8, n]
                )
            if step == STEPS:
                break
            for n in range(LANES):
                gx, gy, gl = J[1, n], J[3, n], J[6, n]
                xx, yy, ll, xy, xl, yl = J[2, n], J[5, n], J[9, n], J[4, n], J[7, n], J[8, n]
                a, b, c = yy * ll - yl * yl, xl * yl - xy * ll, xy * yl - xl * yy
                e, f, g = xx * ll - xl * xl, xy * xl - xx * yl, xx * yy - xy * xy
                determinant = xx * a + xy * b + xl * c
                over = -_one / (determinant if determinant != _zero else _one)
                move_x = (a * gx + b * gy + c * gl) * over
                move_y = (b * gx + e * gy + f * gl) * over
                move_l = (c * gx + f * gy + g * gl) * over
                far[n] = abs(move_x) + abs(move_y) + abs(move_l)
                t[0, n] = min(max(t[0, n] + min(max(move_x, -_half), _half), -_one), _one)
                t[1, n] = min(max(t[1, n] + min(max(move_y, -_half), _half), -_one), _one)
                t[2, n] = min(max(t[2, n] + min(max(move_l, -_half), _half), -_one), _one)
        for n in range(min(LANES, candidates.shape[0] - start)):
            value, trace = J[0, n], J[2, n] + J[5, n]
            area = J[2, n] * J[5, n] - J[4, n] * J[4, n]
            away = max(max(abs(t[0, n]), abs(t[1, n])), abs(t[2, n]))
            if (
                away <= _farthest
                and far[n] <= _tenth
                and abs(value) >= contrast
                and abs(cubes[cubes.shape[0] // 2, n]) >= _candidate * abs(value)
                and area > _zero
                and trace * trace < roundness * area
                and value * trace < _zero
                and value * J[9, n] < _zero
            ):
                rows[kept, 0] = candidates[start + n, 2] + np.float64(t[0, n])
                rows[kept, 1] = candidates[start + n, 1] + np.float64(t[1, n])
                rows[kept, 2] = candidates[start + n, 0] + np.float64(t[2, n])
                rows[kept, 3] = value
                rows[kept, 4] = 1.0 if away < _half else 0.0
                kept += 1
    return kept


@jit
def turn(V, psi, second, f, index, angles, shares):
    """`angles` into index, angles and shares; how many there are. f (A,) is scratch."""
    steps, count = f.shape[0], 0
    degrees = 360.0 / steps
    for n in range(V.shape[0]):
        for s in range(steps):
            f[s] = V[n, 0] * psi[0, s]
        for k in range(1, V.shape[1]):
            v, row = V[n, k], psi[k]
            for s in range(steps):
                f[s] += v * row[s]
        highest, before = _zero, count
        for s in range(steps):
            highest = max(highest, f[s])
        least = second * highest
        for s in range(steps):
            here = f[s]
            if here > _zero and here >= least:
                left, right = f[s - 1 if s else steps - 1], f[s + 1 if s + 1 < steps else 0]
                if here > left and here >= right:
                    beside = _half * (left - right) / (left - _two * here + right)
                    index[count] = n
                    angles[count] = (s + np.float64(beside)) * degrees % 360.0
                    shares[count] = here / highest
                    count += 1
        if count == before:
            index[count], angles[count], shares[count] = n, 0.0, _one
            count += 1
    return count

"""`reference` compiled by Numba for the CPU: blurs, the scan for candidates, their fit and angles.

The scan compares six neighbours of every pixel with vector instructions, and the other 20 only
where one of eight pixels passed. The fit runs down `LANES` candidates at once. Results do not
depend on the thread, or on the rest of the image.
"""

from functools import lru_cache
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

_candidate = np.float32(CANDIDATE)
_farthest = np.float32(FARTHEST)
_zero = np.float32(0.0)
_half = np.float32(0.5)
_one = np.float32(1.0)
_tenth = np.float32(0.1)
_two = np.float32(2.0)
_none, _1, _2, _3, _4, _5, _6, _7, _8, _9 = np.arange(10, dtype=np.uintp)
_15, _37, _reach = np.array([15, 37, REACH], np.uintp)  # 37: the middle of a cube
SIDE = 2 * REACH + 1
# Rows of the scratch of `fit`, LANES each: 3 x 5 x 5 values of D; weights of 5 samples by axis and
# derivative; D contracted in x, by derivative, layer and y; then in y, by pair of derivatives and 5
# layers, two of them 0; then value, x, xx, y, xy, yy, l, xl, yl, ll; t and the last step.
CUBES, WEIGHTS, LINES, PAIRS, JET, AT, STEP, FIT_ROWS = np.cumsum(
    [0, 75, 45, 45, 30, 10, 3, 1], dtype=np.uintp
)


def _polynomials() -> Array32:
    """Return weights of samples by axis and derivative, as coefficients of 1, t .. t^4: (225,)."""
    in_scale = np.zeros_like(IN_SPACE)
    in_scale[:, :3, :3] = IN_SCALE
    return np.float32([IN_SPACE, IN_SPACE, in_scale]).swapaxes(2, 3).ravel()


def _contractions() -> NDArray[np.uintp]:
    """List the sums of five products in `fit`: first row of both factors, row of the sum."""
    x, y, layer = (int(WEIGHTS) + 15 * axis for axis in range(3))
    jobs = [(5 * i, x + 5 * d, LINES + 15 * d + i) for d in range(3) for i in range(15)]
    pairs = [(dx, dy) for dy in range(3) for dx in range(3 - dy)]
    for k, (dx, dy) in enumerate(pairs):
        jobs += [(LINES + 15 * dx + 5 * i, y + 5 * dy, PAIRS + 5 * k + i) for i in range(3)]
    in_layer = [(k, 0) for k in range(6)] + [(0, 1), (1, 1), (3, 1), (0, 2)]
    jobs += [(PAIRS + 5 * k, layer + 5 * d, JET + i) for i, (k, d) in enumerate(in_layer)]
    return np.array(jobs, dtype=np.uintp).ravel() * LANES


_polynomial, _contraction = _polynomials(), _contractions()
_cube = np.mgrid[:3, :3, :3].reshape(3, 27).astype(np.uintp)


def blurred(
    image: NDArray[Any],
    taps: Array32,
    gain: float,
    top: int,
    out: Array32,
    difference: Array32 | None,
    first: int,
) -> None:
    """Blur rows of an image times its gain both ways, mirrored at its borders, into `out`.

    From row `top` on. Differences to the image go to `difference`, from row `first` on.
    """
    # Compiled for float32 alone, and a read-only array would be another type to Numba.
    image = np.require(image, np.float32, ["C", "W"])
    reach, (height, width) = len(taps) // 2, image.shape
    padding = -(-reach // 3) * 3
    weights = np.zeros(1 + padding, np.float32)
    weights[: reach + 1] = taps[reach:]
    line = np.empty(width + 2 * padding, np.float32)
    D = np.empty(0, np.float32) if difference is None else difference.reshape(-1)
    blur(
        image.reshape(-1), *_places(height, width, padding),
        weights * np.float32(gain), weights, np.uintp(top), line, out.reshape(-1),
        np.uintp(first), D,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _places(height: int, width: int, padding: int) -> tuple[NDArray[np.uintp], ...]:
    """Return offsets of mirrored rows, indices of mirrored columns, and 0..2 * padding."""
    rows = np.pad(np.arange(height), padding, "reflect") * width
    columns = np.pad(np.arange(width), padding, "reflect") + padding
    return tuple(a.astype(np.uintp) for a in (rows, columns, np.arange(1 + 2 * padding)))


def extrema(D: Array32, top: int, bottom: int, weakest: float, roundness: float) -> Array:
    """Find extrema (N, 5) of D (n + 2, rows, W) in rows top..bottom: x, y, layer, D, sole.

    sole: 1 if it lies in the cell of its candidate, so that no other candidate leads to it; else 0.
    """
    width, least = D.shape[2], np.float32(CANDIDATE * weakest)
    flat, shape = D.reshape(-1), np.array(D.shape, np.uintp)
    hits = np.zeros(-(-width // 8) * 8, np.uint8)
    around = (_cube[0] * shape[1] + _cube[1]) * shape[2] + _cube[2]
    rows = np.uintp(top), np.uintp(max(top, bottom))
    count = max(64, (bottom - top) * width // 32)
    for _ in range(2):  # again if the buffer was too small
        candidates = np.empty(3 * count, np.uintp)
        count = scan(flat, shape, *rows, least, around, hits, hits.view(np.uint64), candidates)
        if 3 * count <= len(candidates):
            break
    found = np.empty((count, 5))
    scratch = np.zeros(FIT_ROWS * LANES, np.float32)
    limits = np.float32(weakest), np.float32(roundness)
    kept = fit(
        flat, shape, candidates[: 3 * count], _polynomial, _contraction, *limits, scratch,
        found.reshape(-1),
    )  # fmt: skip
    return found[:kept]


def angles(V: Array32, psi: Array32, second: float) -> tuple[NDArray[np.int64], Array, Array32]:
    """Find the angles of V (N, 7): index, angle in degrees, and relative height, each (M,).

    See `orientation.maxima`; psi (7, A) has a column for each sampled angle.
    """
    most = psi.shape[1] // 2 * len(V)  # maxima that so many samples of f can have
    index, turns, heights = np.empty(most, np.int64), np.empty(most), np.empty(most, np.float32)
    f = np.empty(psi.shape[1], np.float32)
    count = turn(V, psi, np.float32(second), f, index, turns, heights)
    return index[:count], turns[:count], heights[:count]


@jit
def weigh(X, at, middle, taps, out, to, width):
    """out[to + x] = the sum of taps[|j|] X[at[middle + j] + x] over j, three pairs at a time."""
    here, centre = at[middle], taps[_none]
    for j in range(_1, np.uintp(taps.shape[0]), _3):
        a, b, c = at[middle - j], at[middle - j - _1], at[middle - j - _2]
        d, e, f = at[middle + j], at[middle + j + _1], at[middle + j + _2]
        t, u, v = taps[j], taps[j + _1], taps[j + _2]
        if j == _1:
            for x in range(width):
                total = centre * X[here + x] + t * (X[a + x] + X[d + x])
                out[to + x] = total + u * (X[b + x] + X[e + x]) + v * (X[c + x] + X[f + x])
        else:
            for x1 in range(width):
                more = t * (X[a + x1] + X[d + x1]) + u * (X[b + x1] + X[e + x1])
                out[to + x1] += more + v * (X[c + x1] + X[f + x1])


@jit
def blur(image, rows, columns, shifts, down, along, top, line, out, first, D):
    """`blurred` by symmetric taps, the middle one first: `down` the columns and `along` the rows.

    rows and columns: offsets of pixels or their mirror images. line: scratch for a row.
    """
    padding = np.uintp(along.shape[0]) - _1
    width = np.uintp(columns.shape[0]) - padding - padding
    last = first + np.uintp(D.shape[0]) // width
    for to in range(_none, np.uintp(out.shape[0]), width):
        y = top + to // width
        weigh(image, rows, y + padding, down, line, padding, width)
        for x in range(padding):
            beyond = x + padding + width
            line[x], line[beyond] = line[columns[x]], line[columns[beyond]]
        weigh(line, shifts, padding, along, out, to, width)
        if y >= first and y < last:
            for x1 in range(width):
                D[(y - first) * width + x1] = out[to + x1] - image[y * width + x1]


@jit
def scan(D, shape, top, bottom, threshold, around, hits, words, candidates):
    """`reference.candidates` in rows top..bottom: layer, y and x of each; returns their number.

    D (layers, rows, W); around: offsets of 27 pixels from the first. hits (W rounded up to 8,) is
    scratch, words the same memory, eight pixels at a time.
    """
    width, plane = shape[2], shape[1] * shape[2]
    count, inner = _none, width - _reach - _reach
    for layer in range(_1, shape[0] - _1):
        for y in range(top, bottom):
            row = layer * plane + y * width + _reach
            for x in range(inner):
                c = row + x
                value = D[c]
                left, up, fine = D[c - _1], D[c - width], D[c - plane]
                right, down, coarse = D[c + _1], D[c + width], D[c + plane]
                before, after = max(max(left, up), fine), max(max(right, down), coarse)
                peak = (value > threshold) & (value >= before) & (value > after)
                low, low_after = min(min(left, up), fine), min(min(right, down), coarse)
                hits[x] = peak | ((value < -threshold) & (value <= low) & (value < low_after))
            for w in range(words.shape[0]):
                if words[w] != 0:
                    for x1 in range(_8 * np.uintp(w), _8 * np.uintp(w) + _8):
                        if hits[x1] != 0:
                            c1 = row + x1
                            centre, corner = D[c1], c1 - plane - width - _1
                            sign, extreme = _one if centre > _zero else -_one, _1
                            for i in range(27):
                                more = (D[corner + around[i]] - centre) * sign
                                if more > _zero or (i > 13 and more == _zero):
                                    extreme = _none
                            if extreme == _1:
                                to = _3 * count
                                if to < np.uintp(candidates.shape[0]):
                                    candidates[to] = layer
                                    candidates[to + _1] = y
                                    candidates[to + _2] = _reach + x1
                                count += _1
    return count


@jit
def fit(D, shape, candidates, polynomials, contractions, contrast, roundness, S, found):
    """`reference.fitted` of the candidates: x, y, layer, D and sole of the extrema.

    S is scratch, LANES candidates at once.
    """
    width, plane = shape[2], shape[1] * shape[2]
    count, kept = np.uintp(candidates.shape[0]) // _3, _none
    # Not the constant: loops of so few steps would be unrolled before they are vectorised.
    L = np.uintp(S.shape[0]) // FIT_ROWS
    t, jet, far = AT * L, JET * L, STEP * L
    for start in range(_none, count, L):
        for n in range(L):
            k = _3 * (start + n if start + n < count else count - _1)
            corner = (candidates[k] - _1) * plane + candidates[k + _2] - _reach
            corner += (candidates[k + _1] - _reach) * width
            for i in range(_15):
                row = corner + i // _5 * plane + i % _5 * width
                for q in range(_5):
                    S[(i * _5 + q) * L + n] = D[row + q]
            S[t + n] = S[t + L + n] = S[t + L + L + n] = _zero
        for step in range(STEPS + 1):
            for w in range(WEIGHTS, LINES):
                c = (w - WEIGHTS) * _5
                p0, p1, p2 = polynomials[c], polynomials[c + _1], polynomials[c + _2]
                p3, p4 = polynomials[c + _3], polynomials[c + _4]
                u, to = t + (w - WEIGHTS) // _15 * L, w * L
                for n1 in range(L):
                    v = S[u + n1]
                    S[to + n1] = (((p4 * v + p3) * v + p2) * v + p1) * v + p0
            for job in range(_none, np.uintp(contractions.shape[0]), _3):
                a0, b0 = contractions[job], contractions[job + _1]
                to_sum = contractions[job + _2]
                a1, a2, a3, a4 = a0 + L, a0 + L + L, a0 + _3 * L, a0 + _4 * L
                b1, b2, b3, b4 = b0 + L, b0 + L + L, b0 + _3 * L, b0 + _4 * L
                for n2 in range(L):
                    total = S[a0 + n2] * S[b0 + n2] + S[a1 + n2] * S[b1 + n2]
                    total += S[a2 + n2] * S[b2 + n2] + S[a3 + n2] * S[b3 + n2]
                    S[to_sum + n2] = total + S[a4 + n2] * S[b4 + n2]
            if step == STEPS:
                break
            for n3 in range(L):
                j = jet + n3
                gx, xx, gy = S[j + L], S[j + _2 * L], S[j + _3 * L]
                xy, yy, gl = S[j + _4 * L], S[j + _5 * L], S[j + _6 * L]
                xl, yl, ll = S[j + _7 * L], S[j + _8 * L], S[j + _9 * L]
                a, b, cc = yy * ll - yl * yl, xl * yl - xy * ll, xy * yl - xl * yy
                e, f, g = xx * ll - xl * xl, xy * xl - xx * yl, xx * yy - xy * xy
                determinant = xx * a + xy * b + xl * cc
                over = -_one / (determinant if determinant != _zero else _one)
                dx = (a * gx + b * gy + cc * gl) * over
                dy = (b * gx + e * gy + f * gl) * over
                dl = (cc * gx + f * gy + g * gl) * over
                S[far + n3] = abs(dx) + abs(dy) + abs(dl)
                at = t + n3
                S[at] = min(max(S[at] + min(max(dx, -_half), _half), -_one), _one)
                at_y = at + L
                S[at_y] = min(max(S[at_y] + min(max(dy, -_half), _half), -_one), _one)
                at_l = at_y + L
                S[at_l] = min(max(S[at_l] + min(max(dl, -_half), _half), -_one), _one)
        for n4 in range(L if start + L < count else count - start):
            j4, k4, to4 = jet + n4, _3 * (start + n4), kept * _5
            tx, ty, tl = S[t + n4], S[t + L + n4], S[t + _2 * L + n4]
            value, xx4, yy4, xy4 = S[j4], S[j4 + _2 * L], S[j4 + _5 * L], S[j4 + _4 * L]
            trace, area = xx4 + yy4, xx4 * yy4 - xy4 * xy4
            away = max(max(abs(tx), abs(ty)), abs(tl))
            if (
                (away <= _farthest)
                & (S[far + n4] <= _tenth)
                & (abs(value) >= contrast)
                & (abs(S[_37 * L + n4]) >= _candidate * abs(value))
                & (area > _zero)
                & (trace * trace < roundness * area)
                & (value * trace < _zero)
                & (value * S[j4 + _9 * L] < _zero)
            ):
                found[to4] = np.float64(candidates[k4 + _2]) + np.float64(tx)
                found[to4 + _1] = np.float64(candidates[k4 + _1]) + np.float64(ty)
                found[to4 + _2] = np.float64(candidates[k4]) + np.float64(tl)
                found[to4 + _3] = value
                found[to4 + _4] = 1.0 if away < _half else 0.0
                kept += _1
    return kept


@jit
def turn(V, psi, second, f, index, angles, heights):
    """Write `angles` into index, angles and heights; return their number. f (A,) is scratch."""
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
                    heights[count] = here / highest
                    count += 1
        if count == before:
            index[count], angles[count], heights[count] = n, 0.0, _one
            count += 1
    return count

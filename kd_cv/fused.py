"""The data path of `core`, for the CPU: one pass per keypoint, compiled by Numba.

Each keypoint is sampled, smoothed, differentiated and folded in a few cache-sized buffers, then
multiplied with the spatial functions; nothing else is ever stored. Three things make it fast:

- every spatial function is even or odd in x and in y, so the planes are first folded into four
  parities of a quarter of the size, and each function meets only its own;
- cos k theta and sin k theta come from the gradient by the angle-sum rules, without trigonometry;
- keypoints go through in blocks of `LANES`, so the sparse recombination runs down the lanes.

A descriptor is the same to the last bit whatever its neighbours, its block or its thread: every
lane runs the same instructions, and a block is always computed whole.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kd_cv.core import EPS, FLAT, NO_GRADIENT
from kd_cv.spec import PLANES, Spec

LANES = 16
Array32 = NDArray[np.float32]

_eps = np.float32(EPS)
_no_gradient = np.float32(NO_GRADIENT)
_flat = np.float32(FLAT)
_one = np.float32(1.0)
_two = np.float32(2.0)
_zero = np.float32(0.0)

# Sums may be reordered and contracted (each row always in the same way); NaN and infinity keep
# their meaning.
_fast = {"reassoc", "contract", "nsz", "arcp"}
_compile = njit(nogil=True, cache=True, fastmath=_fast, error_model="numpy", no_cfunc_wrapper=True)
_inlined = njit(
    nogil=True, fastmath=_fast, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=True
)


@dataclass(frozen=True)
class Plan:
    """Constants of one `Spec` in the layout of the kernel, float32.

    taps       (5,) smoothing
    Phi        (F', Q) folded functions, ordered by parity; each parity padded to an even count
    first      (5,) where each parity begins in Phi
    source     (D, 4) which of the 7 * F' sums a dimension adds up
    weight     (D, 4) and with what weight
    part_ends  (number of parts,)
    """

    spec: Spec
    taps: Array32
    Phi: Array32
    first: NDArray[np.int64]
    source: NDArray[np.int64]
    weight: Array32
    part_ends: NDArray[np.int64]


@lru_cache(maxsize=32)
def plan(spec: Spec) -> Plan:
    """Fold and order the constants of `spec`."""
    c = spec.constants
    P, h = spec.patch_size, (spec.patch_size + 1) // 2
    functions = c.Phi.T.reshape(-1, P, P)
    scale = np.abs(functions).max(axis=(1, 2), keepdims=True)
    # The exact centre of an odd patch has no angle; parity is judged on the other pixels.
    judged = functions / scale
    if P % 2:
        judged[:, P // 2, P // 2] = 0
    odd_x = np.abs(judged + judged[:, :, ::-1]).max(axis=(1, 2)) < 1e-9
    odd_y = np.abs(judged + judged[:, ::-1, :]).max(axis=(1, 2)) < 1e-9

    rows: list[NDArray[np.float64]] = []
    first = [0]
    position = np.zeros(len(functions), dtype=np.int64)
    for parity in range(4):  # even-even, odd in x, odd in y, odd in both
        members = np.flatnonzero(odd_x + 2 * odd_y == parity)
        for f in members:
            position[f] = len(rows)
            rows.append(functions[f, :h, :h].ravel())
        if len(members) % 2:
            rows.append(np.zeros(h * h))
        first.append(len(rows))

    D, F = spec.dim, len(rows)
    source = np.zeros((D, 4), dtype=np.int64)
    weight = np.zeros((D, 4))
    for d in range(D):
        for i, (k, f) in enumerate(np.argwhere(c.T[:, :, d])):
            source[d, i] = k * F + position[f]
            weight[d, i] = c.T[k, f, d]
    return Plan(
        spec,
        np.float32(c.taps),
        np.ascontiguousarray(rows, dtype=np.float32),
        np.array(first),
        source,
        np.float32(weight),
        np.array([part.stop for part in spec.parts]),
    )


@_inlined
def _sample(image, offset, width, height, cx, cy, ax, ay, patch, at, fraction, corners):
    """Bilinear samples of a frame into `patch`; outside the image its border is repeated.

    The image begins at image[offset], row after row; (ax, ay) is the step between samples of a row.
    Scratch: at (P,), fraction (2, P), corners (4, P). Positions, loads and interpolation are
    separate loops, because only the loads cannot be vectorised.
    """
    P = patch.shape[0]
    middle = 0.5 * (P - 1)
    reach = middle * (abs(ax) + abs(ay))
    # Coordinates relative to a pixel of the image at or before the patch keep float32 exact.
    left = int(min(max(cx - reach, 0.0), width - 1.0))
    top = int(min(max(cy - reach, 0.0), height - 1.0))
    corner_x = np.float32(cx - middle * (ax - ay) - left)
    corner_y = np.float32(cy - middle * (ax + ay) - top)
    step_x, step_y = np.float32(ax), np.float32(ay)
    right, bottom = np.float32(width - 1 - left), np.float32(height - 1 - top)
    last_x, last_y = np.int32(max(width - 2 - left, 0)), np.int32(max(height - 2 - top, 0))
    row = np.int32(width)
    # Unsigned indices spare Numba its test for negative ones.
    origin = np.uintp(offset + top * width + left)
    beside = np.uintp(1 if width - 1 - left > 0 else 0)
    below = np.uintp(width if height - 1 - top > 0 else 0)
    for i in range(P):
        row_x = corner_x - np.float32(i) * step_y
        row_y = corner_y + np.float32(i) * step_x
        for j in range(P):
            x = min(max(row_x + np.float32(j) * step_x, _zero), right)
            y = min(max(row_y + np.float32(j) * step_y, _zero), bottom)
            xi, yi = min(np.int32(x), last_x), min(np.int32(y), last_y)
            fraction[0, j], fraction[1, j] = x - np.float32(xi), y - np.float32(yi)
            at[j] = np.uint32(yi * row + xi)
        for j in range(P):
            here = origin + np.uintp(at[j])
            corners[0, j], corners[1, j] = image[here], image[here + beside]
            corners[2, j], corners[3, j] = image[here + below], image[here + below + beside]
        for j in range(P):
            a, b = np.float32(corners[0, j]), np.float32(corners[1, j])
            c, d = np.float32(corners[2, j]), np.float32(corners[3, j])
            upper = a + fraction[0, j] * (b - a)
            lower = c + fraction[0, j] * (d - c)
            patch[i, j] = upper + fraction[1, j] * (lower - upper)


@_inlined
def _smooth(patch, taps, gain, middle, smooth):
    """Separable 5-tap smoothing, times `gain`; all borders repeated.

    middle (P, P + 4) is scratch; smooth (P + 2, P + 2) gets the result with a border of one.
    """
    P = patch.shape[0]
    t0, t1, t2 = taps[2], taps[1], taps[0]
    for i in range(P):
        up1, up2 = np.uintp(max(i - 1, 0)), np.uintp(max(i - 2, 0))
        down1, down2 = np.uintp(min(i + 1, P - 1)), np.uintp(min(i + 2, P - 1))
        for j in range(P):
            middle[i, j + 2] = (
                t0 * patch[i, j]
                + t1 * (patch[up1, j] + patch[down1, j])
                + t2 * (patch[up2, j] + patch[down2, j])
            )
        middle[i, 0] = middle[i, 1] = middle[i, 2]
        middle[i, P + 2] = middle[i, P + 3] = middle[i, P + 1]
    t0, t1, t2 = t0 * gain, t1 * gain, t2 * gain
    for i in range(P):
        for j in range(P):
            smooth[i + 1, j + 1] = (
                t0 * middle[i, j + 2]
                + t1 * (middle[i, j + 1] + middle[i, j + 3])
                + t2 * (middle[i, j] + middle[i, j + 4])
            )
        smooth[i + 1, 0] = smooth[i + 1, 1]
        smooth[i + 1, P + 1] = smooth[i + 1, P]
    for j in range(P + 2):
        smooth[0, j] = smooth[1, j]
        smooth[P + 1, j] = smooth[P, j]


@_inlined
def _gradients(smooth, gradient):
    """Gradients (2, 4 * Q) of the smoothed patch, quarter by quarter.

    The quarters are upper left, upper right, lower left, lower right, each mirrored so that the
    pixels which fold onto each other have the same index; with an odd P the quarters share the
    middle row and column, and the copies are zero.
    """
    P = smooth.shape[0] - 2
    h, half = (P + 1) // 2, P // 2
    Q = h * h
    if h > half:
        for q in range(4 * Q):
            gradient[0, q] = gradient[1, q] = _zero
    for i in range(P):
        above, here, below = np.uintp(i), np.uintp(i + 1), np.uintp(i + 2)
        left = i * h if i < h else 2 * Q + (P - 1 - i) * h
        right = left + Q + half - 1
        for j in range(h):
            gradient[0, np.uintp(left + j)] = smooth[here, j] - smooth[here, j + 2]
            gradient[1, np.uintp(left + j)] = smooth[above, j + 1] - smooth[below, j + 1]
        for j in range(half):
            column = np.uintp(h + j)
            mirrored = np.uintp(right - j)
            gradient[0, mirrored] = smooth[here, column] - smooth[here, column + np.uintp(2)]
            gradient[1, mirrored] = (
                smooth[above, column + np.uintp(1)] - smooth[below, column + np.uintp(1)]
            )


@_inlined
def _planes(gradient, planes):
    """The seven planes (7, 4 * Q) of the gradients; returns the sum of squared gradients."""
    total = _zero
    for q in range(gradient.shape[1]):
        gx, gy = gradient[0, q], gradient[1, q]
        g2 = gx * gx + gy * gy
        total += g2
        some = g2 >= _no_gradient
        m = np.sqrt(g2)
        inverse = _one / m if some else _zero
        weight = np.sqrt((m if some else _zero) + _eps)
        cos1 = gx * inverse if some else -_one
        sin1 = gy * inverse
        cos2 = cos1 * cos1 - sin1 * sin1
        sin2 = _two * sin1 * cos1
        planes[0, q] = weight
        planes[1, q] = weight * cos1
        planes[2, q] = weight * cos2
        planes[3, q] = weight * (cos2 * cos1 - sin2 * sin1)
        planes[4, q] = weight * sin1
        planes[5, q] = weight * sin2
        planes[6, q] = weight * (sin2 * cos1 + cos2 * sin1)
    return total


@_inlined
def _fold(folded, P):
    """Quarters (7, 4, Q) into parities, in place: even-even, odd in x, odd in y, odd in both.

    A middle row or column has no mirror image; its pixels count once in every parity, where the
    odd functions vanish but for the exact centre.
    """
    h = (P + 1) // 2
    Q = h * h
    for k in range(PLANES):
        if P % 2:
            for i in range(h):
                folded[k, 1, i * h + h - 1] = folded[k, 3, i * h + h - 1] = _zero
                folded[k, 2, Q - h + i] = folded[k, 3, Q - h + i] = _zero
        for q in range(Q):
            a, b, c, d = folded[k, 0, q], folded[k, 1, q], folded[k, 2, q], folded[k, 3, q]
            even_above, odd_above = a + b, a - b
            even_below, odd_below = c + d, c - d
            folded[k, 0, q] = even_above + even_below
            folded[k, 1, q] = odd_above + odd_below
            folded[k, 2, q] = even_above - even_below
            folded[k, 3, q] = odd_above - odd_below


@_inlined
def _product(folded, Phi, first, sums, lane):
    """Sums of the planes against the functions: sums[k * F + f, lane]."""
    F, Q = Phi.shape
    for parity in range(4):
        p0, p1, p2, p3 = folded[0, parity], folded[1, parity], folded[2, parity], folded[3, parity]
        p4, p5, p6 = folded[4, parity], folded[5, parity], folded[6, parity]
        for f in range(first[parity], first[parity + 1], 2):
            u, v = Phi[f], Phi[f + 1]
            u0 = u1 = u2 = u3 = u4 = u5 = u6 = _zero
            v0 = v1 = v2 = v3 = v4 = v5 = v6 = _zero
            for q in range(Q):
                uq, vq = u[q], v[q]
                u0 += p0[q] * uq
                u1 += p1[q] * uq
                u2 += p2[q] * uq
                u3 += p3[q] * uq
                u4 += p4[q] * uq
                u5 += p5[q] * uq
                u6 += p6[q] * uq
                v0 += p0[q] * vq
                v1 += p1[q] * vq
                v2 += p2[q] * vq
                v3 += p3[q] * vq
                v4 += p4[q] * vq
                v5 += p5[q] * vq
                v6 += p6[q] * vq
            sums[f, lane], sums[f + 1, lane] = u0, v0
            sums[F + f, lane], sums[F + f + 1, lane] = u1, v1
            sums[2 * F + f, lane], sums[2 * F + f + 1, lane] = u2, v2
            sums[3 * F + f, lane], sums[3 * F + f + 1, lane] = u3, v3
            sums[4 * F + f, lane], sums[4 * F + f + 1, lane] = u4, v4
            sums[5 * F + f, lane], sums[5 * F + f + 1, lane] = u5, v5
            sums[6 * F + f, lane], sums[6 * F + f + 1, lane] = u6, v6


@_inlined
def _spatial_sums(patch, gain, taps, scratch, Phi, first, sums, lane):
    """Steps 1 and 2 of one sampled patch into column `lane` of `sums`."""
    P = patch.shape[0]
    middle, smooth, gradient, planes, folded = scratch
    square = _zero
    for i in range(P):
        for j in range(P):
            square += patch[i, j] * patch[i, j]
    _smooth(patch, taps, gain, middle, smooth)
    _gradients(smooth, gradient)
    total = _planes(gradient, planes)
    if total > _flat * (square * gain * gain + np.float32(P * P)):
        _fold(folded, P)
        _product(folded, Phi, first, sums, lane)
    else:
        _clear(sums, lane)


@_inlined
def _clear(sums, lane):
    for f in range(sums.shape[0]):
        sums[f, lane] = _zero


@_inlined
def _scratch(P):
    """Buffers of one patch: smoothed down, smoothed, gradients, planes, and these by quarters."""
    Q = ((P + 1) // 2) ** 2
    planes = np.empty((PLANES, 4 * Q), dtype=np.float32)
    return (
        np.empty((P, P + 4), dtype=np.float32),
        np.empty((P + 2, P + 2), dtype=np.float32),
        np.empty((2, 4 * Q), dtype=np.float32),
        planes,
        planes.reshape(PLANES, 4, Q),
    )


@_inlined
def _recombine(sums, source, weight, part_ends, V, unscaled):
    """Sparse recombination and normalisation down the lanes; adds to V (D, LANES)."""
    begin = 0
    total = np.zeros(LANES, dtype=np.float32)
    inverse = np.zeros(LANES, dtype=np.float32)
    for part in range(part_ends.shape[0]):
        for n in range(LANES):
            total[n] = _zero
        for d in range(begin, part_ends[part]):
            s0, s1, s2, s3 = source[d, 0], source[d, 1], source[d, 2], source[d, 3]
            w0, w1, w2, w3 = weight[d, 0], weight[d, 1], weight[d, 2], weight[d, 3]
            for n in range(LANES):
                value = w0 * sums[s0, n] + w1 * sums[s1, n] + w2 * sums[s2, n] + w3 * sums[s3, n]
                unscaled[d, n] = value
                total[n] += value * value
        for n in range(LANES):
            inverse[n] = _one / np.sqrt(total[n]) if total[n] > _zero else _zero
        for d in range(begin, part_ends[part]):
            for n in range(LANES):
                V[d, n] += unscaled[d, n] * inverse[n]
        begin = part_ends[part]


@_inlined
def _finish(V, rows, mu, A, power, out, start, count):
    """Unit norm, then A^T (V - mu) and unit norm again, into out[start : start + count].

    `rows` is (LANES, D) scratch; A is (D_out, D), or (0, D) for the raw vector.
    """
    D, D_out = V.shape[0], A.shape[0]
    described = np.zeros(LANES, dtype=np.bool_)
    for n in range(LANES):
        total = _zero
        for d in range(D):
            rows[n, d] = V[d, n]
            total += rows[n, d] * rows[n, d]
        described[n] = total > _zero
        inverse = _one / np.sqrt(total) if described[n] else _zero
        for d in range(D):
            rows[n, d] *= inverse
    if D_out == 0:
        for n in range(count):
            for d in range(D):
                out[start + n, d] = rows[n, d]
        return
    for n in range(LANES):
        for d in range(D):
            rows[n, d] -= mu[d]
    for n in range(0, LANES, 8):  # eight rows share every load of A
        if n >= count:
            break
        for j in range(D_out):
            y0 = y1 = y2 = y3 = y4 = y5 = y6 = y7 = _zero
            for d in range(D):
                a = A[j, d]
                y0 += a * rows[n, d]
                y1 += a * rows[n + 1, d]
                y2 += a * rows[n + 2, d]
                y3 += a * rows[n + 3, d]
                y4 += a * rows[n + 4, d]
                y5 += a * rows[n + 5, d]
                y6 += a * rows[n + 6, d]
                y7 += a * rows[n + 7, d]
            V[j, n], V[j, n + 1], V[j, n + 2], V[j, n + 3] = y0, y1, y2, y3
            V[j, n + 4], V[j, n + 5], V[j, n + 6], V[j, n + 7] = y4, y5, y6, y7
    for n in range(count):
        total = _zero
        for j in range(D_out):
            y = V[j, n]
            if power != _one:
                y = np.sign(y) * np.abs(y) ** power
            rows[n, j] = y
            total += y * y
        inverse = _one / np.sqrt(total) if described[n] and total > _zero else _zero
        for j in range(D_out):
            out[start + n, j] = rows[n, j] * inverse


@_compile
def describe_frames(
    finest, coarser, levels, steps, gain, P, taps, Phi, first, source, weight, part_ends,
    mu, A, power, out,
):  # fmt: skip
    """Descriptors at frames of a pyramid, into out (N, D).

    finest (H * W,) and coarser (flat, all other levels) hold the pixels; levels (L, 3) has offset,
    height and width of each. steps (N, scales, 5) has, for each frame, its level (-1: cannot be
    described), centre x and y in that level, and the step (ax, ay) between samples of a row.
    """
    D, N = source.shape[0], out.shape[0]
    scratch = _scratch(P)
    patch = np.empty((P, P), dtype=np.float32)
    at = np.empty(P, dtype=np.uint32)
    fraction = np.empty((2, P), dtype=np.float32)
    corners = np.empty((4, P), dtype=finest.dtype)
    sums = np.zeros((PLANES * Phi.shape[0], LANES), dtype=np.float32)
    V = np.empty((D, LANES), dtype=np.float32)
    unscaled = np.empty((D, LANES), dtype=np.float32)
    rows = np.empty((LANES, D), dtype=np.float32)
    for start in range(0, N, LANES):
        count = min(LANES, N - start)
        for d in range(D):
            for n in range(LANES):
                V[d, n] = _zero
        for scale in range(steps.shape[1]):
            for lane in range(count):
                n = start + lane
                level = int(steps[n, scale, 0])
                if level < 0:
                    _clear(sums, lane)
                    continue
                _sample(
                    finest if level == 0 else coarser,
                    levels[level, 0], levels[level, 2], levels[level, 1],
                    steps[n, scale, 1], steps[n, scale, 2], steps[n, scale, 3], steps[n, scale, 4],
                    patch, at, fraction, corners,
                )  # fmt: skip
                _spatial_sums(patch, gain, taps, scratch, Phi, first, sums, lane)
            _recombine(sums, source, weight, part_ends, V, unscaled)
        _finish(V, rows, mu, A, power, out, start, count)


@_compile
def describe_patches(
    patches, gain, taps, Phi, first, source, weight, part_ends, mu, A, power, out
):  # fmt: skip
    """Descriptors of patches (N, P, P), into out (N, D)."""
    N, P = patches.shape[0], patches.shape[1]
    D = source.shape[0]
    scratch = _scratch(P)
    patch = np.empty((P, P), dtype=np.float32)
    sums = np.zeros((PLANES * Phi.shape[0], LANES), dtype=np.float32)
    V = np.empty((D, LANES), dtype=np.float32)
    unscaled = np.empty((D, LANES), dtype=np.float32)
    rows = np.empty((LANES, D), dtype=np.float32)
    for start in range(0, N, LANES):
        count = min(LANES, N - start)
        for d in range(D):
            for n in range(LANES):
                V[d, n] = _zero
        for lane in range(count):
            for i in range(P):
                for j in range(P):
                    patch[i, j] = np.float32(patches[start + lane, i, j])
            _spatial_sums(patch, gain, taps, scratch, Phi, first, sums, lane)
        _recombine(sums, source, weight, part_ends, V, unscaled)
        _finish(V, rows, mu, A, power, out, start, count)

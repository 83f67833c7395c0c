"""The data path of `core`, for the CPU: one pass per keypoint, compiled by Numba.

Each keypoint is sampled, smoothed, differentiated and folded in a few cache-sized buffers, then
multiplied with the spatial functions; nothing else is ever stored. Three things make it fast:

- every spatial function is even or odd in x and in y, so the planes are folded into four
  quarter-size parts first, and each function meets only the part of its own parity;
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
_compile = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})


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


@_compile
def _sample(image, width, height, cx, cy, ax, ay, patch):
    """Bilinear samples of a frame into `patch`; outside the image its border is repeated.

    `image` is flat, (height * width,); (ax, ay) is the step of one sample along a patch row.
    """
    P = patch.shape[0]
    reach = 0.5 * (P - 1) * (abs(ax) + abs(ay))
    corner_x = cx - 0.5 * (P - 1) * (ax - ay)
    corner_y = cy - 0.5 * (P - 1) * (ax + ay)
    inside = (
        cx - reach >= 0.0
        and cy - reach >= 0.0
        and cx + reach < width - 1
        and cy + reach < height - 1
    )
    step_x, step_y = np.float32(ax), np.float32(ay)
    if inside:
        # Coordinates relative to a whole pixel at or before the patch: small, never negative.
        left, top = int(cx - reach), int(cy - reach)
        base = top * width + left
        rel_x, rel_y = np.float32(corner_x - left), np.float32(corner_y - top)
        for i in range(P):
            row_x = max(rel_x - np.float32(i) * step_y, _zero)
            row_y = max(rel_y + np.float32(i) * step_x, _zero)
            for j in range(P):
                x = max(row_x + np.float32(j) * step_x, _zero)
                y = max(row_y + np.float32(j) * step_y, _zero)
                xi, yi = np.int32(x), np.int32(y)
                fx, fy = x - np.float32(xi), y - np.float32(yi)
                at = base + yi * width + xi
                a, b = np.float32(image[at]), np.float32(image[at + 1])
                c, d = np.float32(image[at + width]), np.float32(image[at + width + 1])
                upper = a + fx * (b - a)
                lower = c + fx * (d - c)
                patch[i, j] = upper + fy * (lower - upper)
    else:
        right, bottom = float(width - 1), float(height - 1)
        for i in range(P):
            for j in range(P):
                x = min(max(corner_x + j * ax - i * ay, 0.0), right)
                y = min(max(corner_y + j * ay + i * ax, 0.0), bottom)
                xi, yi = int(x), int(y)
                fx, fy = np.float32(x - xi), np.float32(y - yi)
                x1, y1 = min(xi + 1, width - 1), min(yi + 1, height - 1)
                a, b = np.float32(image[yi * width + xi]), np.float32(image[yi * width + x1])
                c, d = np.float32(image[y1 * width + xi]), np.float32(image[y1 * width + x1])
                upper = a + fx * (b - a)
                lower = c + fx * (d - c)
                patch[i, j] = upper + fy * (lower - upper)


@_compile
def _smooth(patch, taps, middle):
    """Separable 5-tap smoothing in place, borders repeated; `middle` is (P, P + 4) scratch."""
    P = patch.shape[0]
    t0, t1, t2 = taps[2], taps[1], taps[0]
    for i in range(P):
        up1, up2 = max(i - 1, 0), max(i - 2, 0)
        down1, down2 = min(i + 1, P - 1), min(i + 2, P - 1)
        for j in range(P):
            middle[i, j + 2] = (
                t0 * patch[i, j]
                + t1 * (patch[up1, j] + patch[down1, j])
                + t2 * (patch[up2, j] + patch[down2, j])
            )
        middle[i, 0] = middle[i, 1] = middle[i, 2]
        middle[i, P + 2] = middle[i, P + 3] = middle[i, P + 1]
    for i in range(P):
        for j in range(P):
            patch[i, j] = (
                t0 * middle[i, j + 2]
                + t1 * (middle[i, j + 1] + middle[i, j + 3])
                + t2 * (middle[i, j] + middle[i, j + 4])
            )


@_compile
def _planes(patch, i, rows):
    """The seven planes of one patch row into rows (7, P); returns the sum of squared gradients."""
    P = patch.shape[0]
    above, below = max(i - 1, 0), min(i + 1, P - 1)
    total = _zero
    for j in range(P):
        rows[1, j] = patch[i, max(j - 1, 0)] - patch[i, min(j + 1, P - 1)]
    for j in range(P):
        gx = rows[1, j]
        gy = patch[above, j] - patch[below, j]
        g2 = gx * gx + gy * gy
        total += g2
        some = g2 >= _no_gradient
        m = np.sqrt(g2)
        inverse = _one / m if some else _zero
        weight = np.sqrt((m if some else _zero) + _eps)
        cos1 = gx * inverse if some else _one
        sin1 = gy * inverse
        cos2 = cos1 * cos1 - sin1 * sin1
        sin2 = _two * sin1 * cos1
        rows[0, j] = weight
        rows[1, j] = weight * cos1
        rows[2, j] = weight * cos2
        rows[3, j] = weight * (cos2 * cos1 - sin2 * sin1)
        rows[4, j] = weight * sin1
        rows[5, j] = weight * sin2
        rows[6, j] = weight * (sin2 * cos1 + cos2 * sin1)
    return total


@_compile
def _fold(upper, lower, single_row, i, folded):
    """Rows i and P - 1 - i of the planes, (7, P) each, into folded (4, 7, Q).

    A middle row or column has no mirror image; its pixels count once in every parity, where the
    odd functions vanish but for the exact centre.
    """
    P = upper.shape[1]
    h = (P + 1) // 2
    half = P // 2
    for k in range(PLANES):
        for j in range(half):
            a, b = upper[k, j], upper[k, P - 1 - j]
            c, d = lower[k, j], lower[k, P - 1 - j]
            if single_row:
                c = d = _zero
            even_a, odd_a = a + b, a - b
            even_c, odd_c = c + d, c - d
            q = i * h + j
            folded[0, k, q] = even_a + even_c
            folded[1, k, q] = odd_a + odd_c
            folded[2, k, q] = even_a - even_c
            folded[3, k, q] = odd_a - odd_c
        if h > half:
            a = upper[k, half]
            c = _zero if single_row else lower[k, half]
            q = i * h + half
            folded[0, k, q] = folded[1, k, q] = a + c
            folded[2, k, q] = folded[3, k, q] = a - c


@_compile
def _product(folded, Phi, first, sums, lane):
    """Sums of the planes against the functions: sums[k * F + f, lane]."""
    F, Q = Phi.shape
    for parity in range(4):
        p0, p1, p2, p3 = folded[parity, 0], folded[parity, 1], folded[parity, 2], folded[parity, 3]
        p4, p5, p6 = folded[parity, 4], folded[parity, 5], folded[parity, 6]
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


@_compile
def _spatial_sums(patch, gain, taps, middle, upper, lower, folded, Phi, first, sums, lane):
    """Steps 1 and 2 of one sampled patch (overwritten) into column `lane` of `sums`."""
    P = patch.shape[0]
    square = _zero
    for i in range(P):
        for j in range(P):
            patch[i, j] *= gain
            square += patch[i, j] * patch[i, j]
    _smooth(patch, taps, middle)
    gradient = _zero
    for i in range((P + 1) // 2):
        mirror = P - 1 - i
        gradient += _planes(patch, i, upper)
        if mirror != i:
            gradient += _planes(patch, mirror, lower)
        _fold(upper, lower, mirror == i, i, folded)
    if gradient > _flat * (square + np.float32(P * P)):
        _product(folded, Phi, first, sums, lane)
    else:
        sums[:, lane] = _zero


@_compile
def _recombine(sums, source, weight, part_ends, V, scratch):
    """Sparse recombination and normalisation down the lanes; adds to V (D, LANES)."""
    D = source.shape[0]
    begin = 0
    total = np.zeros(LANES, dtype=np.float32)
    inverse = np.zeros(LANES, dtype=np.float32)
    for part in range(part_ends.shape[0]):
        total[:] = _zero
        for d in range(begin, part_ends[part]):
            s0, s1, s2, s3 = source[d, 0], source[d, 1], source[d, 2], source[d, 3]
            w0, w1, w2, w3 = weight[d, 0], weight[d, 1], weight[d, 2], weight[d, 3]
            for n in range(LANES):
                value = w0 * sums[s0, n] + w1 * sums[s1, n] + w2 * sums[s2, n] + w3 * sums[s3, n]
                scratch[d, n] = value
                total[n] += value * value
        for n in range(LANES):
            inverse[n] = _one / np.sqrt(total[n]) if total[n] > _zero else _zero
        for d in range(begin, part_ends[part]):
            for n in range(LANES):
                V[d, n] += scratch[d, n] * inverse[n]
        begin = part_ends[part]
    return D


@_compile
def _finish(V, rows, mu, A, power, out, start, count):
    """Unit norm, then A^T (V - mu) and unit norm again, into out[start : start + count].

    `rows` is (LANES, D) scratch; A is (D_out, D), or (0, D) for the raw vector.
    """
    D = V.shape[0]
    for n in range(LANES):
        total = _zero
        for d in range(D):
            rows[n, d] = V[d, n]
            total += rows[n, d] * rows[n, d]
        inverse = _one / np.sqrt(total) if total > _zero else _zero
        for d in range(D):
            rows[n, d] *= inverse
    if A.shape[0] == 0:
        for n in range(count):
            for d in range(D):
                out[start + n, d] = rows[n, d]
        return
    described = np.zeros(LANES, dtype=np.bool_)
    for n in range(LANES):
        total = _zero
        for d in range(D):
            total += rows[n, d] * rows[n, d]
        described[n] = total > _zero
        for d in range(D):
            rows[n, d] -= mu[d]
    for n in range(0, count, 4):  # four rows share every load of A; LANES is a multiple of 4
        r0, r1, r2, r3 = rows[n], rows[n + 1], rows[n + 2], rows[n + 3]
        for j in range(A.shape[0]):
            a = A[j]
            y0 = y1 = y2 = y3 = _zero
            for d in range(D):
                y0 += a[d] * r0[d]
                y1 += a[d] * r1[d]
                y2 += a[d] * r2[d]
                y3 += a[d] * r3[d]
            V[j, n], V[j, n + 1], V[j, n + 2], V[j, n + 3] = y0, y1, y2, y3
    for n in range(count):
        total = _zero
        for j in range(A.shape[0]):
            y = V[j, n]
            if power != _one:
                y = np.sign(y) * np.abs(y) ** power
            rows[n, j] = y
            total += y * y
        inverse = _one / np.sqrt(total) if described[n] and total > _zero else _zero
        for j in range(A.shape[0]):
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
    h = (P + 1) // 2
    patch = np.empty((P, P), dtype=np.float32)
    middle = np.empty((P, P + 4), dtype=np.float32)
    upper = np.empty((PLANES, P), dtype=np.float32)
    lower = np.empty((PLANES, P), dtype=np.float32)
    folded = np.empty((4, PLANES, h * h), dtype=np.float32)
    sums = np.zeros((PLANES * Phi.shape[0], LANES), dtype=np.float32)
    V = np.empty((D, LANES), dtype=np.float32)
    scratch = np.empty((D, LANES), dtype=np.float32)
    rows = np.empty((LANES, D), dtype=np.float32)
    for start in range(0, N, LANES):
        count = min(LANES, N - start)
        V[:] = _zero
        for scale in range(steps.shape[1]):
            for lane in range(count):
                level, cx, cy, ax, ay = steps[start + lane, scale]
                at = int(level)
                if at < 0:
                    sums[:, lane] = _zero
                    continue
                offset, height, width = levels[at]
                pixels = finest if at == 0 else coarser[offset : offset + height * width]
                _sample(pixels, width, height, cx, cy, ax, ay, patch)
                _spatial_sums(
                    patch, gain, taps, middle, upper, lower, folded, Phi, first, sums, lane
                )
            _recombine(sums, source, weight, part_ends, V, scratch)
        _finish(V, rows, mu, A, power, out, start, count)


@_compile
def describe_patches(
    patches, gain, taps, Phi, first, source, weight, part_ends, mu, A, power, out
):  # fmt: skip
    """Descriptors of patches (N, P, P), into out (N, D)."""
    N, P = patches.shape[0], patches.shape[1]
    D, h = source.shape[0], (P + 1) // 2
    patch = np.empty((P, P), dtype=np.float32)
    middle = np.empty((P, P + 4), dtype=np.float32)
    upper = np.empty((PLANES, P), dtype=np.float32)
    lower = np.empty((PLANES, P), dtype=np.float32)
    folded = np.empty((4, PLANES, h * h), dtype=np.float32)
    sums = np.zeros((PLANES * Phi.shape[0], LANES), dtype=np.float32)
    V = np.empty((D, LANES), dtype=np.float32)
    scratch = np.empty((D, LANES), dtype=np.float32)
    rows = np.empty((LANES, D), dtype=np.float32)
    for start in range(0, N, LANES):
        count = min(LANES, N - start)
        V[:] = _zero
        for lane in range(count):
            for i in range(P):
                for j in range(P):
                    patch[i, j] = np.float32(patches[start + lane, i, j])
            _spatial_sums(patch, gain, taps, middle, upper, lower, folded, Phi, first, sums, lane)
        _recombine(sums, source, weight, part_ends, V, scratch)
        _finish(V, rows, mu, A, power, out, start, count)

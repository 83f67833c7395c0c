"""The data path of `core`, for the CPU: one pass per keypoint, compiled by Numba.

Each keypoint is sampled, smoothed, differentiated and folded in a few cache-sized buffers, then
multiplied with the spatial functions; nothing else is ever stored. Three things make it fast:

- every spatial function is even or odd in x and in y, so the planes are first folded into four
  parities of a quarter of the size, and each function meets only its own;
- cos k theta and sin k theta come from the gradient by the angle-sum rules, without trigonometry;
- keypoints go through in blocks of `LANES`, so the sparse recombination runs down the lanes.

A descriptor is the same to the last bit whatever its neighbours, its block or its thread: every
lane runs the same instructions, and a block is always computed whole.

There are three kernels without functions below them, because Numba would compile such a function
once alone and once more in each caller: a first call would take twice as long.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.compiled import njit
from kd_cv.descriptor.core import EPS, FLAT, NO_GRADIENT
from kd_cv.descriptor.projection import Array32, Projection, raised
from kd_cv.descriptor.sampling import FADE, Pyramid
from kd_cv.descriptor.spec import PLANES, Spec

LANES = 16
HIGH = (2, 3, 5, 6)  # the planes of k = 2 and 3
ROOM = 256  # for a row of the projection: more than the dimensions of any
STAGES = ("sample", "smooth", "gradients", "planes", "fold", "product", "recombine", "finish")
# How many stages run up to each of them.
_, TO_SMOOTH, TO_GRADIENTS, TO_PLANES, TO_FOLD, TO_PRODUCT, TO_RECOMBINE, TO_FINISH = range(1, 9)

_eps = np.float32(EPS)
_no_gradient = np.float32(NO_GRADIENT)
_flat = np.float32(FLAT)
_one = np.float32(1.0)
_two = np.float32(2.0)
_zero = np.float32(0.0)

# Sums may be reordered and contracted (each row always in the same way); NaN and infinity keep
# their meaning.
compiled = njit(
    nogil=True,
    fastmath={"reassoc", "contract", "nsz", "arcp"},
    error_model="numpy",
    no_cfunc_wrapper=True,
)


@dataclass(frozen=True)
class Plan:
    """Constants of one `Spec` in the layout of the kernels, float32.

    taps       (5,) smoothing
    Phi        (F', Q) folded functions: those that meet all planes, by parity, each parity padded
               to pairs; then those that meet only k = 2 and 3, by parity, each padded to threes
    first      (9,) where each of these eight begins in Phi
    copies     where the quarters of an odd patch repeat its middle row and column
    source     (D, 4) which of the 7 * F' sums a dimension adds up
    weight     (D, 4) and with what weight
    part_ends  (number of parts,)
    """

    spec: Spec
    taps: Array32
    Phi: Array32
    first: NDArray[np.int64]
    copies: NDArray[np.int64]
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

    high = ~np.delete(c.T, HIGH, axis=0).any(axis=(0, 2))  # functions that meet HIGH alone

    rows: list[NDArray[np.float64]] = []
    first = [0]
    position = np.zeros(len(functions), dtype=np.int64)
    for alone, together in ((False, 2), (True, 3)):
        for parity in range(4):  # even-even, odd in x, odd in y, odd in both
            members = np.flatnonzero((odd_x + 2 * odd_y == parity) & (high == alone))
            for f in members:
                position[f] = len(rows)
                rows.append(functions[f, :h, :h].ravel())
            rows += [np.zeros(h * h)] * (-len(members) % together)
            first.append(len(rows))

    # Quarters lie upper left, upper right, lower left, lower right, each mirrored onto the first.
    quarters = np.arange(4 * h * h).reshape(4, h, h)
    copied = [quarters[[1, 3], :, h - 1], quarters[[2, 3], h - 1, :]] if P % 2 else []

    D, F = spec.dim, len(rows)
    source = np.zeros((D, 4), dtype=np.int64)
    weight = np.zeros((D, 4))
    d, k, f = np.nonzero(c.T.transpose(2, 0, 1))  # in the order of d
    i = np.arange(len(d)) - np.searchsorted(d, d)
    source[d, i] = k * F + position[f]
    weight[d, i] = c.T[k, f, d]
    return Plan(
        spec,
        np.float32(c.taps),
        np.ascontiguousarray(rows, dtype=np.float32),
        np.array(first),
        np.unique(np.concatenate([part.ravel() for part in copied] or [quarters[:0].ravel()])),
        source,
        np.float32(weight),
        np.array([part.stop for part in spec.parts]),
    )


def padded(projection: Projection | None, spec: Spec) -> tuple[Array32, Array32, float]:
    """A (D', d), A^T mu (d,) and power of a `Projection`; d = 0 without one.

    D' is the next multiple of 4 after D.
    """
    A = np.zeros((-(-spec.dim // 4) * 4, projection.dim if projection else 0), np.float32)
    if not projection:
        return A, A[0], 1.0
    A[: spec.dim] = projection.A
    shift = np.float64(projection.mu) @ np.float64(projection.A)
    return A, shift.astype(np.float32), projection.power


def describe(
    pyramid: Pyramid,
    steps: NDArray[np.float64],
    plan: Plan,
    whitening: tuple[Array32, Array32, float],
    out: Array32,
    stages: int = len(STAGES),
) -> None:
    """Descriptors of some frames into out (N, d).

    steps (N, scales, 5) are those of `sampling_steps`, `whitening` is what `padded` gives. With
    fewer `stages` the work ends after those, for the benchmark to time them.
    """
    P, (A, shift, power) = plan.spec.patch_size, whitening
    Q, F, blocks = plan.Phi.shape[1], len(plan.Phi), -(-len(out) // LANES)
    finest, coarser = pyramid.pairs
    corners = np.empty((2, P), finest.dtype)
    buffers = (
        np.empty(P, np.uint32),
        np.empty((2, P), np.float32),
        corners,
        corners.view(pyramid.finest.dtype),
        np.empty((P, P), np.float32),
        np.empty((P, P + 4), np.float32),
        np.empty((P, P + 2), np.float32),
        np.zeros((2, 4 * Q), np.float32),  # the copies of an odd patch stay zero
        np.empty((PLANES, 4 * Q), np.float32),
    )
    V = np.zeros((blocks, len(A), LANES), np.float32)
    lanes, norm = np.empty((len(A), LANES), np.float32), np.empty(LANES, np.float32)
    for scale in range(steps.shape[1]):
        sums = np.zeros((blocks, PLANES * F, LANES), np.float32)
        spatial_sums(
            finest, coarser, pyramid.levels, steps, scale, pyramid.gain,
            plan.taps, plan.Phi, plan.first, plan.copies, *buffers, stages, sums,
        )  # fmt: skip
        if stages >= TO_RECOMBINE:
            recombine(sums, plan.source, plan.weight, plan.part_ends, lanes, norm, V)
    if stages >= TO_FINISH:
        finish(V, A, shift, norm, np.empty(LANES * ROOM, np.float32), out)
        if power != 1.0:
            out[:] = raised(out, power)


@compiled
def spatial_sums(
    finest, coarser, levels, steps, scale, gain, taps, Phi, first, copies,
    at, fraction, corners, pixels, patch, middle, smooth, gradient, planes, stages, sums,
):  # fmt: skip
    """Steps 1 and 2: for each frame, the planes of its patch against the functions.

    finest and coarser are the `pairs` of a `Pyramid`, levels and gain those of the pyramid itself;
    steps (N, scales, 5). Frame n goes to sums[n // LANES, k * F + f, n % LANES], if it can be
    described and has texture.

    Scratch: at (P,), fraction (2, P) and corners (2, P) of a row of samples, with pixels (2, 2 P)
    the same memory, patch (P, P), middle (P, P + 4) smoothed down its columns, smooth (P, P + 2)
    with a column more at both ends, gradient (2, 4 Q) and planes (7, 4 Q).
    """
    P = patch.shape[0]
    h, half = (P + 1) // 2, P // 2
    Q, F = h * h, Phi.shape[0]
    centre = 0.5 * (P - 1)
    for n in range(steps.shape[0]):
        block, lane = n // LANES, n % LANES
        level = int(steps[n, scale, 0])
        if level < 0:
            continue

        # Bilinear samples; outside the image its border is repeated. Positions, loads and
        # interpolation are separate loops, because only the loads cannot be vectorised.
        image = finest if level == 0 else coarser
        offset, height, width = levels[level, 0], levels[level, 1], levels[level, 2]
        cx, cy = steps[n, scale, 1], steps[n, scale, 2]
        ax, ay = steps[n, scale, 3], steps[n, scale, 4]
        reach = centre * (abs(ax) + abs(ay))
        # Coordinates relative to a pixel of the image at or before the patch keep float32 exact.
        left = int(min(max(cx - reach, 0.0), width - 1.0))
        top = int(min(max(cy - reach, 0.0), height - 1.0))
        corner_x = np.float32(cx - centre * (ax - ay) - left)
        corner_y = np.float32(cy - centre * (ax + ay) - top)
        step_x, step_y = np.float32(ax), np.float32(ay)
        right, bottom = np.float32(width - 1 - left), np.float32(height - 1 - top)
        last_x, last_y = np.int32(max(width - 2 - left, 0)), np.int32(max(height - 2 - top, 0))
        # Unsigned indices spare Numba its test for negative ones.
        origin = np.uintp(offset + top * width + left)
        below = np.uintp(width if height - 1 - top > 0 else 0)
        for i in range(P):
            row_x = corner_x - np.float32(i) * step_y
            row_y = corner_y + np.float32(i) * step_x
            for j in range(P):
                x = min(max(row_x + np.float32(j) * step_x, _zero), right)
                y = min(max(row_y + np.float32(j) * step_y, _zero), bottom)
                xi, yi = min(np.int32(x), last_x), min(np.int32(y), last_y)
                fraction[0, j], fraction[1, j] = x - np.float32(xi), y - np.float32(yi)
                at[j] = np.uint32(yi * np.int32(width) + xi)
            for j in range(P):
                here = origin + np.uintp(at[j])
                corners[0, j], corners[1, j] = image[here], image[here + below]
            for j in range(P):
                a, b = np.float32(pixels[0, 2 * j]), np.float32(pixels[0, 2 * j + 1])
                c, d = np.float32(pixels[1, 2 * j]), np.float32(pixels[1, 2 * j + 1])
                upper = a + fraction[0, j] * (b - a)
                lower = c + fraction[0, j] * (d - c)
                patch[i, j] = upper + fraction[1, j] * (lower - upper)
        # A window that leaves the image: what was repeated fades into the mean of the patch.
        if (
            cx - reach < 0.0
            or cy - reach < 0.0
            or cx + reach > width - 1.0
            or cy + reach > height - 1.0
        ):
            mean = 0.0
            for i in range(P):
                for j in range(P):
                    mean += patch[i, j]
            mean /= P * P
            for i in range(P):
                for j in range(P):
                    x = cx + ax * (j - centre) - ay * (i - centre)
                    y = cy + ay * (j - centre) + ax * (i - centre)
                    beyond = max(-x, x - (width - 1), 0.0) + max(-y, y - (height - 1), 0.0)
                    if beyond > 0.0:
                        kept = max(1.0 - beyond / FADE, 0.0)
                        patch[i, j] = mean + kept * (patch[i, j] - mean)
        if stages < TO_SMOOTH:
            continue

        # Separable smoothing with 5 taps, times the gain; all borders repeated.
        square = _zero
        t0, t1, t2 = taps[2], taps[1], taps[0]
        for i in range(P):
            up1, up2 = np.uintp(max(i - 1, 0)), np.uintp(max(i - 2, 0))
            down1, down2 = np.uintp(min(i + 1, P - 1)), np.uintp(min(i + 2, P - 1))
            for j in range(P):
                square += patch[i, j] * patch[i, j]
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
                smooth[i, j + 1] = (
                    t0 * middle[i, j + 2]
                    + t1 * (middle[i, j + 1] + middle[i, j + 3])
                    + t2 * (middle[i, j] + middle[i, j + 4])
                )
            smooth[i, 0], smooth[i, P + 1] = smooth[i, 1], smooth[i, P]
        if stages < TO_GRADIENTS:
            continue

        # Gradients, quarter by quarter: upper left, upper right, lower left, lower right, each
        # mirrored so that the pixels which fold onto each other have the same index.
        for i in range(P):
            above, here, under = np.uintp(max(i - 1, 0)), np.uintp(i), np.uintp(min(i + 1, P - 1))
            start = i * h if i < h else 2 * Q + (P - 1 - i) * h
            end = start + Q + half - 1
            for j in range(h):
                gradient[0, np.uintp(start + j)] = smooth[here, j] - smooth[here, j + 2]
                gradient[1, np.uintp(start + j)] = smooth[above, j + 1] - smooth[under, j + 1]
            for j in range(half):
                column, mirrored = np.uintp(h + j), np.uintp(end - j)
                gradient[0, mirrored] = smooth[here, column] - smooth[here, column + np.uintp(2)]
                gradient[1, mirrored] = (
                    smooth[above, column + np.uintp(1)] - smooth[under, column + np.uintp(1)]
                )
        if stages < TO_PLANES:
            continue

        # The seven planes: weight, weight cos k theta, weight sin k theta.
        total = _zero
        for q in range(4 * Q):
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
        if stages < TO_FOLD or total <= _flat * (square * gain * gain + np.float32(P * P)):
            continue

        # Quarters into parities, in place: even-even, odd in x, odd in y, odd in both. A middle row
        # or column has no mirror image; its pixels count once in every parity, where the odd
        # functions vanish but for the exact centre.
        for k in range(PLANES):
            for i in range(copies.shape[0]):
                planes[k, copies[i]] = _zero
        for k in range(PLANES):
            for q in range(Q):
                q1, q2, q3 = Q + q, 2 * Q + q, 3 * Q + q
                a, b, c, d = planes[k, q], planes[k, q1], planes[k, q2], planes[k, q3]
                even_above, odd_above = a + b, a - b
                even_below, odd_below = c + d, c - d
                planes[k, q] = even_above + even_below
                planes[k, q1] = odd_above + odd_below
                planes[k, q2] = even_above - even_below
                planes[k, q3] = odd_above - odd_below
        if stages < TO_PRODUCT:
            continue

        # Planes against functions: two functions and all planes share every load, or three
        # functions and the planes that they meet.
        for parity in range(4):
            for f in range(first[parity], first[parity + 1], 2):
                u0 = u1 = u2 = u3 = u4 = u5 = u6 = _zero
                v0 = v1 = v2 = v3 = v4 = v5 = v6 = _zero
                for q in range(Q):
                    u, v, p = Phi[f, q], Phi[f + 1, q], parity * Q + q
                    u0 += planes[0, p] * u
                    u1 += planes[1, p] * u
                    u2 += planes[2, p] * u
                    u3 += planes[3, p] * u
                    u4 += planes[4, p] * u
                    u5 += planes[5, p] * u
                    u6 += planes[6, p] * u
                    v0 += planes[0, p] * v
                    v1 += planes[1, p] * v
                    v2 += planes[2, p] * v
                    v3 += planes[3, p] * v
                    v4 += planes[4, p] * v
                    v5 += planes[5, p] * v
                    v6 += planes[6, p] * v
                for k, value in enumerate((u0, u1, u2, u3, u4, u5, u6)):
                    sums[block, k * F + f, lane] = value
                for k, value in enumerate((v0, v1, v2, v3, v4, v5, v6)):
                    sums[block, k * F + f + 1, lane] = value
            for f in range(first[4 + parity], first[5 + parity], 3):
                u2 = u3 = u5 = u6 = v2 = v3 = v5 = v6 = w2 = w3 = w5 = w6 = _zero
                for q in range(Q):
                    u, v, w, p = Phi[f, q], Phi[f + 1, q], Phi[f + 2, q], parity * Q + q
                    u2 += planes[2, p] * u
                    u3 += planes[3, p] * u
                    u5 += planes[5, p] * u
                    u6 += planes[6, p] * u
                    v2 += planes[2, p] * v
                    v3 += planes[3, p] * v
                    v5 += planes[5, p] * v
                    v6 += planes[6, p] * v
                    w2 += planes[2, p] * w
                    w3 += planes[3, p] * w
                    w5 += planes[5, p] * w
                    w6 += planes[6, p] * w
                for i, (k2, k3, k5, k6) in enumerate(
                    ((u2, u3, u5, u6), (v2, v3, v5, v6), (w2, w3, w5, w6))
                ):
                    sums[block, 2 * F + f + i, lane] = k2
                    sums[block, 3 * F + f + i, lane] = k3
                    sums[block, 5 * F + f + i, lane] = k5
                    sums[block, 6 * F + f + i, lane] = k6


@compiled
def recombine(sums, source, weight, part_ends, lanes, norm, V):
    """Sparse recombination and unit norm of each part, down the lanes; adds to V.

    sums (blocks, 7 * F', LANES), V (blocks, D', LANES). Scratch: lanes (D', LANES), norm (LANES,).
    """
    # Not the constant: loops of so few steps would be unrolled before they are vectorised.
    count = norm.shape[0]
    for b in range(V.shape[0]):
        begin = 0
        for part in range(part_ends.shape[0]):
            for n in range(count):
                norm[n] = _zero
            for d in range(begin, part_ends[part]):
                s0, s1 = sums[b, source[d, 0]], sums[b, source[d, 1]]
                s2, s3 = sums[b, source[d, 2]], sums[b, source[d, 3]]
                w0, w1, w2, w3 = weight[d, 0], weight[d, 1], weight[d, 2], weight[d, 3]
                values = lanes[d]
                for n in range(count):
                    value = w0 * s0[n] + w1 * s1[n] + w2 * s2[n] + w3 * s3[n]
                    values[n] = value
                    norm[n] += value * value
            for n in range(count):
                norm[n] = _one / np.sqrt(norm[n]) if norm[n] > _zero else _zero
            for d in range(begin, part_ends[part]):
                values, row = lanes[d], V[b, d]
                for n in range(count):
                    row[n] += values[n] * norm[n]
            begin = part_ends[part]


@compiled
def finish(V, A, shift, norm, Y, out):
    """Step 3: unit norm, then A^T (V - mu) and unit norm again, into out (N, d).

    V (blocks, D', LANES), A (D', d), or (D', 0) for the raw vector; D' is a multiple of 4. Scratch:
    norm (LANES,) and Y (LANES * ROOM,). Four rows of A and four of Y share their loads.
    """
    D, dim, lanes = V.shape[1], A.shape[1], norm.shape[0]
    for block in range(V.shape[0]):
        start, count = block * LANES, min(LANES, out.shape[0] - block * LANES)
        for n in range(lanes):
            norm[n] = _zero
        for d in range(D):
            row = V[block, d]
            for n in range(lanes):
                norm[n] += row[n] * row[n]
        for n in range(lanes):
            norm[n] = _one / np.sqrt(norm[n]) if norm[n] > _zero else _zero
        if dim == 0:
            for n in range(count):
                for d in range(out.shape[1]):
                    out[start + n, d] = V[block, d, n] * norm[n]
            continue
        for j in range(count * ROOM):
            Y[j] = _zero
        for d in range(0, D, 4):
            a0, a1, a2, a3 = A[d], A[d + 1], A[d + 2], A[d + 3]
            for n in range(0, count, 4):
                v0, v1 = V[block, d, n:], V[block, d + 1, n:]
                v2, v3 = V[block, d + 2, n:], V[block, d + 3, n:]
                s0, s1, s2, s3 = v0[0], v1[0], v2[0], v3[0]
                t0, t1, t2, t3 = v0[1], v1[1], v2[1], v3[1]
                u0, u1, u2, u3 = v0[2], v1[2], v2[2], v3[2]
                w0, w1, w2, w3 = v0[3], v1[3], v2[3], v3[3]
                y = Y[n * ROOM :]
                for j in range(dim):
                    a, b, c, e = a0[j], a1[j], a2[j], a3[j]
                    y[j] += s0 * a + s1 * b + s2 * c + s3 * e
                    y[j + ROOM] += t0 * a + t1 * b + t2 * c + t3 * e
                    y[j + 2 * ROOM] += u0 * a + u1 * b + u2 * c + u3 * e
                    y[j + 3 * ROOM] += w0 * a + w1 * b + w2 * c + w3 * e
        for n in range(count):
            y, row, inverse, total = Y[n * ROOM :], out[start + n], norm[n], _zero
            for j in range(dim):
                y[j] = y[j] * inverse - shift[j]
                total += y[j] * y[j]
            described = inverse > _zero and total > _zero
            inverse = _one / np.sqrt(total) if described else _zero
            for j in range(dim):
                row[j] = y[j] * inverse

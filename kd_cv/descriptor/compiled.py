"""The data path of `core`, for the CPU: one pass per keypoint, compiled by Numba.

Each keypoint is sampled, smoothed, differentiated and folded in a few cache-sized buffers, then
multiplied with the spatial functions; nothing else is ever stored. Three things make it fast:

- every spatial function is even or odd in x and in y, so the planes are first folded into four
  parities of a quarter of the size, and each function meets only its own;
- cos k theta and sin k theta come from the gradient by the angle-sum rules, without trigonometry;
- keypoints go through in blocks of `LANES`, so the sparse recombination runs down the lanes.

A descriptor is the same to the last bit whatever its neighbours, its block or its thread: every
lane runs the same instructions, and a block is always computed whole.

There are three kernels without functions below them, because Numba compiles such a function once
alone and once more in each caller: a first call would take twice as long.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.patches import FADE, Pyramid
from kd_cv.descriptor.projection import Array32, Projection, raised
from kd_cv.descriptor.reference import EPS, FLAT, NO_GRADIENT
from kd_cv.descriptor.spec import MAX_PATCH_SIZE, PLANES, Spec
from kd_cv.jit import jit

LANES = 16
HIGH = (2, 3, 5, 6)  # the planes of k = 2 and 3
# Constant distances between rows of scratch tell the compiler that they are apart. They are no
# powers of 2, which would put all rows into the same lines of the cache.
SAMPLES = MAX_PATCH_SIZE * (MAX_PATCH_SIZE + 4)
QUARTER = (MAX_PATCH_SIZE // 2) ** 2 + 16
ROOM = 256  # for a row of the projection: more than the dimensions of any
STAGES = ("sample", "smooth", "gradients", "planes", "product", "recombine", "finish")
# How many stages run up to each of them.
_, TO_SMOOTH, TO_GRADIENTS, TO_PLANES, TO_PRODUCT, TO_RECOMBINE, TO_FINISH = range(1, 8)

_eps = np.float32(EPS)
_no_gradient = np.float32(NO_GRADIENT)
_flat = np.float32(FLAT)
_one = np.float32(1.0)
_two = np.float32(2.0)
_zero = np.float32(0.0)


@dataclass(frozen=True)
class Plan:
    """Constants of one `Spec` in the layout of the kernels, float32.

    grid       (2 * SAMPLES,) row and column of each of the samples of P rows of P + 4, two beside
               the patch at both ends
    taps       (5,) smoothing
    Phi        (F', Q) folded functions: those that meet all planes, by parity; then those that
               meet only k = 2 and 3, by parity; each of the eight groups is padded to threes
    first      (9,) where each of these eight begins in Phi
    once       (h,) 0 for the middle column of an odd patch, which has no mirror image; else 1
    source     (D, 4) which of the 7 * F' sums a dimension adds up
    weight     (D, 4) and with what weight
    part_ends  (number of parts,)
    """

    spec: Spec
    grid: Array32
    taps: Array32
    Phi: Array32
    first: NDArray[np.int64]
    once: Array32
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
    for alone in (False, True):
        for parity in range(4):  # even-even, odd in x, odd in y, odd in both
            members = np.flatnonzero((odd_x + 2 * odd_y == parity) & (high == alone))
            for f in members:
                position[f] = len(rows)
                rows.append(functions[f, :h, :h].ravel())
            rows += [np.zeros(h * h)] * (-len(members) % 3)
            first.append(len(rows))

    once = np.ones(h, np.float32)
    once[P // 2 :] = 0
    D, F = spec.dim, len(rows)
    source = np.zeros((D, 4), dtype=np.int64)
    weight = np.zeros((D, 4))
    d, k, f = np.nonzero(c.T.transpose(2, 0, 1))  # in the order of d
    i = np.arange(len(d)) - np.searchsorted(d, d)
    source[d, i] = k * F + position[f]
    weight[d, i] = c.T[k, f, d]
    grid = np.zeros((2, SAMPLES))
    grid[:, : P * (P + 4)] = np.mgrid[:P, -2 : P + 2].reshape(2, -1)
    return Plan(
        spec,
        np.float32(grid.ravel()),
        np.float32(c.taps),
        np.ascontiguousarray(rows, dtype=np.float32),
        np.array(first),
        once,
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
    F, blocks = len(plan.Phi), -(-len(out) // LANES)
    finest, coarser = pyramid.pairs
    samples = P * (P + 4)
    corners = np.zeros((2, samples), finest.dtype)
    buffers = (
        np.empty(samples, np.uint32),
        np.empty(2 * SAMPLES, np.float32),
        corners,
        corners.view(pyramid.finest.dtype),
        np.empty(samples + 4 * (P + 4), np.float32),
        np.empty(samples, np.float32),
        np.zeros(samples + 2 * (P + 4), np.float32),
        np.empty(2 * SAMPLES, np.float32),
        np.empty(PLANES * SAMPLES, np.float32),
        np.empty(4 * PLANES * QUARTER, np.float32),
    )
    V = np.zeros((blocks, len(A), LANES), np.float32)
    lanes, norm = np.empty((len(A), LANES), np.float32), np.empty(LANES, np.float32)
    for scale in range(steps.shape[1]):
        sums = np.zeros((blocks, PLANES * F, LANES), np.float32)
        spatial_sums(
            finest, coarser, pyramid.levels, steps, scale, pyramid.gain,
            P, plan.grid, plan.taps, plan.Phi, plan.first, plan.once, *buffers, stages, sums,
        )  # fmt: skip
        if stages >= TO_RECOMBINE:
            recombine(sums, plan.source, plan.weight, plan.part_ends, lanes, norm, V)
    if stages >= TO_FINISH:
        finish(V, A, shift, norm, np.empty(LANES * ROOM, np.float32), out)
        if power != 1.0:
            out[:] = raised(out, power)


@jit
def spatial_sums(
    finest, coarser, levels, steps, scale, gain, P, grid, taps, Phi, first, once,
    at, fraction, corners, pixels, patch, middle, smooth, gradient, pixel_planes, planes, stages,
    sums,
):  # fmt: skip
    """Steps 1 and 2: for each frame, the planes of its patch against the functions.

    finest and coarser are the `pairs` of a `Pyramid`, levels and gain those of the pyramid itself;
    steps (N, scales, 5). Frame n goes to sums[n // LANES, k * F + f, n % LANES], if it can be
    described and has texture.

    Scratch, in rows of P + 4 with two columns beside the patch at both ends: at, fraction (2 *
    SAMPLES,) and corners (2, ...) of the samples, with pixels the same memory, patch with two rows
    more at both ends, middle smoothed down its columns, smooth with one row more at both ends. And
    gradient (2 * SAMPLES,), pixel_planes (7 * SAMPLES,), planes (7 * 4 * QUARTER,). Loops run over
    all rows at once, because to begin a loop costs as much as a short row.
    """
    W = P + 4
    samples = P * W
    h = (P + 1) // 2
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
        for t in range(samples):
            down, column = grid[t], grid[t + SAMPLES]
            x = min(max((corner_x - down * step_y) + column * step_x, _zero), right)
            y = min(max((corner_y + down * step_x) + column * step_y, _zero), bottom)
            xi, yi = min(np.int32(x), last_x), min(np.int32(y), last_y)
            fraction[t], fraction[t + SAMPLES] = x - np.float32(xi), y - np.float32(yi)
            at[t] = np.uint32(yi * np.int32(width) + xi)
        for i in range(P):
            for t in range(np.uintp(i * W + 2), np.uintp(i * W + 2 + P)):
                here = origin + np.uintp(at[t])
                corners[0, t], corners[1, t] = image[here], image[here + below]
        inside = patch[2 * W :]
        for t in range(samples):
            a, b = np.float32(pixels[0, 2 * t]), np.float32(pixels[0, 2 * t + 1])
            c, d = np.float32(pixels[1, 2 * t]), np.float32(pixels[1, 2 * t + 1])
            upper = a + fraction[t] * (b - a)
            lower = c + fraction[t] * (d - c)
            inside[t] = upper + fraction[t + SAMPLES] * (lower - upper)
        # A window that leaves the image: what was repeated fades into the mean of the patch.
        if (
            cx - reach < 0.0
            or cy - reach < 0.0
            or cx + reach > width - 1.0
            or cy + reach > height - 1.0
        ):
            mean = 0.0
            for t in range(samples):
                mean += inside[t]
            mean /= P * P
            for i in range(P):
                row = inside[i * W + 2 : i * W + 2 + P]
                for j in range(P):
                    x = cx + ax * (j - centre) - ay * (i - centre)
                    y = cy + ay * (j - centre) + ax * (i - centre)
                    beyond = max(-x, x - (width - 1), 0.0) + max(-y, y - (height - 1), 0.0)
                    if beyond > 0.0:
                        kept = max(1.0 - beyond / FADE, 0.0)
                        row[j] = mean + kept * (row[j] - mean)
        if stages < TO_SMOOTH:
            continue

        # Separable smoothing with 5 taps, times the gain; all borders repeated.
        for t in range(W):
            patch[t] = patch[t + W] = inside[t]
        ends = patch[samples + W :]
        for t in range(W):
            ends[t + W] = ends[t + 2 * W] = ends[t]
        square = _zero
        t0, t1, t2 = taps[2], taps[1], taps[0]
        up2, up1, down1, down2 = patch, patch[W:], patch[3 * W :], patch[4 * W :]
        for t in range(samples):
            square += inside[t] * inside[t]
            middle[t] = t0 * inside[t] + t1 * (up1[t] + down1[t]) + t2 * (up2[t] + down2[t])
        for i in range(P):
            row = middle[i * W : (i + 1) * W]
            row[0] = row[1] = row[2]
            row[P + 2] = row[P + 3] = row[P + 1]
        t0, t1, t2 = t0 * gain, t1 * gain, t2 * gain
        inside = smooth[W + 1 :]
        for t in range(samples - 4):
            inside[t] = (
                t0 * middle[t + 2]
                + t1 * (middle[t + 1] + middle[t + 3])
                + t2 * (middle[t] + middle[t + 4])
            )
        for i in range(1, P + 1):
            row = smooth[i * W : (i + 1) * W]
            row[0], row[P + 1] = row[1], row[P]
        here, ends = smooth[W:], smooth[samples:]
        for t in range(W):
            smooth[t], ends[t + W] = here[t], ends[t]
        if stages < TO_GRADIENTS:
            continue

        under = smooth[2 * W :]
        for t in range(samples - 2):
            gradient[t] = here[t] - here[t + 2]
            gradient[t + SAMPLES] = smooth[t + 1] - under[t + 1]
        if stages < TO_PLANES:
            continue

        # The seven planes: weight, weight cos k theta, weight sin k theta. The columns beside the
        # patch have no gradient.
        for i in range(P):
            for j in range(np.uintp(i * W + P), np.uintp(i * W + W)):
                gradient[j] = gradient[j + SAMPLES] = _zero
        total = _zero
        for t in range(samples):
            x, y = gradient[t], gradient[t + SAMPLES]
            g2 = x * x + y * y
            total += g2
            some = g2 >= _no_gradient
            m = np.sqrt(g2)
            inverse = _one / m if some else _zero
            w = np.sqrt((m if some else _zero) + _eps)
            c, s = x * inverse if some else -_one, y * inverse
            c2, s2 = c * c - s * s, _two * s * c
            pixel_planes[t] = w
            pixel_planes[t + SAMPLES] = w * c
            pixel_planes[t + 2 * SAMPLES] = w * c2
            pixel_planes[t + 3 * SAMPLES] = w * (c2 * c - s2 * s)
            pixel_planes[t + 4 * SAMPLES] = w * s
            pixel_planes[t + 5 * SAMPLES] = w * s2
            pixel_planes[t + 6 * SAMPLES] = w * (s2 * c + c2 * s)
        if stages < TO_PRODUCT or total <= _flat * (square * gain * gain + np.float32(P * P)):
            continue

        # The four pixels that mirror each other, a, b to its right, c below a, d below b, are
        # folded into four parities: even-even, odd in x, odd in y, odd in both. A middle row or
        # column has no mirror image; its pixels count once in every parity, where the odd functions
        # vanish but for the exact centre.
        for k in range(PLANES):
            for i in range(h):
                above = pixel_planes[k * SAMPLES + i * W :]
                under = pixel_planes[k * SAMPLES + (P - 1 - i) * W :]
                f, low = planes[4 * k * QUARTER + i * h :], once[i]
                for j in range(h):
                    mirrored = np.uintp(P - 1 - j)
                    a, b = above[j], above[mirrored] * once[j]
                    c, d = under[j] * low, under[mirrored] * once[j] * low
                    f[j] = (a + b) + (c + d)
                    f[j + QUARTER] = (a - b) + (c - d)
                    f[j + 2 * QUARTER] = (a + b) - (c + d)
                    f[j + 3 * QUARTER] = (a - b) - (c - d)

        # Planes against functions. Three functions and four planes share their loads: with the 12
        # sums they fill the 16 registers of AVX2.
        for group in range(8):
            parity = group % 4
            p0, p1 = planes[parity * QUARTER :], planes[(4 + parity) * QUARTER :]
            p2, p3 = planes[(8 + parity) * QUARTER :], planes[(12 + parity) * QUARTER :]
            p4, p5 = planes[(16 + parity) * QUARTER :], planes[(20 + parity) * QUARTER :]
            p6 = planes[(24 + parity) * QUARTER :]
            for f in range(first[group], first[group + 1], 3):
                u2 = u3 = u5 = u6 = v2 = v3 = v5 = v6 = w2 = w3 = w5 = w6 = _zero
                for q in range(Q):
                    u, v, w = Phi[f, q], Phi[f + 1, q], Phi[f + 2, q]
                    u2 += p2[q] * u
                    u3 += p3[q] * u
                    u5 += p5[q] * u
                    u6 += p6[q] * u
                    v2 += p2[q] * v
                    v3 += p3[q] * v
                    v5 += p5[q] * v
                    v6 += p6[q] * v
                    w2 += p2[q] * w
                    w3 += p3[q] * w
                    w5 += p5[q] * w
                    w6 += p6[q] * w
                u0 = u1 = u4 = v0 = v1 = v4 = w0 = w1 = w4 = _zero
                if group < 4:
                    for q in range(Q):
                        u, v, w = Phi[f, q], Phi[f + 1, q], Phi[f + 2, q]
                        u0 += p0[q] * u
                        u1 += p1[q] * u
                        u4 += p4[q] * u
                        v0 += p0[q] * v
                        v1 += p1[q] * v
                        v4 += p4[q] * v
                        w0 += p0[q] * w
                        w1 += p1[q] * w
                        w4 += p4[q] * w
                for k, (x, y, z) in enumerate(
                    ((u0, v0, w0), (u1, v1, w1), (u2, v2, w2), (u3, v3, w3), (u4, v4, w4),
                     (u5, v5, w5), (u6, v6, w6))
                ):  # fmt: skip
                    at_f = sums[block, k * F + f :]
                    at_f[0, lane], at_f[1, lane], at_f[2, lane] = x, y, z


@jit
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


@jit
def finish(V, A, shift, norm, Y, out):
    """Step 3: unit norm, then A^T (V - mu) and unit norm again, into out (N, d).

    V (blocks, D', LANES), A (D', d), or (D', 0) for the raw vector; D' is a multiple of 4. Scratch:
    norm (LANES,) and Y (LANES * ROOM,). Four rows of A and two of Y share their loads; with four of
    Y their factors would not fit into 16 registers.
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
            for n in range(0, count, 2):
                v0, v1 = V[block, d, n:], V[block, d + 1, n:]
                v2, v3 = V[block, d + 2, n:], V[block, d + 3, n:]
                s0, s1, s2, s3 = v0[0], v1[0], v2[0], v3[0]
                t0, t1, t2, t3 = v0[1], v1[1], v2[1], v3[1]
                y = Y[n * ROOM :]
                for j in range(dim):
                    a, b, c, e = a0[j], a1[j], a2[j], a3[j]
                    y[j] += s0 * a + s1 * b + s2 * c + s3 * e
                    y[j + ROOM] += t0 * a + t1 * b + t2 * c + t3 * e
        for n in range(count):
            y, row, inverse, total = Y[n * ROOM :], out[start + n], norm[n], _zero
            for j in range(dim):
                y[j] = y[j] * inverse - shift[j]
                total += y[j] * y[j]
            described = inverse > _zero and total > _zero
            inverse = _one / np.sqrt(total) if described else _zero
            for j in range(dim):
                row[j] = y[j] * inverse

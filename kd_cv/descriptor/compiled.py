"""`reference` compiled by Numba for the CPU, in one pass per keypoint.

Each keypoint is sampled, smoothed, differentiated and folded in a few cache-sized buffers, then
multiplied with the spatial functions. Three things make it fast:

- every spatial function is even or odd in x and in y, so the planes are first folded into four
  parities of a quarter of the size, and each function meets only its own;
- cos k theta and sin k theta come from the gradient by the angle-sum rules, without trigonometry;
- keypoints go through in blocks of `LANES`, so the sparse recombination runs down the lanes.

A descriptor has the same bits whatever its neighbours, its block or its thread: every lane runs the
same instructions, and a block is always computed whole.

Numba compiles unsigned indices of flat arrays fastest. So arrays are flat, and indices, sizes and
distances are `np.uintp` (with an int64 they would become float64). Loop variables have distinct
names, which saves Numba passes.
"""

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.patches import FADE, Pyramid
from kd_cv.descriptor.projection import Array32, Projection, raised
from kd_cv.descriptor.reference import EPS, FLAT, NO_GRADIENT
from kd_cv.descriptor.spec import MAX_PATCH_SIZE, PLANES, Spec
from kd_cv.jit import jit

LANES = 16
SLOTS = (2, 3, 5, 6, 0, 1, 4)  # the order of the planes: first those of k = 2 and 3
HIGH = SLOTS[:4]
_none, _1, _2, _3, _4, _5, _6 = np.arange(7, dtype=np.uintp)
# Constant distances tell the compiler that buffers do not overlap. They are not powers of 2, which
# would share cache lines.
ROOM = np.uintp((MAX_PATCH_SIZE + 4) ** 2)
QUARTER = np.uintp((MAX_PATCH_SIZE // 2) ** 2 + 16)
# Where the buffers of `spatial_sums` begin.
FX, FY, BEYOND, PATCH, MIDDLE, SMOOTH, ROWS = ROOM * np.arange(7, dtype=np.uintp)
SCRATCH = ROWS + np.uintp(PLANES) * ROOM
_, ODD_X, ODD_Y, ODD_XY, PLANE = QUARTER * np.arange(5, dtype=np.uintp)
LOW = _4 * PLANE
STAGES = ("sample", "smooth", "planes", "product", "recombine", "finish")
# How many stages run up to each of them.
_, TO_SMOOTH, TO_PLANES, TO_PRODUCT, TO_RECOMBINE, TO_FINISH = range(1, 7)

_eps = np.float32(EPS)
_no_gradient = np.float32(NO_GRADIENT)
_flat = np.float32(FLAT)
_one = np.float32(1.0)
_two = np.float32(2.0)
_zero = np.float32(0.0)
_fade = np.float32(FADE)
_lanes, _planes = np.uintp(LANES), np.uintp(PLANES)
_16, _400 = np.uintp(16), np.uintp(400)

_NO_BYTES, _NO_FLOATS = (
    Pyramid.of(np.zeros((4, 4), dtype)).pairs for dtype in (np.uint8, np.float32)
)


@dataclass(frozen=True)
class Plan:
    """Constants of one `Spec` in the layout of the kernels, float32.

    grid       (3 * ROOM,) row and column of each of the samples, P rows of P + 4: the first and
               the last column of the patch three times; then 1, or 0 for the repeated ones
    taps       (5,) smoothing
    Phi        (F', Q) folded functions by parity; of each, first those that meet all planes, then
               those that meet only k = 2 and 3; then zeros, for tiles of three and of four
    first      (5,) where each parity begins in Phi
    meet_all   (4,) number of its functions that meet all planes
    once       (h,) 0 for the middle column of an odd patch, which has no mirror image; else 1
    opposite   (h,) where the mirror image of a row of P + 4 begins: LLVM does not vectorise
               negative steps
    source     (D, 4) which of the 7 * F' sums a dimension adds up
    weight     (D, 4) and their weights
    part_ends  (number of parts,)
    """

    spec: Spec
    grid: Array32
    taps: Array32
    Phi: Array32
    first: NDArray[np.int64]
    meet_all: NDArray[np.int64]
    once: Array32
    opposite: NDArray[np.uintp]
    source: NDArray[np.uintp]
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
    first, meet_all = [0], []
    position = np.zeros(len(functions), dtype=np.int64)
    for parity in range(4):  # even-even, odd in x, odd in y, odd in both
        members = np.flatnonzero(odd_x + 2 * odd_y == parity)
        members = members[np.argsort(high[members], kind="stable")]
        position[members] = len(rows) + np.arange(len(members))
        rows += [functions[f, :h, :h].ravel() for f in members]
        meet_all.append(np.count_nonzero(~high[members]))
        padded_length = max(-(-len(members) // 3) * 3, -(-meet_all[-1] // 4) * 4)
        rows += [np.zeros(h * h)] * (padded_length - len(members))
        first.append(len(rows))

    once = np.ones(h, np.float32)
    once[P // 2 :] = 0
    D, F = spec.dim, len(rows)
    source = np.zeros((D, 4), dtype=np.uintp)
    weight = np.zeros((D, 4))
    d, k, f = np.nonzero(c.T.transpose(2, 0, 1))  # in the order of d
    i = np.arange(len(d)) - np.searchsorted(d, d)
    source[d, i] = np.argsort(SLOTS)[k] * F + position[f]
    weight[d, i] = c.T[k, f, d]
    row, column = np.mgrid[:P, -2 : P + 2].reshape(2, -1)
    nearest = np.clip(column, 0, P - 1)
    grid = np.zeros((3, ROOM))
    grid[:, : len(row)] = row, nearest, column == nearest
    return Plan(
        spec,
        np.float32(grid.ravel()),
        np.float32(c.taps),
        np.ascontiguousarray(rows, dtype=np.float32),
        np.array(first),
        np.array(meet_all),
        once,
        np.array([(P - 1 - i) * (P + 4) for i in range(h)], np.uintp),
        source,
        np.float32(weight),
        np.array([part.stop for part in spec.parts]),
    )


def padded(projection: Projection | None, spec: Spec) -> tuple[Array32, Array32, float]:
    """Return A^T (d', D'), A^T mu (d,) and power of a `Projection`; d' = d = 0 without one.

    d' is the next multiple of 3, D' that of 8.
    """
    D, dim = spec.dim, projection.dim if projection else 0
    A = np.zeros((-(-dim // 3) * 3, -(-D // 8) * 8), np.float32)
    if not projection:
        return A, np.zeros(0, np.float32), 1.0
    A[:dim, :D] = projection.A.T
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
    """Describe frames into out (N, d).

    steps (N, scales, 5): `sampling_steps`; `whitening`: `padded`. `stages`: stop after so many
    stages, for the benchmark.
    """
    P, (A, shift, power) = plan.spec.patch_size, whitening
    F, (padded_dim, D), blocks = len(plan.Phi), A.shape, -(-len(out) // LANES)
    floats = pyramid.finest.dtype == np.float32
    # One compiled function for both types: the arrays of the other type are empty.
    pairs = (*_NO_BYTES, *pyramid.pairs) if floats else (*pyramid.pairs, *_NO_FLOATS)
    corners = np.empty(2 * ROOM, np.uint64)
    buffers = (
        np.empty(ROOM, np.uint32),
        np.empty(ROOM, np.uint32),
        corners,
        corners.view(np.float32),
        np.zeros(SCRATCH, np.float32),
        np.zeros(PLANES * PLANE, np.float32),
    )
    V = np.zeros(blocks * D * LANES, np.float32)
    lanes, norm = np.empty(D * LANES, np.float32), np.empty(LANES, np.float32)
    for scale in range(steps.shape[1]):
        at_scale = np.ascontiguousarray(steps[:, scale])
        sums = np.zeros(blocks * PLANES * F * LANES, np.float32)
        spatial_sums(
            *pairs, floats, pyramid.levels, at_scale, pyramid.gain, np.uintp(P), plan.grid,
            plan.taps, plan.Phi.reshape(-1), plan.first, plan.meet_all, plan.once, plan.opposite,
            *buffers, stages, sums,
        )  # fmt: skip
        if stages >= TO_RECOMBINE:
            rows = np.uintp(PLANES * F), np.uintp(D)
            recombine(sums, *rows, plan.source, plan.weight, plan.part_ends, lanes, norm, V)
    if stages >= TO_FINISH:
        Y = np.empty(LANES * max(1, padded_dim), np.float32)
        sizes = np.uintp(D), np.uintp(padded_dim), np.uintp(out.shape[1])
        finish(V, A.reshape(-1), *sizes, shift, lanes, norm, Y, out.reshape(-1))
        if power != 1.0:
            out[:] = raised(out, power)


@partial(jit, inline=True)
def dots(X, x, dx, Y, y, dy, length, out, o, ox, oy):
    """Compute scalar products of 4 rows of X with 3 of Y.

    The rows begin at x and y and are dx and dy apart, the sums go to o, ox and oy apart. They,
    three loads and a product fill the 16 registers of AVX2.
    """
    a0 = a1 = a2 = b0 = b1 = b2 = c0 = c1 = c2 = d0 = d1 = d2 = _zero
    x1 = x + dx
    x2 = x1 + dx
    x3 = x2 + dx
    y1 = y + dy
    y2 = y1 + dy
    for q in range(length):
        a, b, c, d = X[x + q], X[x1 + q], X[x2 + q], X[x3 + q]
        u, v, w = Y[y + q], Y[y1 + q], Y[y2 + q]
        a0 += a * u
        a1 += a * v
        a2 += a * w
        b0 += b * u
        b1 += b * v
        b2 += b * w
        c0 += c * u
        c1 += c * v
        c2 += c * w
        d0 += d * u
        d1 += d * v
        d2 += d * w
    out[o], out[o + oy], out[o + oy + oy] = a0, a1, a2
    o1 = o + ox
    out[o1], out[o1 + oy], out[o1 + oy + oy] = b0, b1, b2
    o2 = o1 + ox
    out[o2], out[o2 + oy], out[o2 + oy + oy] = c0, c1, c2
    o3 = o2 + ox
    out[o3], out[o3 + oy], out[o3 + oy + oy] = d0, d1, d2


@partial(jit, inline=True)
def planes(scratch, begin, end, W, grid, to):
    """Compute planes of pixels begin..end of the smoothed patch, and the sum of gradients^2.

    Weight, weight cos k theta and weight sin k theta go to `to`, ROOM apart in the order of SLOTS.
    """
    total = _zero
    above, beside, below = SMOOTH + _1 + begin, SMOOTH + W + begin, SMOOTH + W + W + _1 + begin
    inside = begin + ROOM + ROOM + _2
    for p in range(end - begin):
        gx = scratch[beside + p] - scratch[beside + p + _2]
        gy = scratch[above + p] - scratch[below + p]
        g2 = gx * gx + gy * gy
        total += g2 if grid[inside + p] > _zero else _zero
        some = g2 >= _no_gradient
        magnitude = np.sqrt(g2)
        inverse = _one / magnitude if some else _zero
        w = np.sqrt((magnitude if some else _zero) + _eps)
        c, s = gx * inverse if some else -_one, gy * inverse
        c2, s2 = c * c - s * s, _two * s * c
        here = to + p
        scratch[here] = w * c2
        scratch[here + ROOM] = w * (c2 * c - s2 * s)
        scratch[here + _2 * ROOM] = w * s2
        scratch[here + _3 * ROOM] = w * (s2 * c + c2 * s)
        scratch[here + _4 * ROOM] = w
        scratch[here + _5 * ROOM] = w * c
        scratch[here + _6 * ROOM] = w * s
    return total


@partial(jit, inline=True)
def fold(scratch, upper, lower, once, opposite, P, h, begin, end, folded, to):
    """Fold rows begin..end of a plane, of P + 4, into four parities of the quarter h x h.

    The plane's first row would lie at `upper` for its upper half, at `lower` for the other. Four
    pixels that mirror each other, a, b to its right, c below a, d below b, give even-even, odd in
    x, odd in y, odd in both. Pixels of a middle row or column count once in every parity, where the
    odd functions vanish except at the exact centre.
    """
    W, last = P + _4, P - _1
    for i in range(begin, end):
        above, under, low, here = upper + i * W, lower + opposite[i], once[i], to + i * h
        for j in range(h):
            mirrored, sole = last - j, once[j]
            a, b = scratch[above + j], scratch[above + mirrored] * sole
            c, d = scratch[under + j] * low, scratch[under + mirrored] * sole * low
            even, odd, even_under, odd_under = a + b, a - b, c + d, c - d
            folded[here + j] = even + even_under
            folded[here + j + ODD_X] = odd + odd_under
            folded[here + j + ODD_Y] = even - even_under
            folded[here + j + ODD_XY] = odd - odd_under


@jit
def spatial_sums(
    bytes_, coarser_bytes, floats_, coarser_floats, floats, levels, steps, gain, P, grid, taps, Phi,
    first, meet_all, once, opposite, at, words, corners, pixels, scratch, folded, stages, sums,
):  # fmt: skip
    """Steps 1 and 2: multiply the planes of each patch with the spatial functions.

    The first four are the `pairs` of a `Pyramid`, of uint8 and, if `floats`, float32; levels and
    gain are those of the pyramid; steps (N, 5). Frame n goes to sums (blocks, 7 * F', LANES) at
    [n // LANES, slot * F' + f, n % LANES], if it has a patch with texture.

    Scratch: at (ROOM,) positions of the samples, words (ROOM,) their four pixels if they are bytes,
    corners (2 * ROOM,) with pixels the same memory if they are floats. folded: by plane, in the
    order of SLOTS, and parity. In scratch, rows of P + 4: fractions, distance from the image, the
    patch with two rows more at both ends, smoothed down its columns, smoothed with one row more at
    both ends, some rows of 7 planes. Loops run over all rows at once: starting a loop costs as much
    as a row.
    """
    W = P + _4
    samples = P * W
    h = (P + _1) // _2
    block = _400 // W if _400 > W else _1  # rows whose planes stay in the cache
    Q, count = h * h, np.uintp(steps.shape[0])
    F = np.uintp(Phi.shape[0]) // Q
    inside, below, ends = PATCH + W + W, PATCH + W + W + samples - W, PATCH + W + W + samples
    area = np.float32(P) * np.float32(P)
    centre = 0.5 * (np.float64(P) - 1.0)
    for n in range(count):
        level = int(steps[n, 0])
        if level < 0:
            continue
        # Bilinear samples; outside the image its border is repeated. Positions, loads and
        # interpolation are separate loops: the loads cannot be vectorised.
        height, width = levels[level, 1], levels[level, 2]
        cx, cy, ax, ay = steps[n, 1], steps[n, 2], steps[n, 3], steps[n, 4]
        reach = centre * (abs(ax) + abs(ay))
        # Coordinates relative to a pixel of the image at or before the patch keep float32 exact.
        left = min(max(int(cx - reach), 0), width - 1)
        top = min(max(int(cy - reach), 0), height - 1)
        corner_x = np.float32(cx - centre * (ax - ay) - left)
        corner_y = np.float32(cy - centre * (ax + ay) - top)
        step_x, step_y = np.float32(ax), np.float32(ay)
        columns, rows = width - 1 - left, height - 1 - top
        right, bottom = np.float32(columns), np.float32(rows)
        last_x, last_y = np.float32(max(columns - 1, 0)), np.float32(max(rows - 1, 0))
        stride = np.int32(width)
        origin = np.uintp(levels[level, 0] + top * width + left)
        under = np.uintp(width if rows > 0 else 0)
        outside = _zero
        for t0 in range(samples):
            down, column = grid[t0], grid[t0 + ROOM]
            x = (corner_x - down * step_y) + column * step_x
            y = (corner_y + down * step_x) + column * step_y
            near_x, near_y = min(max(x, _zero), right), min(max(y, _zero), bottom)
            beyond = abs(x - near_x) + abs(y - near_y)
            outside += beyond
            xi, yi = np.int32(min(near_x, last_x)), np.int32(min(near_y, last_y))
            scratch[FX + t0] = near_x - np.float32(xi)
            scratch[FY + t0] = near_y - np.float32(yi)
            scratch[BEYOND + t0] = beyond
            at[t0] = np.uint32(yi * stride + xi)
        if floats:
            image_f = floats_ if level == 0 else coarser_floats
            for t1 in range(samples):
                here_f = origin + np.uintp(at[t1])
                corners[t1] = image_f[here_f]
                corners[t1 + ROOM] = image_f[here_f + under]
            for t2 in range(samples):
                upper_f, lower_f = pixels[t2 + t2], pixels[t2 + t2 + ROOM + ROOM]
                upper_f += scratch[FX + t2] * (pixels[t2 + t2 + _1] - upper_f)
                lower_f += scratch[FX + t2] * (pixels[t2 + t2 + ROOM + ROOM + _1] - lower_f)
                scratch[inside + t2] = upper_f + scratch[FY + t2] * (lower_f - upper_f)
        else:
            image = bytes_ if level == 0 else coarser_bytes
            for t3 in range(samples):
                here = origin + np.uintp(at[t3])
                words[t3] = image[here] | image[here + under] << _16
            for t4 in range(samples):
                word = np.int32(words[t4])
                upper, lower = (
                    np.float32(np.int32(word & 255)),
                    np.float32(np.int32(word >> 16 & 255)),
                )
                upper += scratch[FX + t4] * (np.float32(np.int32(word >> 8 & 255)) - upper)
                lower += scratch[FX + t4] * (np.float32(np.int32(word >> 24 & 255)) - lower)
                scratch[inside + t4] = upper + scratch[FY + t4] * (lower - upper)
        # Repeated borders fade into the mean of the patch.
        if outside > _zero:
            mean = 0.0
            for t5 in range(samples):
                mean += np.float64(scratch[inside + t5] * grid[t5 + ROOM + ROOM])
            mean /= np.float64(area)
            for t6 in range(samples):
                far, repeated = scratch[BEYOND + t6], np.float64(scratch[inside + t6])
                kept = np.float64(max(_one - far / _fade, _zero))
                faded = mean + kept * (repeated - mean)
                scratch[inside + t6] = faded if far > _zero else repeated

        # Separable smoothing with 5 taps, times the gain; all borders repeated.
        if stages >= TO_SMOOTH:
            for t7 in range(W):
                first_row, last_row = scratch[inside + t7], scratch[below + t7]
                scratch[PATCH + t7] = scratch[PATCH + W + t7] = first_row
                scratch[ends + t7] = scratch[ends + W + t7] = last_row
            square = _zero
            tap0, tap1, tap2 = taps[2], taps[1], taps[0]
            up1, down1, down2 = PATCH + W, inside + W, inside + W + W
            for t8 in range(samples):
                pixel = scratch[inside + t8]
                square += pixel * pixel * grid[t8 + ROOM + ROOM]
                scratch[MIDDLE + t8] = (
                    tap0 * pixel
                    + tap1 * (scratch[up1 + t8] + scratch[down1 + t8])
                    + tap2 * (scratch[PATCH + t8] + scratch[down2 + t8])
                )
            tap0, tap1, tap2 = tap0 * gain, tap1 * gain, tap2 * gain
            to = SMOOTH + W + _1
            for t9 in range(samples - _4):
                middle = MIDDLE + t9
                scratch[to + t9] = (
                    tap0 * scratch[middle + _2]
                    + tap1 * (scratch[middle + _1] + scratch[middle + _3])
                    + tap2 * (scratch[middle] + scratch[middle + _4])
                )
            for i0 in range(SMOOTH + W, SMOOTH + W + samples, W):
                scratch[i0], scratch[i0 + P + _1] = scratch[i0 + _1], scratch[i0 + P]
            for j0 in range(SMOOTH, SMOOTH + W):
                scratch[j0] = scratch[j0 + W]
                scratch[j0 + samples + W] = scratch[j0 + samples]

        # The seven planes and their parities, a few rows and those that mirror them at a time.
        if stages >= TO_PLANES:
            total = _zero
            for i1 in range(_none, h, block):
                i2 = i1 + block if i1 + block < h else h
                low = P - i2 if P - i2 > h else h  # a middle row is its own mirror image
                total += planes(scratch, i1 * W, i2 * W, W, grid, ROWS)
                total += planes(scratch, low * W, (P - i1) * W, W, grid, ROWS + block * W)
                for slot in range(_none, _planes):
                    plane = ROWS + slot * ROOM
                    upper_rows, lower_rows = plane - i1 * W, plane + (block - low) * W
                    fold(scratch, upper_rows, lower_rows, once, opposite, P, h, i1, i2, folded,
                         slot * PLANE)  # fmt: skip
            if not total > _flat * (square * gain * gain + area):
                continue

        # Planes against functions.
        if stages >= TO_PRODUCT:
            to_lane = n // _lanes * _planes * F * _lanes + n % _lanes
            to_low = to_lane + _4 * F * _lanes
            for group in range(4):
                begin, parity = np.uintp(first[group]), np.uintp(group) * QUARTER
                for f in range(begin, np.uintp(first[group + 1]) - _2, _3):
                    o = to_lane + f * _lanes
                    dots(folded, parity, PLANE, Phi, f * Q, Q, Q, sums, o, F * _lanes, _lanes)
                for f1 in range(begin, begin + np.uintp(meet_all[group]), _4):
                    o1 = to_low + f1 * _lanes
                    dots(Phi, f1 * Q, Q, folded, LOW + parity, PLANE, Q, sums, o1, _lanes,
                         F * _lanes)  # fmt: skip


@jit
def recombine(sums, count, D, source, weight, part_ends, lanes, norm, V):
    """Recombine sparsely, normalise each part, and add to V, down the lanes.

    sums (blocks, count, LANES), V (blocks, D', LANES). Scratch: lanes (D', LANES), norm (LANES,).
    """
    # Not the constant: loops of so few steps would be unrolled before they are vectorised.
    width = np.uintp(norm.shape[0])
    for b in range(np.uintp(V.shape[0]) // (D * width)):
        begin, block = _none, b * count
        for part in range(part_ends.shape[0]):
            end = np.uintp(part_ends[part])
            for n0 in range(width):
                norm[n0] = _zero
            for d in range(begin, end):
                s0, s1 = (block + source[d, 0]) * width, (block + source[d, 1]) * width
                s2, s3 = (block + source[d, 2]) * width, (block + source[d, 3]) * width
                w0, w1, w2, w3 = weight[d, 0], weight[d, 1], weight[d, 2], weight[d, 3]
                for n in range(width):
                    value = w0 * sums[s0 + n] + w1 * sums[s1 + n]
                    value += w2 * sums[s2 + n] + w3 * sums[s3 + n]
                    lanes[d * width + n] = value
                    norm[n] += value * value
            for n1 in range(width):
                norm[n1] = _one / np.sqrt(norm[n1]) if norm[n1] > _zero else _zero
            for d1 in range(begin, end):
                for n2 in range(width):
                    V[(b * D + d1) * width + n2] += lanes[d1 * width + n2] * norm[n2]
            begin = end


@jit
def finish(V, A, D, padded_dim, dim, shift, rows, norm, Y, out):
    """Step 3: unit norm, then A^T (V - mu) and unit norm again, into out (N, dim).

    V (blocks, D, LANES), A (padded_dim, D), or (0, D) for the raw vector. Scratch: rows (LANES, D),
    norm (LANES,) and Y (LANES, padded_dim).
    """
    count = np.uintp(out.shape[0]) // dim
    for start in range(_none, count, _lanes):
        stop = start + _lanes if start + _lanes < count else count
        for n in range(start, stop):
            total, row = _zero, (n - start) * D
            lane = start * D + n - start
            for d in range(D):
                value = V[lane + d * _lanes]
                total += value * value
                rows[row + d] = value
            inverse = _one / np.sqrt(total) if total > _zero else _zero
            norm[n - start] = inverse
            if padded_dim == _none:
                for d1 in range(dim):
                    out[n * dim + d1] = rows[row + d1] * inverse
        for column in range(_none, padded_dim, _3):
            for n1 in range(_none, stop - start, _4):
                to = n1 * padded_dim + column
                dots(rows, n1 * D, D, A, column * D, D, D, Y, to, padded_dim, _1)
        if padded_dim > _none:
            for n2 in range(start, stop):
                factor, square, y, to = norm[n2 - start], _zero, (n2 - start) * padded_dim, n2 * dim
                for j in range(dim):
                    centred = Y[y + j] * factor - shift[j]
                    out[to + j] = centred
                    square += centred * centred
                described = factor > _zero and square > _zero
                factor = _one / np.sqrt(square) if described else _zero
                for j1 in range(dim):
                    out[to + j1] *= factor

"""The derivative of the raw descriptor by its patches, compiled by Numba for the CPU.

Autograd splits `reference.raw` into a thousand small steps, each of which waits for every thread.
Here each patch goes back through all steps in a few cache-sized buffers.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from kd_cv.descriptor import compiled
from kd_cv.descriptor.projection import Array32
from kd_cv.descriptor.reference import EPS, FLAT, NO_GRADIENT
from kd_cv.descriptor.spec import PLANES, Spec
from kd_cv.jit import jit
from kd_cv.parallel import in_chunks

_eps, _no_gradient, _flat = np.float32(EPS), np.float32(NO_GRADIENT), np.float32(FLAT)
_half, _zero, _one = np.float32(0.5), np.float32(0.0), np.float32(1.0)
# Quarters: upper left, upper right, lower left, lower right, mirrored onto the first. Signs of
# each for functions that are even, odd in x, odd in y, odd in both.
_signs = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], np.float32)


def patch_gradients(patches: Array32, gradients: Array32, spec: Spec) -> Array32:
    """Return the derivative (N, P, P) by patches, given that by their raw vectors (N, D)."""
    out = np.empty(patches.shape, np.float32)
    patches, gradients = (
        np.require(array, np.float32, ["C", "W"]) for array in (patches, gradients)
    )
    constants = _constants(spec)

    def chunk(a: int, b: int) -> None:
        _back(patches[a:b], gradients[a:b], *constants, out[a:b])

    in_chunks(len(out), chunk)
    return out


@lru_cache(maxsize=32)
def _constants(spec: Spec) -> tuple[Any, ...]:
    plan, c = compiled.plan(spec), spec.constants
    every, once = np.ones(len(plan.once), np.bool_), plan.once != 0
    # Rows and columns of each quarter that are not those of another.
    quarters = ((every, every), (every, once), (once, every), (once, once))
    kept = np.concatenate([np.outer(rows, columns).ravel() for rows, columns in quarters])
    smooth, diff = np.float32(c.smooth), np.float32(c.diff)
    rows, columns = np.nonzero((smooth != 0) | (diff != 0))
    reach = int(np.abs(rows - columns).max())
    F = np.uintp(len(plan.Phi))
    source = np.array(compiled.SLOTS, np.uintp)[plan.source // F] * F + plan.source % F
    return smooth, diff, reach, plan.Phi, plan.first, kept, source, plan.weight, plan.part_ends


@jit
def _back(  # type: ignore[no-untyped-def]
    patches, gradients, smooth, diff, reach, Phi, first, kept, source, weight, part_ends, out
):
    P, D, (F, Q) = patches.shape[1], gradients.shape[1], Phi.shape
    h = (P + 1) // 2
    middle = np.empty((4, P, P), np.float32)
    gx, gy = np.empty((P, P), np.float32), np.empty((P, P), np.float32)
    pixels = np.empty((3, 4, Q), np.float32)
    cos, sin, root = pixels[0], pixels[1], pixels[2]
    planes, slopes = np.empty((PLANES, 4, Q), np.float32), np.empty((PLANES, 4, Q), np.float32)
    folded = np.empty((PLANES, Q), np.float32)
    sums, back = np.empty((PLANES, F), np.float32), np.empty((PLANES, F), np.float32)
    V, dV = np.empty(D, np.float32), np.empty(D, np.float32)
    for i in range(len(patches)):
        x = patches[i]

        # Step 1: gx = smooth x diff^T, gy = diff x smooth^T, by bands.
        for r in range(P):
            middle[0, r], middle[1, r] = _zero, _zero
            for s in range(max(0, r - reach), min(P, r + reach + 1)):
                for c in range(P):
                    middle[0, r, c] += smooth[r, s] * x[s, c]
                    middle[1, r, c] += diff[r, s] * x[s, c]
        energy, brightness = _zero, _zero
        for r in range(P):
            for c in range(P):
                along, across = _zero, _zero
                for s in range(max(0, c - reach), min(P, c + reach + 1)):
                    along += middle[0, r, s] * diff[c, s]
                    across += middle[1, r, s] * smooth[c, s]
                gx[r, c], gy[r, c] = along, across
                energy += along * along + across * across
                brightness += x[r, c] * x[r, c] + _one
        if not energy > _flat * brightness:
            out[i] = _zero
            continue

        # Step 2 once more: the planes, in quarters, and their sums.
        for q in range(4):
            for j in range(Q):
                r, c = j // h, j % h
                r, c = P - 1 - r if q > 1 else r, P - 1 - c if q % 2 else c
                a, b = gx[r, c], gy[r, c]
                m2 = a * a + b * b
                if m2 >= _no_gradient:
                    m = np.sqrt(m2)
                    root[q, j], cos[q, j], sin[q, j] = np.sqrt(m + _eps), a / m, b / m
                else:
                    root[q, j], cos[q, j], sin[q, j] = np.sqrt(_eps), a - _one, b
        for q in range(4):
            for j in range(Q):
                w = root[q, j] if kept[q * Q + j] else _zero
                a, b = w * cos[q, j], w * sin[q, j]
                planes[0, q, j], planes[1, q, j], planes[4, q, j] = w, a, b
                for k in range(2, 4):
                    a, b = a * cos[q, j] - b * sin[q, j], b * cos[q, j] + a * sin[q, j]
                    planes[k, q, j], planes[k + 3, q, j] = a, b
        for group in range(len(first) - 1):
            t = _signs[group % 4]
            for k in range(PLANES):
                for j in range(Q):
                    folded[k, j] = (
                        planes[k, 0, j] + t[1] * planes[k, 1, j] + t[2] * planes[k, 2, j]
                    ) + t[3] * planes[k, 3, j]
                for f in range(first[group], first[group + 1]):
                    total = _zero
                    for j in range(Q):
                        total += folded[k, j] * Phi[f, j]
                    sums[k, f] = total

        # Step 3 and back: V / |part| / |whole|, of which the whole has as many unit parts as are
        # not zero; then the sums that each dimension adds up.
        of_sums, to_sums = sums.reshape(-1), back.reshape(-1)
        start, whole, inner = 0, _zero, _zero
        for end in part_ends:
            norm = _zero
            for d in range(start, end):
                V[d] = _zero
                for term in range(4):
                    V[d] += weight[d, term] * of_sums[source[d, term]]
                norm += V[d] * V[d]
            whole += _one if norm > _zero else _zero
            norm = np.sqrt(norm) if norm > _zero else _one
            for d in range(start, end):
                V[d] /= norm
                dV[d] = norm
                inner += V[d] * gradients[i, d]
            start = end
        whole = np.sqrt(whole)
        start = 0
        for end in part_ends:
            along = _zero
            for d in range(start, end):
                along += V[d] * (gradients[i, d] - V[d] * inner / (whole * whole))
            for d in range(start, end):
                slope = gradients[i, d] - V[d] * inner / (whole * whole)
                dV[d] = (slope - V[d] * along) / (whole * dV[d])
            start = end
        to_sums[:] = _zero
        for d in range(D):
            for term in range(4):
                to_sums[source[d, term]] += weight[d, term] * dV[d]

        # Back to the planes.
        slopes[:] = _zero
        for group in range(len(first) - 1):
            t = _signs[group % 4]
            for k in range(PLANES):
                folded[k] = _zero
                for f in range(first[group], first[group + 1]):
                    for j in range(Q):
                        folded[k, j] += back[k, f] * Phi[f, j]
                for q in range(4):
                    for j in range(Q):
                        slopes[k, q, j] += t[q] * folded[k, j]

        # Back through the angle-sum rules and the gradient of each pixel, which then holds its own.
        for q in range(4):
            for j in range(Q):
                if not kept[q * Q + j]:
                    continue
                c, s, w = cos[q, j], sin[q, j], root[q, j]
                dc, ds, a, b = _zero, _zero, slopes[3, q, j], slopes[6, q, j]
                for k in range(2, 0, -1):
                    u, v = planes[k, q, j], planes[k + 3, q, j]
                    dc += a * u + b * v
                    ds += b * u - a * v
                    a, b = slopes[k, q, j] + a * c + b * s, slopes[k + 3, q, j] + b * c - a * s
                dw = slopes[0, q, j] + a * c + b * s
                dc += a * w
                ds += b * w
                y, z = j // h, j % h
                y, z = P - 1 - y if q > 1 else y, P - 1 - z if q % 2 else z
                m2 = gx[y, z] * gx[y, z] + gy[y, z] * gy[y, z]
                if m2 >= _no_gradient:
                    m = np.sqrt(m2)
                    dm = _half * dw / w - (dc * c + ds * s) / m
                    dc, ds = dc / m + dm * c, ds / m + dm * s
                gx[y, z], gy[y, z] = dc, ds

        # And back to the patch: smooth^T gx diff + diff^T gy smooth.
        for r in range(P):
            middle[2, r], middle[3, r] = _zero, _zero
            for s in range(max(0, r - reach), min(P, r + reach + 1)):
                for c in range(P):
                    middle[2, r, c] += smooth[s, r] * gx[s, c]
                    middle[3, r, c] += diff[s, r] * gy[s, c]
        for r in range(P):
            for c in range(P):
                total = _zero
                for s in range(max(0, c - reach), min(P, c + reach + 1)):
                    total += middle[2, r, s] * diff[s, c] + middle[3, r, s] * smooth[s, c]
                out[i, r, c] = total

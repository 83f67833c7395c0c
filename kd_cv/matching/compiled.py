"""Search for nearest neighbours, compiled by Numba, without storing the matrix product.

`product` multiplies 6 rows with a panel of 16 columns in registers. Each strip of 6 rows and
`STRIP` columns is reduced while it lies in the first cache.
"""

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kd_cv.jit import FASTMATH, jit

ROWS, COLUMNS, LANES = 6, 16, 8  # of `product`; of a vector register
STRIP, LANE = 256, 32  # columns of a strip; columns whose maxima are taken one by one


@intrinsic
def product(typing_context: Any, a: Any, row: Any, panel: Any, out: Any, column: Any) -> Any:
    """out[:, column : column + 16] = panel[0] + a[row : row + 6] @ panel[1:].

    a (N, D), panel (1 + D, 16) and out (6, STRIP) are C-contiguous arrays of float32.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [
            context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 2, 3)
        ]
        size = ir.IntType(64)
        depth = builder.extract_value(arrays[0].shape, 1)
        vector = ir.VectorType(ir.FloatType(), LANES)
        fused = {"flags": ("contract",)}  # multiply and add in one instruction

        def element(array: Any, index: Any) -> Any:
            return builder.gep(array.data, [index])

        def vector_at(array: Any, index: Any) -> Any:
            return builder.bitcast(element(array, index), vector.as_pointer())

        def times(x: Any, number: int) -> Any:
            return builder.mul(x, size(number))

        halves = range(0, COLUMNS, LANES)
        starts = [builder.mul(builder.add(arguments[1], size(r)), depth) for r in range(ROWS)]
        sums = {}
        for half in halves:
            first = builder.load(vector_at(arrays[1], size(half)), align=4)
            for r in range(ROWS):
                sums[r, half] = cgutils.alloca_once_value(builder, first)
        with cgutils.for_range(builder, depth) as loop:
            there = times(builder.add(loop.index, size(1)), COLUMNS)
            right = [
                builder.load(vector_at(arrays[1], builder.add(there, size(half))), align=4)
                for half in halves
            ]
            for r in range(ROWS):
                number = builder.load(element(arrays[0], builder.add(starts[r], loop.index)))
                one = builder.insert_element(
                    ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0)
                )
                left = builder.shuffle_vector(
                    one, one, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
                )
                for half, values in zip(halves, right, strict=True):
                    term = builder.fmul(left, values, **fused)
                    total = builder.fadd(builder.load(sums[r, half]), term, **fused)
                    builder.store(total, sums[r, half])
        for (r, half), total in sums.items():
            index = builder.add(arguments[4], size(r * STRIP + half))
            builder.store(builder.load(total), vector_at(arrays[2], index), align=4)
        return context.get_dummy_value()

    return types.void(a, types.int64, panel, out, types.int64), codegen


# Values are finite. Only the search for a maximum is reordered.
@partial(jit, fastmath=FASTMATH | {"nnan"})
def search_rows(
    a: Any, panels: Any, start: Any, stop: Any, scores: Any, columns: Any,
    column_scores: Any, column_rows: Any,
) -> None:  # fmt: skip
    """Find the best columns of rows start to stop, and the best of these rows in each column.

    a                           (N, D), N a multiple of `ROWS`
    panels                      (P, 1 + D, 16), -|b|^2 / 2 and b of 16 columns; P * 16 is a multiple
                                of `STRIP`
    scores, columns             (N, K) largest values of each row, in order, and their columns
    column_scores, column_rows  (P * 16,) largest value of each column, and its row
    """
    last = scores.shape[1] - 1
    strip = np.empty((ROWS, STRIP), np.float32)
    largest = np.empty(STRIP, np.float32)
    each = STRIP // COLUMNS
    for first in range(0, len(panels), each):
        column = first * COLUMNS
        best_here = column_scores[column : column + STRIP]
        rows_here = column_rows[column : column + STRIP]
        for i in range(start, stop, ROWS):
            count = min(ROWS, stop - i)
            for p in range(each):
                product(a, i, panels[first + p], strip, p * COLUMNS)  # type: ignore[call-arg]
            # Maxima over several rows or columns at once: few of them lead to a closer look.
            for j in range(STRIP):
                x = max(strip[0, j], strip[1, j]), max(strip[2, j], strip[3, j])
                largest[j] = max(max(x[0], x[1]), max(strip[4, j], strip[5, j]))
            for j in range(STRIP):
                if largest[j] > best_here[j]:
                    for r in range(count):
                        if strip[r, j] > best_here[j]:
                            best_here[j], rows_here[j] = strip[r, j], i + r
            for r in range(count):
                row, best, where = strip[r], scores[i + r], columns[i + r]
                for j in range(LANE):
                    x = max(row[j], row[j + 32]), max(row[j + 64], row[j + 96])
                    y = max(row[j + 128], row[j + 160]), max(row[j + 192], row[j + 224])
                    largest[j] = max(max(x[0], x[1]), max(y[0], y[1]))
                for lane in range(LANE):
                    if largest[lane] > best[last]:
                        for j in range(lane, STRIP, LANE):
                            if row[j] > best[last]:
                                k = last
                                while k > 0 and best[k - 1] < row[j]:
                                    best[k], where[k] = best[k - 1], where[k - 1]
                                    k -= 1
                                best[k], where[k] = row[j], column + j


@jit
def rank(a: Any, b: Any, columns: Any, distances: Any) -> None:
    """Sort columns (N, K) by |a[n] - b[column]|, then by column; fill distances (N, K)."""
    for n in range(len(a)):
        for k in range(columns.shape[1]):
            column = columns[n, k]
            x, y = a[n], b[column]
            total = np.float32(0)
            for d in range(x.size):
                difference = x[d] - y[d]
                total += difference * difference
            distance = np.sqrt(total)
            place = k
            while place > 0 and (
                distances[n, place - 1] > distance
                or (distances[n, place - 1] == distance and columns[n, place - 1] > column)
            ):
                distances[n, place] = distances[n, place - 1]
                columns[n, place] = columns[n, place - 1]
                place -= 1
            distances[n, place], columns[n, place] = distance, column

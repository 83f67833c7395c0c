"""What every way in keeps."""

import copy
from collections.abc import Callable

import numpy as np

from ways_in.entry import Entry, photographs
from ways_in.values import arrays, cast, same


def check_types(entry: Entry) -> None:
    """The promised types and shapes, whatever the type of the arguments; torch keeps theirs."""
    batch = photographs(entry.side)
    arguments = entry.arguments(batch)
    for name in ("", *entry.types):
        result = entry.call(*(cast(argument, name) for argument in arguments))
        assert entry.type_of(result) in ("", "torch." + (name or "float32"))
        found = entry.rows(result)
        assert len(found) == len(batch)
        for rows in found:
            assert rows.ndim == 2 and len(rows) and np.isfinite(rows).all() and rows.any()


def check_arguments_stay(entry: Entry) -> None:
    """No argument is changed, and the result shares no memory with one."""
    arguments = entry.arguments(photographs(entry.side))
    before = copy.deepcopy(entry.snapshot(*arguments))
    result = entry.call(*arguments)
    assert same(entry.snapshot(*arguments), before)
    expected = [rows.copy() for rows in entry.rows(result)]
    for array in arrays(arguments):
        array.fill(0)
    assert same(entry.rows(result), expected)


def check_batched_equals_unbatched(entry: Entry) -> None:
    """A batch, in any order, gives what its items give one by one."""
    batch = photographs(entry.side)
    together = entry.rows(entry.call(*entry.arguments(batch)))
    turned = entry.rows(entry.call(*entry.arguments(batch[::-1].copy())))
    for i, rows in enumerate(together):
        (alone,) = entry.rows(entry.call(*entry.arguments(batch[i : i + 1])))
        np.testing.assert_allclose(alone, rows, rtol=0, atol=tolerance(entry))
        np.testing.assert_allclose(turned[-1 - i], rows, rtol=0, atol=tolerance(entry))


def check_empty_batch(entry: Entry) -> None:
    """No items give no rows, in the same types."""
    entry.check_nothing()


def check_layouts(entry: Entry) -> None:
    """Strides, order and write protection of the arguments do not matter."""
    arguments = entry.arguments(photographs(entry.side))
    expected = entry.rows(entry.call(*arguments))
    for name, relaid_arguments in entry.layouts(*arguments):
        found = entry.rows(entry.call(*relaid_arguments))
        for rows, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(rows, other, rtol=0, atol=tolerance(entry), err_msg=name)


def tolerance(entry: Entry) -> float:
    from kd_cv.descriptor.describer import load_compiled

    return entry.tolerance if load_compiled() else max(entry.tolerance, entry.rounding)


def check_again(entry: Entry) -> None:
    """The same call gives the same bits."""
    arguments = entry.arguments(photographs(entry.side))
    first, second = (entry.rows(entry.call(*arguments)) for _ in range(2))
    assert same(first, second)


CHECKS: tuple[Callable[[Entry], None], ...] = (
    check_types,
    check_arguments_stay,
    check_batched_equals_unbatched,
    check_empty_batch,
    check_layouts,
    check_again,
)

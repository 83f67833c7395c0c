"""Checks of numbers that users give."""

from typing import Any

import numpy as np


def as_int(value: Any, name: str, least: int = 1, most: int | None = None) -> int:
    """Check an int, Python's or NumPy's, from `least` to `most`.

    >>> as_int(np.int64(3), "workers")
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < least or (most is not None and value > most):
        wanted = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return int(value)


def as_float(value: Any, name: str) -> float:
    """Convert a number to float, infinite if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return np.inf
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a number, got {value!r}") from error


def as_positive(value: Any, name: str) -> float:
    """Check a positive, finite number."""
    number = as_float(value, name)
    if not 0 < number < np.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return number


def as_bool(value: Any, name: str) -> bool:
    """Check a truth value: Python's or NumPy's, or 0 and 1."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {value!r}")

"""Numba's compiler with the options of kd_cv, and its cache on disk."""

from collections.abc import Callable
from typing import Any

import numba
from numba import config

# Sums may be reordered and contracted, identically in every call; NaN and infinity stay valid.
FASTMATH = frozenset({"reassoc", "contract", "nsz", "arcp"})


def jit(
    function: Callable[..., Any], fastmath: frozenset[str] = FASTMATH, inline: bool = False
) -> Any:
    """Compile a function when it is first called; cache the code on disk if possible.

    inline: into its callers. An array is seven arguments: short calls cost as much as their work.
    """
    options: dict[str, Any] = {
        "nogil": True,
        "fastmath": set(fastmath),
        "error_model": "numpy",
        "no_cfunc_wrapper": True,
        "forceinline": inline,
    }
    if int(config.OPT) == 3:  # type: ignore[attr-defined]  # slower code is not kept
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder for the cache can be written
            pass
    return numba.njit(**options)(function)

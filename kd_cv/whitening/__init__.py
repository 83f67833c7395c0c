"""Whitening: fit it, save it, choose a shipped one."""

from typing import TYPE_CHECKING, Any

from kd_cv.whitening.files import load, save
from kd_cv.whitening.whitening import Whitening

if TYPE_CHECKING:
    from kd_cv.whitening.statistics import Statistics

__all__ = ["Statistics", "Whitening", "load", "save"]


def __getattr__(name: str) -> Any:
    if name != "Statistics":  # imported when it is first asked for
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kd_cv.whitening.statistics import Statistics

    return Statistics

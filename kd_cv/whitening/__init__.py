"""Whitening: fit it, save it, choose a shipped one."""

from kd_cv.whitening.files import load, save
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.whitening import Whitening

__all__ = ["Statistics", "Whitening", "load", "save"]

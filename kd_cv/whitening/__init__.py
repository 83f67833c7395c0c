"""Whitening: fit it, save it, choose a shipped one."""

from kd_cv.whitening.whitening import Statistics, Whitening, load, save

__all__ = ["Statistics", "Whitening", "load", "save"]

"""From photographs to fitted matrices."""

from kd_cv.fit.photographs import fit_photos

__all__ = ["fit_photos"]

"""From photographs and scenes to fitted matrices."""

from kd_cv.fit.matrices import fit_whitening
from kd_cv.fit.photographs import fit_photos

__all__ = ["fit_photos", "fit_whitening"]

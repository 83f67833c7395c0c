"""From photographs and scenes to fitted matrices."""

from kd_cv.fit.folder import fit_photos
from kd_cv.fit.matrices import fit_whitening

__all__ = ["fit_photos", "fit_whitening"]

"""The five parameters of cv2.SIFT's detector, checked, and its getters and setters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypeVar

from kd_cv.checks import as_float, as_int
from kd_cv.detector.scale_space import ScaleSpace

Made = TypeVar("Made")

LAYERS, EDGE_THRESHOLD, SIGMA = 3, 10.0, 1.8
#: Weakest contrast of keypoints; with a limit on their number; and for images with few keypoints:
#: below it there is the noise of 8 bits and of JPEG.
CONTRAST, COUNTED_CONTRAST, LEAST_CONTRAST = 0.04, 0.03, 0.01
MAX_FEATURES, MAX_LAYERS, MAX_SIGMA, MAX_THRESHOLD = 2**31 - 1, 16, 16.0, 1e6


@dataclass(frozen=True)
class DoGSettings:
    """The arguments of `DoG`, checked."""

    nfeatures: int = 0
    nOctaveLayers: int = LAYERS
    contrastThreshold: float | None = None
    edgeThreshold: float = EDGE_THRESHOLD
    sigma: float = SIGMA

    def __post_init__(self) -> None:
        checked = {
            "nfeatures": as_int(self.nfeatures, "nfeatures", 0, MAX_FEATURES),
            "nOctaveLayers": as_int(self.nOctaveLayers, "nOctaveLayers", 1, MAX_LAYERS),
            "edgeThreshold": _number(self.edgeThreshold, "edgeThreshold", 1.0, MAX_THRESHOLD),
            "sigma": _number(self.sigma, "sigma", 1.0, MAX_SIGMA),
        }
        if self.contrastThreshold is not None:
            checked["contrastThreshold"] = _number(
                self.contrastThreshold, "contrastThreshold", 0.0, MAX_THRESHOLD
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def contrast(self) -> float:
        return CONTRAST if self.contrastThreshold is None else self.contrastThreshold

    @property
    def record(self) -> dict[str, Any]:
        """Everything that decides the keypoints, for JSON."""
        return {"detector": "dog", **asdict(self), "contrastThreshold": self.contrast}

    @cached_property
    def space(self) -> ScaleSpace:
        contrast, faint = self.contrast, None
        if self.nfeatures and self.contrastThreshold is None:
            contrast, faint = COUNTED_CONTRAST, LEAST_CONTRAST
        return ScaleSpace(self.sigma / 2, self.nOctaveLayers, contrast, self.edgeThreshold, faint)


def _number(value: Any, name: str, least: float, most: float) -> float:
    number = as_float(value, name)
    if not least <= number <= most:
        raise ValueError(f"{name} must be from {least:g} to {most:g}, got {value!r}")
    return number

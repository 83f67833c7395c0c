"""The five parameters of cv2.SIFT's detector, checked, and its getters and setters."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import cv2

from kd_cv.checks import as_float, as_int
from kd_cv.detector.scale_space import ScaleSpace

Made = TypeVar("Made")

LAYERS, EDGE_THRESHOLD, SIGMA = 3, 10.0, 1.8
#: Weakest contrast of keypoints; where a number of them is asked for, the strongest of which are
#: kept; and of the few that an image without any stronger ones has: below it there is the noise of
#: 8 bits and of JPEG.
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
        """The weakest contrast of a keypoint, where there are enough."""
        return CONTRAST if self.contrastThreshold is None else self.contrastThreshold

    @property
    def record(self) -> dict[str, Any]:
        """All that decides the keypoints, as JSON can hold it."""
        return {"detector": "dog", **asdict(self), "contrastThreshold": self.contrast}

    @property
    def space(self) -> ScaleSpace:
        """What is searched, and for what."""
        contrast, faint = self.contrast, None
        if self.nfeatures and self.contrastThreshold is None:
            contrast, faint = COUNTED_CONTRAST, LEAST_CONTRAST
        return ScaleSpace(self.sigma / 2, self.nOctaveLayers, contrast, self.edgeThreshold, faint)


class _Factory:
    """`create`, as OpenCV's factories are called: the class itself, with all its arguments."""

    def __get__(self, instance: object, cls: type[Made]) -> type[Made]:
        return cls


class SIFTLike:
    """What `DoG` and `KDDescriptor` share with cv2.SIFT: its factory, its getters and setters.

    A plain class: a Python subclass of cv2.Feature2D would crash the interpreter.
    """

    _detection: DoGSettings

    create = _Factory()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # isinstance(it, cv2.Feature2D) holds, without the crashes of a real subclass.
        return cv2.Feature2D

    def empty(self) -> bool:
        """True, as cv2.SIFT answers: there is nothing learned from data to lose."""
        return True

    def clear(self) -> None:
        """Forget what was learned from data: nothing, as in cv2.SIFT."""

    def getNFeatures(self) -> int:
        """How many keypoints to keep; 0 for all."""
        return self._detection.nfeatures

    def setNFeatures(self, maxFeatures: int) -> None:
        """How many keypoints to keep; 0 for all."""
        self._detection = replace(self._detection, nfeatures=maxFeatures)

    def getNOctaveLayers(self) -> int:
        """Scales searched in each octave."""
        return self._detection.nOctaveLayers

    def setNOctaveLayers(self, nOctaveLayers: int) -> None:
        """Scales searched in each octave."""
        self._detection = replace(self._detection, nOctaveLayers=nOctaveLayers)

    def getContrastThreshold(self) -> float:
        """The weakest contrast of a keypoint, also where none was given."""
        return self._detection.contrast

    def setContrastThreshold(self, contrastThreshold: float | None) -> None:
        """The weakest contrast of a keypoint."""
        self._detection = replace(self._detection, contrastThreshold=contrastThreshold)

    def getEdgeThreshold(self) -> float:
        """Largest ratio of curvatures."""
        return self._detection.edgeThreshold

    def setEdgeThreshold(self, edgeThreshold: float) -> None:
        """Largest ratio of curvatures."""
        self._detection = replace(self._detection, edgeThreshold=edgeThreshold)

    def getSigma(self) -> float:
        """Blur of the first level, in half pixels."""
        return self._detection.sigma

    def setSigma(self, sigma: float) -> None:
        """Blur of the first level, in half pixels."""
        self._detection = replace(self._detection, sigma=sigma)


def _number(value: Any, name: str, least: float, most: float) -> float:
    number = as_float(value, name)
    if not least <= number <= most:
        raise ValueError(f"{name} must be from {least:g} to {most:g}, got {value!r}")
    return number

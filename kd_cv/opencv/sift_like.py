"""What `DoG` and `KDDescriptor` share with cv2.SIFT: its factory, its getters and setters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import cv2

from kd_cv.detector.settings import DoGSettings

Made = TypeVar("Made")


class _Factory:
    """`create`, as OpenCV's factories are called: the class itself, with all its arguments."""

    def __get__(self, instance: object, cls: type[Made]) -> type[Made]:
        return cls


@cache
def _stand_in(cls: type) -> type:
    """A subclass of cv2.Feature2D without instances: to call it makes an instance of `cls`."""
    make = {"__new__": lambda _, *args, **named: cls(*args, **named), "__doc__": cls.__doc__}
    return type(cls.__name__, (cv2.Feature2D,), {**make, "__module__": cls.__module__})


class SIFTLike:
    """What `DoG` and `KDDescriptor` share with cv2.SIFT: its factory, its getters and setters.

    A plain class: a Python subclass of cv2.Feature2D would crash the interpreter.
    """

    _detection: DoGSettings

    create = _Factory()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # isinstance(it, cv2.Feature2D) holds, without the crashes of a real subclass.
        return _stand_in(type(self))  # type: ignore[arg-type]

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


def as_list(values: Any, count: int, what: str) -> Sequence[Any]:
    """A list of `count` values, one for each image; None stands for as many of None."""
    if values is None and what == "masks":
        return [None] * count
    if not isinstance(values, list | tuple) or len(values) != count:
        given = len(values) if isinstance(values, list | tuple) else type(values).__name__
        raise ValueError(f"{count} images need as many {what}, got {given}")
    return values

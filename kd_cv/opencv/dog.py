"""`DoG`: the detector in the shape of cv2.SIFT's, several times as fast.

Method and argument names are OpenCV's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, TypeVar, overload

import cv2

from kd_cv.detector.detect import Detections, detect
from kd_cv.detector.settings import EDGE_THRESHOLD, LAYERS, SIGMA, DoGSettings
from kd_cv.gray import as_gray, as_mask
from kd_cv.keypoints import to_keypoints
from kd_cv.types import Image, Images, KeyPoints

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


class DoG(SIFTLike):
    """Extrema of differences of Gaussians, with the interface of cv2.SIFT's detector.

    nfeatures          how many keypoints to keep, the strongest; 0 for all
    nOctaveLayers      scales searched in each octave
    contrastThreshold  smallest contrast of a keypoint, in the units of cv2.SIFT, once the image is
                       scaled to a standard deviation of 0.23: a dark photograph has the keypoints
                       of a bright one. None means 0.04; if nfeatures is given 0.03, and where fewer
                       than 500 extrema reach that, weaker ones, down to 0.01, make up the 500
    edgeThreshold      largest ratio of curvatures; a larger one lets in keypoints along edges
    sigma              blur of the first level, in half pixels, because cv2.SIFT doubles the image

    The keypoints come strongest first, and the contrast of a larger one counts a little more. Their
    size is 2 sigma and their octave that of cv2.SIFT, so that cv2.SIFT can describe them too. A
    keypoint with several angles comes several times, with less response the weaker the angle is.

    >>> len(DoG(nfeatures=100).detect(image))
    100
    """

    def __init__(
        self,
        nfeatures: int = 0,
        nOctaveLayers: int = LAYERS,
        contrastThreshold: float | None = None,
        edgeThreshold: float = EDGE_THRESHOLD,
        sigma: float = SIGMA,
    ) -> None:
        self._detection = DoGSettings(
            nfeatures, nOctaveLayers, contrastThreshold, edgeThreshold, sigma
        )

    def __repr__(self) -> str:
        """The class with every setting that is not the default."""
        default = asdict(DoGSettings())
        changed = [f"{k}={v}" for k, v in asdict(self._detection).items() if v != default[k]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._detection == other._detection

    def __hash__(self) -> int:
        return hash(self._detection)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(asdict(self._detection).values())

    @property
    def settings(self) -> DoGSettings:
        """All that decides the keypoints."""
        return self._detection

    # What it finds

    @overload
    def detect(self, image: Image | None, mask: Image | None = None) -> KeyPoints: ...
    @overload
    def detect(self, image: Images, mask: Images | None = None) -> tuple[KeyPoints, ...]: ...
    def detect(self, image: Any, mask: Any = None) -> Any:
        """Keypoints of an image, or a tuple of them for each of a list of images.

        image: gray, BGR or BGRA, of 8 or 16 bits or float. mask (H, W), uint8: where to detect.
        """
        if isinstance(image, list | tuple):
            masks = as_list(mask, len(image), "masks")
            return tuple(self.detect(im, m) for im, m in zip(image, masks, strict=True))
        if image is None:
            return ()
        return to_keypoints(*self.detect_frames(image, mask))

    def detect_frames(self, image: Image, mask: Image | None = None) -> Detections:
        """The same as arrays: frames (N, 4), x, y, size, angle, and responses (N,)."""
        gray = as_gray(image)
        mask = as_mask(mask, gray.shape)
        return detect(gray, self._detection.space, count=self._detection.nfeatures, mask=mask)

    # What it is, in OpenCV's words

    def getDefaultName(self) -> str:
        """The name in files of settings."""
        return "Feature2D.DoG"

    # Files

    def write(
        self, target: str | os.PathLike[str] | cv2.FileStorage, name: str | None = None
    ) -> None:
        """Settings as YAML, XML or JSON: to a path, or to an open cv2.FileStorage."""
        from kd_cv.io.settings_files import write_settings

        write_settings(self.getDefaultName(), target, name, self._detection)

    def save(self, filename: str | os.PathLike[str]) -> None:
        """The same as write(filename)."""
        self.write(filename)

    def read(self, source: str | os.PathLike[str] | cv2.FileNode) -> None:
        """Take the settings from a file, or a cv2.FileNode, that `write` made."""
        from kd_cv.io.settings_files import read_settings

        self._detection = read_settings(self.getDefaultName(), source, DoGSettings)


def as_list(values: Any, count: int, what: str) -> Sequence[Any]:
    """A list of `count` values, one for each image; None stands for as many of None."""
    if values is None and what == "masks":
        return [None] * count
    if not isinstance(values, list | tuple) or len(values) != count:
        given = len(values) if isinstance(values, list | tuple) else type(values).__name__
        raise ValueError(f"{count} images need as many {what}, got {given}")
    return values

"""`DoG`: the detector in the shape of cv2.SIFT's, several times as fast.

It is a plain class: a Python subclass of cv2.Feature2D would crash the interpreter. Method and
argument names are OpenCV's.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import cv2
import numpy as np

from kd_cv.descriptor.frames import as_float, as_gray, sift_octave
from kd_cv.detector.arguments import as_list, as_mask
from kd_cv.detector.engine import Detected, detect_frames
from kd_cv.detector.scale_space import ScaleSpace
from kd_cv.io.storage import read_settings, write_settings
from kd_cv.types import KeyPoints

Self = TypeVar("Self", bound="DoG")

#: Weakest contrast of keypoints, and of the few that an image without any stronger ones has: below
#: it there is the noise of 8 bits and of JPEG.
CONTRAST, LEAST_CONTRAST = 0.04, 0.01
MAX_FEATURES, MAX_LAYERS, MAX_SIGMA, MAX_THRESHOLD = 2**31 - 1, 16, 16.0, 1e6


@dataclass(frozen=True)
class DoGSettings:
    """The arguments of `DoG`, checked."""

    nfeatures: int = 0
    nOctaveLayers: int = 3
    contrastThreshold: float | None = None
    edgeThreshold: float = 10.0
    sigma: float = 1.8

    def __post_init__(self) -> None:
        checked = {
            "nfeatures": _integer(self.nfeatures, "nfeatures", 0, MAX_FEATURES),
            "nOctaveLayers": _integer(self.nOctaveLayers, "nOctaveLayers", 1, MAX_LAYERS),
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
        faint = LEAST_CONTRAST if self.nfeatures and self.contrastThreshold is None else None
        return ScaleSpace(
            self.sigma / 2, self.nOctaveLayers, self.contrast, self.edgeThreshold, faint
        )


class SIFTParameters:
    """Getters and setters of cv2.SIFT, for whatever has detection settings."""

    _detection: DoGSettings

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


class DoG(SIFTParameters):
    """Extrema of differences of Gaussians, with the interface of cv2.SIFT's detector.

    nfeatures          how many keypoints to keep, the strongest; 0 for all
    nOctaveLayers      scales searched in each octave
    contrastThreshold  weakest contrast of a keypoint, as cv2.SIFT counts it, of an image brought to
                       a standard deviation of 0.23: a dark photograph has the keypoints of a bright
                       one. None: 0.04, or, if a number of keypoints is asked for and an image has
                       fewer than 500 such extrema, down to 0.01 for as many
    edgeThreshold      largest ratio of curvatures; more lets keypoints along edges in
    sigma              blur of the first level, in half pixels, because cv2.SIFT doubles the image

    The keypoints come strongest first. Their size is 2 sigma and their octave that of cv2.SIFT, so
    that cv2.SIFT can describe them too; a keypoint with several angles comes several times.

    >>> len(DoG(nfeatures=100).detect(image))
    100
    """

    def __init__(
        self,
        nfeatures: int = 0,
        nOctaveLayers: int = 3,
        contrastThreshold: float | None = None,
        edgeThreshold: float = 10.0,
        sigma: float = 1.8,
    ) -> None:
        self._detection = DoGSettings(
            nfeatures, nOctaveLayers, contrastThreshold, edgeThreshold, sigma
        )

    @classmethod
    def create(cls: type[Self], *args: Any, **kwargs: Any) -> Self:
        """As OpenCV's factories are called."""
        return cls(*args, **kwargs)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # isinstance(dog, cv2.Feature2D) holds, without the crashes of a real subclass.
        return cv2.Feature2D

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

    def detect(self, image: Any, mask: Any = None) -> Any:
        """Keypoints of an image, or a tuple of them for each of a list of images.

        image: gray, BGR or BGRA, of 8 or 16 bits or float. mask (H, W), uint8: where to detect.
        """
        if isinstance(image, list | tuple):
            masks = as_list(mask, len(image), "masks")
            return tuple(self.detect(im, m) for im, m in zip(image, masks, strict=True))
        if image is None:
            return ()
        return to_keypoints(self.detect_frames(image, mask))

    def detect_frames(self, image: Any, mask: Any = None) -> Detected:
        """The same as arrays: frames (N, 4), x, y, size, angle, and responses (N,)."""
        gray = as_gray(image)
        mask = as_mask(mask, gray.shape)
        return detect_frames(
            gray, self._detection.space, count=self._detection.nfeatures, mask=mask
        )

    # What it is, in OpenCV's words

    def getDefaultName(self) -> str:
        """The name in files of settings."""
        return "Feature2D.DoG"

    def empty(self) -> bool:
        """True, as cv2.SIFT answers: there is nothing learned from data to lose."""
        return True

    def clear(self) -> None:
        """Forget what was learned from data: nothing, as in cv2.SIFT."""

    # Files

    def write(
        self, target: str | os.PathLike[str] | cv2.FileStorage, name: str | None = None
    ) -> None:
        """Settings as YAML, XML or JSON: to a path, or to an open cv2.FileStorage."""
        write_settings(self.getDefaultName(), target, name, self._detection)

    def save(self, filename: str | os.PathLike[str]) -> None:
        """The same as write(filename)."""
        self.write(filename)

    def read(self, source: str | os.PathLike[str] | cv2.FileNode) -> None:
        """Take the settings from a file, or a cv2.FileNode, that `write` made."""
        self._detection = read_settings(self.getDefaultName(), source, DoGSettings)


def to_keypoints(detected: Detected) -> KeyPoints:
    """OpenCV keypoints with size, angle, response and octave."""
    columns = (*detected.frames.T, detected.responses, sift_octave(detected.frames))
    return tuple(map(cv2.KeyPoint, *(column.tolist() for column in columns)))


def _integer(value: Any, name: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {value!r}")
    return int(value)


def _number(value: Any, name: str, least: float, most: float) -> float:
    number = as_float(value, name)
    if not least <= number <= most:
        raise ValueError(f"{name} must be from {least:g} to {most:g}, got {value!r}")
    return number

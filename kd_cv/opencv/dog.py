"""`DoG`: the detector with the interface of cv2.SIFT's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, TypeVar, overload

import cv2
from numpy.typing import NDArray

from kd_cv.detector.detect import Detections, detect
from kd_cv.detector.settings import EDGE_THRESHOLD, LAYERS, SIGMA, DoGSettings
from kd_cv.gray import as_gray, as_mask
from kd_cv.io.files import PathLike
from kd_cv.keypoints import to_keypoints
from kd_cv.types import Image, Images, KeyPoints

Made = TypeVar("Made")


class _Factory:
    """`create`, the name of OpenCV's factories: the class itself."""

    def __get__(self, instance: object, cls: type[Made]) -> type[Made]:
        return cls


@cache
def _stand_in(cls: type) -> type:
    """Make a subclass of cv2.Feature2D without instances: a call makes an instance of `cls`."""
    make = {"__new__": lambda _, *args, **named: cls(*args, **named), "__doc__": cls.__doc__}
    return type(cls.__name__, (cv2.Feature2D,), {**make, "__module__": cls.__module__})


class SIFTLike:
    """The factory, getters and setters of cv2.SIFT, for `DoG` and `KDDescriptor`.

    A plain class: a Python subclass of cv2.Feature2D would crash the interpreter.
    """

    _detection: DoGSettings
    _detect: Any  # (gray, mask) -> keypoints

    create = _Factory()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # isinstance(it, cv2.Feature2D) holds, without the crashes of a real subclass.
        return _stand_in(type(self))  # type: ignore[arg-type]

    @overload
    def detect(self, image: Image | None, mask: Image | None = None) -> KeyPoints: ...
    @overload
    def detect(self, image: Images, mask: Images | None = None) -> tuple[KeyPoints, ...]: ...
    def detect(self, image: Any, mask: Any = None) -> Any:
        """Detect keypoints of an image, or a tuple of them for each of a list of images.

        image: gray, BGR or BGRA, of 8 or 16 bits or float. mask (H, W), uint8: where to detect.
        """
        if isinstance(image, list | tuple):
            masks = as_list(mask, len(image), "masks")
            return tuple(self._of_one(im, m) for im, m in zip(image, masks, strict=True))
        return self._of_one(image, mask)

    def _of_one(self, image: Any, mask: Any) -> KeyPoints:
        if image is None:
            return ()
        gray = as_gray(image)
        mask = as_mask(mask, gray.shape)
        return self._detect(gray, mask) if gray.size else ()

    def empty(self) -> bool:
        """Return True, as cv2.SIFT does."""
        return True

    def clear(self) -> None:
        """Do nothing, as cv2.SIFT does."""

    def getNFeatures(self) -> int:
        """Number of keypoints to keep; 0 for all."""
        return self._detection.nfeatures

    def setNFeatures(self, maxFeatures: int) -> None:
        self._detection = replace(self._detection, nfeatures=maxFeatures)

    def getNOctaveLayers(self) -> int:
        """Scales searched in each octave."""
        return self._detection.nOctaveLayers

    def setNOctaveLayers(self, nOctaveLayers: int) -> None:
        self._detection = replace(self._detection, nOctaveLayers=nOctaveLayers)

    def getContrastThreshold(self) -> float:
        """Weakest contrast of a keypoint."""
        return self._detection.contrast

    def setContrastThreshold(self, contrastThreshold: float | None) -> None:
        self._detection = replace(self._detection, contrastThreshold=contrastThreshold)

    def getEdgeThreshold(self) -> float:
        """Largest ratio of curvatures."""
        return self._detection.edgeThreshold

    def setEdgeThreshold(self, edgeThreshold: float) -> None:
        self._detection = replace(self._detection, edgeThreshold=edgeThreshold)

    def getSigma(self) -> float:
        """Blur of the first level, in half pixels."""
        return self._detection.sigma

    def setSigma(self, sigma: float) -> None:
        self._detection = replace(self._detection, sigma=sigma)


class DoG(SIFTLike):
    """Extrema of differences of Gaussians, with the interface of cv2.SIFT's detector.

    nfeatures          number of keypoints to keep, the strongest; 0 for all
    nOctaveLayers      scales searched in each octave
    contrastThreshold  smallest contrast of a keypoint, in the units of cv2.SIFT, in the image
                       scaled to a standard deviation of 0.23: brightness does not matter. None
                       means 0.04; with nfeatures 0.03, and down to 0.01 if fewer than 500 extrema
                       reach that
    edgeThreshold      largest ratio of curvatures; a larger one lets in keypoints along edges
    sigma              blur of the first level, in half pixels, because cv2.SIFT doubles the image

    The strongest keypoints come first. Their size is 2 sigma, their octave that of cv2.SIFT, which
    can describe them. A keypoint with several angles comes several times.

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
        """Everything that decides the keypoints."""
        return self._detection

    def _detect(self, gray: NDArray[Any], mask: NDArray[Any] | None) -> KeyPoints:
        return to_keypoints(*self.detect_frames(gray, mask))

    def detect_frames(self, image: Image, mask: Image | None = None) -> Detections:
        """Detect frames (N, 4), x, y, size, angle, and responses (N,)."""
        gray = as_gray(image)
        mask = as_mask(mask, gray.shape)
        return detect(gray, self._detection.space, count=self._detection.nfeatures, mask=mask)

    def getDefaultName(self) -> str:
        """Return the name in files of settings."""
        return "Feature2D.DoG"

    def write(self, target: PathLike | cv2.FileStorage, name: str | None = None) -> None:
        """Write the settings as YAML, XML or JSON to a path, or to an open cv2.FileStorage."""
        from kd_cv.io.settings_files import write_settings

        write_settings(self.getDefaultName(), target, name, self._detection)

    def save(self, filename: PathLike) -> None:
        """Write the settings to a file."""
        self.write(filename)

    def read(self, source: PathLike | cv2.FileNode) -> None:
        """Read the settings from a file, or a cv2.FileNode, of `write`."""
        from kd_cv.io.settings_files import read_settings

        self._detection = read_settings(self.getDefaultName(), source, DoGSettings)


def as_list(values: Any, count: int, what: str) -> Sequence[Any]:
    """Check a list of one value for each image; no masks are `count` times None."""
    if values is None and what == "masks":
        return [None] * count
    if not isinstance(values, list | tuple) or len(values) != count:
        given = len(values) if isinstance(values, list | tuple) else type(values).__name__
        raise ValueError(f"{count} images need as many {what}, got {given}")
    return values

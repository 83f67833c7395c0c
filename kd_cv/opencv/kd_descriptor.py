"""`KDDescriptor`: the descriptor with the interface of cv2.Feature2D, to replace cv2.SIFT."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import UPRIGHT, Frames
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.detector.orientation import dominant_angles
from kd_cv.detector.settings import EDGE_THRESHOLD, LAYERS, SIGMA, DoGSettings
from kd_cv.extractor import Extractor
from kd_cv.gray import as_gray, as_mask, to_8bit
from kd_cv.io.files import PathLike
from kd_cv.keypoints import copy_keypoints, to_keypoints, views_of
from kd_cv.opencv.dog import DoG, SIFTLike, as_list
from kd_cv.opencv.patch_sizes import frames_of
from kd_cv.settings import Settings, with_aliases
from kd_cv.types import Detector, Image, Images, KeyPoints
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING, Weights

if TYPE_CHECKING:
    from kd_cv.nn.module import KDModule

Self = TypeVar("Self", bound="KDDescriptor")
Pixels = TypeVar("Pixels", NDArray[Any], cv2.UMat)


class KDDescriptor(SIFTLike):
    """Kernel descriptor with the interface of cv2.Feature2D.

    nfeatures, nOctaveLayers, contrastThreshold, edgeThreshold, sigma
                     of the detector: see `DoG`
    patch_size       samples per side of the patch, 16 to 128
    kernel           "concat" (polar and Cartesian), "polar" or "cart"
    whitening        "wm", "ws", "wus", "wua", "w", "pcasqrt", None for the raw vector; "best" is
                     the first of "wm", "ws" and "wua" that the weights have
    weights          name of shipped matrices, path of a fitted file, or a fitted Whitening
    dim              dimensions kept by the whitening
    magnification    side of the patch in keypoint sizes, or a name: "sift" (6),
                     "extract_patches" (10), "kornia" (12); by default ("auto") it follows the
                     detector of each keypoint: SIFT's 15, ORB's 1.45, ...
    scales           number of patch sizes to average over, or their factors of the magnification
    descriptor_type  cv2.CV_32F, or cv2.CV_8U for bytes, whose distances keep their order
    detector         any object with OpenCV's detect(image, mask); `DoG` by default
    upright          ignore the angles of the keypoints, and find none
    orient           estimate the angles of keypoints that have none (-1; KAZE writes 0)
    drop             remove keypoints that cannot be described (NaN, size <= 0, patch outside the
                     image or without texture); False keeps them with zero descriptors
    views            1; 3, 5 or 11 to detect keypoints also in synthetic views of the image, for
                     wide viewpoint changes. The octave of a keypoint then holds its view

    >>> image = np.random.default_rng(0).integers(0, 256, (240, 320), dtype=np.uint8)
    >>> keypoints, descriptors = KDDescriptor().detectAndCompute(image, None)
    >>> descriptors.shape == (len(keypoints), 128)
    True
    """

    @with_aliases
    def __init__(
        self,
        nfeatures: int = 0,
        nOctaveLayers: int = LAYERS,
        contrastThreshold: float | None = None,
        edgeThreshold: float = EDGE_THRESHOLD,
        sigma: float = SIGMA,
        *too_many: Any,
        patch_size: int = 32,
        kernel: str = "concat",
        whitening: str | None = DEFAULT_WHITENING,
        weights: Weights = DEFAULT_WEIGHTS,
        dim: int = 128,
        magnification: float | str | None = None,
        scales: int | Sequence[float] = 1,
        descriptor_type: int = cv2.CV_32F,
        detector: Detector | None = None,
        upright: bool = False,
        orient: bool = False,
        drop: bool = True,
        views: int = 1,
    ) -> None:
        if too_many:
            raise TypeError(
                "only the first five arguments of cv2.SIFT_create may be given by position; give "
                f"the sixth by name, descriptor_type={too_many[0]!r}"
            )
        if detector is not None and not callable(getattr(detector, "detect", None)):
            raise TypeError(
                "detector must have a method detect(image, mask), as OpenCV's detectors do; "
                f"got {type(detector).__name__}"
            )
        detection = DoGSettings(nfeatures, nOctaveLayers, contrastThreshold, edgeThreshold, sigma)
        if detector is not None and detection != DoGSettings():
            raise ValueError(
                "nfeatures, nOctaveLayers, contrastThreshold, edgeThreshold and sigma are for the "
                f"detector of KDDescriptor itself: give them to {_shown(detector)}"
            )
        settings = Settings(
            patch_size, kernel, whitening, weights, dim,
            magnification, scales,  # type: ignore[arg-type]
            descriptor_type, upright, orient, drop, views,
        )  # fmt: skip
        if type(detector) is DoG:
            detection, detector = detector.settings, None
        # One object, so that a call never sees the settings of before and after a setter.
        self._extractor = Extractor(settings, detection)
        self._detector = detector

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={_shown(value)}"
            for settings in (self.detection, self.settings)
            for field in fields(settings)
            if field.repr and (value := getattr(settings, field.name)) != field.default
        ]
        if self._detector is not None:
            changed.append(f"detector={_shown(self._detector)}")
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def extractor(self) -> Extractor:
        """Detector and descriptor on arrays."""
        return self._extractor

    @property
    def settings(self) -> Settings:
        """Everything that decides the descriptors."""
        return self._extractor.settings

    @property
    def detection(self) -> DoGSettings:
        """Everything that decides the keypoints, unless there is a `detector`."""
        return self._extractor.detection

    @property
    def detector(self) -> Detector | None:
        """The given detector; None if KDDescriptor detects by itself."""
        return self._detector

    @property
    def spec(self) -> Spec:
        """The raw descriptor."""
        return self.settings.spec

    @property
    def projection(self) -> Projection | None:
        """Mean and matrix of the whitening, or None."""
        return self.settings.projection

    @property
    def _detection(self) -> DoGSettings:
        return self._extractor.detection

    @_detection.setter
    def _detection(self, detection: DoGSettings) -> None:
        if self._detector is not None:
            raise ValueError(
                f"the keypoints come from {_shown(self._detector)}: set its parameters instead"
            )
        self._extractor = Extractor(self._extractor.settings, detection)

    def with_settings(self: Self, **changes: Any) -> Self:
        """Return a copy with changed settings.

        >>> KDDescriptor(patch_size=24).with_settings(nfeatures=500, upright=True)
        KDDescriptor(nfeatures=500, patch_size=24, upright=True)
        """
        changed = copy.copy(self)
        named = {field.name for field in fields(DoGSettings)} & changes.keys()
        of_detector = {name: changes.pop(name) for name in named}
        if of_detector:
            changed._detection = replace(self.detection, **of_detector)
        if changes:  # else the matrices need not be looked up again
            changed._extractor = Extractor(replace(self.settings, **changes), changed.detection)
        return changed

    def descriptorSize(self) -> int:
        """Return the length of a descriptor."""
        return self.settings.descriptor_size

    def descriptorType(self) -> int:
        """Return cv2.CV_32F or cv2.CV_8U."""
        return self.settings.descriptor_type

    def defaultNorm(self) -> int:
        """Return the distance of descriptors, cv2.NORM_L2."""
        return cv2.NORM_L2

    def getDefaultName(self) -> str:
        """Return the name in files of settings."""
        return "Feature2D.KD"

    def _detect(self, gray: NDArray[Any], mask: NDArray[Any] | None) -> KeyPoints:
        if self._detector is not None:
            return copy_keypoints(self._detector.detect(to_8bit(gray), mask))
        return to_keypoints(*self._extractor.detect(gray, mask))

    @overload
    def compute(
        self,
        image: Pixels | None,
        keypoints: Sequence[cv2.KeyPoint] | None,
        descriptors: NDArray[Any] | None = None,
    ) -> tuple[KeyPoints, Pixels | None]: ...
    @overload
    def compute(
        self,
        image: Images,
        keypoints: Sequence[Sequence[cv2.KeyPoint] | None],
        descriptors: None = None,
    ) -> tuple[tuple[KeyPoints, ...], tuple[NDArray[Any] | None, ...]]: ...
    def compute(self, image: Any, keypoints: Any, descriptors: Any = None) -> tuple[Any, Any]:
        """Return keypoints and their descriptors (N, D), or None; for lists, a tuple of each.

        A `descriptors` array of the right shape and type is filled in place.
        """
        if isinstance(image, list | tuple):
            keypoints = as_list(keypoints, len(image), "lists of keypoints")
            results = [self._compute(im, kps) for im, kps in zip(image, keypoints, strict=True)]
            return tuple(kps for kps, _ in results), tuple(X for _, X in results)
        return self._compute(image, keypoints, descriptors)

    def _compute(self, image: Any, keypoints: Any, descriptors: Any = None) -> tuple[Any, Any]:
        _check_writeable(descriptors)
        copies = copy_keypoints(keypoints)
        if image is None or not copies:
            return copies, None
        gray = as_gray(image)
        if not gray.size:
            return copies, None
        extractor = self._extractor
        frames = frames_of(copies, extractor.settings, self._detector)
        if extractor.settings.orient:
            frames = _turned(gray, frames, copies)
        views = views_of(copies) if extractor.settings.views > 1 else None
        X = extractor.describe(gray, frames, views)
        if extractor.settings.drop and not (kept := X.any(axis=1)).all():
            copies, X = tuple(copies[i] for i in np.flatnonzero(kept)), X[kept]
        return copies, _handed_out(X, image, descriptors)

    def frames(self, keypoints: Sequence[cv2.KeyPoint]) -> Frames:
        """Return the frames of keypoints: (N, 4) x, y, size, angle.

        The side of a patch is `settings.side` times this size, the size of the keypoint for SIFT's
        keypoints or if `magnification` is a number.

        >>> KDDescriptor().frames([cv2.KeyPoint(40, 30, 7, -1, 20)])  # of FAST
        array([[40., 30.,  3., -1.]])
        """
        return frames_of(tuple(keypoints), self.settings, self._detector)

    def detectAndCompute(
        self,
        image: Pixels,
        mask: Image | None = ...,
        descriptors: NDArray[Any] | None = None,
        useProvidedKeypoints: bool = False,
    ) -> tuple[KeyPoints, Pixels | None]:
        """Detect and describe one image; `mask` must be given, None for none."""
        if useProvidedKeypoints:
            raise ValueError(
                "useProvidedKeypoints=True does not work from Python, which cannot pass keypoints: "
                "call compute(image, keypoints)"
            )
        if image is None:
            raise TypeError("detectAndCompute takes one image, got None: could the file be read?")
        if isinstance(image, list | tuple):
            raise TypeError(
                f"detectAndCompute takes one image, got {type(image).__name__}; "
                "for a list call detect and compute"
            )
        if mask is ...:  # a missing argument must not hide a missing image
            raise TypeError("detectAndCompute needs a mask, as OpenCV's does: give None for none")
        if self._detector is not None:
            return self.compute(image, self.detect(image, mask), descriptors)
        _check_writeable(descriptors)
        gray = as_gray(image)
        features = self._extractor.extract(gray, as_mask(mask, gray.shape))
        keypoints = to_keypoints(features.frames, features.responses, features.views)
        return keypoints, _handed_out(features.descriptors, image, descriptors)

    def module(self) -> KDModule:
        """Return the torch module (`KDModule`) with the same settings and matrices, for patches."""
        from kd_cv.nn.module import KDModule

        s = self.settings
        return KDModule(s.patch_size, s.kernel, s.whitening, s.weights, s.dim, use=s.use)

    # `type(self)`, because `self.__class__` is OpenCV's.

    def __reduce__(self) -> tuple[Any, ...]:
        if self._detector is not None:
            raise TypeError(
                f"a KDDescriptor with its own detector ({type(self._detector).__name__}) cannot be "
                "pickled, because OpenCV's detectors cannot; pass keypoints to compute instead"
            )
        return _bare, (type(self),), vars(self)

    def __copy__(self: Self) -> Self:
        duplicate = _bare(type(self))
        vars(duplicate).update(vars(self))
        return duplicate

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        return copy.copy(self)

    def write(self, target: PathLike | cv2.FileStorage, name: str | None = None) -> None:
        """Write the settings as YAML, XML or JSON to a path, or to an open cv2.FileStorage."""
        if not isinstance(self.settings.weights, str):
            raise ValueError(
                f"weights given as {type(self.settings.weights).__name__} cannot be written as "
                "settings: save them to a file and give its path"
            )
        from kd_cv.io.settings_files import write_settings

        write_settings(self.getDefaultName(), target, name, self.detection, self.settings)

    def save(self, filename: PathLike) -> None:
        """Write the settings to a file."""
        self.write(filename)

    def read(self, source: PathLike | cv2.FileNode) -> None:
        """Read the settings from a file, or a cv2.FileNode, of `write`."""
        from kd_cv.io.settings_files import read_settings

        name = self.getDefaultName()
        detection = read_settings(name, source, DoGSettings)
        self._extractor = Extractor(read_settings(name, source, Settings), detection)


def _turned(gray: NDArray[Any], frames: Frames, keypoints: KeyPoints) -> Frames:
    """Estimate the strongest angle of frames, and keypoints, that have none."""
    classes = np.array([keypoint.class_id for keypoint in keypoints])
    without = (frames[:, 3] == UPRIGHT) | ((frames[:, 3] == 0) & (classes >= 0))  # KAZE's detect
    turned = np.flatnonzero(without & np.isfinite(frames).all(axis=1) & (frames[:, 2] > 0))
    frames = frames.copy()
    # float32, as keypoints hold angles: described again, they have the same descriptors.
    frames[turned, 3] = dominant_angles(gray, frames[turned]).astype(np.float32)
    for i in turned.tolist():
        keypoints[i].angle = frames[i, 3]
    return frames


def _bare(cls: type[Self]) -> Self:
    return cls.__new__(cls)


def _shown(value: Any) -> str:
    plain = isinstance(value, str | int | float | tuple | None)
    return repr(value) if plain else type(value).__name__


def _check_writeable(descriptors: Any) -> None:
    if isinstance(descriptors, np.ndarray) and not descriptors.flags.writeable:
        raise ValueError("the array given as descriptors is read-only: it cannot be filled")


def _handed_out(X: NDArray[Any], image: Any, out: Any) -> Any:
    """Return descriptors in `out` if it fits, as UMat for a UMat, or None if there are none."""
    if not len(X):
        return None
    if isinstance(image, cv2.UMat):
        return cv2.UMat(X)
    if isinstance(out, np.ndarray) and (out.shape, out.dtype) == (X.shape, X.dtype):
        out[:] = X
        return out
    return X

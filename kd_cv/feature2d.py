"""`KDDescriptor`: the descriptor in the shape of cv2.Feature2D, to stand where cv2.SIFT stands.

It is a plain class: a Python subclass of cv2.Feature2D would crash the interpreter. Method and
argument names are OpenCV's.
"""

import copy
import gzip
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.engine import describe_frames
from kd_cv.descriptor.forks import opencv
from kd_cv.descriptor.frames import (
    MAGNIFICATION,
    as_detectable,
    as_gray,
    as_magnification,
    describable,
    from_keypoints,
)
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.sampling import MAX_SCALES, as_scales
from kd_cv.descriptor.spec import Spec
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING, projection_for

KeyPoints = tuple[cv2.KeyPoint, ...]

TYPES = (cv2.CV_32F, cv2.CV_8U)


# A file of settings has about 500 bytes. OpenCV's parser needs memory that grows with the square of
# the depth of nesting: 32 kB of brackets take 1 GB.
MAX_SETTINGS_BYTES = 8192


@dataclass(frozen=True)
class Settings:
    """The constructor's arguments, checked."""

    patch_size: int
    kernel: str
    whitening: str | None
    weights: Any
    dim: int
    magnification: float
    scales: tuple[float, ...]
    descriptor_type: int
    upright: bool
    drop: bool


class KDDescriptor:
    """Kernel descriptor with the interface of cv2.Feature2D.

    patch_size       samples per side of the patch, 16 to 128
    kernel           "concat" (polar and Cartesian), "polar" or "cart"
    whitening        "ws", "wus", "wua", "w", "pcasqrt", or None for the raw vector
    weights          name of shipped matrices, path of a fitted file, or a fitted Whitening
    dim              dimensions kept by the whitening
    magnification    side of the patch in keypoint sizes, or a name: "sift" (6),
                     "extract_patches" (10), "kornia" (12)
    scales           how many patch sizes to average over, or their factors of the magnification
    descriptor_type  cv2.CV_32F, or cv2.CV_8U for 8-bit descriptors of the same order
    detector         any object with OpenCV's detect(image, mask); cv2.SIFT by default
    upright          ignore the angles of the keypoints
    drop             leave out keypoints that cannot be described (NaN, size <= 0, patch outside
                     the image or without texture) instead of giving them a row of zeros

    >>> kd = KDDescriptor()
    >>> keypoints, descriptors = kd.detectAndCompute(image, None)
    """

    def __init__(
        self,
        patch_size: int = 32,
        kernel: str = "concat",
        whitening: str | None = DEFAULT_WHITENING,
        weights: Any = DEFAULT_WEIGHTS,
        dim: int = 128,
        magnification: float | str = MAGNIFICATION,
        scales: int | Sequence[float] = 1,
        descriptor_type: int = cv2.CV_32F,
        detector: Any = None,
        upright: bool = False,
        drop: bool = False,
    ) -> None:
        if isinstance(descriptor_type, np.ndarray) or descriptor_type not in TYPES:
            raise ValueError(
                f"descriptor_type must be cv2.CV_32F ({cv2.CV_32F}) or cv2.CV_8U ({cv2.CV_8U}), "
                f"got {descriptor_type!r}"
            )
        if detector is not None and not callable(getattr(detector, "detect", None)):
            raise TypeError(
                "detector must have a method detect(image, mask), as OpenCV's detectors do; "
                f"got {type(detector).__name__}"
            )
        spec = Spec(patch_size, kernel)
        projection = projection_for(spec, whitening, weights, dim)
        settings = Settings(
            patch_size=int(patch_size),
            kernel=kernel,
            whitening=whitening,
            weights=os.fspath(weights) if isinstance(weights, os.PathLike) else weights,
            dim=int(dim),
            magnification=as_magnification(magnification),
            scales=as_scales(scales),
            descriptor_type=int(descriptor_type),
            upright=bool(upright),
            drop=bool(drop),
        )
        # Nothing is set before all is checked: a `read` that fails changes nothing.
        self._spec, self._projection, self._settings = spec, projection, settings
        self._detector = detector

    @classmethod
    def create(cls, *args: Any, **kwargs: Any) -> "KDDescriptor":
        """As OpenCV's factories are called."""
        return cls(*args, **kwargs)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # isinstance(kd, cv2.Feature2D) holds, without the crashes of a real subclass.
        return cv2.Feature2D

    def __repr__(self) -> str:
        s = self._settings
        weights = s.weights if isinstance(s.weights, str) else type(s.weights).__name__
        whitening = f"whitening={s.whitening!r}, weights={weights!r}, " if s.whitening else ""
        return (
            f"KDDescriptor(patch_size={s.patch_size}, kernel={s.kernel!r}, {whitening}"
            f"dim={self.descriptorSize()}, magnification={s.magnification:g}, scales={s.scales})"
        )

    @property
    def spec(self) -> Spec:
        """Which raw descriptor this is."""
        return self._spec

    @property
    def projection(self) -> Projection | None:
        """Mean and matrix of the whitening, or None."""
        return self._projection

    @property
    def settings(self) -> Settings:
        """The constructor's arguments."""
        return self._settings

    # What it is, in OpenCV's words

    def descriptorSize(self) -> int:
        return self._projection.dim if self._projection else self._spec.dim

    def descriptorType(self) -> int:
        return self._settings.descriptor_type

    def defaultNorm(self) -> int:
        return cv2.NORM_L2

    def getDefaultName(self) -> str:
        return "Feature2D.KD"

    def empty(self) -> bool:
        # As cv2.SIFT answers: there is no state to lose.
        return True

    def clear(self) -> None:
        """Forget what was learned from data: nothing here is, as in cv2.SIFT."""

    # Keypoints

    def detect(self, image: Any, mask: Any = None) -> Any:
        """Keypoints of an image, or a tuple of them for each of a list of images."""
        if isinstance(image, list | tuple):
            masks = _as_list(mask, len(image), "masks")
            return tuple(self._detect(im, m) for im, m in zip(image, masks, strict=True))
        return self._detect(image, mask)

    def _detect(self, image: Any, mask: Any) -> KeyPoints:
        if image is None:
            return ()
        gray = as_gray(image)
        mask = _as_mask(mask, gray.shape)
        if not gray.size:
            return ()
        if self._detector is not None:
            return copy_keypoints(self._detector.detect(as_detectable(gray), mask))
        with opencv:
            return copy_keypoints(cv2.SIFT_create().detect(as_detectable(gray), mask))

    def compute(self, image: Any, keypoints: Any, descriptors: Any = None) -> tuple[Any, Any]:
        """Keypoints, in their order, and their descriptors (N, D); None if there are none.

        Lists of images and of keypoints give a tuple of each. A `descriptors` array of the right
        shape and type is filled in place.
        """
        if isinstance(image, list | tuple):
            keypoints = _as_list(keypoints, len(image), "lists of keypoints")
            results = [self._compute(im, kps) for im, kps in zip(image, keypoints, strict=True)]
            return tuple(kps for kps, _ in results), tuple(rows for _, rows in results)
        return self._compute(image, keypoints, descriptors)

    def _compute(self, image: Any, keypoints: Any, descriptors: Any = None) -> tuple[Any, Any]:
        if isinstance(descriptors, np.ndarray) and not descriptors.flags.writeable:
            raise ValueError("the array given as descriptors is read-only: it cannot be filled")
        copies = copy_keypoints(keypoints)
        if image is None or not copies:
            return copies, None
        gray = as_gray(image)
        if not gray.size:
            return copies, None
        frames = from_keypoints(copies)
        if self._settings.upright:
            frames[:, 3] = -1.0
        if self._settings.drop:
            largest = self._settings.magnification * max(self._settings.scales)
            kept = np.flatnonzero(describable(frames, gray.shape, largest))
            frames = frames[kept]
        rows = describe_frames(
            gray,
            frames,
            self._spec,
            magnification=self._settings.magnification,
            scales=self._settings.scales,
            projection=self._projection,
        )
        if self._settings.drop:
            textured = rows.any(axis=1)
            rows, kept = rows[textured], kept[textured]
            copies = tuple(copies[i] for i in kept)
            if not copies:
                return (), None
        if self._settings.descriptor_type == cv2.CV_8U:
            rows = as_uint8(rows)  # type: ignore[assignment]
        if isinstance(image, cv2.UMat):
            return copies, cv2.UMat(rows)
        if (
            isinstance(descriptors, np.ndarray)
            and descriptors.shape == rows.shape
            and descriptors.dtype == rows.dtype
        ):
            descriptors[:] = rows
            return copies, descriptors
        return copies, rows

    def detectAndCompute(
        self,
        image: Any,
        mask: Any,
        descriptors: Any = None,
        useProvidedKeypoints: bool = False,
    ) -> tuple[Any, Any]:
        """Keypoints of one image and their descriptors."""
        if useProvidedKeypoints:
            raise ValueError(
                "useProvidedKeypoints=True has no way to take keypoints in Python: "
                "call compute(image, keypoints)"
            )
        if image is None or isinstance(image, list | tuple):
            raise TypeError(
                f"detectAndCompute takes one image, got {type(image).__name__}; "
                "for a list call detect and compute"
            )
        return self.compute(image, self.detect(image, mask), descriptors)

    # The same descriptor elsewhere

    def module(self) -> Any:
        """The torch module (`KDModule`) with the same settings, for patches."""
        from kd_cv.nn.module import KDModule

        s = self._settings
        return KDModule(s.patch_size, s.kernel, s.whitening, s.weights, s.dim)

    # Copies and files

    def __reduce__(self) -> tuple[Any, ...]:
        if self._detector is not None:
            raise TypeError(
                f"a KDDescriptor with its own detector ({type(self._detector).__name__}) cannot be "
                "pickled, because OpenCV's detectors cannot; pass keypoints to compute instead"
            )
        return _rebuild, (self._arguments(),)

    def __copy__(self) -> "KDDescriptor":
        return KDDescriptor(**self._arguments(), detector=self._detector)

    def __deepcopy__(self, memo: dict[int, Any]) -> "KDDescriptor":
        return KDDescriptor(**copy.deepcopy(self._arguments(), memo), detector=self._detector)

    def _arguments(self) -> dict[str, Any]:
        return dict(vars(self._settings))

    def write(self, target: Any, name: str | None = None) -> None:
        """Settings as YAML, XML or JSON: to a path, or to an open cv2.FileStorage."""
        if not isinstance(self._settings.weights, str):
            raise ValueError(
                f"weights given as {type(self._settings.weights).__name__} cannot be written as "
                "settings: save them to a file and give its path"
            )
        if not isinstance(target, cv2.FileStorage):
            from kd_cv.io.files import replacing

            with replacing(target) as temporary:
                storage = cv2.FileStorage(str(temporary), cv2.FILE_STORAGE_WRITE)
                self.write(storage, name or "feature2d")
                storage.release()
            return
        storage = target
        if name:
            storage.startWriteStruct(name, cv2.FileNode_MAP)
        storage.write("name", self.getDefaultName())
        for key, value in self._arguments().items():
            storage.write(key, _storable(value))
        if name:
            storage.endWriteStruct()

    def save(self, filename: Any) -> None:
        """The same as write(filename)."""
        self.write(filename)

    def read(self, source: Any) -> None:
        """Take the settings from a file, or a cv2.FileNode, that `write` made."""
        storage = None if isinstance(source, cv2.FileNode) else _settings_storage(source)
        node = source if storage is None else storage.getNode("feature2d")
        if not node.isMap() or node.getNode("name").string() != self.getDefaultName():
            raise ValueError(f"no settings of {self.getDefaultName()} in {source!r}")
        text = {key: node.getNode(key).string() for key in ("kernel", "whitening", "weights")}
        number = {
            key: node.getNode(key).real()
            for key in ("patch_size", "dim", "magnification", "descriptor_type", "upright", "drop")
        }
        if not np.isfinite(list(number.values())).all():
            raise ValueError(f"the settings in {source!r} must be finite numbers, got {number}")
        self.__init__(  # type: ignore[misc]
            patch_size=int(number["patch_size"]),
            kernel=text["kernel"],
            whitening=text["whitening"] or None,
            weights=text["weights"],
            dim=int(number["dim"]),
            magnification=number["magnification"],
            scales=_stored_scales(node.getNode("scales")),
            descriptor_type=int(number["descriptor_type"]),
            upright=bool(number["upright"]),
            drop=bool(number["drop"]),
            detector=self._detector,
        )


def _settings_storage(path: Any) -> Any:
    """A file of settings, which may be packed by gzip, opened; its nodes live as long as it."""
    path = str(path)
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise OSError(f"cannot read {path!r}: {error.strerror}") from error
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            data = file.read(MAX_SETTINGS_BYTES + 1)
        if len(data) > MAX_SETTINGS_BYTES:
            raise ValueError(f"it has more than {MAX_SETTINGS_BYTES} bytes")
        flags = cv2.FILE_STORAGE_READ | cv2.FILE_STORAGE_MEMORY
        storage = cv2.FileStorage(data.decode("utf-8"), flags)
        storage.getNode("feature2d")  # an error if the file is not a map
        return storage
    # OpenCV's parser, by version; and gzip's
    except (cv2.error, SystemError, ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path!r} is not YAML, XML or JSON of settings: {error}") from error


def _stored_scales(node: Any) -> tuple[float, ...]:
    """The numbers of a stored matrix; () if it is none. It is not made: it may claim any size."""
    data = node.getNode("data") if node.isMap() else node
    if data.isReal() or data.isInt():  # a sequence of one, as XML has it
        return (data.real(),)
    if not data.isSeq() or data.size() > MAX_SCALES:
        return ()
    return tuple(data.at(k).real() for k in range(data.size()))


def _storable(value: Any) -> Any:
    """A setting as cv2.FileStorage takes it: None as an empty string, a tuple as a matrix."""
    if isinstance(value, tuple):
        return np.array(value, dtype=np.float64)
    return "" if value is None else int(value) if isinstance(value, bool) else value


def _rebuild(arguments: dict[str, Any]) -> KDDescriptor:
    return KDDescriptor(**arguments)


def as_uint8(rows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Unit rows as bytes, 128 standing for 0: distances keep their order.

    A unit vector of D dimensions has components of about 1 / sqrt(D); the byte range covers 7 times
    that on either side, because the first components of whitened vectors are so large, and one
    that is cut off costs more than coarser steps. Rows of zeros stay zeros.
    """
    step = np.float32(18.0 * np.sqrt(rows.shape[1]))
    levels = np.clip(np.rint(rows * step + 128), 0, 255)
    return np.where(rows.any(axis=1, keepdims=True), levels, 0).astype(np.uint8)


@lru_cache(maxsize=1)
def _copier() -> cv2.Feature2D:
    return cv2.FastFeatureDetector_create()


def copy_keypoints(keypoints: Any) -> KeyPoints:
    """New KeyPoint objects with the values of the given ones; () for None."""
    if keypoints is None:
        return ()
    try:
        # OpenCV hands back copies of the keypoints when the image is empty: no Python loop.
        copies, _ = _copier().compute(None, keypoints)
    except (cv2.error, TypeError, SystemError) as error:  # SystemError: a sequence that raises
        kind = type(keypoints).__name__
        raise TypeError(f"keypoints must be a sequence of cv2.KeyPoint, got {kind}") from error
    if None in keypoints:  # to OpenCV, a keypoint of size 0
        raise TypeError("keypoints must be a sequence of cv2.KeyPoint, got None among them")
    return tuple(copies)


def _as_list(values: Any, count: int, what: str) -> Sequence[Any]:
    if values is None and what == "masks":
        return [None] * count
    if not isinstance(values, list | tuple) or len(values) != count:
        given = len(values) if isinstance(values, list | tuple) else type(values).__name__
        raise ValueError(f"{count} images need as many {what}, got {given}")
    return values


def _as_mask(mask: Any, shape: tuple[int, ...]) -> NDArray[np.uint8] | None:
    if mask is None:
        return None
    if isinstance(mask, cv2.UMat):
        mask = mask.get()
    if not isinstance(mask, np.ndarray) or mask.dtype != np.uint8:
        given = mask.dtype if isinstance(mask, np.ndarray) else type(mask).__name__
        raise TypeError(f"a mask must be a uint8 array, got {given}")
    if mask.shape[:2] != tuple(shape) or mask.size != shape[0] * shape[1]:
        raise ValueError(f"a mask must have the shape of its image, {shape}, got {mask.shape}")
    return mask.reshape(shape)

"""From a gray image to keypoints and descriptors, as arrays: the one way of every interface.

`KDDescriptor`, `KDFeature` on the CPU, `match` and collections call `Extractor` and convert its
arrays to what they return: cv2.KeyPoint objects, LAFs, HDF5 datasets.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.descriptor.describer import Describer
from kd_cv.descriptor.frames import Frames, Squares, squares_of, upright_frames
from kd_cv.descriptor.patches import Pyramid, sample_squares
from kd_cv.detector.detect import detect
from kd_cv.detector.settings import DoGSettings
from kd_cv.gray import in_range
from kd_cv.settings import Settings
from kd_cv.types import Array32, Descriptors, Mask
from kd_cv.views import View, count_for, to_image, to_view, view_of
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING, Weights


class Keypoints(NamedTuple):
    """Keypoints of an image, the strongest first.

    frames     (N, 4) x, y, size, angle (see `descriptor.frames`)
    responses  (N,)
    views      (N,) the view of each (see `views`), 0 for the image itself
    """

    frames: Frames
    responses: NDArray[np.float64]
    views: NDArray[np.int64]


class Features(NamedTuple):
    """Keypoints of an image, the strongest first, and their descriptors.

    frames, responses, views  as in `Keypoints`
    descriptors               (N, D) float32, or uint8 with cv2.CV_8U
    """

    frames: Frames
    responses: NDArray[np.float64]
    descriptors: Descriptors
    views: NDArray[np.int64]

    def select(self, kept: Mask) -> "Features":
        """Return the features where `kept` (N,) is true."""
        return Features(
            self.frames[kept], self.responses[kept], self.descriptors[kept], self.views[kept]
        )


Part = TypeVar("Part", Keypoints, Features)


def strongest_first(parts: list[Part]) -> Part:
    """Join the keypoints of all views, the strongest first."""
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(-np.concatenate([part.responses for part in parts]), kind="stable")
    columns: Any = (np.concatenate(column)[order] for column in zip(*parts, strict=True))
    return type(parts[0])(*columns)


@dataclass(frozen=True)
class Extractor:
    """Detector and descriptor with fixed settings; its constants are computed once.

    settings   of the descriptor
    detection  of the detector
    describer  in place of the one of the settings, for matrices that were trained in a module

    >>> features = Extractor(detection=DoGSettings(nfeatures=500)).extract(gray)
    >>> features.frames.shape, features.descriptors.shape
    ((500, 4), (500, 128))
    """

    settings: Settings = field(default_factory=Settings)
    detection: DoGSettings = field(default_factory=DoGSettings)
    describer: Describer | None = field(default=None, compare=False)

    def extract(self, gray: NDArray[Any], mask: NDArray[np.uint8] | None = None) -> Features:
        """Detect and describe keypoints of a gray image (see `as_gray`), where the mask is not 0.

        Detection, orientation and description of a view share one pyramid.
        """
        parts = []
        for view, count in enumerate(count_for(self.detection.nfeatures, self.settings.views)):
            seen = view_of(gray, view, mask)
            pyramid = Pyramid.of(seen.image)
            frames, responses, views = self._detect(seen, view, count, pyramid)
            descriptors = self._describe(pyramid, self._in_view(frames, gray.shape, view))
            parts.append(Features(frames, responses, descriptors, views))
        features = strongest_first(parts)
        kept = np.asarray(features.descriptors.any(axis=1))
        return features if kept.all() or not self.settings.drop else features.select(kept)

    def detect(self, gray: NDArray[Any], mask: NDArray[np.uint8] | None = None) -> Keypoints:
        """Detect keypoints only."""
        counts = count_for(self.detection.nfeatures, self.settings.views)
        return strongest_first(
            [self._detect(view_of(gray, v, mask), v, count) for v, count in enumerate(counts)]
        )

    def _detect(
        self, seen: View, view: int, count: int, pyramid: Pyramid | None = None
    ) -> Keypoints:
        """Detect the `count` strongest keypoints of one view, in the pixels of the image."""
        frames, responses = detect(
            seen.image,
            self.detection.space,
            count=count,
            mask=seen.mask,
            upright=self.settings.upright,
            pyramid=pyramid,
        )
        if view:  # in float32, as OpenCV's keypoints hold them: so `describe` finds the same patch
            frames = to_image(frames, seen).astype(np.float32).astype(np.float64)
            frames = upright_frames(frames) if self.settings.upright else frames
        return Keypoints(frames, responses, np.full(len(frames), view))

    def describe(
        self, gray: NDArray[Any], frames: Frames, views: NDArray[np.int64] | None = None
    ) -> Descriptors:
        """Describe frames (N, 4) of a gray image: (N, D), zeros where there is no patch.

        views (N,) are those of `detect`; None stands for the image itself.
        """
        if views is None or not views.any():
            return self._describe(gray, self._in_view(frames, gray.shape, 0))
        kind = np.uint8 if self.settings.descriptor_type == cv2.CV_8U else np.float32
        descriptors = np.empty((len(frames), self._describer.dim), kind)
        for view in np.unique(views).tolist():
            those, seen = views == view, view_of(gray, view)
            in_view = self._in_view(frames[those], gray.shape, view)
            descriptors[those] = self._describe(seen.image, in_view)
        return descriptors

    def describe_patches(self, patches: NDArray[Any]) -> Descriptors:
        """Describe patches (N, P, P) that are cut out already, uint8 or float in 0..1: (N, D)."""
        return self._encode(self._patch_describer.of_patches(patches))

    def _describe(self, gray: NDArray[Any] | Pyramid, frames: Frames) -> Descriptors:
        return self._encode(self._describer.at_squares(gray, self._squares(gray.shape, frames)))

    def patches(self, gray: NDArray[Any], frames: Frames) -> Array32:
        """Cut out the patches that are described, at each scale: (N, S, P, P)."""
        squares = self._squares(gray.shape, self._in_view(frames, gray.shape, 0))
        return sample_squares(gray, squares, self.settings.patch_size)

    def _in_view(self, frames: Frames, shape: tuple[int, int], view: int) -> Frames:
        """Frames (N, 4) of the image as they are in a view."""
        frames = upright_frames(frames) if self.settings.upright else frames
        return to_view(frames, shape, view)

    def _squares(self, shape: tuple[int, int], frames: Frames) -> Squares:
        return squares_of(frames, shape, self.settings.side, self.settings.scales)

    @cached_property
    def _describer(self) -> Describer:
        return self.describer or Describer(self.settings.spec, self.settings.projection)

    @cached_property
    def _patch_describer(self) -> Describer:
        return Describer(self.settings.spec, self.settings.patch_projection)

    def _encode(self, descriptors: Array32) -> Descriptors:
        return to_uint8(descriptors) if self.settings.descriptor_type == cv2.CV_8U else descriptors


def describe(
    patches: ArrayLike,
    *,
    patch_size: int | None = None,
    kernel: str = "concat",
    whitening: str | None = DEFAULT_WHITENING,
    weights: Weights = DEFAULT_WEIGHTS,
    dim: int = 128,
) -> Array32:
    """Describe patches (N, P, P), uint8 or float in 0..1: (N, D).

    `patch_size`, if given, must be the patches' own; the other keywords are those of
    `KDDescriptor`. A patch without texture gets a zero descriptor.

    >>> describe(np.zeros((5, 32, 32), np.uint8), whitening=None).shape
    (5, 238)
    """
    patches = np.asarray(patches)
    if patches.ndim != 3 or patches.shape[1] != patches.shape[2]:
        hint = ""
        if patches.ndim == 4 and patches.shape[1] == 1:
            hint = ": take patches[:, 0], or give tensors (B, 1, P, P) to KDModule"
        raise ValueError(f"patches must have shape (N, P, P), got {patches.shape}{hint}")
    if patches.dtype != np.uint8 and patches.dtype.kind != "f":
        raise TypeError(f"patches must be uint8 or float, got {patches.dtype}")
    if patch_size is not None and patch_size != patches.shape[1]:
        raise ValueError(f"patch_size is {patch_size}, but the patches are {patches.shape[1:]}")
    if patches.dtype.kind == "f":
        with np.errstate(over="ignore"):  # infinity is refused
            patches = in_range(patches.astype(np.float32, copy=False), "float patches")
    settings = Settings(patches.shape[1], kernel, whitening, weights, dim)
    return Extractor(settings).describe_patches(patches)


def to_uint8(descriptors: Array32) -> NDArray[np.uint8]:
    """Encode unit descriptors (N, D) as bytes, 128 standing for 0: distances keep their order.

    A component of a unit vector is about 1 / sqrt(D). The byte range covers 7 times that on either
    side: the first components of whitened vectors are that large, and clipping costs more accuracy
    than coarser steps. Zero descriptors stay zero.
    """
    step = np.float32(18.0 * np.sqrt(descriptors.shape[1]))
    levels = np.clip(np.rint(descriptors * step + 128), 0, 255)
    return np.where(descriptors.any(axis=1, keepdims=True), levels, 0).astype(np.uint8)

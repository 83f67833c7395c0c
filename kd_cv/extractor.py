"""From a gray image to keypoints and descriptors as arrays.

`KDDescriptor`, `KDFeature` on the CPU, `match` and collections call `Extractor` and convert its
arrays to cv2.KeyPoint objects, LAFs or HDF5 datasets.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.descriptor.describer import Describer
from kd_cv.descriptor.frames import Frames, PatchRegions, patch_regions, upright_frames
from kd_cv.descriptor.patches import Pyramid, sample_regions
from kd_cv.detector.detect import detect
from kd_cv.detector.settings import DoGSettings
from kd_cv.gray import in_range
from kd_cv.settings import Settings
from kd_cv.types import Array32, Descriptors, Mask
from kd_cv.views import View, count_for, repeated, to_image, to_view, view_of
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
        return Features(
            self.frames[kept], self.responses[kept], self.descriptors[kept], self.views[kept]
        )


@dataclass(frozen=True)
class Extractor:
    """Detect and describe with fixed settings; constants are computed once.

    settings   of the descriptor
    detection  of the detector
    describer  with matrices that were trained in a module, instead of those of the settings

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
        seen = [view_of(gray, view, mask) for view in range(self.settings.views)]
        pyramids = [Pyramid.of(view.image) for view in seen]
        frames, responses, views = self._detect(seen, pyramids)
        descriptors = self._describe(pyramids, gray.shape, frames, views)
        features = Features(frames, responses, descriptors, views)
        kept = np.asarray(descriptors.any(axis=1))
        return features if kept.all() or not self.settings.drop else features.select(kept)

    def detect(self, gray: NDArray[Any], mask: NDArray[np.uint8] | None = None) -> Keypoints:
        """Detect keypoints only."""
        return self._detect([view_of(gray, view, mask) for view in range(self.settings.views)])

    def _detect(self, seen: list[View], pyramids: list[Pyramid] | None = None) -> Keypoints:
        count, several, parts = self.detection.nfeatures, len(seen) > 1, []
        for view, limit in enumerate(count_for(count, len(seen))):
            frames, responses = detect(
                seen[view].image,
                self.detection.space,
                count=limit,
                mask=seen[view].mask,
                upright=self.settings.upright,
                pyramid=pyramids[view] if pyramids else None,
            )
            if view:  # in float32, as cv2.KeyPoint: so `describe` finds the same patch
                frames = to_image(frames, seen[view]).astype(np.float32).astype(np.float64)
                frames = upright_frames(frames) if self.settings.upright else frames
            parts.append((frames, responses, np.full(len(frames), view)))
        if not several:
            return Keypoints(*parts[0])
        frames, responses, views = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(-responses, kind="stable")
        order = order[~repeated(frames[order], views[order])][: count or None]
        return Keypoints(frames[order], responses[order], views[order])

    def describe(
        self, gray: NDArray[Any], frames: Frames, views: NDArray[np.int64] | None = None
    ) -> Descriptors:
        """Describe frames (N, 4) of a gray image: (N, D), zeros where there is no patch.

        views (N,) are those of `detect`; None means the image itself.
        """
        views = np.zeros(len(frames), np.int64) if views is None else views
        images = [view_of(gray, view).image for view in range(1 + views.max(initial=0))]
        return self._describe(images, gray.shape, frames, views)

    def _describe(
        self,
        images: Sequence[NDArray[Any] | Pyramid],
        shape: tuple[int, int],
        frames: Frames,
        views: NDArray[np.int64],
    ) -> Descriptors:
        """Describe frames (N, 4) of an image of `shape`, each in its view."""
        frames = upright_frames(frames) if self.settings.upright else frames
        if len(images) == 1:
            return self._in_view(images[0], frames)
        parts = []
        for view, image in enumerate(images):
            those = np.flatnonzero(views == view)
            parts.append((those, self._in_view(image, to_view(frames[those], shape, view))))
        descriptors = np.empty((len(frames), self._describer.dim), parts[0][1].dtype)
        for those, values in parts:
            descriptors[those] = values
        return descriptors

    def _in_view(self, image: NDArray[Any] | Pyramid, frames: Frames) -> Descriptors:
        return self._encode(self._describer.at_regions(image, self._regions(image.shape, frames)))

    def describe_patches(self, patches: NDArray[Any]) -> Descriptors:
        """Describe patches (N, P, P), uint8 or float in 0..1: (N, D)."""
        return self._encode(self._patch_describer.of_patches(patches))

    def patches(
        self, gray: NDArray[Any], frames: Frames, views: NDArray[np.int64] | None = None
    ) -> Array32:
        """Sample the patches of frames at each scale: (N, S, P, P). See `describe`."""
        frames = upright_frames(frames) if self.settings.upright else frames
        views = np.zeros(len(frames), np.int64) if views is None else views
        size = self.settings.patch_size
        patches = np.empty((len(frames), len(self.settings.scales), size, size), np.float32)
        for view in np.unique(views):
            those, image = views == view, view_of(gray, view).image
            regions = self._regions(image.shape, to_view(frames[those], gray.shape, view))
            patches[those] = sample_regions(image, regions, size)
        return patches

    def _regions(self, shape: tuple[int, int], frames: Frames) -> PatchRegions:
        return patch_regions(frames, shape, self.settings.side, self.settings.scales)

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

    A component of a unit vector is about 1 / sqrt(D); the bytes cover 7 times that on either side,
    because clipping the large first components of whitened vectors costs more accuracy than coarser
    steps. Zero descriptors stay zero.
    """
    step = np.float32(18.0 * np.sqrt(descriptors.shape[1]))
    levels = np.clip(np.rint(descriptors * step + 128), 0, 255)
    return np.where(descriptors.any(axis=1, keepdims=True), levels, 0).astype(np.uint8)

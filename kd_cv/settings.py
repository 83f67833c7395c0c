"""`Settings`: all that decides a descriptor, and the one way from it to rows; `describe`: rows of
patches that are cut out already.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kd_cv.descriptor.describer import Describer
from kd_cv.descriptor.frames import (
    MAGNIFICATION,
    Frames,
    Squares,
    as_magnification,
    squares_of,
    upright_frames,
)
from kd_cv.descriptor.patches import Pyramid, as_scales, sample_squares
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.gray import in_range
from kd_cv.io.archive import canonical_json
from kd_cv.io.files import digest
from kd_cv.keypoints import from_keypoints, of_sift
from kd_cv.opencv.patch_sizes import is_affine, windows
from kd_cv.types import Array32, Detector, KeyPoints
from kd_cv.whitening.files import Use, use_of_images
from kd_cv.whitening.registry import (
    DEFAULT_WEIGHTS,
    DEFAULT_WHITENING,
    Weights,
    projection_for,
    resolve,
)

Rows = NDArray[Any]  # float32, or uint8 with cv2.CV_8U

TYPES = (cv2.CV_32F, cv2.CV_8U)

#: Kornia's names of the arguments that `KDModule` and `KDDescriptor` share with MKDDescriptor.
KORNIA = {"kernel_type": "kernel", "output_dims": "dim", "training_set": "weights"}
Init = TypeVar("Init", bound=Callable[..., None])


@dataclass(frozen=True)
class Settings:
    """The arguments of `KDDescriptor`, checked, each in one form.

    A magnification given by its name becomes a number, or None if the window is that of the
    detector of each keypoint; a count of scales becomes their factors.

    >>> settings = Settings(patch_size=24, whitening=None, scales=3)
    >>> settings.descriptor_size, settings.scales
    (238, (0.625, 1.0, 1.6))
    """

    patch_size: int = 32
    kernel: str = "concat"
    whitening: str | None = DEFAULT_WHITENING
    weights: Weights = DEFAULT_WEIGHTS
    dim: int = 128
    magnification: float | None = None
    scales: tuple[float, ...] = (1.0,)
    descriptor_type: int = cv2.CV_32F
    upright: bool = False
    orient: bool = False
    drop: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.descriptor_type, np.ndarray) or self.descriptor_type not in TYPES:
            raise ValueError(
                f"descriptor_type must be cv2.CV_32F ({cv2.CV_32F}) or cv2.CV_8U ({cv2.CV_8U}), "
                f"got {self.descriptor_type!r}"
            )
        object.__setattr__(self, "scales", as_scales(self.scales))
        self.projection  # noqa: B018  (checks patch_size, kernel, whitening, weights and dim)
        weights, side = self.weights, self.magnification
        if side is not None:  # else the window is that of the detector of each keypoint
            side = None if side == "auto" else as_magnification(side)
        canonical = {
            "patch_size": int(self.patch_size),
            "weights": os.fspath(weights) if isinstance(weights, os.PathLike) else weights,
            "dim": int(self.dim),
            "magnification": side,
            "descriptor_type": int(self.descriptor_type),
            "upright": bool(self.upright),
            "orient": bool(self.orient),
            "drop": bool(self.drop),
        }
        for name, value in canonical.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments alone: matrices that have a name need not travel.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def spec(self) -> Spec:
        """Which raw descriptor this is."""
        return Spec(self.patch_size, self.kernel)

    @cached_property
    def projection(self) -> Projection | None:
        """Mean and matrix of the whitening, for images; None without one."""
        return projection_for(self.spec, self.whitening, self.weights, self.dim, self.use)

    @cached_property
    def patch_projection(self) -> Projection | None:
        """The same for patches that are cut out already, for which weights may have others."""
        return projection_for(self.spec, self.whitening, self.weights, self.dim, "patches")

    @cached_property
    def variant(self) -> str | None:
        """The name of the whitening: of "best", that of the best one that the weights have."""
        return self._variant(self.use)

    @cached_property
    def variant_of_patches(self) -> str | None:
        """The same for patches; None too if the weights have no such whitening for them."""
        return self._variant("patches")

    def _variant(self, use: Use) -> str | None:
        if self.whitening is None:
            return None
        fitted = resolve(self.weights, self.kernel, self.patch_size, self.spec.dim, use)
        variant = fitted.variant(self.whitening)
        return variant if fitted.has(variant) else None

    @property
    def use(self) -> Use:
        """Which of the matrices of the weights are right for images: see `resolve`."""
        return use_of_images(self.scales)

    @property
    def raw(self) -> "Settings":
        """The same descriptor before its whitening, as matrices are fitted on it."""
        return replace(self, whitening=None, descriptor_type=cv2.CV_32F)

    @property
    def descriptor_size(self) -> int:
        """Length of a row."""
        return self.projection.dim if self.projection else self.spec.dim

    @property
    def side(self) -> float:
        """Side of a patch, in sizes of its frame."""
        return MAGNIFICATION if self.magnification is None else self.magnification

    @cached_property
    def record(self) -> dict[str, Any]:
        """All that decides the rows, as JSON can hold it: the matrices by a digest of them.

        A name or a path may stand for other matrices tomorrow.
        """
        p, of_patches = self.projection, self.variant_of_patches and self.patch_projection
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "whitening": self.variant,
            "weights": p.digest if p else None,
            "weights_of_patches": of_patches.digest if of_patches else None,
            "dim": self.descriptor_size,
            "magnification": self.side,
            "scales": list(self.scales),
        }

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all that decides the rows: equal for equal rows, on every machine."""
        return digest(canonical_json(self.record).encode(), 32)

    def frames(self, keypoints: KeyPoints, detector: Detector | None = None) -> Frames:
        """Frames (N, 4) of keypoints, of sizes such that each has its window (see `windows`).

        detector  of keypoints that do not show which one made them
        """
        frames = from_keypoints(keypoints)
        if self.magnification is not None:
            return frames
        affine = detector is not None and is_affine(detector)
        others = np.flatnonzero(~of_sift(keypoints) | affine)
        if len(others):
            sides = windows([keypoints[i] for i in others], detector)
            frames[others, 2] *= sides / MAGNIFICATION
        return frames

    def rows(self, gray: NDArray[Any] | Pyramid, frames: Frames) -> Rows:
        """Rows (N, D) at frames (N, 4) of a gray image (see `as_gray`); zeros without a patch."""
        return self._stored(self._describer.at_squares(gray, self._squares(gray.shape, frames)))

    def rows_of_patches(self, patches: NDArray[Any]) -> Rows:
        """Rows (N, D) of patches (N, P, P) that are cut out already, uint8 or float in 0..1."""
        return self._stored(self._patch_describer.of_patches(patches))

    def patches(self, gray: NDArray[Any], frames: Frames) -> Array32:
        """What is seen of a gray image at frames (N, 4), at each scale: (N, S, P, P)."""
        return sample_squares(gray, self._squares(gray.shape, frames), self.patch_size)

    def _squares(self, shape: tuple[int, int], frames: Frames) -> Squares:
        frames = upright_frames(frames) if self.upright else frames
        return squares_of(frames, shape, self.side, self.scales)

    @cached_property
    def _describer(self) -> Describer:
        return Describer(self.spec, self.projection)

    @cached_property
    def _patch_describer(self) -> Describer:
        return Describer(self.spec, self.patch_projection)

    def _stored(self, rows: Array32) -> Rows:
        return as_uint8(rows) if self.descriptor_type == cv2.CV_8U else rows


def as_uint8(rows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Unit rows as bytes, 128 standing for 0: distances keep their order.

    A unit vector of D dimensions has components of about 1 / sqrt(D); the byte range covers 7 times
    that on either side, because the first components of whitened vectors are so large, and one
    that is cut off costs more than coarser steps. Rows of zeros stay zeros.
    """
    step = np.float32(18.0 * np.sqrt(rows.shape[1]))
    levels = np.clip(np.rint(rows * step + 128), 0, 255)
    return np.where(rows.any(axis=1, keepdims=True), levels, 0).astype(np.uint8)


def describe(
    patches: ArrayLike,
    *,
    patch_size: int | None = None,
    kernel: str = "concat",
    whitening: str | None = DEFAULT_WHITENING,
    weights: Weights = DEFAULT_WEIGHTS,
    dim: int = 128,
) -> Array32:
    """Descriptors (N, D) of patches (N, P, P), uint8 or float in 0..1.

    `patch_size`, if given, must be the patches' own; the other keywords are those of
    `KDDescriptor`. A patch without texture gives a row of zeros.

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
    return settings.rows_of_patches(patches)


def understands_kornia(init: Init) -> Init:
    """Let a constructor take the arguments of kornia.feature.MKDDescriptor by their names there."""

    @wraps(init)
    def with_either(self: Any, *arguments: Any, **named: Any) -> None:
        for theirs, ours in KORNIA.items():
            if theirs in named:
                if ours in named:
                    raise TypeError(f"{theirs} is another name of {ours}: give only one of them")
                named[ours] = named.pop(theirs)
        init(self, *arguments, **named)

    return with_either  # type: ignore[return-value]

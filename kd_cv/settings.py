"""`Settings`: everything that decides a descriptor, checked."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, wraps
from typing import Any, TypeVar

import cv2
import numpy as np

from kd_cv.checks import as_bool
from kd_cv.descriptor.frames import MAGNIFICATION, as_magnification
from kd_cv.descriptor.patches import as_scales
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.io.archive import canonical_json
from kd_cv.io.files import digest
from kd_cv.views import VIEWS
from kd_cv.whitening.files import Use, use_of_images
from kd_cv.whitening.registry import (
    DEFAULT_WEIGHTS,
    DEFAULT_WHITENING,
    Weights,
    projection_for,
    read_weights,
    registry,
    resolve,
)

TYPES = (cv2.CV_32F, cv2.CV_8U)

#: Other names of arguments: those of kornia.feature.MKDDescriptor and of cv2.SIFT_create.
ALIASES = {
    "kernel_type": "kernel",
    "output_dims": "dim",
    "training_set": "weights",
    "descriptorType": "descriptor_type",
}
Init = TypeVar("Init", bound=Callable[..., None])


@dataclass(frozen=True)
class Settings:
    """The arguments of `KDDescriptor`, checked: numbers for names, factors for a count of scales.

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
    drop: bool = True
    views: int = 1
    matrices: Any = field(default=None, repr=False, compare=False)  # weights, their entries

    def __post_init__(self) -> None:
        if isinstance(self.descriptor_type, np.ndarray) or self.descriptor_type not in TYPES:
            raise ValueError(
                f"descriptor_type must be cv2.CV_32F ({cv2.CV_32F}) or cv2.CV_8U ({cv2.CV_8U}), "
                f"got {self.descriptor_type!r}"
            )
        if self.views not in VIEWS:
            raise ValueError(f"views must be one of {list(VIEWS)}, got {self.views!r}")
        object.__setattr__(self, "scales", as_scales(self.scales))
        weights = os.fspath(self.weights) if isinstance(self.weights, os.PathLike) else self.weights
        if not isinstance(weights, str) or self.whitening is None:
            object.__setattr__(self, "matrices", (weights, weights))
        elif self.matrices is None or self.matrices[0] != weights:
            object.__setattr__(self, "matrices", (weights, read_weights(weights)))
        self.projection  # noqa: B018  (checks patch_size, kernel, whitening, weights and dim)
        side = self.magnification
        if side is not None:  # else it follows the detector of each keypoint
            side = None if side == "auto" else as_magnification(side)
        canonical = {
            "patch_size": int(self.patch_size),
            "weights": weights,
            "dim": int(self.dim),
            "magnification": side,
            "descriptor_type": int(self.descriptor_type),
            "upright": as_bool(self.upright, "upright"),
            "orient": as_bool(self.orient, "orient"),
            "drop": as_bool(self.drop, "drop"),
            "views": int(self.views),
        }
        for name, value in canonical.items():
            object.__setattr__(self, name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Settings":
        return self  # it never changes

    def __reduce__(self) -> tuple[Any, ...]:
        # Shipped matrices need not travel; those of a file do, as it may change meanwhile.
        values = {name: getattr(self, name) for name in self.names()}
        shipped = isinstance(self.weights, str) and self.weights in registry()
        return _restored, (type(self), values, None if shipped else self.matrices[1])

    @classmethod
    def names(cls) -> list[str]:
        return [f.name for f in fields(cls) if f.repr]

    @cached_property
    def spec(self) -> Spec:
        """The raw descriptor."""
        return Spec(self.patch_size, self.kernel)

    @cached_property
    def projection(self) -> Projection | None:
        """Mean and matrix of the whitening, for images; None without one."""
        return projection_for(self.spec, self.whitening, self.matrices[1], self.dim, self.use)

    @cached_property
    def patch_projection(self) -> Projection | None:
        """The projection for patches that are cut out already."""
        return projection_for(self.spec, self.whitening, self.matrices[1], self.dim, "patches")

    @cached_property
    def variant(self) -> str | None:
        """The canonical name of the whitening; of "best", the best one that the weights have."""
        return self._variant(self.use)

    @cached_property
    def variant_of_patches(self) -> str | None:
        """The same for patches; None if the weights have no such whitening for them."""
        return self._variant("patches")

    def _variant(self, use: Use) -> str | None:
        if self.whitening is None:
            return None
        fitted = resolve(self.matrices[1], self.kernel, self.patch_size, self.spec.dim, use)
        variant = fitted.variant(self.whitening)
        return variant if fitted.has(variant) else None

    @property
    def use(self) -> Use:
        """The use of the matrices: see `resolve`."""
        return use_of_images(self.scales)

    @property
    def raw(self) -> "Settings":
        """The same descriptor without whitening."""
        return replace(self, whitening=None, descriptor_type=cv2.CV_32F)

    @property
    def descriptor_size(self) -> int:
        """Length of a descriptor."""
        return self.projection.dim if self.projection else self.spec.dim

    @cached_property
    def side(self) -> float:
        """Side of a patch, in sizes of its frame."""
        return MAGNIFICATION if self.magnification is None else self.magnification

    @cached_property
    def record(self) -> dict[str, Any]:
        """Everything that decides the descriptors, for JSON: the matrices by their digest."""
        p, of_patches = self.projection, self.variant_of_patches and self.patch_projection
        return {
            **{name: getattr(self, name) for name in self.names()},
            "whitening": self.variant,
            "weights": p.digest if p else None,
            "weights_of_patches": of_patches.digest if of_patches else None,
            "dim": self.descriptor_size,
            "magnification": self.side,
            "scales": list(self.scales),
        }

    @cached_property
    def fingerprint(self) -> str:
        """A digest of `record`: equal for equal descriptors, on every machine."""
        return digest(canonical_json(self.record).encode(), 32)


def _restored(cls: type[Settings], values: dict[str, Any], entries: Weights | None) -> Settings:
    return cls(**values, matrices=None if entries is None else (values["weights"], entries))


def with_aliases(init: Init) -> Init:
    """Let a constructor take arguments by their names in Kornia and cv2.SIFT_create."""

    @wraps(init)
    def with_either(self: Any, *arguments: Any, **named: Any) -> None:
        for alias, name in ALIASES.items():
            if alias in named:
                if name in named:
                    raise TypeError(f"{alias} is another name of {name}: give only one of them")
                named[name] = named.pop(alias)
        if "enable_precise_upscale" in named:
            raise TypeError("enable_precise_upscale is not needed: no image is upscaled; remove it")
        init(self, *arguments, **named)

    return with_either  # type: ignore[return-value]

"""Descriptors that an evaluation compares, behind one small interface.

A candidate describes frames of an image, or patches that were cut out already; a row of zeros means
that it cannot. Its `configuration` is all that decides the rows, so that stored rows of another
configuration can be told.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import MAGNIFICATION, Frames, as_magnification, to_keypoints
from kd_cv.descriptor.projection import Array32
from kd_cv.descriptor.sampling import extract_patches
from kd_cv.descriptor.threads import opencv
from kd_cv.feature2d import KDDescriptor
from kd_cv.features import root
from kd_cv.io.archive import checksum
from kd_cv.settings import Settings
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING

Gray = NDArray[np.uint8]
Patches = NDArray[np.uint8]

# Samples per side: the descriptor's own default for images; 64 for the patches of the public sets,
# whose size it is, and to whose window the shipped matrices of 64 are fitted.
PATCH_SIZE = 32
PATCH_SIZE_OF_SETS = 64

COMPARED = ("kd", "raw", "rootsift", "sift")  # unless others are named

SIFT_WINDOW = 6.0  # side of SIFT's 4 x 4 cells in keypoint sizes


class Candidate(Protocol):
    """What an evaluation needs of a descriptor.

    name  as the tables show it; kind  what the paper's tables know it by: "concat+ws", "sift" ...
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def configuration(self) -> Mapping[str, Any]: ...

    def at_frames(self, gray: Gray, frames: Frames) -> Array32:
        """Rows (N, D) of frames (N, 4) of a gray image."""
        ...

    def of_patches(self, patches: Patches) -> Array32:
        """Rows (N, D) of patches (N, P, P)."""
        ...


@opencv
def resized(patches: Patches, side: int) -> Patches:
    """Patches (N, P, P) at another number of samples over the same area."""
    if patches.shape[1] == side:
        return patches
    mode = cv2.INTER_AREA if side < patches.shape[1] else cv2.INTER_LINEAR
    out = np.empty((len(patches), side, side), patches.dtype)
    for small, patch in zip(out, patches, strict=True):
        small[:] = cv2.resize(patch, (side, side), interpolation=mode)
    return out


@dataclass(frozen=True)
class KD:
    """The kernel descriptor with any settings."""

    kd: KDDescriptor
    label: str = ""  # of the weights, where they have no name
    side_of_patches: int | None = None  # samples of patches as they come, if not those of images

    @property
    def name(self) -> str:
        s = self.kd.settings
        kernel = "" if s.kernel == "concat" else f" {s.kernel}"
        if s.whitening is None:
            return f"KD{kernel} raw"
        weights = self.label or (s.weights if isinstance(s.weights, str) else "given")
        # The best whitening of images need not be that of patches: one name for both then.
        same = s.variant == self._of_patches.variant_of_patches
        return f"KD{kernel} {s.variant if same else s.whitening} ({weights})"

    @property
    def kind(self) -> str:
        s = self.kd.settings
        return s.kernel if s.variant is None else f"{s.kernel}+{s.variant}"

    @property
    def configuration(self) -> dict[str, Any]:
        return {
            "descriptor": "kd",
            "fingerprint": self.kd.settings.fingerprint,
            "of_patches": self._of_patches.fingerprint,
        }

    def at_frames(self, gray: Gray, frames: Frames) -> Array32:
        return self.kd.settings.rows(gray, frames).astype(np.float32, copy=False)

    def of_patches(self, patches: Patches) -> Array32:
        settings = self._of_patches
        rows = settings.rows_of_patches(resized(patches, settings.patch_size))
        return rows.astype(np.float32, copy=False)

    @cached_property
    def _of_patches(self) -> Settings:
        settings = self.kd.settings
        return replace(settings, patch_size=self.side_of_patches or settings.patch_size)


@dataclass(frozen=True)
class SIFT:
    """cv2.SIFT, or RootSIFT. Its window covers the whole of a patch."""

    root: bool = False
    _sift: Any = field(default_factory=cv2.SIFT_create, compare=False, repr=False)

    @property
    def name(self) -> str:
        return "RootSIFT" if self.root else "SIFT"

    @property
    def kind(self) -> str:
        return self.name.lower()

    @property
    def configuration(self) -> dict[str, Any]:
        return {"descriptor": self.kind, "opencv": cv2.__version__, "window": SIFT_WINDOW}

    def at_frames(self, gray: Gray, frames: Frames) -> Array32:
        if not len(frames):
            return np.empty((0, 128), np.float32)
        return self._rows(gray, sift_keypoints(frames, gray.shape))

    def of_patches(self, patches: Patches) -> Array32:
        centre, size = (patches.shape[1] - 1) / 2, patches.shape[1] / SIFT_WINDOW
        # Octave 0: a patch is at the scale of its keypoint already, as SIFT's own image would be.
        keypoint = cv2.KeyPoint(centre, centre, size, 0.0)
        rows = [self._rows(patch, [keypoint]) for patch in patches]
        return np.concatenate([np.empty((0, 128), np.float32), *rows])

    @opencv
    def _rows(self, gray: Gray, keypoints: Sequence[cv2.KeyPoint]) -> Array32:
        rows = self._sift.compute(gray, keypoints)[1]
        return root(rows) if self.root else rows


def sift_keypoints(frames: Frames, shape: tuple[int, ...]) -> tuple[cv2.KeyPoint, ...]:
    """Keypoints of frames (N, 4) with the octave and layer that cv2.SIFT gives to their size.

    cv2.SIFT finds the image to describe a keypoint in by these two, not by the size. Its smallest
    size here is a pixel: at 0.3 of one, OpenCV 4.10 corrupts its memory.
    """
    frames = np.column_stack([frames[:, :2], np.maximum(frames[:, 2], 1.0), frames[:, 3]])
    return to_keypoints(frames, last=max(0, int(np.log2(max(1, min(shape[:2])))) - 2))


@dataclass(frozen=True)
class TorchPatches:
    """Any torch module that maps patches (B, 1, P, P) in 0..1 to rows (B, D)."""

    module: Any
    patch_size: int
    name: str
    magnification: float = MAGNIFICATION
    batch: int = 512

    @property
    def kind(self) -> str:
        return self.name.lower()

    @property
    def configuration(self) -> dict[str, Any]:
        state = self.module.state_dict()
        return {
            "descriptor": type(self.module).__name__,
            "settings": repr(self.module),
            "state": checksum({key: value.cpu().numpy() for key, value in state.items()}, {}),
            "patch_size": self.patch_size,
            "magnification": self.magnification,
        }

    def at_frames(self, gray: Gray, frames: Frames) -> Array32:
        patches = extract_patches(gray, frames, self.patch_size, self.magnification)
        return self._rows(patches.astype(np.float32, copy=False))

    def of_patches(self, patches: Patches) -> Array32:
        return self._rows(resized(patches, self.patch_size) * np.float32(1 / 255))

    def _rows(self, patches: Array32) -> Array32:
        torch = _torch()
        rows = []
        with torch.inference_mode():
            for start in range(0, len(patches), self.batch):
                chunk = torch.from_numpy(patches[start : start + self.batch])[:, None]
                rows.append(self.module(chunk).flatten(1).numpy())
        if not rows:
            empty = torch.zeros(1, 1, self.patch_size, self.patch_size)
            return np.empty((0, self.module(empty).flatten(1).shape[1]), np.float32)
        return np.concatenate(rows).astype(np.float32)


def kornia_patches(name: str, magnification: float = MAGNIFICATION) -> TorchPatches:
    """A patch descriptor of kornia.feature by the name of its class: HardNet, SIFTDescriptor, ...

    Learned ones are taken with their published weights, which Kornia downloads once.
    """
    _torch()
    try:
        import kornia.feature
    except ImportError as error:
        raise ImportError(f"kornia:{name} needs Kornia: pip install kd-cv[torch]") from error
    described_by: Any = getattr(kornia.feature, name, None)
    if not hasattr(described_by, "forward"):
        raise ValueError(f"kornia.feature has no class {name!r}, such as HardNet or SIFTDescriptor")
    settings = inspect.signature(described_by).parameters
    module = described_by(pretrained=True) if "pretrained" in settings else described_by()
    size = settings["patch_size"].default if "patch_size" in settings else 32
    return TorchPatches(module.eval(), int(size), name, magnification)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError("patch descriptors of Kornia need: pip install kd-cv[torch]") from error
    return torch


def make_candidates(
    descriptors: Iterable[str] = COMPARED,
    *,
    weights: Iterable[Any] = (DEFAULT_WEIGHTS,),
    whitening: Iterable[str | None] = (DEFAULT_WHITENING,),
    kernels: Iterable[str] = ("concat",),
    patch_size: int | None = None,
    magnification: float | str = MAGNIFICATION,
    scales: int = 1,
    dim: int = 128,
) -> list[Candidate]:
    """Candidates by name: "kd" (with every weights, whitening and kernel), "raw" (kd without
    whitening), "sift", "rootsift", "kornia:CLASS". The raw vector of a kernel is listed once.
    patch_size: of kd; by default 32 for images, 64 for ready-made patches.
    """
    candidates: list[Candidate] = []
    weights, whitening, kernels = list(weights), list(whitening), list(kernels)
    settings: dict[str, Any] = {
        "patch_size": patch_size or PATCH_SIZE, "dim": dim, "magnification": magnification,
        "scales": scales,
    }  # fmt: skip
    for name in descriptors:
        if name in ("kd", "raw"):
            variants = [None] if name == "raw" else whitening
            combinations = [
                (kernel, variant, weight)
                for kernel in kernels
                for variant in variants
                for weight in (weights[:1] if variant is None else weights)
            ]
            candidates += [
                KD(
                    KDDescriptor(kernel=k, whitening=v, weights=w, **settings),
                    side_of_patches=patch_size or PATCH_SIZE_OF_SETS,
                )
                for k, v, w in combinations
            ]
        elif name in ("sift", "rootsift"):
            candidates.append(SIFT(root=name == "rootsift"))
        elif name.startswith("kornia:"):
            magnified = as_magnification(magnification)
            candidates.append(kornia_patches(name.removeprefix("kornia:"), magnified))
        else:
            raise ValueError(
                f"unknown descriptor {name!r}: expected kd, raw, sift, rootsift or kornia:CLASS"
            )
    unique: dict[str, Candidate] = {}
    for candidate in candidates:
        unique.setdefault(candidate.name, candidate)
    if not unique:
        raise ValueError("no descriptor was named")
    return list(unique.values())

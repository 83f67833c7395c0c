"""Descriptors to compare, with one interface.

A candidate describes frames of an image, or patches; zeros mean that it cannot. Its `configuration`
identifies stored descriptors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import MAGNIFICATION, Frames, as_magnification
from kd_cv.descriptor.patches import extract_patches
from kd_cv.descriptor.projection import Array32
from kd_cv.extractor import Extractor
from kd_cv.fit.scenes import Scene, scene_statistics
from kd_cv.io.archive import checksum
from kd_cv.keypoints import to_keypoints
from kd_cv.opencv.rootsift import root
from kd_cv.settings import Settings
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING
from kd_cv.whitening.whitening import Whitening

Gray = NDArray[np.uint8]
Patches = NDArray[np.uint8]

# Samples per side: the descriptor's default for images; 64 for the patches of the public sets, for
# which the shipped matrices of 64 are fitted.
PATCH_SIZE = 32
PATCH_SIZE_OF_SETS = 64

COMPARED = ("kd", "raw", "rootsift", "sift")

BATCH = 512  # patches that a module of Kornia describes at a time
SIFT_WINDOW = 6.0  # side of SIFT's 4 x 4 cells in keypoint sizes


@dataclass(frozen=True)
class Candidate:
    """A descriptor to compare.

    name           in tables
    kind           name in the paper's tables: "concat+ws", "sift" ...
    configuration  everything that decides the descriptors
    at_frames      descriptors (N, D) of a gray image at frames (N, 4)
    of_patches     descriptors (N, D) of patches (N, P, P)
    """

    name: str
    kind: str
    configuration: Callable[[], Mapping[str, Any]]
    at_frames: Callable[[Gray, Frames], Array32]
    of_patches: Callable[[Patches], Array32]


def resized(patches: Patches, side: int) -> Patches:
    if patches.shape[1] == side:
        return patches
    mode = cv2.INTER_AREA if side < patches.shape[1] else cv2.INTER_LINEAR
    sampled = [cv2.resize(patch, (side, side), interpolation=mode) for patch in patches]
    return np.array(sampled, patches.dtype).reshape(-1, side, side)


def kd_candidate(
    settings: Settings, side_of_patches: int | None = None, weights_name: str | None = None
) -> Candidate:
    """The kernel descriptor with any settings.

    side_of_patches  samples of patches as they come, if not those of images
    weights_name     how the name shows weights that are neither a shipped name nor a path
    """
    for_patches = replace(settings, patch_size=side_of_patches or settings.patch_size)
    kernel = "" if settings.kernel == "concat" else f" {settings.kernel}"
    name = f"KD{kernel} raw"
    if settings.whitening is not None:
        # The best whitening of images need not be that of patches: one name for both then.
        same = settings.variant == for_patches.variant_of_patches
        weights = settings.weights if isinstance(settings.weights, str) else weights_name or "given"
        name = f"KD{kernel} {settings.variant if same else settings.whitening} ({weights})"

    def at_frames(gray: Gray, frames: Frames) -> Array32:
        return Extractor(settings).describe(gray, frames).astype(np.float32, copy=False)

    def of_patches(patches: Patches) -> Array32:
        descriptors = Extractor(for_patches).describe_patches(
            resized(patches, for_patches.patch_size)
        )
        return descriptors.astype(np.float32, copy=False)

    return Candidate(
        name,
        settings.kernel if settings.variant is None else f"{settings.kernel}+{settings.variant}",
        lambda: {
            "descriptor": "kd",
            "fingerprint": settings.fingerprint,
            "of_patches": for_patches.fingerprint,
        },
        at_frames,
        of_patches,
    )


def sift_candidate(rooted: bool = False) -> Candidate:
    """cv2.SIFT, or RootSIFT. It covers the whole patch."""
    sift, name = cv2.SIFT_create(), "RootSIFT" if rooted else "SIFT"

    def described(gray: Gray, keypoints: Sequence[cv2.KeyPoint]) -> Array32:
        descriptors = sift.compute(gray, keypoints)[1]
        return root(descriptors) if rooted else descriptors

    def at_frames(gray: Gray, frames: Frames) -> Array32:
        if not len(frames):
            return np.empty((0, 128), np.float32)
        return described(gray, sift_keypoints(frames, gray.shape))

    def of_patches(patches: Patches) -> Array32:
        centre, size = (patches.shape[1] - 1) / 2, patches.shape[1] / SIFT_WINDOW
        # Octave 0: a patch is at the scale of its keypoint already, as SIFT's own image would be.
        keypoint = cv2.KeyPoint(centre, centre, size, 0.0)
        descriptors = [described(patch, [keypoint]) for patch in patches]
        return np.concatenate([np.empty((0, 128), np.float32), *descriptors])

    kind, version = name.lower(), cv2.__version__
    configuration = {"descriptor": kind, "opencv": version, "window": SIFT_WINDOW}
    return Candidate(name, kind, lambda: configuration, at_frames, of_patches)


def sift_keypoints(frames: Frames, shape: tuple[int, ...]) -> tuple[cv2.KeyPoint, ...]:
    """Keypoints of frames (N, 4) with the octave and layer that cv2.SIFT gives to their size.

    cv2.SIFT finds the image to describe a keypoint in by these two, not by the size. Its smallest
    size here is a pixel: at 0.3 of one, OpenCV 4.10 corrupts its memory.
    """
    frames = np.column_stack([frames[:, :2], np.maximum(frames[:, 2], 1.0), frames[:, 3]])
    return to_keypoints(frames, last=max(0, int(np.log2(max(1, min(shape[:2])))) - 2))


def kornia_candidate(name: str, magnification: float = MAGNIFICATION) -> Candidate:
    """A patch descriptor of kornia.feature by the name of its class: HardNet, SIFTDescriptor, ...

    Learned ones are taken with their published weights, which Kornia downloads once.
    """
    try:
        import kornia.feature
        import torch
    except ImportError as error:
        raise ImportError(f"kornia:{name} needs Kornia: pip install kd-cv[torch]") from error
    described_by: Any = getattr(kornia.feature, name, None)
    if not hasattr(described_by, "forward"):
        raise ValueError(f"kornia.feature has no class {name!r}, such as HardNet or SIFTDescriptor")
    parameters = inspect.signature(described_by).parameters
    module = described_by(pretrained=True) if "pretrained" in parameters else described_by()
    module.eval()
    side = int(parameters["patch_size"].default) if "patch_size" in parameters else 32

    def described(patches: Array32) -> Array32:
        """Describe patches (N, P, P) in 0..1; an empty batch goes through as one blank patch."""
        blank = np.zeros((1, side, side), np.float32)
        chunks = torch.from_numpy(patches if len(patches) else blank)[:, None].split(BATCH)
        with torch.inference_mode():
            descriptors = np.concatenate([module(chunk).flatten(1).numpy() for chunk in chunks])
        return descriptors[: len(patches)].astype(np.float32)

    def at_frames(gray: Gray, frames: Frames) -> Array32:
        patches = extract_patches(gray, frames, side, magnification)
        return described(patches.astype(np.float32, copy=False))

    def of_patches(patches: Patches) -> Array32:
        return described(resized(patches, side) * np.float32(1 / 255))

    def configuration() -> dict[str, Any]:
        state = {key: value.cpu().numpy() for key, value in module.state_dict().items()}
        return {
            "descriptor": name,
            "settings": repr(module),
            "state": checksum(state, {}),
            "patch_size": side,
            "magnification": magnification,
        }

    return Candidate(name, name.lower(), configuration, at_frames, of_patches)


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
    settings: dict[str, Any] = {"dim": dim, "magnification": magnification, "scales": scales}
    for name in descriptors:
        if name in ("kd", "raw"):
            variants = [None] if name == "raw" else whitening
            candidates += [
                kd_candidate(
                    Settings(patch_size or PATCH_SIZE, kernel, variant, weight, **settings),
                    patch_size or PATCH_SIZE_OF_SETS,
                    f"given {number}",
                )
                for kernel, variant, (number, weight) in product(
                    kernels, variants, enumerate(weights, start=1)
                )
            ]
        elif name in ("sift", "rootsift"):
            candidates.append(sift_candidate(name == "rootsift"))
        elif name.startswith("kornia:"):
            magnified = as_magnification(magnification)
            candidates.append(kornia_candidate(name.removeprefix("kornia:"), magnified))
        else:
            raise ValueError(
                f"unknown descriptor {name!r}: expected kd, raw, sift, rootsift or kornia:CLASS"
            )
    if not candidates:
        raise ValueError("no descriptor was named")
    return list({candidate.name: candidate for candidate in candidates}.values())


def whitened(candidate: Candidate, whitening: Whitening, variant: str, dim: int) -> Candidate:
    projection = whitening.projection(variant, min(dim, whitening.max_dim))

    def projected(descriptors: Array32) -> Array32:
        return projection(descriptors).astype(np.float32, copy=False)

    return Candidate(
        f"{candidate.name} + {variant}",
        f"{candidate.kind}+{variant}",
        lambda: {
            "base": dict(candidate.configuration()),
            "variant": variant,
            "projection": projection.digest,
        },
        lambda gray, frames: projected(candidate.at_frames(gray, frames)),
        lambda patches: projected(candidate.of_patches(patches)),
    )


def with_ws(
    candidate: Candidate,
    scenes: Iterable[Scene],
    *,
    patches: tuple[int, float] | None = None,
    dim: int = 128,
) -> Candidate:
    """The candidate followed by W_S, fitted on its descriptors of scenes.

    patches  patch size and magnification, if the candidate is to describe patches; by default it is
             fitted on descriptors of frames
    """

    def describe(gray: Gray, frames: Frames) -> Array32:
        if patches is None:
            return candidate.at_frames(gray, frames)
        cut = extract_patches(gray, frames, *patches)
        return candidate.of_patches(np.rint(255 * cut).astype(np.uint8))

    D = describe(np.zeros((64, 64), np.uint8), np.array([[32.0, 32.0, 4.0, 0.0]])).shape[1]
    statistics = scene_statistics(scenes, describe, D)
    if statistics.pair_count < D:
        raise ValueError(
            f"{candidate.name} + W_S needs {D} matching pairs or more to be fitted on, "
            f"got {statistics.pair_count}"
        )
    return whitened(candidate, Whitening.fit(statistics), "ws", dim)

"""Describe patches and frames: by compiled code, or by the NumPy reference without Numba."""

import warnings
from collections.abc import Sequence
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor import reference
from kd_cv.descriptor.frames import Frames, PatchRegions, patch_regions
from kd_cv.descriptor.patches import (
    Pyramid,
    pyramid_for,
    pyramid_of_patches,
    sample,
    sampling_steps,
)
from kd_cv.descriptor.projection import Array32, Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.parallel import in_chunks

BLOCK = 16  # frames of a product without Numba


class Describer:
    """Describe patches, or patch regions of an image, with constants computed once."""

    def __init__(self, spec: Spec, projection: Projection | None = None) -> None:
        self.spec, self.projection = spec, projection
        self.dim = projection.dim if projection else spec.dim

    @cached_property
    def _compiled_constants(self) -> tuple[Any, ...]:
        from kd_cv.descriptor import compiled

        return compiled.plan(self.spec), compiled.padded(self.projection, self.spec)

    def of_patches(self, patches: NDArray[Any]) -> Array32:
        """Describe patches (N, P, P), uint8 or float: (N, D)."""
        if patches.dtype != np.uint8:
            patches = patches.astype(np.float32, copy=False)
        gain = np.float32(1 / 255 if patches.dtype == np.uint8 else 1.0)
        out = np.empty((len(patches), self.dim), dtype=np.float32)
        compiled = load_compiled()
        if compiled:
            # A read-only array is another type to Numba, which would compile everything again.
            patches = np.require(patches, requirements=["C", "W"])
            plan, whitening = self._compiled_constants

            def chunk(a: int, b: int) -> None:
                pyramid, steps = pyramid_of_patches(patches[a:b], gain)
                compiled.describe(pyramid, steps, plan, whitening, out[a:b])
        else:

            def chunk(a: int, b: int) -> None:
                self._by_reference([patches[a:b] * gain], out[a:b])

        in_chunks(len(out), chunk)
        return out

    def at_regions(self, gray: NDArray[Any] | Pyramid, regions: PatchRegions) -> Array32:
        """Describe regions (N, S, 4) of a gray image: (N, D), zeros without a patch.

        The raw vectors of the S patch sizes of a frame are averaged.
        """
        out = np.empty((len(regions), self.dim), dtype=np.float32)
        steps = sampling_steps(regions, gray.shape, self.spec.patch_size)
        pyramid = pyramid_for(gray, steps)
        compiled = load_compiled()
        if compiled:
            plan, whitening = self._compiled_constants

            def chunk(a: int, b: int) -> None:
                compiled.describe(pyramid, steps[a:b], plan, whitening, out[a:b])
        else:

            def chunk(a: int, b: int) -> None:
                P = self.spec.patch_size
                self._by_reference(
                    [sample(pyramid, at_scale, P) for at_scale in steps[a:b].swapaxes(0, 1)],
                    out[a:b],
                )

        in_chunks(len(out), chunk)
        return out

    def _by_reference(self, sizes: Sequence[Array32], out: Array32) -> None:
        """Describe patches (n, P, P) at each scale by the reference.

        Blocks always have BLOCK patches, padded with zeros: BLAS sums in an order that depends on
        the shape, and a descriptor must not depend on its neighbours.
        """
        block = np.zeros((BLOCK, *sizes[0].shape[1:]), np.float32)
        for a in range(0, len(out), BLOCK):
            part = out[a : a + BLOCK]
            V = np.zeros((BLOCK, self.spec.dim), np.float32)
            for patches in sizes:
                block[: len(part)] = patches[a : a + BLOCK]
                V += reference.raw(block, *_reference_constants(self.spec))
            V = reference.normalised(V)
            part[:] = (self.projection(V) if self.projection else V)[: len(part)]


def describe_patches(
    patches: NDArray[Any], spec: Spec, projection: Projection | None = None
) -> Array32:
    return Describer(spec, projection).of_patches(patches)


def describe_frames(
    gray: NDArray[Any] | Pyramid,
    frames: Frames,
    spec: Spec,
    *,
    magnification: float,
    scales: tuple[float, ...] = (1.0,),
    projection: Projection | None = None,
) -> Array32:
    regions = patch_regions(frames, gray.shape, magnification, scales)
    return Describer(spec, projection).at_regions(gray, regions)


@lru_cache(maxsize=32)
def _reference_constants(spec: Spec) -> tuple[Array32, ...]:
    c = spec.constants
    return tuple(value.astype(np.float32) for value in (c.smooth, c.diff, c.Phi, c.T, c.parts))


@lru_cache(maxsize=1)
def load_compiled() -> ModuleType | None:
    """Return the compiled kernels, or None with a warning if Numba cannot be imported."""
    try:
        from kd_cv.descriptor import compiled
    except (ImportError, OSError) as error:  # OSError: its library finds no memory
        warnings.warn(
            f"Numba cannot be imported ({error}); kd_cv uses its slower NumPy path. "
            "'pip install numba' brings the fast one back.",
            stacklevel=2,
        )
        return None
    return compiled

"""One way from patches and from frames to descriptors: fused where Numba is there, else `core`."""

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv import core
from kd_cv.frames import Frames, in_range
from kd_cv.sampling import pyramid_for, pyramid_of_patches, sample, sampling_steps
from kd_cv.spec import Spec
from kd_cv.whitening import needs_sqrt, variant_name

DEFAULT_WHITENING: str | None = "ws"
DEFAULT_WEIGHTS = "multiview"
CHUNK = 96  # frames a thread takes at a time: what bounds the memory
Array32 = NDArray[np.float32]


@dataclass(frozen=True)
class Projection:
    """The last step: A^T (V - mu), raised to `power` with its sign kept, of unit norm.

    mu (D,), A (D, d)
    """

    mu: Array32
    A: Array32
    power: float = 1.0

    @property
    def dim(self) -> int:
        return self.A.shape[1]

    def __call__(self, V: Array32) -> Array32:
        """(N, D) raw vectors to (N, d)."""
        Y = core.project(V, self.mu, self.A)
        return Y if self.power == 1.0 else core.normalised(core.signed_power(Y, self.power))


def describe(
    patches: Any,
    *,
    patch_size: int | None = None,
    kernel: str = "concat",
    whitening: str | None = DEFAULT_WHITENING,
    weights: Any = DEFAULT_WEIGHTS,
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
        raise ValueError(f"patches must have shape (N, P, P), got {patches.shape}")
    if patches.dtype != np.uint8 and patches.dtype.kind != "f":
        raise TypeError(f"patches must be uint8 or float, got {patches.dtype}")
    if patch_size is not None and patch_size != patches.shape[1]:
        raise ValueError(f"patch_size is {patch_size}, but the patches are {patches.shape[1:]}")
    if patches.dtype.kind == "f":
        with np.errstate(over="ignore"):  # infinity is refused
            patches = in_range(patches.astype(np.float32, copy=False), "float patches")
    spec = Spec(patches.shape[1], kernel)
    return describe_patches(patches, spec, projection_for(spec, whitening, weights, dim))


def projection_for(spec: Spec, whitening: str | None, weights: Any, dim: int) -> Projection | None:
    """The projection that `whitening` and `weights` name, of at most `dim` dimensions.

    None without whitening: the descriptor is then the raw vector, whatever `dim` says.
    """
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        raise ValueError(f"dim must be a positive int, got {dim!r}")
    if whitening is None:
        return None
    from kd_cv.weights import resolve

    variant = variant_name(whitening)
    fitted = resolve(weights, spec.kernel, spec.patch_size, spec.dim)
    if spec.dim <= fitted.max_dim:
        dim = min(dim, spec.dim)  # all there are
    mu, A = fitted.projection(variant, int(dim))
    return Projection(mu, A, power=0.5 if needs_sqrt(variant) else 1.0)


def describe_patches(
    patches: NDArray[Any], spec: Spec, projection: Projection | None = None
) -> Array32:
    """Descriptors (N, D) of patches (N, P, P), uint8 or float."""
    if patches.dtype != np.uint8:
        patches = patches.astype(np.float32, copy=False)
    gain = np.float32(1 / 255 if patches.dtype == np.uint8 else 1.0)
    out = np.empty((len(patches), projection.dim if projection else spec.dim), dtype=np.float32)
    fused = load_fused()
    if not fused:
        _in_chunks(len(out), lambda a, b: _by_core(patches[a:b] * gain, spec, projection, out[a:b]))
        return out
    # A read-only array is another type to Numba, which would compile everything again.
    patches = np.require(patches, requirements=["C", "W"])
    plan, whitening = fused.plan(spec), fused.padded(projection, spec)

    def chunk(a: int, b: int) -> None:
        pyramid, steps = pyramid_of_patches(patches[a:b], gain)
        fused.describe(pyramid, steps, plan, whitening, out[a:b])

    _in_chunks(len(out), chunk)
    return out


def describe_frames(
    gray: NDArray[Any],
    frames: Frames,
    spec: Spec,
    *,
    magnification: float,
    scales: tuple[float, ...] = (1.0,),
    projection: Projection | None = None,
) -> Array32:
    """Descriptors (N, D) at frames (N, 4) of a gray image; zero rows where there is no patch.

    With several scales the raw vectors of the differently sized patches are averaged.
    """
    out = np.empty((len(frames), projection.dim if projection else spec.dim), dtype=np.float32)
    steps = sampling_steps(frames, gray.shape, spec.patch_size, magnification, scales)
    # A read-only array is another type to Numba, which would compile everything again.
    pyramid = pyramid_for(np.require(gray, requirements=["C", "W"]), steps)
    fused = load_fused()
    if fused:
        plan, whitening = fused.plan(spec), fused.padded(projection, spec)
        _in_chunks(
            len(out),
            lambda a, b: fused.describe(pyramid, steps[a:b], plan, whitening, out[a:b]),
        )
        return out

    def chunk(a: int, b: int) -> None:
        V = np.zeros((b - a, spec.dim), dtype=np.float32)
        for s in range(len(scales)):
            V += raw_by_core(sample(pyramid, steps[a:b, s], spec.patch_size), spec)
        V = core.normalised(V)
        out[a:b] = projection(V) if projection else V

    _in_chunks(len(out), chunk)
    return out


def raw_by_core(patches: Array32, spec: Spec) -> Array32:
    """Raw vectors (N, D) of patches (N, P, P) by the reference implementation."""
    smooth, diff, Phi, T, parts = _core_constants(spec)
    return core.raw(patches, smooth, diff, Phi, T, parts)


def _by_core(patches: Array32, spec: Spec, projection: Projection | None, out: Array32) -> None:
    V = raw_by_core(patches, spec)
    out[:] = projection(V) if projection else V


@lru_cache(maxsize=32)
def _core_constants(spec: Spec) -> tuple[Array32, ...]:
    c = spec.constants
    return tuple(value.astype(np.float32) for value in (c.smooth, c.diff, c.Phi, c.T, c.parts))


@lru_cache(maxsize=1)
def load_fused() -> ModuleType | None:
    """The compiled data path, or None, with a hint, where Numba cannot be imported."""
    try:
        from kd_cv import fused
    except ImportError as error:
        warnings.warn(
            f"Numba cannot be imported ({error}); kd_cv uses its slower NumPy path. "
            "'pip install numba' brings the fast one back.",
            stacklevel=2,
        )
        return None
    return fused


def _in_chunks(count: int, work: Callable[[int, int], None]) -> None:
    """work(a, b) over [0, count), on as many threads as OpenCV uses (cv2.setNumThreads)."""
    threads = max(1, cv2.getNumThreads())
    # Small jobs are shared out evenly; a multiple of 16 fills the blocks of the fused kernel.
    size = min(CHUNK, max(16, -(-count // (threads * 16)) * 16))
    starts = iter(range(0, count, size))

    def share() -> None:
        for a in starts:  # each start goes to whoever comes first
            work(a, min(a + size, count))

    extra = min(threads, -(-count // size)) - 1
    if extra < 1:
        share()
        return
    # The calling thread works too; a pool per call costs little and survives a fork.
    with ThreadPoolExecutor(extra) as pool:
        others = [pool.submit(share) for _ in range(extra)]
        share()
        for other in others:
            other.result()

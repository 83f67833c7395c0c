"""The descriptor for torch: `KDModule`, patches in, and `KDFeature`, images in.

`KDModule` is a skin: the maths is in `core`, the fast path on the CPU in `engine`. Here is only
what torch asks for: precision, devices, gradients, memory, and Kornia's conventions.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from kd_cv.descriptor import core
from kd_cv.descriptor.engine import describe_patches
from kd_cv.descriptor.frames import MAGNIFICATION, as_magnification
from kd_cv.descriptor.projection import Projection, project
from kd_cv.descriptor.sampling import as_scales, max_depth
from kd_cv.descriptor.spec import Spec
from kd_cv.whitening.registry import DEFAULT_WEIGHTS, DEFAULT_WHITENING, projection_for

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:
    raise ImportError("KDModule and KDFeature need torch: pip install kd-cv[torch]") from error

from kd_cv.nn.lafs import scaled
from kd_cv.nn.sampling import Pyramid, pyramid_of, sample

CONSTANTS = ("smooth", "diff", "Phi", "T", "parts")
TENSORS = (*CONSTANTS, "mu", "A")

# Pixels described at a time; half where there may be gradients, which need more memory.
# On the CPU a plane of them fits the cache; other devices need more work at once to be busy.
CHUNK_CPU, CHUNK = 1 << 19, 1 << 22

# Kornia's detectors draw a LAF of 6 sigma, half the side of its patch; a keypoint has a size of
# 2 sigma. So the patch of a detected LAF has a side of 6 keypoint sizes.
DETECTED_MAGNIFICATION = 6.0


class KDModule(nn.Module):
    """Kernel descriptor of patches: (B, 1, P, P) in 0..1 to (B, D), unit rows.

    patch_size, kernel, whitening, weights, dim: as in `KDDescriptor`. With `trainable` the
    whitening (mu and A) is a parameter, to be fine-tuned; else all tensors are buffers.

    All tensors stay float32 and so does the computation (float64 for float64 patches): `half`,
    `bfloat16` and autocast change the type of the result only (TorchScript is the exception: run it
    outside autocast). A patch without texture gives a row of zeros, with a gradient of zero.

    >>> KDModule(patch_size=32, whitening=None)(torch.rand(5, 1, 32, 32)).shape
    torch.Size([5, 238])
    """

    __jit_ignored_attributes__ = ("_float32",)
    smooth: Tensor
    diff: Tensor
    Phi: Tensor
    T: Tensor
    parts: Tensor
    mu: Tensor | None
    A: Tensor | None
    _float32: list[Tensor | None]

    def __init__(
        self,
        patch_size: int = 32,
        kernel: str = "concat",
        whitening: str | None = DEFAULT_WHITENING,
        weights: Any = DEFAULT_WEIGHTS,
        dim: int = 128,
        trainable: bool = False,
    ) -> None:
        super().__init__()
        spec = Spec(patch_size, kernel)
        projection = projection_for(spec, whitening, weights, dim)
        if trainable and projection is None:
            raise ValueError("trainable=True trains the whitening, but whitening is None")
        self.patch_size = int(patch_size)
        self.kernel = kernel
        self.whitening = whitening
        self.dim = projection.dim if projection else spec.dim
        self.power = projection.power if projection else 1.0
        for name in CONSTANTS:
            self.register_buffer(name, _float32(getattr(spec.constants, name)))
        for name in ("mu", "A"):
            value = _float32(getattr(projection, name)) if projection else None
            if trainable and value is not None:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)
        _remember(self)
        self.register_load_state_dict_post_hook(_remember)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, 1, P, P) to (B, D)."""
        self._check(patches, 1)
        return self._describe(patches, 1)

    def pooled(self, patches: Tensor) -> Tensor:
        """Domain-size pooling: S differently sized patches of each of B points to (B, D).

        Patches (B, S, P, P); the raw vectors of the S patches are averaged, then whitened.
        """
        S = patches.shape[1] if patches.dim() == 4 else 1
        self._check(patches, S)
        return self._describe(patches, S)

    def _check(self, patches: Tensor, S: int) -> None:
        if torch.jit.is_tracing():  # where sizes are not numbers
            return
        if not torch.jit.is_scripting() and not isinstance(patches, Tensor):
            raise TypeError(f"patches must be a torch.Tensor, got {type(patches).__name__}")
        shape, P = list(patches.shape), self.patch_size
        if len(shape) == 4 and shape[1] != S:
            raise ValueError(
                f"patches must be gray, of shape (B, 1, {P}, {P}), got {shape}: convert the image "
                "with kornia.color.rgb_to_grayscale; pooled() takes several sizes of one patch"
            )
        if len(shape) != 4 or shape[2] != P or shape[3] != P:
            raise ValueError(
                f"this KDModule takes patches of shape (B, 1, {P}, {P}), got {shape}: tell Kornia "
                f"the size, LAFDescriptor(kd, patch_size={P}), or make one for your patches, "
                "KDModule(patch_size=...)"
            )
        if not patches.is_floating_point():
            raise TypeError(
                f"patches must be floating point, in 0..1, got {patches.dtype}: "
                "convert bytes with patches.float() / 255"
            )

    def _describe(self, patches: Tensor, S: int) -> Tensor:
        if torch.jit.is_scripting() or torch.jit.is_tracing():
            c = (self.smooth, self.diff, self.Phi, self.T, self.parts)
            return plain(patches, S, self.power, c[0], c[1], c[2], c[3], c[4], self.mu, self.A)
        return self._eager(patches, S)

    @torch.jit.unused
    def _eager(self, patches: Tensor, S: int) -> Tensor:
        """The same as `plain`: in little memory, in full precision, fused where possible."""
        tensors = [getattr(self, name) for name in TENSORS]
        if self.Phi.dtype in (torch.float16, torch.bfloat16):
            # functional_call, in Kornia's LAFDescriptor for example, handed in cast tensors.
            tensors = [t if t is None else t.to(self.Phi.device) for t in self._float32]
        if self._fusable(patches):
            return self._fused(patches, S, *tensors[-2:])
        describe = partial(_in_full_precision, S, self.power)
        if torch.compiler.is_compiling():
            return describe(patches, *tensors)
        chunk = CHUNK_CPU if patches.device.type == "cpu" else CHUNK
        if torch.is_grad_enabled():
            chunk //= 2
        parts = patches.split(max(1, chunk // max(1, patches.shape[1:].numel())))
        if len(parts) == 1:
            return describe(patches, *tensors)
        return torch.cat([recomputed(describe, part, *tensors) for part in parts])

    def _fusable(self, patches: Tensor) -> bool:
        """Whether the compiled CPU path may be taken: nobody asks for a derivative by patches."""
        return (
            not torch.compiler.is_compiling()
            and patches.device.type == self.Phi.device.type == "cpu"
            and patches.dtype != torch.float64
            and type(patches) is Tensor
            and not _differentiated(patches)
        )

    def _fused(self, patches: Tensor, S: int, mu: Tensor | None, A: Tensor | None) -> Tensor:
        spec = Spec(self.patch_size, self.kernel)
        array = patches.detach().float().reshape(-1, *patches.shape[2:]).numpy()
        if S == 1 and mu is not None and A is not None and not _differentiated(mu, A):
            projection = Projection(mu.detach().numpy(), A.detach().numpy(), self.power)
            return torch.from_numpy(describe_patches(array, spec, projection)).to(patches.dtype)
        V = torch.from_numpy(describe_patches(array, spec))
        with _full_precision("cpu"):
            return whitened(V, S, self.power, mu, A).to(patches.dtype)

    def _apply(self, fn: Any, recurse: bool = True) -> "KDModule":
        """Moves tensors, never casts them: a whitening matrix in half precision is useless."""

        def move(t: Tensor) -> Tensor:
            moved = fn(t)
            return moved if moved.dtype == t.dtype else t.to(moved.device)

        super()._apply(move, recurse)
        _remember(self)
        return self

    def extra_repr(self) -> str:
        """The settings, for `repr`."""
        trainable = ", trainable=True" if isinstance(self.A, nn.Parameter) else ""
        return (
            f"patch_size={self.patch_size}, kernel={self.kernel!r}, whitening={self.whitening!r}, "
            f"dim={self.dim}{trainable}"
        )


def plain(
    patches: Tensor,
    S: int,
    power: float,
    smooth: Tensor,
    diff: Tensor,
    Phi: Tensor,
    T: Tensor,
    parts: Tensor,
    mu: Tensor | None,
    A: Tensor | None,
) -> Tensor:
    """(B, S, P, P) to (B, D) by plain torch operations, on any device and in TorchScript."""
    dtype = torch.float64 if patches.dtype == torch.float64 else torch.float32
    x = patches.to(dtype).reshape(patches.shape[0] * S, patches.shape[2], patches.shape[3])
    V = core.raw(x, smooth.to(dtype), diff.to(dtype), Phi.to(dtype), T.to(dtype), parts.to(dtype))
    return whitened(V, S, power, mu, A).to(patches.dtype)


def _in_full_precision(S: int, power: float, patches: Tensor, *tensors: Any) -> Tensor:
    """`plain`, whatever autocast says."""
    with _full_precision(patches.device.type):
        return plain(patches, S, power, *tensors)


def whitened(V: Tensor, S: int, power: float, mu: Tensor | None, A: Tensor | None) -> Tensor:
    """Raw vectors (B * S, D) to (B, d): the mean of each S of them, projected."""
    if S != 1:
        V = core.normalised(V.reshape(V.shape[0] // S, S, V.shape[1]).sum(1))
    if mu is not None and A is not None:
        V = project(V, mu.to(V.dtype), A.to(V.dtype), power)
    return V


class _Recomputed(torch.autograd.Function):
    """function(*tensors); autograd keeps the tensors only, and computes the rest once more."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*tensors)
        return function(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        twice = torch.is_grad_enabled()  # a derivative of this one is asked for
        needed = ctx.needs_input_grad[1:]
        pairs = zip(ctx.saved_tensors, needed, strict=True)
        with torch.enable_grad():
            tensors = [t.view_as(t) if need else t for t, need in pairs]
            rows = ctx.function(*tensors)
        inputs = [t for t, need in zip(tensors, needed, strict=True) if need]
        found = iter(torch.autograd.grad(rows, inputs, grads, create_graph=twice))
        return None, *(next(found) if need else None for need in needed)


def recomputed(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """function(*tensors), in little memory where a gradient is asked for."""
    if _followed(*tensors):
        return function(*tensors)
    return _Recomputed.apply(function, *tensors)


def _differentiated(*tensors: Tensor) -> bool:
    """Whether somebody asks for a derivative by one of the tensors."""
    reverse = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return reverse or _followed(*tensors)


def _followed(*tensors: Tensor | None) -> bool:
    """Whether torch.func (vmap, grad, ...) or forward-mode differentiation looks at each step."""
    duals = (torch.autograd.forward_ad.unpack_dual(t) for t in tensors if t is not None)
    return torch._C._are_functorch_transforms_active() or any(d.tangent is not None for d in duals)


def _float32(array: Any) -> Tensor:
    return torch.tensor(array, dtype=torch.float32)


def _remember(module: KDModule, *_: Any) -> None:
    """Keeps hold of the float32 tensors themselves, for when cast ones stand in their place."""
    module._float32 = [getattr(module, name) for name in TENSORS]


def _full_precision(device: str) -> AbstractContextManager[Any]:
    autocasts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if autocasts else nullcontext()


class KDFeature(nn.Module):
    """Detector and descriptor: images in; LAFs, responses and descriptors out.

    num_features   slots for each image
    detector       any Kornia detector: (images, mask) to (lafs, responses); scale-space Hessian
                   with dominant orientations by default
    descriptor     the `KDModule`; KDModule() by default
    magnification  side of the patch in keypoint sizes, as in `KDDescriptor`, if the detector's LAFs
                   are of 6 sigma (Kornia's `mr_size=6`); 6 describes the LAFs as they are
    scales         how many patch sizes to average over, or their factors, as in `KDDescriptor`
    upright        leave out the orientations of the default detector
    chunk          patches in memory at a time

    >>> lafs, responses, descriptors = KDFeature(500)(torch.rand(1, 1, 240, 320))
    """

    def __init__(
        self,
        num_features: int = 2048,
        detector: nn.Module | None = None,
        descriptor: KDModule | None = None,
        magnification: float | str = MAGNIFICATION,
        scales: int | Sequence[float] = 1,
        upright: bool = False,
        chunk: int = 1024,
    ) -> None:
        super().__init__()
        if detector is not None and upright:
            raise ValueError("upright is for the default detector: give yours no orientation")
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, got {chunk}")
        self.detector = detector or hessian_detector(num_features, upright)
        self.descriptor = descriptor or KDModule()
        self.magnification = as_magnification(magnification)
        self.scales = as_scales(scales)
        self.chunk = chunk
        self.eval()

    def forward(self, images: Any, mask: Any = None) -> tuple[Any, Any, Any]:
        """LAFs, scaled to what was described, responses and descriptors.

        A batch (B, 1 or 3, H, W) gives (B, N, 2, 3), (B, N), (B, N, D), N = num_features, as
        kornia.feature.LocalFeature does; slots without a detection have zeros in all three. A list
        of images (1 or 3, H, W) of any sizes gives three lists, without such slots: (n, 2, 3),
        (n,), (n, D). mask (B, 1, H, W), or a list of (1, H, W): where to detect.
        """
        if isinstance(images, list | tuple):
            return self._ragged(images, mask)  # type: ignore[return-value]
        gray = as_gray_batch(images)
        lafs, responses = self.detector(gray, mask)
        lafs = scaled(lafs, self.magnification / DETECTED_MAGNIFICATION)
        return lafs, responses, self._describe_gray(gray, lafs)

    def describe(self, images: Tensor, lafs: Tensor) -> Tensor:
        """Descriptors (B, N, D) at given LAFs (B, N, 2, 3), as large as the patches are to be."""
        return self._describe_gray(as_gray_batch(images), lafs)

    def _describe_gray(self, gray: Tensor, lafs: Tensor) -> Tensor:
        planes = gray[:, 0].to(torch.promote_types(gray.dtype, torch.float32))
        _, height, width = planes.shape
        pyramid = pyramid_of(planes, max_depth((height, width)))
        some = max(1, self.chunk // max(1, len(lafs) * len(self.scales)))
        parts = lafs.to(gray.device, planes.dtype).split(some, dim=1)
        rows = [self._describe(pyramid, part) for part in parts]
        return torch.cat(rows, dim=1).to(gray.dtype)

    def _describe(self, pyramid: Pyramid, lafs: Tensor) -> Tensor:
        def patches(pixels: Tensor, lafs: Tensor) -> Tensor:
            levels, P = Pyramid(pixels, pyramid.shapes), self.descriptor.patch_size
            return torch.stack([sample(levels, scaled(lafs, f), P) for f in self.scales], dim=2)

        rows = self.descriptor.pooled(recomputed(patches, pyramid.pixels, lafs).flatten(0, 1))
        return rows.reshape(*lafs.shape[:2], self.descriptor.dim)

    def _ragged(self, images: Sequence[Tensor], masks: Any) -> tuple[list[Tensor], ...]:
        masks = [None] * len(images) if masks is None else masks
        results: tuple[list[Tensor], ...] = ([], [], [])
        for image, mask in zip(images, masks, strict=True):
            if image.dim() != 3:
                raise ValueError(f"images of a list must be (C, H, W), got {list(image.shape)}")
            found = self(image[None], None if mask is None else mask[None])
            filled = found[0][0].ne(0).any(-1).any(-1)
            for values, one in zip(results, found, strict=True):
                values.append(one[0][filled])
        return results


def hessian_detector(num_features: int, upright: bool = False) -> nn.Module:
    """Kornia's scale-space Hessian with dominant orientations; LAFs of 6 sigma."""
    try:
        from kornia.feature import BlobHessian, LAFOrienter, PassLAF, ScaleSpaceDetector
        from kornia.geometry import ScalePyramid
    except ImportError as error:
        raise ImportError("KDFeature needs kornia: pip install kd-cv[torch]") from error
    return ScaleSpaceDetector(
        num_features,
        resp_module=BlobHessian(),
        scale_pyr_module=ScalePyramid(3, 1.6, 32),
        ori_module=PassLAF() if upright else LAFOrienter(19),
        mr_size=DETECTED_MAGNIFICATION,
    )


def as_gray_batch(images: Tensor) -> Tensor:
    """(B, 1, H, W) of gray or RGB images."""
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a torch.Tensor or a list, got {type(images).__name__}")
    if images.dim() != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
        raise ValueError(
            "images must be a floating-point tensor of shape (B, 1, H, W) or (B, 3, H, W), "
            f"got {images.dtype} {list(images.shape)}"
        )
    if images.shape[1] == 1:
        return images
    from kornia.color import rgb_to_grayscale

    return rgb_to_grayscale(images)

"""`KDModule`: the descriptor of patches in torch.

The formulas are in `descriptor.reference`, the compiled CPU code in `descriptor.compiled`. This
module adds precision, devices, gradients and Kornia's conventions.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from kd_cv.descriptor import reference
from kd_cv.descriptor.describer import describe_patches, load_compiled
from kd_cv.descriptor.projection import Projection, project
from kd_cv.descriptor.spec import Spec
from kd_cv.nn.autograd import (
    CompiledRaw,
    autocasts,
    differentiated,
    full_precision,
    on_host,
    recomputed,
)
from kd_cv.settings import with_aliases
from kd_cv.whitening.files import Use
from kd_cv.whitening.registry import (
    DEFAULT_WEIGHTS,
    DEFAULT_WHITENING,
    Weights,
    projection_for,
    resolve,
)
from kd_cv.whitening.whitening import Whitening

CONSTANTS = ("smooth", "diff", "Phi", "T", "parts")
TENSORS = (*CONSTANTS, "mu", "A")

# Pixels described at a time, half with gradients. On the CPU a plane of them fits the cache.
CHUNK_CPU, CHUNK = 1 << 19, 1 << 24


class Float32Module(nn.Module):
    """A module whose tensors move between devices but stay float32."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        def move(t: Tensor) -> Tensor:
            moved = fn(t)
            return moved if moved.dtype == t.dtype else t.to(moved.device)

        return super()._apply(move, recurse)


class KDModule(Float32Module):
    """Describe patches: (B, 1, P, P) in 0..1 to (B, D) of unit norm.

    patch_size, kernel, whitening, weights, dim: as in `KDDescriptor`. With `trainable` the
    whitening (mu and A) is a parameter. use: "patches" for ready-made patches, like `describe`;
    "images" for patches sampled from images, like `KDDescriptor`.

    Tensors and computation stay float32 (float64 for float64 patches): `half`, `bfloat16` and
    autocast only change the type of the result. (Run TorchScript outside autocast.) A patch without
    texture gives zeros, with a gradient of zero.

    >>> KDModule(patch_size=32, whitening=None)(torch.rand(5, 1, 32, 32)).shape
    torch.Size([5, 238])
    """

    __jit_ignored_attributes__ = ("_float32",)
    smooth: Tensor
    diff: Tensor
    Phi: Tensor
    T: Tensor
    parts: Tensor
    exponent: Tensor
    mu: Tensor | None
    A: Tensor | None
    _float32: list[Tensor | None]

    @with_aliases
    def __init__(
        self,
        patch_size: int = 32,
        kernel: str = "concat",
        whitening: str | None = DEFAULT_WHITENING,
        weights: Weights = DEFAULT_WEIGHTS,
        dim: int = 128,
        trainable: bool = False,
        use: Use = "patches",
    ) -> None:
        super().__init__()
        spec = Spec(patch_size, kernel)
        projection = projection_for(spec, whitening, weights, dim, use)
        if trainable and projection is None:
            raise ValueError("trainable=True trains the whitening, but whitening is None")
        self.patch_size = int(patch_size)
        self.kernel = kernel
        self.whitening = whitening
        self.dim = projection.dim if projection else spec.dim
        self.use: Use = use
        self.power = projection.power if projection else 1.0
        self.register_buffer("exponent", _float32(self.power))  # `power`, for the state_dict
        for name in CONSTANTS:
            self.register_buffer(name, _float32(getattr(spec.constants, name)))
        for name in ("mu", "A"):
            value = _float32(getattr(projection, name)) if projection else None
            if trainable and value is not None:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)
        _remember(self)
        self.register_load_state_dict_pre_hook(_with_exponent)
        self.register_load_state_dict_post_hook(_loaded)

    @torch.jit.unused
    def as_whitening(self, weights: Weights = DEFAULT_WEIGHTS) -> Whitening:
        """Return the trained matrices as a `Whitening`, usable in `KDDescriptor` as "ws".

        weights  the matrices that training began with, which give the other variants
        """
        if self.mu is None or self.A is None or self.power != 1.0:
            raise ValueError(f"whitening {self.whitening!r} has no matrix that could be trained")
        began = resolve(weights, self.kernel, self.patch_size, use=self.use)
        mu, A = (tensor.detach().cpu().float().numpy() for tensor in (self.mu, self.A))
        if len(mu) != began.dim or A.shape[1] > began.max_dim:
            raise ValueError(
                f"the module has {A.shape[1]} of {len(mu)} dimensions, the matrices it is said to "
                f"have begun with {began.max_dim} of {began.dim}"
            )
        facts = {name: fact for name, fact in began.provenance.items() if name != "trained_on"}
        return replace(
            began, U=began.U[:, : A.shape[1]], A_s=A, mu_s=mu, A_m=None, mu_m=None,
            provenance={**facts, "trained": f"ws, in a KDModule that began with {self.whitening}"},
        )  # fmt: skip

    @property
    @torch.jit.unused
    def matrices(self) -> list[Tensor]:
        """Mean and matrix of the whitening; empty without whitening."""
        return [tensor for tensor in (self.mu, self.A) if tensor is not None]

    def forward(self, patches: Tensor) -> Tensor:
        """Describe patches (B, 1, P, P): (B, D)."""
        return self._describe(patches, 1)

    def pooled(self, patches: Tensor) -> Tensor:
        """Describe S patch sizes of each of B points, (B, S, P, P): (B, D).

        The raw vectors of the S patches are averaged, then whitened (domain-size pooling).
        """
        return self._describe(patches, patches.shape[1] if patches.dim() == 4 else 1)

    def _check(self, patches: Tensor, S: int) -> None:
        if torch.jit.is_tracing():  # sizes are not numbers
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
                f"this KDModule takes patches of shape (B, 1, {P}, {P}), got {shape}: "
                "patches[:, None] makes them of (N, P, P), which kd_cv.describe takes; tell Kornia "
                f"the size, LAFDescriptor(kd, patch_size={P}), or make one for your patches, "
                "KDModule(patch_size=...)"
            )
        if not patches.is_floating_point():
            raise TypeError(
                f"patches must be floating point, in 0..1, got {patches.dtype}: "
                "convert bytes with patches.float() / 255"
            )

    def _describe(self, patches: Tensor, S: int) -> Tensor:
        self._check(patches, S)
        if torch.jit.is_scripting() or torch.jit.is_tracing():
            c = (self.smooth, self.diff, self.Phi, self.T, self.parts)
            return plain(patches, S, self.power, c[0], c[1], c[2], c[3], c[4], self.mu, self.A)
        return self._eager(patches, S)

    @torch.jit.unused
    def _eager(self, patches: Tensor, S: int) -> Tensor:
        """Do the same as `plain` with little memory, in full precision, compiled where possible."""
        tensors = [getattr(self, name) for name in TENSORS]
        if self.Phi.dtype in (torch.float16, torch.bfloat16):
            tensors = [_uncast(*pair) for pair in zip(tensors, self._float32, strict=True)]
        # Without Numba there is no compiled way back.
        if self.compilable(patches) and (load_compiled() or not differentiated(patches)):
            spec, mu, A = Spec(self.patch_size, self.kernel), *tensors[-2:]
            flat = patches.float().flatten(0, 1)
            if S == 1 and mu is not None and A is not None and not differentiated(patches, mu, A):
                projection = Projection(mu.detach().numpy(), A.detach().numpy(), self.power)
                described = describe_patches(flat.detach().numpy(), spec, projection)
                return torch.from_numpy(described).to(patches.dtype)
            V = CompiledRaw.apply(flat, spec, *tensors[:-2])
            whiten = partial(whitened, S=S, power=self.power)
            if autocasts("cpu"):
                return recomputed(whiten, V, mu, A).to(patches.dtype)
            return whiten(V, mu, A).to(patches.dtype)
        describe = partial(_in_full_precision, S, self.power)
        if torch.compiler.is_compiling():
            return describe(patches, *tensors)
        chunk = CHUNK_CPU if patches.device.type == "cpu" else CHUNK
        if torch.is_grad_enabled():
            chunk //= 2
        parts = patches.split(max(1, chunk // max(1, patches.shape[1:].numel())))
        if len(parts) == 1 and not autocasts(patches.device.type):
            return describe(patches, *tensors)
        return torch.cat([recomputed(describe, part, *tensors) for part in parts])

    @torch.jit.unused
    def fusable(self, *tensors: Tensor) -> bool:
        """Whether compiled code exists for these tensors and they need no derivative."""
        return self.compilable(*tensors) and not differentiated(*tensors)

    @torch.jit.unused
    def compilable(self, *tensors: Tensor) -> bool:
        """Whether compiled code exists for these tensors."""
        return on_host(self.Phi, *tensors) and all(t.dtype != torch.float64 for t in tensors)

    def _apply(self, fn: Any, recurse: bool = True) -> "KDModule":
        super()._apply(fn, recurse)
        _remember(self)
        return self

    def extra_repr(self) -> str:
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
    """Describe patches (B, S, P, P) by torch operations, on any device and in TorchScript."""
    dtype = torch.float64 if patches.dtype == torch.float64 else torch.float32
    x = cast(patches, dtype).reshape(patches.shape[0] * S, patches.shape[2], patches.shape[3])
    V = reference.raw(
        x, cast(smooth, dtype), cast(diff, dtype), cast(Phi, dtype), cast(T, dtype),
        cast(parts, dtype),
    )  # fmt: skip
    return cast(whitened(V, mu, A, S, power), patches.dtype)


def _in_full_precision(S: int, power: float, patches: Tensor, *tensors: Any) -> Tensor:
    with full_precision(patches):
        return plain(patches, S, power, *tensors)


def whitened(V: Tensor, mu: Tensor | None, A: Tensor | None, S: int, power: float) -> Tensor:
    """Average each S raw vectors of (B * S, D) and project: (B, d)."""
    if S != 1:
        V = reference.normalised(V.reshape(V.shape[0] // S, S, V.shape[1]).sum(1))
    if mu is not None and A is not None:
        V = project(V, cast(mu, V.dtype), cast(A, V.dtype), power)
    return V


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert the type if needed: `to` always adds two operations to exported programs."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _float32(array: Any) -> Tensor:
    return torch.tensor(array, dtype=torch.float32)


def _remember(module: KDModule) -> None:
    """Keep the float32 tensors, for when cast ones replace them."""
    module._float32 = [getattr(module, name) for name in TENSORS]


def _uncast(given: Tensor | None, own: Tensor | None) -> Tensor | None:
    """Return the module's own tensor in place of a cast copy.

    functional_call, as in Kornia's LAFDescriptor, passes cast tensors.
    """
    if given is None or own is None or given.shape != own.shape:
        return given
    own = own.to(given.device)
    return torch.where((given == own.to(given.dtype)).all(), own, given.to(own.dtype))


def _with_exponent(module: KDModule, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Add the exponent to states of earlier versions."""
    state.setdefault(prefix + "exponent", module.exponent)


def _loaded(module: KDModule, _: Any) -> None:
    if module.exponent.device.type != "meta":
        module.power = float(module.exponent)
    _remember(module)

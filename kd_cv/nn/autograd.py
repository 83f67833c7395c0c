"""Memory-saving derivatives in full precision."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from kd_cv.descriptor import reference
from kd_cv.descriptor.describer import describe_patches
from kd_cv.descriptor.spec import Spec


class _Recomputed(torch.autograd.Function):
    """Call function(*tensors); keep only the tensors, and compute the rest again for the gradient.

    Both passes are in full precision: a `backward` inside autocast would multiply in bfloat16.
    """

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*tensors)
        with full_precision(*tensors):
            return function(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        twice = torch.is_grad_enabled()  # for a second derivative
        needed = ctx.needs_input_grad[1:]
        pairs = zip(ctx.saved_tensors, needed, strict=True)
        with full_precision(*ctx.saved_tensors):
            with torch.enable_grad():
                tensors = [t.view_as(t) if need else t for t, need in pairs]
                output = ctx.function(*tensors)
            inputs = [t for t, need in zip(tensors, needed, strict=True) if need]
            gradients = iter(torch.autograd.grad(output, inputs, grads, create_graph=twice))
        return None, *(next(gradients) if need else None for need in needed)


class CompiledRaw(torch.autograd.Function):
    """Compute raw vectors (N, D) of float32 patches (N, P, P) and their gradient by compiled code.

    constants: those of `reference.raw`, for second derivatives.
    """

    @staticmethod
    def forward(ctx: Any, patches: Tensor, spec: Spec, *constants: Tensor) -> Tensor:
        ctx.spec, ctx.constants = spec, constants
        ctx.save_for_backward(patches)
        return torch.from_numpy(describe_patches(patches.detach().numpy(), spec))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (patches,) = ctx.saved_tensors
        rest = (None,) * (1 + len(ctx.constants))
        if torch.is_grad_enabled():  # for a second derivative
            seen = patches.view_as(patches)
            V = reference.raw(seen, *ctx.constants)
            return *torch.autograd.grad(V, seen, grads, create_graph=True), *rest
        from kd_cv.descriptor.backward import patch_gradients

        gradient = patch_gradients(patches.detach().numpy(), grads[0].numpy(), ctx.spec)
        return torch.from_numpy(gradient), *rest


def recomputed(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """Call function(*tensors), with little memory if a gradient is asked for."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or followed(*tensors):
        return function(*tensors)
    return _Recomputed.apply(function, *tensors)


def full_precision(*tensors: Tensor | None) -> AbstractContextManager[Any]:
    device = next(t.device.type for t in tensors if t is not None)
    return torch.autocast(device, enabled=False) if autocasts(device) else nullcontext()


def autocasts(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def differentiated(*tensors: Tensor) -> bool:
    reverse = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return reverse or followed(*tensors)


def on_host(*tensors: Tensor) -> bool:
    """Whether compiled code may read the tensors: on the CPU, and not traced."""
    return (
        not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not followed(*tensors)
        and all(t.device.type == "cpu" and type(t) in (Tensor, Parameter) for t in tensors)
    )


def followed(*tensors: Tensor | None) -> bool:
    """Whether torch.func (vmap, grad, ...) or forward-mode differentiation is active."""
    duals = (torch.autograd.forward_ad.unpack_dual(t) for t in tensors if t is not None)
    return torch._C._are_functorch_transforms_active() or any(d.tangent is not None for d in duals)

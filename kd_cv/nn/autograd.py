"""Derivatives in little memory, and whether somebody asks for them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


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
        gradients = iter(torch.autograd.grad(rows, inputs, grads, create_graph=twice))
        return None, *(next(gradients) if need else None for need in needed)


def recomputed(function: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """function(*tensors), in little memory where a gradient is asked for."""
    if followed(*tensors):
        return function(*tensors)
    return _Recomputed.apply(function, *tensors)


def differentiated(*tensors: Tensor) -> bool:
    """Whether somebody asks for a derivative by one of the tensors."""
    reverse = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return reverse or followed(*tensors)


def followed(*tensors: Tensor | None) -> bool:
    """Whether torch.func (vmap, grad, ...) or forward-mode differentiation looks at each step."""
    duals = (torch.autograd.forward_ad.unpack_dual(t) for t in tensors if t is not None)
    return torch._C._are_functorch_transforms_active() or any(d.tangent is not None for d in duals)

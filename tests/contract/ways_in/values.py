"""Arguments in other types and layouts, and what they hold."""

from typing import Any

import cv2
import numpy as np


def relaid(argument: Any, layout: str) -> Any:
    """An equal array (tensor, list of arrays) in another layout; all else as it is."""
    if isinstance(argument, list):
        return [relaid(item, layout) for item in argument]
    if is_torch(argument):
        import torch

        return torch.from_numpy(relaid(argument.numpy(), layout))
    if not isinstance(argument, np.ndarray) or argument.dtype == object:
        return argument
    if layout == "read-only":
        view = argument.copy()
        view.flags.writeable = False
    elif layout == "strided":
        view = np.repeat(argument, 2, axis=-1)[..., ::2]
    elif layout == "reversed":
        view = np.ascontiguousarray(argument[..., ::-1, ::-1])[..., ::-1, ::-1]
    elif layout == "Fortran order":
        view = np.asfortranarray(argument)
    else:
        view = np.pad(argument, [(1, 2)] * argument.ndim)[(slice(1, -2),) * argument.ndim]
    assert np.array_equal(view, argument)
    return view


def cast(argument: Any, dtype: str) -> Any:
    """The same image in another type; bytes become 0..65535 or 0..1."""
    if not dtype:
        return argument
    if isinstance(argument, list):
        return [cast(item, dtype) for item in argument]
    if is_torch(argument):
        import torch

        return argument.to(getattr(torch, dtype))
    if isinstance(argument, np.ndarray) and argument.dtype == np.uint8:
        return (argument * (257.0 if dtype == "uint16" else 1 / 255)).astype(dtype)
    return argument


def values(argument: Any) -> Any:
    """Numbers of an array, tensor, keypoint, or nested lists of them."""
    if isinstance(argument, list | tuple):
        return [values(item) for item in argument]
    if isinstance(argument, cv2.KeyPoint):
        k = argument
        return (*k.pt, k.size, k.angle, k.response, k.octave, k.class_id)
    return argument.numpy() if is_torch(argument) else argument


def arrays(argument: Any) -> list[np.ndarray]:
    """All arrays in nested lists, tensors as arrays of the same memory."""
    if isinstance(argument, list | tuple):
        return [array for item in argument for array in arrays(item)]
    if is_torch(argument):
        return [argument.numpy()]
    return [argument] if isinstance(argument, np.ndarray) else []


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, in nested lists too."""
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def is_torch(argument: Any) -> bool:
    return type(argument).__module__ == "torch"

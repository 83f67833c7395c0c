"""Kornia's names of the arguments that `KDModule` and `KDDescriptor` share with MKDDescriptor."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

NAMES = {"kernel_type": "kernel", "output_dims": "dim", "training_set": "weights"}
T = TypeVar("T", bound=Callable[..., None])


def understands_kornia(init: T) -> T:
    """Let a constructor take the arguments of kornia.feature.MKDDescriptor by their names there."""

    @wraps(init)
    def with_either(self: Any, *arguments: Any, **named: Any) -> None:
        for theirs, ours in NAMES.items():
            if theirs in named:
                if ours in named:
                    raise TypeError(f"{theirs} is another name of {ours}: give only one of them")
                named[ours] = named.pop(theirs)
        init(self, *arguments, **named)

    return with_either  # type: ignore[return-value]

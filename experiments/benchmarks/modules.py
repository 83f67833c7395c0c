"""The torch modules that are compared. It imports torch and kornia when they are asked for."""

from typing import Any


def kornia_mkd(patch_size: int) -> Any:
    _, feature = torch_and_kornia()
    return feature.MKDDescriptor(patch_size, "concat", whitening=None)


def plain_module(patch_size: int) -> Any:
    """A `KDModule` that takes the way of a GPU: plain torch operations, nothing compiled."""
    from kd_cv.nn.module import KDModule

    class PlainModule(KDModule):
        def compilable(self, *tensors: Any) -> bool:
            return False

    return PlainModule(patch_size, whitening=None)


def torch_and_kornia() -> tuple[Any, Any]:
    try:
        import kornia.feature
        import torch
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'kd-cv[torch]'") from error
    return torch, kornia.feature

"""The ways in for torch."""

from typing import Any

import numpy as np

from ways_in.entry import LAYOUTS, Entry, Rows


def as_images(batch: np.ndarray) -> Any:
    """(B, H, W) bytes as a float tensor (B, 1, H, W) in 0..1."""
    import torch

    return torch.from_numpy(batch[:, None].astype(np.float32) / 255)


def is_tensor(tensor: Any, dim: int) -> None:
    import torch

    assert type(tensor) is torch.Tensor and tensor.dim() == dim and tensor.is_floating_point()


class OfKDModule(Entry):
    """KDModule on patches."""

    name = "KDModule"
    needs = ("torch",)
    types = ("float16", "bfloat16", "float64")
    layout_names = LAYOUTS[:3]  # the others are not there in torch
    side = 32

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        return (as_images(batch),)

    def call(self, patches: Any) -> Any:
        from kd_cv import KDModule

        rows = KDModule().to(patches.device)(patches)
        assert rows.device == patches.device
        return rows

    def rows(self, result: Any) -> Rows:
        is_tensor(result, 2)
        return [row[None] for row in result.double().numpy()]

    def type_of(self, result: Any) -> str:
        return str(result.dtype)


class OfKDFeature(Entry):
    """KDFeature on images."""

    name = "KDFeature"
    needs = ("torch", "kornia")
    slow = True
    types = ("float64",)
    layout_names = LAYOUTS[:3]  # the others are not there in torch
    side = 64
    tolerance = 1e-4  # convolutions of a batch are summed in another order

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        return (as_images(batch),)

    def call(self, images: Any) -> Any:
        import torch

        from kd_cv import KDFeature

        with torch.no_grad():
            found = KDFeature(20).to(images.device)(images)
        assert all(tensor.device == images.device for tensor in found)
        return found

    def rows(self, result: Any) -> Rows:
        lafs, responses, descriptors = result
        B, N = responses.shape
        assert lafs.shape == (B, N, 2, 3) and descriptors.shape == (B, N, 128)
        for tensor, dim in ((lafs, 4), (responses, 2), (descriptors, 3)):
            is_tensor(tensor, dim)
        return list(descriptors.double().numpy())

    def type_of(self, result: Any) -> str:
        (dtype,) = {str(tensor.dtype) for tensor in result}
        return dtype

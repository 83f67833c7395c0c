"""Synthetic views (see `kd_cv.views`) by torch operations of fixed shapes."""

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from kd_cv.nn.module import Float32Module
from kd_cv.nn.sampling import arange, area, mirrored
from kd_cv.views import (
    BLUR,
    MARGIN,
    SAME_ANGLE,
    SAME_PLACE,
    SAME_SIZE,
    TEN,
    bounds,
    from_image,
    rotation,
)


class Views(Float32Module):
    """Compute views of images (B, H, W)."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        for tilt in {tilt for tilt, _ in TEN[: count - 1]}:
            sigma = BLUR * np.sqrt(tilt**2 - 1)
            taps = cv2.getGaussianKernel(2 * int(3 * sigma) + 1, sigma, cv2.CV_32F)
            self.register_buffer(f"taps{tilt:g}", torch.from_numpy(taps[:, 0]), persistent=False)

    def image(self, images: Tensor, view: int) -> Tensor:
        """Return the view of images (B, H, W): (B, h, w). Differentiable."""
        if view == 0:
            return images
        tilt, direction = TEN[view - 1]
        if direction not in (0.0, 90.0):
            x, y = _places(images, direction)
            height, width = images.shape[1:]
            grid = torch.stack([x * (2 / (width - 1)), y * (2 / (height - 1))], 2) - 1
            grid = grid.clamp(-1, 1).expand(len(images), -1, -1, -1)
            images = F.grid_sample(images[:, None], grid, align_corners=True)[:, 0]
        taps = self.get_buffer(f"taps{tilt:g}").to(images.dtype)
        reach, down = len(taps) // 2, direction == 90.0
        padded = mirrored(images, [0, 0, reach, reach] if down else [reach, reach, 0, 0])
        return (padded.unfold(1 if down else 2, len(taps), int(tilt)) * taps).sum(3)

    def mask(self, images: Tensor, mask: Tensor | None, view: int) -> Tensor | None:
        """Return where a view shows the image and its mask (B, H, W) is set; None if everywhere."""
        tilt, direction = (1.0, 0.0) if view == 0 else TEN[view - 1]
        if direction in (0.0, 90.0):
            step = int(tilt)
            return mask if mask is None else mask[:, ::step] if direction else mask[:, :, ::step]
        height, width = images.shape[1:]
        x, y = ((a[:, :: int(tilt)] + 0.5).floor().long() for a in _places(images, direction))
        inside = (x >= MARGIN) & (x < width - MARGIN) & (y >= MARGIN) & (y < height - MARGIN)
        inside = inside.expand(len(images), -1, -1)
        if mask is None:
            return inside
        index = y.clamp(0, height - 1) * width + x.clamp(0, width - 1)
        seen = mask.flatten(1).gather(1, index.flatten()[None].expand(len(mask), -1))
        return inside & seen.view(inside.shape)


def _places(images: Tensor, direction: float) -> tuple[Tensor, Tensor]:
    """Return x and y, (h, w) each, in images (B, H, W) of the pixels of rotated images."""
    shape = images.shape[1], images.shape[2]
    M = rotation(direction, shape)
    width, height = bounds(M, shape)
    (a, b, x), (c, d, y) = cv2.invertAffineTransform(M).tolist()
    u, v = arange(width, images, images.dtype), arange(height, images, images.dtype)[:, None]
    return a * u + b * v + x, c * u + d * v + y


def upright_in(shape: tuple[int, int], view: int) -> float:
    return float(np.rad2deg(np.arctan2(*from_image(shape, view)[::-1, 0])) % 360)


def to_image(lafs: Tensor, shape: tuple[int, int], view: int) -> Tensor:
    """Map LAFs (B, N, 2, 3) of a view to the image (H, W): round LAFs become affine."""
    if view == 0:
        return lafs
    M = cv2.invertAffineTransform(from_image(shape, view)).tolist()
    upper, lower = lafs.unbind(2)
    rows = [
        torch.cat([row[..., :2], row[..., 2:] + shift], 2)
        for row, shift in ((a * upper + b * lower, shift) for a, b, shift in M)
    ]
    return torch.stack(rows, 2)


def repeated(lafs: Tensor, views: Tensor, chosen: Tensor) -> Tensor:
    """`views.repeated` for LAFs (B, N, 2, 3) with their views (B, N): (B, N).

    chosen (B, N): slots that hold a keypoint.
    """
    size = 0.5 * area(lafs).log2()
    angle = torch.rad2deg(torch.atan2(lafs[..., 1, 0], lafs[..., 0, 0]))

    def apart(values: Tensor) -> Tensor:
        return values[:, :, None] - values[:, None]  # of each keypoint to all that are stronger

    rank = arange(lafs.shape[1], lafs, torch.int64)
    x, y = lafs[..., 2].unbind(2)
    same = (rank[:, None] > rank) & (views[:, :, None] != views[:, None]) & chosen[:, None]
    same = same & (apart(x).square() + apart(y).square() <= SAME_PLACE**2)
    same = same & (apart(size).abs() < SAME_SIZE)
    turned = (apart(angle) + 180) % 360 - 180
    return (same & (turned.abs() < SAME_ANGLE)).any(2)

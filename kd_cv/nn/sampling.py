"""`sampling` once more, in torch: at LAFs, in batches, differentiable, on any device, exportable.

The pyramid, the level of a patch and its samples are those of `sampling`, so a round LAF gives the
patch of its keypoint.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kd_cv.descriptor.patches import FADE, SHARPNESS
from kd_cv.gray import MAX_SIDE
from kd_cv.nn.lafs import scaled


class Pyramid(NamedTuple):
    """Images and their halvings: all pixels (B, sum of h * w), and the (h, w) of each level."""

    pixels: Tensor
    shapes: list[Sequence[int]]


def pyramid_of(images: Tensor, depth: int) -> Pyramid:
    """Images (B, H, W) and `depth` halvings of them."""
    levels = [images]
    for _ in range(depth):
        levels.append(halved(levels[-1]))
    return Pyramid(torch.cat([x.flatten(1) for x in levels], dim=1), [x.shape[1:] for x in levels])


def halved(images: Tensor) -> Tensor:
    """cv2.pyrDown of (B, H, W): smoothed by 1 4 6 4 1 both ways, then every second pixel."""
    for _ in range(2):  # down the rows, then, transposed, along them
        last = images.shape[1] - 1
        rows = 2 * torch.arange(last // 2 + 1, device=images.device)
        # Reflected about the centres of the outermost pixels.
        indices = [(last - (last - (rows + k).abs()).abs()).clamp(min=0) for k in range(-2, 3)]
        a, b, c, d, e = (images[:, index] for index in indices)
        images = ((a + e + 4 * (b + d) + 6 * c) / 16).transpose(1, 2)
    return images


def sample_scales(
    pyramid: Pyramid, lafs: Tensor, scales: Sequence[float], patch_size: int
) -> Tensor:
    """Patches (B, N, S, P, P) at LAFs (B, N, 2, 3), each at S scales of it."""
    return torch.stack([sample(pyramid, scaled(lafs, f), patch_size) for f in scales], dim=2)


def sample(pyramid: Pyramid, lafs: Tensor, patch_size: int) -> Tensor:
    """Bilinear patches (B, N, P, P) at LAFs (B, N, 2, 3); zeros where there is none.

    From the level where samples are about a pixel apart; of an affine LAF, in the mean of its axes.
    """
    P = patch_size
    good = describable(lafs, pyramid.shapes[0])[..., None, None]
    lafs = torch.where(good, lafs, 0.0)
    pitch = 2 / P * area(lafs.detach()).sqrt()
    level = (torch.log2(pitch) + SHARPNESS).floor().clamp(0, len(pyramid.shapes) - 1)

    # Where each patch's level begins in the pyramid, and how large it is. Sizes become tensors
    # first: the ONNX exporter knows no product of a tensor and a symbolic size.
    start, height, width = (torch.zeros_like(level, dtype=torch.int64) for _ in range(3))
    for index, shape in enumerate(pyramid.shapes):
        h, w = (torch.full_like(start, side) for side in shape)
        start = start + h * w * (level > index)
        height, width = height + h * (level == index), width + w * (level == index)
    start, height, width = (t[..., None, None] for t in (start, height, width))

    # The centres of P x P equal cells of the square c + A [-1, 1]^2.
    u = (2 * torch.arange(P, device=lafs.device, dtype=lafs.dtype) + 1) / P - 1
    u, v = u[None, :], u[:, None]
    in_level = lafs * torch.exp2(-level)[..., None, None]
    ax, bx, cx, ay, by, cy = in_level.flatten(2)[..., None, None].unbind(2)
    x_there, y_there = cx + ax * u + bx * v, cy + ay * u + by * v
    x = x_there.clamp(min=0).minimum(width - 1)
    y = y_there.clamp(min=0).minimum(height - 1)
    x0, y0 = x.detach().to(torch.int64), y.detach().to(torch.int64)
    x1, y1 = (x0 + 1).minimum(width - 1), start + (y0 + 1).minimum(height - 1) * width
    fx, fy = x - x0, y - y0
    y0 = start + y0 * width
    a, b, c, d = (
        pyramid.pixels.gather(1, index.flatten(1)).reshape(x.shape)
        for index in (y0 + x0, y0 + x1, y1 + x0, y1 + x1)
    )
    upper = a + fx * (b - a)
    repeated = upper + fy * (c + fx * (d - c) - upper)
    beyond = (x_there - x).abs() + (y_there - y).abs()
    mean = repeated.mean((-2, -1), keepdim=True)
    return (mean + (1 - beyond / FADE).clamp(min=0) * (repeated - mean)) * good


def describable(lafs: Tensor, shape: Sequence[int]) -> Tensor:
    """Which LAFs (B, N, 2, 3) have a patch that overlaps an image of `shape` (H, W): (B, N).

    The limits of the side are those of `frames.describable`.
    """
    ax, bx, x, ay, by, y = lafs.flatten(2).unbind(2)
    reach_x, reach_y = ax.abs() + bx.abs(), ay.abs() + by.abs()
    inside = (x + reach_x > -0.5) & (y + reach_y > -0.5)
    inside = inside & (x - reach_x < shape[1] - 0.5) & (y - reach_y < shape[0] - 0.5)
    side = 2 * area(lafs).sqrt()
    sensible = (side >= 1 / MAX_SIDE) & (side <= MAX_SIDE)
    return inside & sensible & (lafs.abs() < torch.inf).flatten(2).all(2)


def area(lafs: Tensor) -> Tensor:
    """|det A| of LAFs (B, N, 2, 3): the square of their scale, (B, N)."""
    return (lafs[..., 0, 0] * lafs[..., 1, 1] - lafs[..., 0, 1] * lafs[..., 1, 0]).abs()

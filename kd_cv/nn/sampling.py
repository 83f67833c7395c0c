"""Sample patches at LAFs in torch: batched, differentiable, on any device, exportable.

Pyramid, levels and samples are those of `descriptor.patches`, so a round LAF gives the patch of its
keypoint.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from kd_cv.descriptor.patches import FADE, SHARPNESS
from kd_cv.gray import MAX_SIDE
from kd_cv.nn.autograd import recomputed
from kd_cv.nn.lafs import scaled


class TensorPyramid(NamedTuple):
    """Images and their halvings.

    pixels  (B, sum of h * w) of all levels
    starts  (levels,) offset of each level
    shape   (H, W) of the first
    """

    pixels: Tensor
    starts: Tensor
    shape: Sequence[int]


def pyramid_of(images: Tensor, depth: int) -> TensorPyramid:
    """Halve images (B, H, W) `depth` times."""
    levels = [images[:, None]]
    for _ in range(depth):
        levels.append(recomputed(halved, levels[-1]))
    sizes = [images.new_full((1,), x.shape[2] * x.shape[3], dtype=torch.int64) for x in levels]
    starts = F.pad(torch.cat(sizes)[:-1].cumsum(0), (1, 0))
    return TensorPyramid(torch.cat([x.flatten(1) for x in levels], dim=1), starts, images.shape[1:])


def halved(images: Tensor) -> Tensor:
    """cv2.pyrDown of (B, 1, H, W): smooth by 1 4 6 4 1 both ways, then take every second pixel."""
    padded = mirrored(images, [2, 2, 2, 2])
    for _ in range(3):  # 1 4 6 4 1 is 1 1 four times
        padded = F.avg_pool2d(padded, 2, 1)
    return F.avg_pool2d(padded, 2, 2)


def mirrored(images: Tensor, wanted: list[int]) -> Tensor:
    """Pad images (..., H, W) by mirrored pixels: left, right, above, below."""
    height, width = images.shape[-2:]
    if not all(isinstance(side, int) and side > 1 for side in (height, width)):
        # One pixel, or a size that an exported program is yet to see.
        rows = _mirrored_line(height, wanted[2], images)
        columns = _mirrored_line(width, wanted[0], images)
        return images[..., rows, :][..., columns]
    while any(wanted):  # a reflection is smaller than its image: a small one needs several
        height, width = images.shape[-2:]
        most = (width - 1, width - 1, height - 1, height - 1)
        now = [min(pair) for pair in zip(wanted, most, strict=True)]
        images = F.pad(images, now, "reflect")
        wanted = [pixels - done for pixels, done in zip(wanted, now, strict=True)]
    return images


def _mirrored_line(size: int, reach: int, like: Tensor) -> Tensor:
    """Return indices of the pixels of a line and `reach` mirrored ones at either side."""
    last, index = size - 1, arange(size + 2 * reach, like, torch.int64) - reach
    return (last - (last - index.abs()).abs()).clamp(min=0)


def arange(count: int, like: Tensor, dtype: torch.dtype) -> Tensor:
    """Call torch.arange on the device of `like` without naming it, so that programs can move."""
    return like.new_ones(count, dtype=dtype).cumsum(0) - 1


def sample_scales(
    pyramid: TensorPyramid, lafs: Tensor, scales: Sequence[float], patch_size: int
) -> Tensor:
    """Sample patches (B, N, S, P, P) at S scales of LAFs (B, N, 2, 3)."""
    if tuple(scales) == (1.0,):
        return sample(pyramid, lafs, patch_size)[:, :, None]
    return torch.stack([sample(pyramid, scaled(lafs, f), patch_size) for f in scales], dim=2)


def sample(pyramid: TensorPyramid, lafs: Tensor, patch_size: int) -> Tensor:
    """Sample bilinear patches (B, N, P, P) at LAFs (B, N, 2, 3); zeros where there is no patch.

    The level is the one where samples are about a pixel apart, in the mean of a LAF's axes.
    """
    P = patch_size
    side = sides(lafs.detach(), pyramid.shape)[..., None, None]
    none = side == 0
    lafs = lafs.masked_fill(none, 0.0)
    level = (torch.log2(side / P) + SHARPNESS).floor().clamp(0, len(pyramid.starts) - 1)

    # Where each patch's level begins, and its size: halving rounds up. Sizes become tensors first:
    # the ONNX exporter knows no product of a tensor and a symbolic size.
    start = pyramid.starts[level.long()]
    shrink = torch.exp2(-level)
    height, width = ((torch.full_like(level, side) * shrink).ceil() for side in pyramid.shape)

    # The centres of P x P equal cells of the square c + A [-1, 1]^2, as (B, N, 2, P, P).
    u = (2 * arange(P, lafs, lafs.dtype) + 1) / P - 1
    a, b, c = (lafs * shrink)[..., None, None].unbind(3)
    there = c + a * u + b * u[:, None]
    last = torch.stack([width, height], 2) - 1
    inside = there.clamp(min=0).minimum(last)
    corner = inside.detach().floor()
    fx, fy = (inside - corner).unbind(2)
    (x, y), (right, down) = corner.long().unbind(2), (corner < last).unbind(2)
    line = width.long()
    first, down = start + y * line + x, down * line
    corners = torch.stack([first, first + right, first + down, first + down + right], 1)
    pixels = pyramid.pixels.gather(1, corners.flatten(1))
    a, b, c, d = pixels.view_as(corners).unbind(1)
    upper = a + fx * (b - a)
    repeated = upper + fy * (c + fx * (d - c) - upper)
    beyond = (there - inside).abs().sum(2)
    mean = repeated.mean((-2, -1), keepdim=True)
    faded = mean + (1 - beyond / FADE).clamp(min=0) * (repeated - mean)
    return faded.masked_fill(none, 0.0)


def sides(lafs: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the sides (B, N) in pixels of the patches of LAFs (B, N, 2, 3).

    0 where the patch does not overlap an image of `shape` (H, W) or exceeds the limits of
    `frames.describable`.
    """
    centre, reach = lafs[..., 2], lafs[..., :2].abs().sum(3)
    left, above = (centre - reach).unbind(2)
    good = (left < shape[1] - 0.5) & (above < shape[0] - 0.5) & (centre + reach > -0.5).all(2)
    side = 2 * area(lafs).sqrt()
    return side.masked_fill(~(good & (side >= 1 / MAX_SIDE) & (side <= MAX_SIDE)), 0.0)


def area(lafs: Tensor) -> Tensor:
    """|det A| (B, N) of LAFs (B, N, 2, 3), the square of their scale."""
    ax, bx, _, ay, by, _ = lafs.flatten(2).unbind(2)
    return (ax * by - bx * ay).abs()

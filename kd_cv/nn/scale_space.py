"""Extrema of the scale space by torch operations of fixed shapes.

The numbers are those of `detector`. A fixed number of slots, filled with the strongest candidates,
replaces lists, so the detector is one graph that runs on any device, compiles and exports.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from kd_cv.detector import reference
from kd_cv.detector.detect import DEVIATION, ROUNDING
from kd_cv.detector.scale_space import CANDIDATE, FEW, REACH, ScaleSpace
from kd_cv.nn.sampling import mirrored

#: Pixels of a line that one product of matrices blurs.
BLOCK = 64
#: Candidates for each keypoint that is asked for, and some more: many lie on edges.
CANDIDATES, MORE = 2, 2048
#: A deviation that is less by this factor than the mean is rounding of float32.
EPSILON = 1e-6


def bands(kernels: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """Return symmetric taps as matrices (n, BLOCK + 2 reach, BLOCK), reach that of the longest.

    pixels @ matrix blurs BLOCK pixels of a line; pixels has `reach` more at either side.
    """
    reach = max(len(kernel) for kernel in kernels) // 2
    matrices = np.zeros((len(kernels), BLOCK + 2 * reach, BLOCK), np.float32)
    for matrix, kernel in zip(matrices, kernels, strict=True):
        first = reach - len(kernel) // 2
        for i in range(BLOCK):
            matrix[i + first : i + first + len(kernel), i] = kernel
    return matrices


def constants(space: ScaleSpace) -> dict[str, NDArray[Any]]:
    """Return the arrays that `extrema` needs, by name."""
    # Each level from the image, and from the first level of its octave: blurs add up.
    image, octave = (list(accumulate(taps, np.convolve)) for taps in (space.taps, space.taps[1:]))
    cube = np.indices((3, 2 * REACH + 1, 2 * REACH + 1)).reshape(3, -1)
    return {"image": bands(image), "octave": bands(octave), "cube": cube, **reference.FIT._asdict()}


def extrema(
    images: Tensor, mask: Tensor | None, space: ScaleSpace, count: int, c: dict[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Find the `count` strongest extrema of images (B, H, W), in order.

    Returns x, y and sigma (B, count, 3) and strengths (B, count), 0 in empty slots. c:
    `constants` as tensors.
    """
    octaves = space.octaves(images.shape[1:])
    if not octaves:
        empty = images.new_zeros(len(images), count, 4)
        return empty[..., :3], empty[..., 3]
    levels = blurred(images * gain_of(images, mask), c["image"])
    differences, scores = [], []
    for o in range(octaves):
        if o:
            level = levels[space.layers, :, ::2, ::2]
            levels = torch.cat([level[None], blurred(level, c["octave"])])
        D = levels[1:] - levels[:-1]
        both = torch.stack([D, -D]).transpose(1, 2)
        threshold = CANDIDATE * space.smallest(space.least, o)
        differences.append(both[0].flatten(1))
        scores.append(peaks(both, threshold).amax(0).flatten(1) * space.strength(1.0, o, 0))
    places, octave, found, cubes = _candidates(
        torch.cat(scores, 1), torch.cat(differences, 1), space, images.shape, count, c["cube"]
    )
    fit = reference.Fit(*(c[name] for name in reference.Fit._fields))
    t, value, good = reference.fitted(cubes, fit, 0.0, space.roundness)
    places = places + t.view_as(places)
    plane = octave * (space.layers + 2)
    octave = octave.to(t.dtype)
    x, y, layer = places.unbind(0)
    strength = space.strength(value.view_as(x), octave, layer)
    good = good.view_as(x) & (found > 0) & (strength >= space.least)
    step = torch.exp2(octave)
    sigma = space.sigma * torch.exp2(octave + layer / space.layers)
    scaled = torch.stack([x * step, y * step, sigma], 2)
    if mask is not None:
        good = good & _inside(scaled, mask)
    strength = strength * good
    # No two extrema lie in one cell of their octave.
    height, width = images.shape[1:]
    column, line, layer = places.round().long().unbind(0)
    cell = ((plane + layer) * height + line) * width + column
    return _distinct(scaled, strength, cell, space, count)


def _candidates(
    found: Tensor, D: Tensor, space: ScaleSpace, shape: tuple[int, ...], count: int, cube: Tensor
) -> tuple[Tensor, ...]:
    """Gather cubes of D (B, more pixels) around the largest of found (B, pixels).

    Octave by octave, found has layers 1..n and D layers 0..n + 1. Returns x, y, layer (3, B, K),
    octave (B, K), values (B, K), 0 in empty slots, and cubes (3, 5, 5, B K).
    """
    n, (_, h, w) = space.layers, shape
    found, index = found.topk(min(CANDIDATES * count + MORE, found.shape[1]))
    octave, start = torch.zeros_like(index), torch.zeros_like(index)
    first = 0
    for _ in range(space.octaves(shape[1:]) - 1):
        first, h, w = first + n * h * w, (h + 1) // 2, (w + 1) // 2
        later = index >= first
        octave, start = octave + later, start.masked_fill(later, first)
    shrink = torch.exp2(-octave.to(D.dtype))
    height, width = ((shrink * side).ceil().long() for side in shape[1:])
    index = index - start
    row = index // width
    x, layer = index - row * width, row // height
    y = row - layer * height
    # From the middle of a cube to its corner; D has two more layers than found in each octave.
    corner = start // n * (n + 2) + index - REACH * (width + 1)
    around = (cube[0] * height[..., None] + cube[1]) * width[..., None] + cube[2]
    around = (corner[..., None] + around).clamp(min=0)
    cubes = D.gather(1, around.flatten(1)).view(-1, cube.shape[1]).T.reshape(3, 5, 5, -1)
    return torch.stack([x, y, layer + 1]), octave, found, cubes


def peaks(D: Tensor, threshold: float) -> Tensor:
    """Keep D (..., n + 2, H, W) where it exceeds the threshold and its 26 neighbours, else 0.

    Of layers 1..n; 0 in a border of REACH pixels. Of equal neighbours the last one counts, as in
    `reference.candidates`.
    """
    *leading, layers, height, width = D.shape
    plane = height * width
    # All pixels in a row: a step in x, y or scale is one of 1, W or H W pixels.
    D = D.reshape(*leading, -1)
    lines = _widest(D, 1)
    blocks = _widest(lines, width)
    margin = width + 1  # where not all neighbours are in these arrays, and no extremum counts
    inner = plane * (layers - 2) - 2 * margin
    c = D.narrow(-1, plane + margin, inner)
    before, after = (
        blocks.narrow(-1, plane + sign * plane, inner)
        .maximum(lines.narrow(-1, plane + sign * width + width, inner))
        .maximum(D.narrow(-1, plane + margin + sign, inner))
        for sign in (-1, 1)
    )
    found = F.pad(c * ((c > threshold) & (c >= before) & (c > after)), (margin, margin))
    found = found.reshape(*leading, layers - 2, height, width)
    found = found[..., REACH : height - REACH, REACH : width - REACH]
    return F.pad(found, (REACH, REACH, REACH, REACH))


def _widest(values: Tensor, step: int) -> Tensor:
    """Return the largest of three values (..., N) at distance `step`: (..., N - 2 step)."""
    inner = values.shape[-1] - 2 * step
    a, b, c = (values.narrow(-1, start, inner) for start in (0, step, 2 * step))
    return a.maximum(b).maximum(c)


def _distinct(
    places: Tensor, strength: Tensor, cell: Tensor, space: ScaleSpace, count: int
) -> tuple[Tensor, Tensor]:
    """Keep the `count` strongest places (B, K, 3), and only the strongest of each cell."""
    strength, order = strength.topk(min(2 * count + FEW, strength.shape[1]))
    size = strength.shape[1]
    ranks = torch.ones_like(order).cumsum(1) - 1
    # Cell by cell, the strongest first: a duplicate comes after one of its cell.
    key = (cell.gather(1, order) * size + ranks).sort(1).values
    cell = key // size
    rank = key - cell * size
    alone = F.pad(cell[:, 1:] != cell[:, :-1], (1, 0), value=True)
    strength = strength.gather(1, rank) * alone
    strength, best = strength.topk(min(count, size))
    order = order.gather(1, rank.gather(1, best))
    places = places.gather(1, order[..., None].expand(-1, -1, 3))
    enough = (strength >= space.threshold) | (ranks[:, : strength.shape[1]] < FEW)
    missing = count - strength.shape[1]
    return F.pad(places, (0, 0, 0, missing)), F.pad(strength * enough, (0, missing))


def blurred(images: Tensor, matrices: Tensor) -> Tensor:
    """Blur images (B, H, W) both ways by each of n `bands`, mirrored at borders: (n, B, H, W).

    By matrix products, which devices compute in full precision, unlike convolutions.
    """
    count, window, block = matrices.shape
    batch, height, width = images.shape
    reach = (window - block) // 2
    blocks, columns = -(-height // block), -(-width // block) * block
    right, below = columns - width, blocks * block - height  # whole blocks
    padded = mirrored(images, [reach, reach + right, reach, reach + below])
    lines = padded.unfold(2, window, block).reshape(1, -1, window).expand(count, -1, -1)
    lines = lines.bmm(matrices).view(count * batch, -1, columns)
    windows = lines.unfold(1, window, block).transpose(2, 3).reshape(-1, window, columns)
    left = matrices.mT[:, None].expand(-1, batch * blocks, -1, -1).reshape(-1, block, window)
    planes = left.bmm(windows).view(count, batch, -1, columns)
    return planes[:, :, :height, :width]


def gain_of(images: Tensor, mask: Tensor | None) -> Tensor:
    """`detect.gain_of` of images (B, H, W): (B, 1, 1)."""
    rows = _between((images != images[:, :, :1]).any(2))
    first = images.gather(1, rows.long().argmax(1)[:, None, None].expand_as(images[:, :1]))
    columns = _between(((images != first) & rows[:, :, None]).any(1))
    seen = rows[:, :, None] & columns[:, None]
    seen = torch.stack([seen, torch.ones_like(seen)])  # all of it, if the content is flat
    seen = (seen if mask is None else seen & mask).to(images.dtype)
    number = _sum(seen).clamp(min=1)
    mean = _sum(images * seen) / number
    deviation = (_sum((images - mean).square() * seen) / number).sqrt()
    content, whole = deviation.maximum(ROUNDING * mean.abs())
    deviation = torch.where(deviation[0] > EPSILON * mean[0].abs(), content, whole)
    return (DEVIATION / deviation).masked_fill(deviation <= 0, 0.0)


def _sum(values: Tensor) -> Tensor:
    """Sum (..., H, W) to (..., 1, 1), rows first: the same for any batch and number of threads."""
    return values.sum(-1, keepdim=True).sum(-2, keepdim=True)


def _between(flags: Tensor) -> Tensor:
    """Set all flags (B, N) from the first to the last that is set."""
    flags = flags.long()
    count = flags.cumsum(1)
    return (count > 0) & (count - flags < count[:, -1:])


def _inside(places: Tensor, mask: Tensor) -> Tensor:
    """Whether the pixels of places (B, K, 3) are in the mask (B, H, W): (B, K)."""
    height, width = mask.shape[1:]
    x, y = places[..., :2].round().long().unbind(2)
    return mask.flatten(1).gather(1, y.clamp(0, height - 1) * width + x.clamp(0, width - 1))

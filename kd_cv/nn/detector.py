"""`DoG` for torch: keypoints of batches of images on any device, in the shape of Kornia's."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kd_cv.checks import as_int
from kd_cv.descriptor import reference as descriptor_core
from kd_cv.descriptor.frames import UPRIGHT
from kd_cv.descriptor.patches import max_depth
from kd_cv.detector import reference
from kd_cv.detector.detect import DEVIATION, ROUNDING, detect
from kd_cv.detector.orientation import DEGREES, WINDOW, YIELDING, Orientation, maxima, psi_of_angles
from kd_cv.detector.scale_space import CANDIDATE, FEW, IN_SCALE, IN_SPACE, REACH, ScaleSpace
from kd_cv.detector.settings import DoGSettings
from kd_cv.nn.lafs import round_lafs
from kd_cv.nn.sampling import pyramid_of, sample

# Kornia's detectors draw a LAF of 6 sigma, half the side of its patch; a keypoint has a size of
# 2 sigma. So the patch of a detected LAF has a side of 6 keypoint sizes.
DETECTED_MAGNIFICATION = 6.0


class DoGDetector(nn.Module):
    """The keypoints of `DoG` with the interface of Kornia's detectors.

    num_features  slots for each image, filled by the strongest
    upright       without angles
    settings      nOctaveLayers, contrastThreshold, edgeThreshold, sigma: those of `DoG`

    On the CPU the compiled detector does the work. Positions have no gradient.

    >>> lafs, responses = DoGDetector(500)(torch.rand(1, 1, 120, 160))
    >>> lafs.shape, responses.shape
    (torch.Size([1, 500, 2, 3]), torch.Size([1, 500]))
    """

    def __init__(self, num_features: int = 2048, upright: bool = False, **settings: Any) -> None:
        super().__init__()
        self.settings = DoGSettings(as_int(num_features, "num_features"), **settings)
        self.upright = bool(upright)

    @torch.no_grad()
    def forward(self, images: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """LAFs (B, N, 2, 3) of 6 sigma and responses (B, N) of gray images (B, 1, H, W).

        Slots without a detection have zeros in both. mask (B, 1, H, W): where it is not 0.
        """
        planes, seen = self.checked(images, mask)
        find = _compiled if planes.device.type == "cpu" else in_torch
        frames, responses = find(
            planes, seen, self.settings.space, self.settings.nfeatures, self.upright
        )
        lafs, responses = as_lafs(frames, responses)
        return lafs.to(images.dtype), responses.to(images.dtype)

    def checked(self, images: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Images (B, H, W) in float32 and where the mask is not 0."""
        if images.dim() != 4 or images.shape[1] != 1 or not images.is_floating_point():
            raise ValueError(
                "images must be a floating-point tensor of shape (B, 1, H, W), "
                f"got {images.dtype} {list(images.shape)}"
            )
        if mask is not None and mask.shape != images.shape:
            raise ValueError(
                f"a mask must have the shape of its images, {list(images.shape)}, "
                f"got {list(mask.shape)}"
            )
        planes = images[:, 0].detach().float()
        on_cpu = planes.device.type == "cpu"
        # By NumPy on the CPU: torch would share it out, and wait for cores that others keep busy.
        if not (np.isfinite(planes.numpy()) if on_cpu else torch.isfinite(planes)).all():
            raise ValueError("images must not contain NaN or infinity")
        return planes, None if mask is None else mask[:, 0] != 0

    def extra_repr(self) -> str:
        return f"{self.settings}, upright={self.upright}"


def as_lafs(frames: Tensor, responses: Tensor) -> tuple[Tensor, Tensor]:
    """LAFs (B, N, 2, 3) of 6 sigma of frames (B, N, 4), zeros where the response is 0."""
    lafs = round_lafs(frames.flatten(0, 1), DETECTED_MAGNIFICATION)
    return lafs.reshape(*frames.shape[:2], 2, 3) * (responses > 0)[..., None, None], responses


def _compiled(
    images: Tensor, mask: Tensor | None, space: ScaleSpace, count: int, upright: bool
) -> tuple[Tensor, Tensor]:
    """Frames (B, N, 4) and responses (B, N) by the detector of the CPU."""
    frames, responses = np.zeros((len(images), count, 4)), np.zeros((len(images), count))
    for b, image in enumerate(images.contiguous().numpy()):
        where = None if mask is None else mask[b].to(torch.uint8).numpy()
        detected = detect(image, space, count=count, mask=where, upright=upright)
        frames[b, : len(detected.frames)] = detected.frames
        responses[b, : len(detected.frames)] = detected.responses
    return torch.from_numpy(frames), torch.from_numpy(responses)


def in_torch(
    images: Tensor, mask: Tensor | None, space: ScaleSpace, count: int, upright: bool
) -> tuple[Tensor, Tensor]:
    """The same by plain torch operations, on any device, all images and keypoints at once."""
    image, rows = _strongest(images, mask, space, count)
    frames = torch.cat(
        [rows[:, :3] * rows.new_tensor([1, 1, 2]), torch.full_like(rows[:, :1], UPRIGHT)], 1
    )
    responses = rows[:, 3]
    if not upright and len(frames):
        index, angle, share = _oriented(images, image, frames, count)
        image, responses = image[index], responses[index] * share**YIELDING
        frames = torch.cat([frames[index, :3], angle[:, None]], 1)
        order = _order(image, responses)
        image, frames, responses = image[order], frames[order], responses[order]
    place, kept = _slots(image, len(images), count)
    slots = image[kept], place[kept]
    padded = images.new_zeros(len(images), count, 5)
    padded[slots] = torch.cat([frames, responses[:, None]], 1)[kept]
    return padded[..., :4], padded[..., 4]


def _strongest(
    images: Tensor, mask: Tensor | None, space: ScaleSpace, count: int
) -> tuple[Tensor, Tensor]:
    """The `count` strongest extrema of each image, in order: whose they are (M,), rows (M, 4)."""
    none = images.new_zeros(0, dtype=torch.int64)
    extrema = [(none, images.new_zeros(0, 4), none)]  # of each octave: owners, rows, cells
    deviation, mean = torch.std_mean(images.double().cpu(), (1, 2), correction=0)
    deviation = torch.maximum(deviation, ROUNDING * mean.abs())
    gain = torch.where(deviation > 0, DEVIATION / deviation, 0.0).to(images)
    in_space, in_scale = images.new_tensor(IN_SPACE), images.new_tensor(IN_SCALE)
    taps = [images.new_tensor(t) for t in space.taps]
    octaves = space.octaves(images.shape[1:])
    level = _blurred(images * gain[:, None, None], taps[0]) if octaves else images
    for octave in range(octaves):
        levels = [level]
        for t in taps[1:]:
            levels.append(_blurred(levels[-1], t))
        D = torch.stack(levels[1:], 1) - torch.stack(levels[:-1], 1)
        least = space.smallest(space.least, octave)
        b, layer, y, x = reference.candidates(D, CANDIDATE * least).nonzero(as_tuple=True)
        around = torch.arange(2 * REACH + 1, device=D.device)
        at = [i[:, None, None, None] for i in (b, layer, y, x)]
        cubes = D[at[0], at[1] + around[:3, None, None], at[2] + around[:, None], at[3] + around]
        t, value, good = reference.fitted(cubes, in_space, in_scale, least, space.roundness)
        place = torch.stack([x + REACH, y + REACH, layer + 1], 1) + t
        strength = space.strength(value, octave, place[:, 2])
        good &= strength >= space.least
        b, place, strength = b[good], place[good], strength[good]
        cell = place.round().long()
        height, width = level.shape[1:]
        cell = (cell[:, 2] * height + cell[:, 1]) * width + cell[:, 0]
        cell = (b * (space.layers + 2) * height * width + cell) * 64 + octave
        sigma = space.sigma * torch.exp2(octave + place[:, 2] / space.layers)
        rows = torch.stack([*(place[:, :2] * 2**octave).unbind(1), sigma, strength], 1)
        extrema.append((b, rows, cell))
        level = levels[space.layers][:, ::2, ::2]
    owner, rows, cell = (torch.cat(parts) for parts in zip(*extrema, strict=True))
    if mask is not None:
        x, y = rows[:, :2].round().long().unbind(1)
        height, width = mask.shape[1:]
        inside = mask[owner, y.clamp(max=height - 1), x.clamp(max=width - 1)]
        owner, rows, cell = owner[inside], rows[inside], cell[inside]
    order = _order(owner, rows[:, 3])
    owner, rows, cell = owner[order], rows[order], cell[order]
    # Of those in one cell, the first.
    _, inverse = torch.unique(cell, return_inverse=True)
    ranks = torch.arange(len(cell), device=cell.device)
    first = torch.full_like(ranks, len(ranks)).scatter_reduce(0, inverse, ranks, "amin")
    alone = first[inverse] == ranks
    owner, rows = owner[alone], rows[alone]
    place, kept = _slots(owner, len(images), count)
    kept &= (rows[:, 3] >= space.threshold) | (place < FEW)
    return owner[kept], rows[kept]


def _oriented(
    images: Tensor, owner: Tensor, frames: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Angles in degrees of frames (M, 4), one or more of each: whose, the angle, and its share."""
    spec = Orientation()
    c = spec.constants
    constants = [images.new_tensor(v) for v in (c.smooth, c.diff, c.Phi, c.T, c.parts)]
    height, width = images.shape[1:]
    gain = 1 / images.amax((1, 2)).clamp(min=1)
    pyramid = pyramid_of(images * gain[:, None, None], max_depth((height, width)))
    place, _ = _slots(owner, len(images), count)
    lafs = images.new_zeros(len(images), count, 2, 3)
    lafs[owner, place] = round_lafs(frames, WINDOW)[0]
    patches = sample(pyramid, lafs, spec.patch_size)[owner, place]
    V = descriptor_core.raw(patches, *constants)
    peak, beside, share = maxima(V @ images.new_tensor(psi_of_angles()))
    peak[:, 0] |= ~peak.any(1)
    index, step = peak.nonzero(as_tuple=True)
    return index, (step + beside[index, step]) * DEGREES % 360.0, share[index, step]


def _order(owner: Tensor, values: Tensor) -> Tensor:
    """Image by image, the largest value first."""
    order = torch.argsort(values, descending=True, stable=True)
    return order[torch.argsort(owner[order], stable=True)]


def _slots(owner: Tensor, images: int, count: int) -> tuple[Tensor, Tensor]:
    """The place of each among those of its image, (M,), and whether it is below `count`.

    owner (M,) says whose they are, in order.
    """
    begins = torch.searchsorted(owner, torch.arange(images, device=owner.device))
    place = torch.arange(len(owner), device=owner.device) - begins[owner]
    return place, place < count


def _blurred(images: Tensor, taps: Tensor) -> Tensor:
    """Images (B, H, W) blurred both ways, mirrored about the centres of their outermost pixels."""
    reach = len(taps) // 2
    for _ in range(2):  # down the rows, then, transposed, along them
        last = images.shape[1] - 1
        rows = torch.arange(-reach, last + reach + 1, device=images.device) % max(1, 2 * last)
        padded = images[:, torch.minimum(rows, (2 * last - rows).abs())]
        images = F.conv2d(padded[:, None], taps[None, None, :, None])[:, 0].transpose(1, 2)
    return images

"""`DoG` in torch: keypoints of batches of images on any device, with Kornia's interface."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kd_cv.checks import as_int
from kd_cv.descriptor import reference
from kd_cv.descriptor.frames import UPRIGHT
from kd_cv.descriptor.patches import SHARPNESS, max_depth
from kd_cv.detector.detect import detect
from kd_cv.detector.orientation import DEGREES, WINDOW, YIELDING, Orientation, maxima, psi_of_angles
from kd_cv.detector.settings import DoGSettings
from kd_cv.gray import MAX_VALUE, MIN_VALUE
from kd_cv.nn.autograd import full_precision, on_host
from kd_cv.nn.lafs import round_lafs
from kd_cv.nn.module import CONSTANTS, Float32Module, cast
from kd_cv.nn.sampling import TensorPyramid, pyramid_of, sample
from kd_cv.nn.scale_space import constants, extrema

# Kornia's LAFs have a scale of 6 sigma, half the side of the patch. A keypoint's size is 2 sigma.
DETECTED_MAGNIFICATION = 6.0
#: Maximum number of angles of a keypoint.
ANGLES = 4


class DoGDetector(Float32Module):
    """Detect the keypoints of `DoG`, with the interface of Kornia's detectors.

    num_features  slots for each image, filled with the strongest keypoints
    upright       compute no angles
    settings      nOctaveLayers, contrastThreshold, edgeThreshold, sigma, as in `DoG`

    The CPU uses the compiled detector; other devices, torch.compile and torch.export use torch
    operations of fixed shapes. Positions have no gradient.

    >>> lafs, responses = DoGDetector(500)(torch.rand(1, 1, 120, 160))
    >>> lafs.shape, responses.shape
    (torch.Size([1, 500, 2, 3]), torch.Size([1, 500]))
    """

    def __init__(self, num_features: int = 2048, upright: bool = False, **settings: Any) -> None:
        super().__init__()
        self.settings = DoGSettings(as_int(num_features, "num_features"), **settings)
        self.upright = bool(upright)
        of_angles = {name: getattr(Orientation().constants, name) for name in CONSTANTS}
        arrays = constants(self.settings.space) | of_angles | {"psi": psi_of_angles()}
        for name, array in arrays.items():
            kind = np.int64 if array.dtype.kind == "i" else np.float32
            self.register_buffer(name, torch.from_numpy(array.astype(kind)), persistent=False)

    @torch.no_grad()
    def forward(self, img: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Detect LAFs (B, N, 2, 3) of 6 sigma and responses (B, N) in gray images (B, 1, H, W).

        Empty slots are zero in both. mask (B, 1, H, W): detect where it is not 0. Results are
        float32, or float64 for float64 images. NaN is an error on the CPU; on other devices an
        image with NaN has no keypoints.
        """
        planes, seen = checked(img, mask)
        if on_host(planes):
            frames, responses = self._compiled(planes, seen)
        else:
            frames, responses = self.in_torch(planes, seen)
        lafs, responses = as_lafs(frames, responses)
        kind = torch.promote_types(img.dtype, torch.float32)
        return lafs.to(kind), responses.to(kind)

    def _compiled(self, planes: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        space, count = self.settings.space, self.settings.nfeatures
        frames, responses = np.zeros((len(planes), count, 4)), np.zeros((len(planes), count))
        for b, plane in enumerate(planes.contiguous().numpy()):
            where = None if mask is None else mask[b].to(torch.uint8).numpy()
            detected = detect(plane, space, count=count, mask=where, upright=self.upright)
            frames[b, : len(detected.frames)] = detected.frames
            responses[b, : len(detected.frames)] = detected.responses
        return torch.from_numpy(frames), torch.from_numpy(responses)

    def depth(self, shape: tuple[int, ...], pitch: float = 0.0) -> int:
        """Return how many halvings of an image (H, W) the keypoints need.

        pitch: distance of the samples of a patch, in keypoint sizes.
        """
        space, pitch = self.settings.space, max(pitch, WINDOW / Orientation().patch_size)
        largest = 2 * space.sigma * 2 ** (space.octaves(shape) + 1 / space.layers)
        level = math.floor(math.log2(pitch * largest) + SHARPNESS)
        return min(max(level, 0), max_depth((shape[0], shape[1])))

    def in_torch(
        self,
        planes: Tensor,
        mask: Tensor | None = None,
        pyramid: TensorPyramid | None = None,
        count: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Detect by torch operations; pyramid: of the planes (B, H, W), if it exists already."""
        space, count = self.settings.space, count or self.settings.nfeatures
        with full_precision(planes):
            c = dict(self.named_buffers())
            places, responses = extrema(planes, mask, space, count, c)
            x, y, sigma = places.unbind(2)
            if self.upright:
                return torch.stack([x, y, 2 * sigma, torch.full_like(x, UPRIGHT)], 2), responses
            pyramid = pyramid or pyramid_of(planes, self.depth(planes.shape[1:]))
            angle, weight = self._angles(pyramid, torch.stack([x, y, 2 * sigma], 2))
            responses, best = (responses[..., None] * weight**YIELDING).flatten(1).topk(count)
            owner = best // weight.shape[2]
            x, y, size = (values.gather(1, owner) for values in (x, y, 2 * sigma))
            return torch.stack([x, y, size, angle.flatten(1).gather(1, best)], 2), responses

    def _angles(self, pyramid: TensorPyramid, circles: Tensor) -> tuple[Tensor, Tensor]:
        """Return angles in degrees and weights (B, N, ANGLES) of x, y, size (B, N, 3).

        The highest maximum comes first; empty slots have weight 0.
        """
        frames = torch.cat([circles, torch.full_like(circles[..., :1], UPRIGHT)], 2)
        lafs = round_lafs(frames.flatten(0, 1), WINDOW).view(*frames.shape[:2], 2, 3)
        patches = sample(pyramid, lafs, Orientation().patch_size).flatten(0, 1)
        V = reference.raw(patches, *(self.get_buffer(name) for name in CONSTANTS))
        peak, beside, weight = maxima(V @ self.get_buffer("psi"))
        none = ~peak.any(1, keepdim=True)  # then the first angle counts
        peak = torch.cat([peak[:, :1] | none, peak[:, 1:]], 1)
        weight, step = (weight * peak).topk(ANGLES)
        angle = (step + beside.gather(1, step)) * DEGREES % 360.0
        shape = *frames.shape[:2], ANGLES
        return angle.view(shape), weight.view(shape)

    def extra_repr(self) -> str:
        return f"{self.settings}, upright={self.upright}"


def checked(images: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Check images and mask; return images (B, H, W) in float32 and where the mask is not 0."""
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
    planes = cast(images[:, 0].detach(), torch.float32)
    # Reading values would wait for other devices. NumPy: torch's threads would wait for cores.
    if not on_host(planes):
        largest = planes.abs().amax((1, 2), keepdim=True)
        planes = planes.masked_fill(~(largest < torch.inf), 0.0)
    elif not np.isfinite(planes.numpy()).all():
        raise ValueError("images must not contain NaN or infinity")
    return in_range(planes), None if mask is None else mask[:, 0] != 0


def in_range(planes: Tensor) -> Tensor:
    """Rescale very faint and very bright images (B, H, W), like `as_gray`."""
    if not planes.numel():
        return planes
    largest = planes.detach().abs().amax((1, 2), keepdim=True)
    exponent = largest.log2().ceil().clamp(min=-120)
    most = math.log2(MAX_VALUE)
    moved = exponent.clamp(max=most).masked_fill(exponent <= math.log2(MIN_VALUE), 0.0)
    return planes * torch.exp2(moved - exponent)


def as_lafs(frames: Tensor, responses: Tensor) -> tuple[Tensor, Tensor]:
    """Convert frames (B, N, 4) to LAFs (B, N, 2, 3) of 6 sigma, zeros where the response is 0."""
    lafs = round_lafs(frames.flatten(0, 1), DETECTED_MAGNIFICATION)
    return lafs.reshape(*frames.shape[:2], 2, 3) * (responses > 0)[..., None, None], responses

"""The descriptor as an ONNX file: of patches, or of an image and frames, sampled inside.

`FramesModule` is `sampling` once more, in the torch operations that exporters know; it also runs
on any device.
"""

import os
from collections.abc import Sequence
from typing import Any

from kd_cv.feature2d import as_scales
from kd_cv.files import replacing
from kd_cv.frames import MAGNIFICATION, as_magnification
from kd_cv.module import KDModule
from kd_cv.sampling import SHARPNESS

import torch  # isort: skip  (after kd_cv.module, whose ImportError names the extra)
from torch import Tensor, nn  # isort: skip

TOLERANCE = 1e-4


class FramesModule(nn.Module):
    """Gray image (1, 1, H, W) in 0..1 and frames (N, 4), x y size angle, to descriptors (N, D).

    The rows are those of `KDDescriptor` for a float image; zeros for frames without a patch.
    levels: of the image pyramid; 8 serve keypoints of up to 480 pixels at the default settings.
    """

    def __init__(
        self,
        descriptor: KDModule,
        magnification: float | str = MAGNIFICATION,
        scales: int | Sequence[float] = 1,
        levels: int = 8,
    ) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.magnification = as_magnification(magnification)
        self.scales = as_scales(scales)
        self.levels = levels

    def forward(self, image: Tensor, frames: Tensor) -> Tensor:
        pyramid = [image[0, 0]]
        for _ in range(1, self.levels):
            pyramid.append(halved(pyramid[-1]))
        sides = [self.magnification * scale for scale in self.scales]
        patches = [self._sample(pyramid, frames.to(image.dtype), side) for side in sides]
        return self.descriptor.pooled(torch.stack(patches, dim=1))

    def _sample(self, pyramid: list[Tensor], frames: Tensor, magnification: float) -> Tensor:
        """Patches (N, P, P), bilinear, from the level where samples are about a pixel apart."""
        P = self.descriptor.patch_size
        good = describable(frames, pyramid[0].shape, magnification)
        x, y, size, angle = torch.where(good[:, None], frames, 1.0).unbind(1)
        pitch = magnification * size / P
        level = (torch.log2(pitch) + SHARPNESS).floor().clamp(0, self.levels - 1)
        shrink = torch.exp2(-level)
        turn = torch.deg2rad(torch.where(angle == -1, 0.0, angle))
        ax, ay = ((pitch * shrink * f(turn))[:, None, None] for f in (torch.cos, torch.sin))

        # Where each frame's level begins in the flat pyramid, and how large it is. Sizes become
        # tensors first: the ONNX exporter knows no product of a tensor and a symbolic size.
        start, height, width = (torch.zeros_like(level, dtype=torch.int64) for _ in range(3))
        for index, plane in enumerate(pyramid):
            h, w = (torch.full_like(start, side) for side in plane.shape)
            start = start + h * w * (level > index)
            height, width = height + h * (level == index), width + w * (level == index)
        start, height, width = (t[:, None, None] for t in (start, height, width))

        u = torch.arange(P, device=frames.device, dtype=frames.dtype) - (P - 1) / 2
        u, v = u[None, None, :], u[None, :, None]
        x = ((x * shrink)[:, None, None] + ax * u - ay * v).clamp(min=0).minimum(width - 1)
        y = ((y * shrink)[:, None, None] + ay * u + ax * v).clamp(min=0).minimum(height - 1)
        x0, y0 = x.to(torch.int64), y.to(torch.int64)
        x1, y1 = (x0 + 1).minimum(width - 1), (y0 + 1).minimum(height - 1)
        fx, fy = x - x0, y - y0
        flat = torch.cat([plane.reshape(-1) for plane in pyramid])
        a, b = flat[start + y0 * width + x0], flat[start + y0 * width + x1]
        c, d = flat[start + y1 * width + x0], flat[start + y1 * width + x1]
        upper, lower = a + fx * (b - a), c + fx * (d - c)
        return (upper + fy * (lower - upper)) * good[:, None, None]


def halved(plane: Tensor) -> Tensor:
    """cv2.pyrDown of (H, W): smoothed by 1 4 6 4 1 both ways, then every second pixel."""
    for _ in range(2):  # down the rows, then, transposed, along them
        last = plane.shape[0] - 1
        rows = 2 * torch.arange(last // 2 + 1, device=plane.device)
        # Reflected about the centres of the outermost pixels.
        indices = [(last - (last - (rows + k).abs()).abs()).clamp(min=0) for k in range(-2, 3)]
        a, b, c, d, e = (plane[index] for index in indices)
        plane = ((a + e + 4 * (b + d) + 6 * c) / 16).T
    return plane


def describable(frames: Tensor, shape: Sequence[int], magnification: float) -> Tensor:
    """Which frames (N, 4) have a patch that overlaps the image: `frames.describable` in torch."""
    x, y, size, angle = frames.unbind(1)
    turn = torch.deg2rad(torch.where(angle == -1, 0.0, angle))
    reach = 0.5 * magnification * size * (turn.cos().abs() + turn.sin().abs())
    inside = (x + reach > -0.5) & (y + reach > -0.5)
    inside = inside & (x - reach < shape[1] - 0.5) & (y - reach < shape[0] - 0.5)
    return inside & (size > 0) & (frames.abs() < torch.inf).all(1)


def export_onnx(
    path: str | os.PathLike[str],
    *,
    image: bool = False,
    magnification: float | str = MAGNIFICATION,
    scales: int | Sequence[float] = 1,
    **settings: Any,
) -> float:
    """Write the descriptor as an ONNX file; its largest difference to the module, by onnxruntime.

    The file takes `patches` (B, 1, P, P), any B, and gives `descriptors` (B, D). With `image` it
    takes `image` (1, 1, H, W), any size, and `frames` (N, 4), any N, instead; magnification and
    scales are for this one. settings: those of `KDModule`. All values are float32.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  (torch.onnx needs it)
    except ImportError as error:
        raise ImportError(
            f"export to ONNX needs {error.name}: pip install kd-cv[export]"
        ) from error
    if not image and (as_magnification(magnification), as_scales(scales)) != (
        MAGNIFICATION,
        (1.0,),
    ):
        raise ValueError("magnification and scales need image=True: patches are already sampled")
    descriptor = KDModule(**settings).eval()
    module: nn.Module = descriptor
    batch = torch.export.Dim.DYNAMIC
    if image:
        module = FramesModule(descriptor, magnification, scales).eval()
        shapes: dict[str, Any] = {"image": {2: batch, 3: batch}, "frames": {0: batch}}
        examples: list[tuple[Tensor, ...]] = [
            _image_example(240, 320, 7),
            _image_example(197, 131, 50),
        ]
    else:
        P = descriptor.patch_size
        shapes = {"patches": {0: batch}}
        examples = [(_patch_example(count, P),) for count in (5, 64)]
    with replacing(path) as temporary, torch.no_grad():
        program = torch.onnx.export(
            module,
            examples[0],
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=list(shapes),
            output_names=["descriptors"],
            optimize=False,  # the optimiser of onnxscript drops the addition of 1e-8
            verbose=False,
        )
        assert program is not None  # as it is with dynamo=True
        program.save(temporary)
        session = onnxruntime.InferenceSession(temporary, providers=["CPUExecutionProvider"])
        difference = 0.0
        for example in examples:
            inputs = {name: t.numpy() for name, t in zip(shapes, example, strict=True)}
            (rows,) = session.run(None, inputs)
            difference = max(difference, float(abs(rows - module(*example).numpy()).max()))
        if not difference <= TOLERANCE:
            raise RuntimeError(f"the ONNX file differs from the module by {difference:g}")
    return difference


def _patch_example(count: int, P: int) -> Tensor:
    """Random patches, half of each without a gradient."""
    patches = torch.rand(count, 1, P, P, generator=torch.Generator().manual_seed(0))
    patches[..., P // 2 :] = 0.5
    return patches


def _image_example(height: int, width: int, count: int) -> tuple[Tensor, Tensor]:
    """A cloudy image and random frames in it."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(1, 1, height // 8, width // 8, generator=generator)
    image = nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    frames = torch.rand(count, 4, generator=generator)
    return image, frames * torch.tensor([width, height, 20.0, 360.0]) + torch.tensor([0, 0, 1, 0])

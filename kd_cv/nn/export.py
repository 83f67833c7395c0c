"""The descriptor as an ONNX file: of patches, or of an image and frames, sampled inside."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kd_cv.descriptor.frames import MAGNIFICATION, as_magnification
from kd_cv.descriptor.patches import as_scales
from kd_cv.extras import extra
from kd_cv.io.files import PathLike, replacing
from kd_cv.nn.lafs import round_lafs
from kd_cv.nn.module import KDModule
from kd_cv.nn.sampling import pyramid_of, sample_scales
from kd_cv.whitening.files import use_of_images

TOLERANCE = 1e-4
LEVELS = 8  # of the pyramid: they serve keypoints of up to 480 pixels at the default settings


class FramesModule(nn.Module):
    """Gray image (1, 1, H, W) in 0..1 and frames (N, 4), x y size angle, to descriptors (N, D).

    The rows are those of `KDDescriptor` for a float image; zeros for frames without a patch.
    """

    def __init__(
        self,
        descriptor: KDModule,
        magnification: float | str = MAGNIFICATION,
        scales: int | Sequence[float] = 1,
    ) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.magnification = as_magnification(magnification)
        self.scales = as_scales(scales)

    def forward(self, image: Tensor, frames: Tensor) -> Tensor:
        pyramid = pyramid_of(image[:, 0], LEVELS - 1)
        lafs = round_lafs(frames.to(image.dtype), self.magnification)
        patches = sample_scales(pyramid, lafs, self.scales, self.descriptor.patch_size)
        return self.descriptor.pooled(patches[0])


def export_onnx(
    path: PathLike,
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
    onnxruntime = extra("onnxruntime", "export to ONNX needs onnxruntime", "export")
    extra("onnxscript", "export to ONNX needs onnxscript", "export")  # torch.onnx imports it
    given = as_magnification(magnification), as_scales(scales)
    if not image and given != (MAGNIFICATION, (1.0,)):
        raise ValueError("magnification and scales need image=True: patches are already sampled")
    batch = torch.export.Dim.DYNAMIC
    examples: list[tuple[Tensor, ...]]
    shapes: dict[str, Any]
    module: nn.Module
    if image:
        settings.setdefault("use", use_of_images(given[1]))
        module = FramesModule(KDModule(**settings), magnification, scales).eval()
        shapes = {"image": {2: batch, 3: batch}, "frames": {0: batch}}
        examples = [_image_example(240, 320, 7), _image_example(197, 131, 50)]
    else:
        module = KDModule(**settings).eval()
        shapes = {"patches": {0: batch}}
        examples = [(_patch_example(count, module.patch_size),) for count in (5, 64)]
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

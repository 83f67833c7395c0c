"""Export to ONNX: patches; image and frames; or an image alone, with the detector."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kd_cv.descriptor.frames import MAGNIFICATION, as_magnification
from kd_cv.descriptor.patches import as_scales
from kd_cv.extras import extra
from kd_cv.io.files import PathLike, replacing
from kd_cv.nn.feature import KDFeature
from kd_cv.nn.lafs import round_lafs
from kd_cv.nn.module import KDModule
from kd_cv.nn.sampling import pyramid_of, sample_scales
from kd_cv.whitening.files import use_of_images

#: Largest difference to the module: of a descriptor, and of a keypoint in pixels.
TOLERANCE, PIXELS = 1e-3, 0.01
LEVELS = 12  # of the pyramid: they serve keypoints of up to 7,000 pixels at the default settings


class PatchesModule(nn.Module):
    """Patches (B, 1, P, P) in 0..1 to descriptors (B, D); B may be 0."""

    def __init__(self, descriptor: KDModule) -> None:
        super().__init__()
        self.descriptor = descriptor

    def forward(self, patches: Tensor) -> Tensor:
        return self.descriptor(_one_more(patches))[:-1]


class FramesModule(nn.Module):
    """Gray image (1, 1, H, W) in 0..1 and frames (N, 4), x y size angle, to descriptors (N, D).

    Zeros for frames without a patch.
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
        lafs = round_lafs(_one_more(frames).to(image.dtype), self.magnification)
        patches = sample_scales(pyramid, lafs, self.scales, self.descriptor.patch_size)
        return self.descriptor.pooled(patches[0])[:-1]


class PipelineModule(nn.Module):
    """Gray image (1, 1, H, W) to keypoints (N, 4), x y size angle, scores (N,), descriptors (N, D).

    The strongest come first; empty slots have score 0.
    """

    def __init__(self, feature: KDFeature) -> None:
        super().__init__()
        self.feature = feature

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lafs, scores, descriptors = self.feature(image)
        a, b, x, _, _, y = lafs[0].flatten(1).unbind(1)
        size = 2 / self.feature.magnification * (a * a + b * b).sqrt()
        angle = torch.rad2deg(torch.atan2(-b, a)) % 360
        return torch.stack([x, y, size, angle], 1), scores[0], descriptors[0]


def export_onnx(
    path: PathLike,
    *,
    image: bool = False,
    size: tuple[int, int] | None = None,
    num_features: int = 2048,
    magnification: float | str = MAGNIFICATION,
    scales: int | Sequence[float] = 1,
    **settings: Any,
) -> float:
    """Write the descriptor as an ONNX file; return its largest difference to the module.

    The file takes `patches` (B, 1, P, P), any B, and gives `descriptors` (B, D). With `image` it
    takes `image` (1, 1, H, W) of any size and `frames` (N, 4) instead. With `size` (H, W) it takes
    an `image` of that size and gives `keypoints` (N, 4), x y size angle, `scores` (N,), 0 in empty
    slots, and `descriptors` (N, D), N = num_features. magnification and scales need `image` or
    `size`. settings: those of `KDModule`. All values are float32.
    """
    onnxruntime = extra("onnxruntime", "export to ONNX needs onnxruntime", "export")
    extra("onnxscript", "export to ONNX needs onnxscript", "export")  # torch.onnx imports it
    given = as_magnification(magnification), as_scales(scales)
    if image and size:
        raise ValueError("give image=True or size: with size the file finds keypoints by itself")
    if not image and not size and given != (MAGNIFICATION, (1.0,)):
        raise ValueError(
            "magnification and scales need image=True or size: patches are already sampled"
        )
    batch = torch.export.Dim.DYNAMIC
    outputs = ["descriptors"]
    examples: list[tuple[Tensor, ...]]
    shapes: dict[str, Any]
    module: nn.Module
    if image or size:
        settings.setdefault("use", use_of_images(given[1]))
    descriptor = KDModule(**settings)
    if size:
        feature = KDFeature(
            num_features, descriptor=descriptor, magnification=magnification, scales=scales
        )
        module, outputs = PipelineModule(feature), ["keypoints", "scores", "descriptors"]
        shapes, examples = {"image": None}, [(_image_example(*size, 0)[0],)]
    elif image:
        module = FramesModule(descriptor, magnification, scales)
        shapes = {"image": {2: batch, 3: batch}, "frames": {0: batch}}
        examples = [_image_example(240, 320, 7), _image_example(197, 131, 50)]
    else:
        module, shapes = PatchesModule(descriptor), {"patches": {0: batch}}
        examples = [(_patch_example(count, descriptor.patch_size),) for count in (5, 64)]
    module = module.eval()
    with replacing(path) as temporary, torch.no_grad():
        program = torch.onnx.export(
            module,
            examples[0],
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=list(shapes),
            output_names=outputs,
            optimize=False,  # the optimiser of onnxscript drops the addition of 1e-8
            verbose=False,
        )
        assert program is not None  # as it is with dynamo=True
        program.save(temporary)
        session = onnxruntime.InferenceSession(temporary, providers=["CPUExecutionProvider"])
        difference = max(_difference(session, module, shapes, example) for example in examples)
        if not difference <= TOLERANCE:
            raise RuntimeError(f"the ONNX file differs from the module by {difference:g}")
    return difference


def _difference(session: Any, module: nn.Module, names: Any, example: tuple[Tensor, ...]) -> float:
    """Return the largest difference of descriptors; at least 98 % of keypoints must agree."""
    results = session.run(None, {name: t.numpy() for name, t in zip(names, example, strict=True)})
    expected = module(*example)
    if isinstance(expected, Tensor):
        return float(abs(results[0] - expected.numpy()).max(initial=0.0))
    keypoints, scores, descriptors = (torch.from_numpy(result) for result in results)
    if not (expected[1] > 0).any():
        return float(scores.max())
    # Rounding may swap neighbours in the order, or turn a keypoint of two equal angles.
    away = (keypoints[:, None] - expected[0]).abs()
    away[..., 3] = 0.01 * ((away[..., 3] + 180) % 360 - 180).abs()
    distance, nearest = away.amax(2).min(1)
    same = (scores > 0) & (distance < PIXELS)
    if same.sum() < 0.98 * (expected[1] > 0).sum():
        raise RuntimeError(f"the ONNX file finds {int(same.sum())} of {len(scores)} keypoints")
    return float((descriptors - expected[2][nearest])[same].abs().max())


def _one_more(values: Tensor) -> Tensor:
    """Append zeros: onnxruntime cannot multiply an empty stack of matrices."""
    return nn.functional.pad(values, [0] * (2 * values.dim() - 1) + [1])


def _patch_example(count: int, P: int) -> Tensor:
    patches = torch.rand(count, 1, P, P, generator=torch.Generator().manual_seed(0))
    patches[..., P // 2 :] = 0.5
    return patches


def _image_example(height: int, width: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(1, 1, max(1, height // 8), max(1, width // 8), generator=generator)
    image = nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    frames = torch.rand(count, 4, generator=generator)
    return image, frames * torch.tensor([width, height, 20.0, 360.0]) + torch.tensor([0, 0, 1, 0])

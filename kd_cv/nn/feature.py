"""`KDFeature`: detector and descriptor for torch, images in."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from kd_cv.checks import as_int
from kd_cv.descriptor.describer import Describer
from kd_cv.descriptor.frames import MAGNIFICATION, as_magnification, squares_of
from kd_cv.descriptor.patches import as_scales, max_depth
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.extractor import Extractor
from kd_cv.nn.autograd import recomputed
from kd_cv.nn.detector import DETECTED_MAGNIFICATION, DoGDetector, as_lafs
from kd_cv.nn.lafs import frames_from_lafs, is_round, scaled
from kd_cv.nn.module import KDModule
from kd_cv.nn.sampling import Pyramid, pyramid_of, sample_scales
from kd_cv.settings import Settings
from kd_cv.whitening.files import use_of_images


class KDFeature(nn.Module):
    """Detector and descriptor: images in; LAFs, responses and descriptors out.

    num_features   slots for each image
    detector       any Kornia detector: (images, mask) to (lafs, responses); `DoGDetector` by
                   default, whose keypoints are those of `KDDescriptor`
    descriptor     the `KDModule`; by default KDModule() with the matrices for images
    magnification  side of the patch in keypoint sizes, as in `KDDescriptor`, if the detector's LAFs
                   are of 6 sigma (Kornia's `mr_size=6`); 6 describes the LAFs as they are
    scales         how many patch sizes to average over, or their factors, as in `KDDescriptor`
    upright        leave out the orientations of the default detector
    chunk          patches in memory at a time

    >>> lafs, responses, descriptors = KDFeature(500)(torch.rand(1, 1, 240, 320))
    """

    def __init__(
        self,
        num_features: int = 2048,
        detector: nn.Module | None = None,
        descriptor: KDModule | None = None,
        magnification: float | str = MAGNIFICATION,
        scales: int | Sequence[float] = 1,
        upright: bool = False,
        chunk: int = 1024,
    ) -> None:
        super().__init__()
        if detector is not None and upright:
            raise ValueError("upright is for the default detector: give yours no orientation")
        self.detector = detector or DoGDetector(num_features, upright)
        self.magnification = as_magnification(magnification)
        self.scales = as_scales(scales)
        self.descriptor = descriptor or KDModule(use=use_of_images(self.scales))
        self.chunk = as_int(chunk, "chunk")
        self.eval()

    @overload
    def forward(
        self, images: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]: ...
    @overload
    def forward(
        self, images: list[Tensor] | tuple[Tensor, ...], mask: Sequence[Tensor] | None = None
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]: ...
    def forward(self, images: Any, mask: Any = None) -> tuple[Any, Any, Any]:
        """LAFs, scaled to what was described, responses and descriptors.

        A batch (B, 1 or 3, H, W) gives (B, N, 2, 3), (B, N), (B, N, D), N = num_features, as
        kornia.feature.LocalFeature does; slots without a detection have zeros in all three. A list
        of images (1 or 3, H, W) of any sizes gives three lists, without such slots: (n, 2, 3),
        (n,), (n, D). mask (B, 1, H, W), or a list of (1, H, W): where to detect.
        """
        if isinstance(images, list | tuple):
            return self._ragged(images, mask)  # type: ignore[return-value]
        gray = as_gray_batch(images)
        if self._is_compiled(gray):
            return self._extracted(gray, mask)
        lafs, responses = self.detector(gray, mask)
        lafs = scaled(lafs, self.magnification / DETECTED_MAGNIFICATION)
        return lafs, responses, self._describe_gray(gray, lafs)

    def _is_compiled(self, gray: Tensor) -> bool:
        """Whether detector and descriptor run in one compiled pass, as in `KDDescriptor`."""
        kd = self.descriptor
        return type(self.detector) is DoGDetector and kd.fusable(gray, *kd.matrices)

    def _extracted(self, gray: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """LAFs, responses and descriptors by the extractor, one image after the other."""
        detector, kd = self.detector, self.descriptor
        planes, seen = detector.checked(gray, mask)
        settings = Settings(
            kd.patch_size, kd.kernel, None, magnification=self.magnification, scales=self.scales,
            upright=detector.upright, drop=False,
        )  # fmt: skip
        extractor = Extractor(settings, detector.settings, self._describer())
        slots = len(planes), detector.settings.nfeatures
        frames, responses = np.zeros((*slots, 4)), np.zeros(slots)
        descriptors = np.zeros((*slots, kd.dim), np.float32)
        for b, plane in enumerate(planes.contiguous().numpy()):
            where = None if seen is None else seen[b].to(torch.uint8).numpy()
            features = extractor.extract(plane, where)
            for padded, values in zip((frames, responses, descriptors), features, strict=True):
                padded[b, : len(values)] = values
        lafs, strengths = as_lafs(torch.from_numpy(frames), torch.from_numpy(responses))
        lafs = scaled(lafs, self.magnification / DETECTED_MAGNIFICATION)
        kind = gray.dtype
        return lafs.to(kind), strengths.to(kind), torch.from_numpy(descriptors).to(kind)

    def _describer(self) -> Describer:
        kd = self.descriptor
        projection = None
        if kd.matrices:
            mu, A = (matrix.detach().float().numpy() for matrix in kd.matrices)
            projection = Projection(mu, A, kd.power)
        return Describer(Spec(kd.patch_size, kd.kernel), projection)

    def describe(self, images: Tensor, lafs: Tensor) -> Tensor:
        """Descriptors (B, N, D) at given LAFs (B, N, 2, 3), as large as the patches are to be."""
        return self._describe_gray(as_gray_batch(images), lafs)

    def _describe_gray(self, gray: Tensor, lafs: Tensor) -> Tensor:
        planes = gray[:, 0].to(torch.promote_types(gray.dtype, torch.float32))
        kd = self.descriptor
        if kd.fusable(planes, lafs, *kd.matrices) and is_round(lafs):
            return self._at_frames(planes, lafs).to(gray.dtype)
        _, height, width = planes.shape
        pyramid = pyramid_of(planes, max_depth((height, width)))
        some = max(1, self.chunk // max(1, len(lafs) * len(self.scales)))
        parts = lafs.to(gray.device, planes.dtype).split(some, dim=1)
        rows = [self._describe(pyramid, part) for part in parts]
        return torch.cat(rows, dim=1).to(gray.dtype)

    def _at_frames(self, planes: Tensor, lafs: Tensor) -> Tensor:
        """As `KDDescriptor` does it: sampled and described in one compiled pass."""
        describer = self._describer()
        rows = np.empty((*lafs.shape[:2], self.descriptor.dim), np.float32)
        for plane, of_image, out in zip(planes.numpy(), lafs, rows, strict=True):
            frames = frames_from_lafs(of_image, magnification=1.0)
            squares = squares_of(frames, plane.shape, 1.0, self.scales)
            out[:] = describer.at_squares(plane, squares)
        return torch.from_numpy(rows)

    def _describe(self, pyramid: Pyramid, lafs: Tensor) -> Tensor:
        def patches(pixels: Tensor, lafs: Tensor) -> Tensor:
            levels = Pyramid(pixels, pyramid.shapes)
            return sample_scales(levels, lafs, self.scales, self.descriptor.patch_size)

        rows = self.descriptor.pooled(recomputed(patches, pyramid.pixels, lafs).flatten(0, 1))
        return rows.reshape(*lafs.shape[:2], self.descriptor.dim)

    def _ragged(self, images: Sequence[Tensor], masks: Any) -> tuple[list[Tensor], ...]:
        masks = [None] * len(images) if masks is None else masks
        results: tuple[list[Tensor], ...] = ([], [], [])
        for image, mask in zip(images, masks, strict=True):
            if image.dim() != 3:
                raise ValueError(f"images of a list must be (C, H, W), got {list(image.shape)}")
            features = self(image[None], None if mask is None else mask[None])
            filled = features[0][0].ne(0).any(-1).any(-1)
            for values, one in zip(results, features, strict=True):
                values.append(one[0][filled])
        return results


def as_gray_batch(images: Tensor) -> Tensor:
    """(B, 1, H, W) of gray or RGB images."""
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a torch.Tensor or a list, got {type(images).__name__}")
    if images.dim() != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
        raise ValueError(
            "images must be a floating-point tensor of shape (B, 1, H, W) or (B, 3, H, W), "
            f"got {images.dtype} {list(images.shape)}"
        )
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]  # as OpenCV and Kornia weigh them

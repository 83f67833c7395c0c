"""`KDFeature`: detector and descriptor in torch."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor, nn

from kd_cv.checks import as_int
from kd_cv.descriptor.describer import Describer
from kd_cv.descriptor.frames import MAGNIFICATION, as_magnification, patch_regions
from kd_cv.descriptor.patches import as_scales, max_depth
from kd_cv.descriptor.projection import Projection
from kd_cv.descriptor.spec import Spec
from kd_cv.extractor import Extractor
from kd_cv.nn.autograd import differentiated, recomputed
from kd_cv.nn.detector import (
    DETECTED_MAGNIFICATION,
    DoGDetector,
    as_lafs,
    checked,
    in_range,
)
from kd_cv.nn.lafs import frames_from_lafs, is_round, scaled
from kd_cv.nn.module import KDModule, cast
from kd_cv.nn.sampling import TensorPyramid, area, pyramid_of, sample_scales
from kd_cv.nn.views import Views, repeated, to_image, upright_in
from kd_cv.settings import Settings
from kd_cv.views import VIEWS, affine_of, count_for
from kd_cv.whitening.files import use_of_images

#: Patches in memory at a time: they fit the cache of the CPU; other devices need more at once.
CHUNK_CPU, CHUNK = 1024, 16384


class KDFeature(nn.Module):
    """Detect and describe: images in; LAFs, responses and descriptors out.

    num_features   slots for each image, 2048 by default; a given detector has its own number
    detector       any Kornia detector: (images, mask) to (lafs, responses); `DoGDetector` by
                   default, whose keypoints are those of `KDDescriptor`
    descriptor     the `KDModule`; by default KDModule() with the matrices for images
    magnification  side of the patch in keypoint sizes, as in `KDDescriptor`, if the detector's LAFs
                   are of 6 sigma (Kornia's `mr_size=6`); 6 describes the LAFs unchanged
    scales         number of patch sizes to average, or their factors, as in `KDDescriptor`
    upright        leave out the orientations of the default detector
    views          1; 3, 5 or 11 to detect keypoints also in synthetic views of the image, for wide
                   viewpoint changes, as in `KDDescriptor`; their LAFs are affine
    chunk          patches in memory at a time; by default 1,024 on the CPU, 16,384 elsewhere

    Empty slots have a response of 0 and a zero descriptor: leave them out before you match, or call
    `extract`.

    >>> lafs, responses, descriptors = KDFeature(500)(torch.rand(1, 1, 240, 320))
    >>> found = responses[0] > 0
    >>> descriptors[0][found].norm(dim=1).min() > 0.99
    tensor(True)
    """

    def __init__(
        self,
        num_features: int | None = None,
        detector: nn.Module | None = None,
        descriptor: KDModule | None = None,
        magnification: float | str = MAGNIFICATION,
        scales: int | Sequence[float] = 1,
        upright: bool = False,
        chunk: int | None = None,
        views: int = 1,
    ) -> None:
        super().__init__()
        if views not in VIEWS:
            raise ValueError(f"views must be one of {list(VIEWS)}, got {views!r}")
        if detector is not None and views != 1 and type(detector) is not DoGDetector:
            raise ValueError(f"views={views} is for DoGDetector: leave it out with your detector")
        if detector is not None and upright:
            raise ValueError("upright is for the default detector: give yours no orientation")
        if detector is not None and num_features is not None:
            raise ValueError(
                f"num_features={num_features} is for the default detector: "
                "give the number to yours, and leave it out here"
            )
        count = 2048 if num_features is None else num_features
        self.detector = detector or DoGDetector(count, upright)
        self.magnification = as_magnification(magnification)
        self.scales = as_scales(scales)
        self.descriptor = descriptor or KDModule(use=use_of_images(self.scales))
        self.chunk = None if chunk is None else as_int(chunk, "chunk")
        self.views = Views(views)
        self.eval()

    @overload
    def forward(self, img: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]: ...
    @overload
    def forward(
        self, img: list[Tensor] | tuple[Tensor, ...], mask: Sequence[Tensor] | None = None
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]: ...
    def forward(self, img: Any, mask: Any = None) -> tuple[Any, Any, Any]:
        """LAFs, scaled to what was described, responses and descriptors.

        A batch (B, 1 or 3, H, W) gives (B, N, 2, 3), (B, N), (B, N, D), N = num_features, as
        kornia.feature.LocalFeature does; slots without a detection have zeros in all three. A list
        of images (1 or 3, H, W) of any sizes gives three lists, without such slots: (n, 2, 3),
        (n,), (n, D). mask (B, 1, H, W), or a list of (1, H, W): where to detect.

        Descriptors have the type of the images; LAFs and responses float32 at least.
        """
        if isinstance(img, list | tuple):
            return self._ragged(img, mask)  # type: ignore[return-value]
        gray, kd = as_gray_batch(img), self.descriptor
        if type(self.detector) is not DoGDetector:
            lafs, responses = self.detector(gray, mask)
            lafs = self._scaled(lafs)
            return lafs, responses, self._describe_gray(gray, lafs)
        planes, seen = checked(gray, mask)
        if kd.fusable(gray, *kd.matrices):
            lafs, responses, descriptors = self._extracted(self.detector, planes, seen)
        else:
            lafs, responses, descriptors = self._in_torch(self.detector, gray, planes, seen)
        return (*self._typed(gray, lafs, responses), cast(descriptors, gray.dtype))

    @torch.no_grad()
    def extract(self, image: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Extract one image (C, H, W) or (1, C, H, W), without empty slots, for LightGlue.

        The n keypoints, the strongest first: keypoints (1, n, 2) x and y, keypoint_scores (1, n),
        descriptors (1, n, D), scales (1, n), the diameter as in cv2.KeyPoint, oris (1, n), the
        angle in radians clockwise, image_size (1, 2) width and height.
        """
        if image.dim() == 3:
            image, mask = image[None], None if mask is None else mask[None]
        if image.dim() != 4 or len(image) != 1:
            raise ValueError(f"image must be (C, H, W) or (1, C, H, W), got {list(image.shape)}")
        lafs, responses, descriptors = self(image, mask)
        found = responses > 0
        lafs, (height, width) = lafs[found], image.shape[2:]
        (a, _, _), (b, _, _) = lafs.permute(1, 2, 0)
        features = {
            "keypoints": lafs[..., 2],
            "keypoint_scores": responses[found],
            "descriptors": descriptors[found],
            "scales": 2 * area(lafs[None])[0].sqrt() / self.magnification,
            "oris": torch.atan2(b, a) % (2 * torch.pi),
            "image_size": lafs.new_tensor([width, height]),
        }
        return {name: values[None] for name, values in features.items()}

    def _scaled(self, lafs: Tensor) -> Tensor:
        return scaled(lafs, self.magnification / DETECTED_MAGNIFICATION)

    def _typed(self, gray: Tensor, lafs: Tensor, responses: Tensor) -> tuple[Tensor, Tensor]:
        kind = torch.float64 if gray.dtype == torch.float64 else torch.float32
        return cast(self._scaled(lafs), kind), cast(responses, kind)

    def _in_torch(
        self, detector: DoGDetector, gray: Tensor, planes: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = detector.settings.nfeatures
        counts = count_for(count, self.views.count)
        parts = [self._in_view(detector, gray, planes, mask, *view) for view in enumerate(counts)]
        if len(parts) == 1:
            return parts[0]
        lafs, responses, descriptors = (torch.cat(values, 1) for values in zip(*parts, strict=True))
        numbers = [r.new_full(r.shape, v) for v, (_, r, _) in enumerate(parts)]
        responses, order = responses.sort(dim=1, descending=True, stable=True)
        lafs, views = lafs.take_along_dim(order[..., None, None], 1), torch.cat(numbers, 1)
        responses = responses * ~repeated(lafs, views.gather(1, order), responses > 0)
        responses, best = responses.topk(count)
        lafs = lafs.take_along_dim(best[..., None, None], 1) * (responses > 0)[..., None, None]
        best = order.gather(1, best)[..., None]
        return lafs, responses, descriptors.take_along_dim(best, 1) * (responses > 0)[..., None]

    def _in_view(
        self,
        detector: DoGDetector,
        gray: Tensor,
        planes: Tensor,
        mask: Tensor | None,
        view: int,
        count: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return LAFs in the image, responses and descriptors of the keypoints of one view."""
        shape = planes.shape[1], planes.shape[2]
        pitch = self.magnification * max(self.scales) / self.descriptor.patch_size
        mask, seen = self.views.mask(planes, mask, view), self.views.image(planes, view)
        pyramid = pyramid_of(seen, detector.depth(seen.shape[1:], pitch))
        with torch.no_grad():
            frames, responses = detector.in_torch(seen, mask, pyramid, count)
            if view and detector.upright:
                angle = torch.full_like(responses, upright_in(shape, view))
                frames = torch.cat([frames[..., :3], angle[..., None]], 2)
            lafs, responses = as_lafs(frames, responses)
        # With a gradient, and for float64, the descriptor needs its own pyramid.
        if gray.dtype == torch.float64 or differentiated(gray):
            pyramid = self._pyramid(gray, view)
        descriptors = self._described(pyramid, self._scaled(lafs))
        return (
            to_image(lafs, shape, view) * (responses > 0)[..., None, None],
            responses,
            descriptors,
        )

    def _extracted(
        self, detector: DoGDetector, planes: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        kd = self.descriptor
        settings = Settings(
            kd.patch_size, kd.kernel, None, magnification=self.magnification, scales=self.scales,
            upright=detector.upright, drop=False, views=self.views.count,
        )  # fmt: skip
        extractor = Extractor(settings, detector.settings, self._describer())
        slots = len(planes), detector.settings.nfeatures
        frames, responses = np.zeros((*slots, 4)), np.zeros(slots)
        descriptors, views = np.zeros((*slots, kd.dim), np.float32), np.zeros(slots, int)
        for b, plane in enumerate(planes.contiguous().numpy()):
            where = None if mask is None else mask[b].to(torch.uint8).numpy()
            features = extractor.extract(plane, where)
            arrays: tuple[Any, ...] = frames, responses, descriptors, views
            for padded, values in zip(arrays, features, strict=True):
                padded[b, : len(values)] = values
        lafs, strengths = as_lafs(torch.from_numpy(frames), torch.from_numpy(responses))
        if self.views.count > 1:
            shapes = DETECTED_MAGNIFICATION * affine_of(frames.reshape(-1, 4), views.ravel())
            lafs[..., :2] = torch.from_numpy(shapes).view(*slots, 2, 2)
        return lafs, strengths, torch.from_numpy(descriptors)

    def _describer(self) -> Describer:
        kd = self.descriptor
        projection = None
        if kd.matrices:
            mu, A = (matrix.detach().float().numpy() for matrix in kd.matrices)
            projection = Projection(mu, A, kd.power)
        return Describer(Spec(kd.patch_size, kd.kernel), projection)

    def describe(self, images: Tensor, lafs: Tensor) -> Tensor:
        """Describe images at LAFs (B, N, 2, 3), which span the patches: (B, N, D)."""
        return self._describe_gray(as_gray_batch(images), lafs)

    def _describe_gray(self, gray: Tensor, lafs: Tensor) -> Tensor:
        kd = self.descriptor
        if kd.fusable(gray, lafs, *kd.matrices) and is_round(lafs):
            return self._at_frames(in_range(gray[:, 0].float()), lafs).to(gray.dtype)
        return self._described(self._pyramid(gray), lafs).to(gray.dtype)

    def _pyramid(self, gray: Tensor, view: int = 0) -> TensorPyramid:
        planes = in_range(gray[:, 0].to(torch.promote_types(gray.dtype, torch.float32)))
        planes = self.views.image(planes, view)
        height, width = planes.shape[1:]
        return pyramid_of(planes, max_depth((height, width)))

    def _described(self, pyramid: TensorPyramid, lafs: Tensor) -> Tensor:
        lafs = cast(lafs, pyramid.pixels.dtype)
        if torch.compiler.is_compiling():
            return self._describe(pyramid, lafs)
        chunk = self.chunk or (CHUNK_CPU if lafs.device.type == "cpu" else CHUNK)
        parts = lafs.split(max(1, chunk // max(1, len(lafs) * len(self.scales))), dim=1)
        return torch.cat([self._describe(pyramid, part) for part in parts], dim=1)

    def _at_frames(self, planes: Tensor, lafs: Tensor) -> Tensor:
        describer = self._describer()
        descriptors = np.empty((*lafs.shape[:2], self.descriptor.dim), np.float32)
        for plane, of_image, out in zip(planes.numpy(), lafs, descriptors, strict=True):
            frames = frames_from_lafs(of_image, magnification=1.0)
            regions = patch_regions(frames, plane.shape, 1.0, self.scales)
            out[:] = describer.at_regions(plane, regions)
        return torch.from_numpy(descriptors)

    def _describe(self, pyramid: TensorPyramid, lafs: Tensor) -> Tensor:
        def patches(pixels: Tensor, lafs: Tensor) -> Tensor:
            levels = pyramid._replace(pixels=pixels)
            return sample_scales(levels, lafs, self.scales, self.descriptor.patch_size)

        patches_at = recomputed(patches, pyramid.pixels, lafs).flatten(0, 1)
        return self.descriptor.pooled(patches_at).reshape(*lafs.shape[:2], self.descriptor.dim)

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
    return (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]  # OpenCV's and Kornia's weights

"""Type aliases and protocols."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union, runtime_checkable

import cv2
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import PIL.Image
    import torch

Array32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Mask = NDArray[np.bool_]
Gray = NDArray[np.uint8]
#: Descriptors (N, D): float32, or uint8 with cv2.CV_8U.
Descriptors = NDArray[Any]
Image: TypeAlias = NDArray[Any] | cv2.UMat
Images: TypeAlias = list[Image] | tuple[Image, ...]
#: An image in any of the forms in which people hold one.
Picture: TypeAlias = Union[Image, str, os.PathLike[str], "PIL.Image.Image", "torch.Tensor"]
KeyPoints = tuple[cv2.KeyPoint, ...]


@runtime_checkable
class Detector(Protocol):
    """A detector of keypoints: any of OpenCV's, or any object with this method."""

    def detect(self, image: Any, mask: Any = None, /) -> Sequence[cv2.KeyPoint]: ...


@runtime_checkable
class Feature(Detector, Protocol):
    """A detector and descriptor of keypoints: KDDescriptor, cv2.SIFT and the like."""

    def compute(self, image: Any, keypoints: Any, /) -> tuple[Sequence[cv2.KeyPoint], Any]: ...

    def detectAndCompute(self, image: Any, mask: Any, /) -> tuple[Sequence[cv2.KeyPoint], Any]: ...

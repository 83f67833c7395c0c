"""kd_cv: kernel local descriptors where SIFT stands today.

>>> from kd_cv import KDDescriptor
>>> keypoints, descriptors = KDDescriptor().detectAndCompute(image, None)
"""

from typing import Any

from kd_cv import opencv  # noqa: F401  first: it says what is missing where cv2 does not load
from kd_cv.detector.dog import DoG
from kd_cv.feature2d import KDDescriptor
from kd_cv.matching import MatchResult, match
from kd_cv.patches import describe
from kd_cv.whitening import Whitening

__version__ = "0.1.0"
__all__ = [
    "DoG",
    "KDDescriptor",
    "KDFeature",
    "KDModule",
    "MatchResult",
    "Whitening",
    "describe",
    "match",
]


def __getattr__(name: str) -> Any:
    # The torch classes are imported when first asked for: `import kd_cv` does not import torch.
    if name in ("KDFeature", "KDModule"):
        from kd_cv.nn import module

        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

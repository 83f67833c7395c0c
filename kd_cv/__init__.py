"""kd_cv: kernel local descriptors where SIFT stands today.

>>> from kd_cv import KDDescriptor
>>> keypoints, descriptors = KDDescriptor().detectAndCompute(image, None)
"""

from typing import TYPE_CHECKING, Any

from kd_cv import opencv  # noqa: F401  first: it says what is missing where cv2 does not load
from kd_cv.detector.dog import DoG
from kd_cv.feature2d import KDDescriptor
from kd_cv.matching import MatchResult, match
from kd_cv.patches import describe
from kd_cv.whitening import Whitening

if TYPE_CHECKING:
    from kd_cv.nn.feature import KDFeature
    from kd_cv.nn.module import KDModule

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
    if name not in ("KDFeature", "KDModule"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from kd_cv.nn import feature, module
    except ImportError as error:
        return _unusable(name, str(error))
    return feature.KDFeature if name == "KDFeature" else module.KDModule


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _unusable(name: str, reason: str) -> type:
    """What stands for a class that needs a missing package: to make one says which.

    So that `from kd_cv import *` and `hasattr` work everywhere.
    """

    def __init__(self: object, *args: object, **kwargs: object) -> None:
        raise ImportError(reason)

    return type(name, (), {"__init__": __init__, "__doc__": reason})

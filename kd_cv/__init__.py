"""kd_cv: kernel local descriptors where SIFT stands today.

>>> from kd_cv import KDDescriptor
>>> keypoints, descriptors = KDDescriptor().detectAndCompute(image, None)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kd_cv.extras import check_opencv

if TYPE_CHECKING:
    from kd_cv.extractor import describe
    from kd_cv.matching.pipeline import match
    from kd_cv.matching.result import MatchResult
    from kd_cv.nn.feature import KDFeature
    from kd_cv.nn.module import KDModule
    from kd_cv.opencv.dog import DoG
    from kd_cv.opencv.kd_descriptor import KDDescriptor
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

_HOMES = {
    "DoG": "opencv.dog", "KDDescriptor": "opencv.kd_descriptor", "KDFeature": "nn.feature",
    "KDModule": "nn.module", "MatchResult": "matching.result", "Whitening": "whitening",
    "describe": "extractor", "match": "matching.pipeline",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Each is imported when it is first asked for: `import kd_cv` is quick, and needs no torch.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_opencv()  # an ImportError says what is missing where cv2 does not load
    try:
        value = getattr(import_module(f"kd_cv.{_HOMES[name]}"), name)
    except ImportError as error:
        if not _HOMES[name].startswith("nn."):
            raise
        return _unusable(name, str(error))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _unusable(name: str, reason: str) -> type:
    """A class in the place of one that needs a missing package: making one says which.

    With it `from kd_cv import *` and `hasattr` work everywhere.
    """

    def __init__(self: object, *args: object, **kwargs: object) -> None:
        raise ImportError(reason)

    return type(name, (), {"__init__": __init__, "__doc__": reason})

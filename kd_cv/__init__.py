"""kd_cv: kernel local descriptors where SIFT stands today.

>>> from kd_cv import KDDescriptor
>>> keypoints, descriptors = KDDescriptor().detectAndCompute(image, None)
"""

from kd_cv.engine import describe
from kd_cv.feature2d import KDDescriptor
from kd_cv.matching import MatchResult, match
from kd_cv.whitening import Whitening

__version__ = "0.1.0"
__all__ = ["KDDescriptor", "MatchResult", "Whitening", "describe", "match"]

"""Whole collections: features in one file, COLMAP, retrieval, a cluster.

>>> from kd_cv.collection import Extraction, extract, reading
>>> print(extract("photographs", "features.h5", Extraction("kd", max_keypoints=4096)))
features.h5: 3 images, ...
>>> with reading("features.h5") as features:
...     features["a.jpg"].descriptors.shape[1]
128
"""

from kd_cv.collection.extraction import Extraction
from kd_cv.collection.names import Collection
from kd_cv.collection.run import Summary, extract
from kd_cv.collection.store import FeatureFile, ImageFeatures, reading

__all__ = [
    "Collection",
    "Extraction",
    "FeatureFile",
    "ImageFeatures",
    "Summary",
    "extract",
    "reading",
]

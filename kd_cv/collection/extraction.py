"""The extraction of the features of one image, and its settings."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_int
from kd_cv.collection.store import DTYPES, ImageFeatures
from kd_cv.descriptor.frames import resized_frames
from kd_cv.extractor import Features
from kd_cv.gray import to_8bit
from kd_cv.io.files import PathLike
from kd_cv.io.images import reduced
from kd_cv.keypoints import from_keypoints
from kd_cv.opencv.kd_descriptor import KDDescriptor

LAYOUT = 1  # of the feature file
MAX_KEYPOINTS = 2**19  # of an image
STAGES = ("decode", "extract")
CONTRAST = 0.02  # weakest contrast of a keypoint by default, as in COLMAP's own SIFT


@dataclass(frozen=True)
class Extraction:
    """How the features of an image are extracted.

    descriptor     "kd", "sift", "rootsift", or a KDDescriptor; each finds its own keypoints
    max_keypoints  the strongest that are kept; of KD with a contrast of 0.02 at least, unless
                   the KDDescriptor has another
    max_size       images whose longer side is larger are reduced to it first; None: never
    dtype          of the stored descriptors: "float16", "float32" or, for KD only, "uint8"
    """

    descriptor: str | KDDescriptor = "kd"
    max_keypoints: int = 8192
    max_size: int | None = 3200
    dtype: str = "float16"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {list(DTYPES)}, got {self.dtype!r}")
        as_int(self.max_keypoints, "max_keypoints", 1, MAX_KEYPOINTS)
        if self.max_size is not None:
            as_int(self.max_size, "max_size")
        if isinstance(self.descriptor, KDDescriptor):
            self.descriptor.__reduce__()  # TypeError for a detector that cannot be pickled
        elif not isinstance(self.descriptor, str):
            kind = type(self.descriptor).__name__
            raise TypeError(f"descriptor must be a name or a KDDescriptor, got {kind}")
        elif self.descriptor != "kd":
            self.feature  # noqa: B018  (ValueError for an unknown name)
        if self.dtype == "uint8" and self.descriptor in ("sift", "rootsift"):
            raise ValueError(f"dtype 'uint8' is for KD descriptors, not for {self.descriptor!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        # OpenCV's objects cannot be sent to another process: `feature` is made anew there.
        return Extraction, (self.descriptor, self.max_keypoints, self.max_size, self.dtype)

    @cached_property
    def feature(self) -> Any:
        """The object that describes, giving float32 descriptors."""
        kd = KDDescriptor() if self.descriptor == "kd" else self.descriptor
        if isinstance(kd, str):
            from kd_cv.opencv.rootsift import as_feature

            return as_feature(kd)
        given = kd.detection.contrastThreshold
        return kd.with_settings(
            descriptor_type=cv2.CV_32F,
            drop=True,
            nfeatures=kd.getNFeatures() or self.max_keypoints,
            contrastThreshold=CONTRAST if given is None else given,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides the content of the file, as JSON can hold it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        settings: dict[str, Any] = {"layout": LAYOUT, **values}
        feature = self.feature
        if isinstance(feature, KDDescriptor):
            settings["descriptor"] = feature.settings.record
            settings["detector"] = feature.detection.record
        return settings

    @cached_property
    def settings_text(self) -> str:
        """The settings as they are written into files."""
        return json.dumps(self.settings, sort_keys=True)

    def features(self, gray: NDArray[Any], clock: Clock | None = None) -> ImageFeatures:
        """Extract the features of a gray image (H, W), uint8 or float32."""
        height, width = gray.shape
        with (clock or Clock())("extract"):
            seen = reduced(gray, self.max_size)
            frames, responses, descriptors, views = self.extract(seen)
        ratio = np.array([width, height]) / np.array(seen.shape[::-1])
        uncertainty = max(1.0, max(gray.shape) / (self.max_size or np.inf))
        return ImageFeatures(
            resized_frames(frames, ratio), descriptors, responses.astype(np.float32),
            (width, height), uncertainty, views,
        )  # fmt: skip

    def extract(self, gray: NDArray[Any]) -> Features:
        """Extract keypoints and descriptors at the size of the image."""
        if isinstance(self.feature, KDDescriptor):
            return self.feature.extractor.extract(gray)
        keypoints, descriptors = self.feature.detectAndCompute(to_8bit(gray), None)
        return self.arrays(keypoints, descriptors)

    def arrays(
        self, keypoints: Sequence[cv2.KeyPoint], descriptors: NDArray[Any] | None
    ) -> Features:
        """Convert OpenCV's keypoints and descriptors, the strongest of them."""
        if descriptors is None:
            descriptors = np.zeros((0, 128), np.float32)
        responses = np.array([keypoint.response for keypoint in keypoints])
        kept = np.sort(np.argsort(-responses, kind="stable")[: self.max_keypoints])
        views = np.zeros(len(kept), np.int64)
        return Features(from_keypoints(keypoints)[kept], responses[kept], descriptors[kept], views)


OVERWRITE = "give another output, or --overwrite it"


def check_settings(
    where: PathLike, found: str | None, wanted: str, advice: str = OVERWRITE
) -> None:
    """Raise a ValueError that names the differences between two texts of settings."""
    if found == wanted:
        return
    try:
        old, new = (_flat(json.loads(text or "")) for text in (found, wanted))
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{where} was not written by kd_cv: {advice}") from None
    changed = ", ".join(
        f"{key} {old.get(key)!r} there and {new.get(key)!r} here"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    )
    raise ValueError(f"{where} has other settings ({changed}): {advice}")


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    inner = settings["descriptor"]
    return {**settings, "descriptor": "kd", **inner} if isinstance(inner, dict) else settings


class Clock:
    """Processor seconds of each stage."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.thread_time()
        yield
        self.seconds[stage] += time.thread_time() - start

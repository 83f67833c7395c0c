"""The ways in for NumPy arrays."""

from typing import Any

import cv2
import numpy as np

from ways_in.entry import Entry, Rows


def is_table(rows: Any, dtype: Any) -> None:
    assert type(rows) is np.ndarray and rows.dtype == dtype and rows.ndim == 2
    assert rows.flags.c_contiguous and rows.flags.writeable and rows.shape[1] == 128


class Compute(Entry):
    """compute of a list of images, at keypoints that are given."""

    def feature(self) -> Any:
        raise NotImplementedError

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        detector = cv2.SIFT_create(40)
        return list(batch), [detector.detect(image, None) for image in batch]

    def call(self, images: list[np.ndarray], keypoints: list[Any]) -> Any:
        return self.feature().compute(images, keypoints)

    def rows(self, result: Any) -> Rows:
        kept, rows = result
        assert type(kept) is tuple and type(rows) is tuple and len(kept) == len(rows)
        for keypoints, row in zip(kept, rows, strict=True):
            assert type(keypoints) is tuple and len(keypoints) == len(row)
            assert all(type(keypoint) is cv2.KeyPoint for keypoint in keypoints)
            is_table(row, np.float32)
        return list(rows)


class OfKDDescriptor(Compute):
    name = "KDDescriptor.compute"
    types = ("uint16", "float16", "float32", "float64")

    def feature(self) -> Any:
        from kd_cv import KDDescriptor

        return KDDescriptor()


class OfBytes(Compute):
    name = "KDDescriptor.compute, 8 bits"
    rounding = 1.0  # one step

    def feature(self) -> Any:
        from kd_cv import KDDescriptor

        return KDDescriptor(descriptor_type=cv2.CV_8U, scales=3)

    def rows(self, result: Any) -> Rows:
        for row in result[1]:
            is_table(row, np.uint8)
        return [row.astype(np.float32) for row in result[1]]


class OfSIFT(Compute):
    name = "cv2.SIFT.compute"

    def feature(self) -> Any:
        return cv2.SIFT_create()


class DetectAndCompute(Entry):
    """detectAndCompute of one image after the other, within a mask."""

    name = "KDDescriptor.detectAndCompute"

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        mask = np.zeros(batch.shape[1:], np.uint8)
        mask[20:, 30:] = 255
        return list(batch), [mask] * len(batch)

    def call(self, images: list[np.ndarray], masks: list[np.ndarray]) -> Any:
        from kd_cv import KDDescriptor

        feature = KDDescriptor()
        return [feature.detectAndCompute(*pair) for pair in zip(images, masks, strict=True)]

    def rows(self, result: Any) -> Rows:
        for kept, row in result:
            assert type(kept) is tuple and len(kept) == len(row)
            is_table(row, np.float32)
        return [row for _, row in result]


class Describe(Entry):
    """describe of patches."""

    name = "describe"
    types = ("float16", "float32", "float64")
    side = 32

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        return (batch,)

    def call(self, patches: np.ndarray) -> Any:
        from kd_cv import describe

        return describe(patches)

    def rows(self, result: Any) -> Rows:
        is_table(result, np.float32)
        return [row[None] for row in result]


class Match(Entry):
    """match of each image with a shifted copy of it."""

    name = "match"
    rounding = 1e-3  # pixels, between the compiled detector and its reference
    types = ("uint16", "float32", "float64")

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        return list(batch), [np.roll(image, 5, axis=1) for image in batch]

    def call(self, images0: list[np.ndarray], images1: list[np.ndarray]) -> Any:
        from kd_cv import match

        return [match(*pair) for pair in zip(images0, images1, strict=True)]

    def rows(self, result: Any) -> Rows:
        from kd_cv import MatchResult

        for found in result:
            M = len(found.matches)
            assert type(found) is MatchResult and found.success is True
            assert type(found.keypoints0) is tuple and type(found.keypoints1) is tuple
            assert found.matches.shape == (M, 2) and found.matches.dtype == np.int64
            assert found.ratios.shape == (M,) and found.ratios.dtype == np.float32
            assert found.inliers.shape == (M,) and found.inliers.dtype == bool
            assert found.H_0to1.shape == (3, 3) and found.H_0to1.dtype == np.float64
        return [np.column_stack([found.points0, found.points1]) for found in result]

"""The feature file: HDF5 in the layout that hloc reads.

A group per image, named by its path below the collection's folder, with the datasets

==============  ======  =======================================================================
keypoints       (N, 2)  float32 x, y in pixels of the image file, the first pixel's centre at
                        (0, 0); attribute `uncertainty`: pixels of the image file per pixel seen
descriptors     (D, N)  float32, float16, or uint8 (see `settings.as_uint8`)
scores          (N,)    float32, the detector's response
scales, oris    (N,)    float32, sigma in pixels (half of OpenCV's size) and angle in radians
image_size      (2,)    width, height of the image file
==============  ======  =======================================================================

This is the only place that turns frames into these numbers, and back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.collection import hdf5
from kd_cv.collection.names import MAX_DEPTH, name_in
from kd_cv.descriptor.frames import degrees, radians, sigma_from_size, size_from_sigma
from kd_cv.io.files import PathLike
from kd_cv.settings import as_uint8

SETTINGS = "kd_cv"  # the root attribute that holds the settings as JSON
KEYS = ("keypoints", "descriptors", "scores", "scales", "oris", "image_size")
#: Which programs can use descriptors of each type; also an attribute of the file.
READERS = {
    "float16": "kd_cv, hloc, deep-image-matching",
    "float32": "kd_cv, hloc, deep-image-matching",
    "uint8": "kd_cv alone: 128 stands for 0, and hloc's dot products find nothing in it",
}
DTYPES = tuple(READERS)
MAX_BYTES = 2**29  # of an image's datasets, unpacked; 8,192 keypoints take 4 MB

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Features:
    """The features of one image.

    frames       (N, 4) x, y, size, angle in pixels of the image file
    descriptors  (N, D) float32, of unit norm where KD made them
    scores       (N,)
    image_size   width, height
    uncertainty  pixels of the image file per pixel that the detector saw
    """

    frames: NDArray[np.float64]
    descriptors: NDArray[np.float32]
    scores: NDArray[np.float32]
    image_size: tuple[int, int]
    uncertainty: float = 1.0


# ---------------------------------------------------------------------- frames and stored numbers


def as_arrays(features: Features, dtype: str) -> Arrays:
    """The datasets of an image, its descriptors as `dtype`."""
    x, y, size, angle = features.frames.T
    rows = features.descriptors
    stored = as_uint8(rows) if dtype == "uint8" else rows.astype(dtype, copy=False)
    return {
        "keypoints": np.stack([x, y], axis=1).astype(np.float32),
        "descriptors": np.ascontiguousarray(stored.T),
        "scores": features.scores.astype(np.float32, copy=False),
        "scales": sigma_from_size(size).astype(np.float32),
        "oris": radians(angle).astype(np.float32),
        "image_size": np.array(features.image_size, np.int64),
    }


def as_features(arrays: Arrays, uncertainty: float = 1.0) -> Features:
    """From the datasets of an image; ValueError if they do not fit together."""
    n = len(arrays["keypoints"])
    shapes = {
        "keypoints": (n, 2), "descriptors": (len(arrays["descriptors"]), n),
        "scores": (n,), "scales": (n,), "oris": (n,), "image_size": (2,),
    }  # fmt: skip
    for key, shape in shapes.items():
        if arrays[key].shape != shape:
            raise ValueError(f"{key} must be numbers of shape {shape}, got {arrays[key].shape}")
    rows = arrays["descriptors"].T
    if rows.dtype == np.uint8:  # the inverse of as_uint8, up to rounding
        rows = rows.astype(np.float32) - 128
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    sizes, angles = size_from_sigma(arrays["scales"]), degrees(arrays["oris"])
    frames = np.column_stack([arrays["keypoints"], sizes, angles])
    width, height = arrays["image_size"].tolist()
    return Features(
        frames.astype(np.float64),
        np.ascontiguousarray(rows, dtype=np.float32),
        np.asarray(arrays["scores"], dtype=np.float32),
        (int(width), int(height)),
        uncertainty,
    )


# ----------------------------------------------------------------------------------------- writing


def write_image(file: Any, name: str, features: Features, dtype: str) -> None:
    """Add the features of an image to an open file."""
    _write(file, name, as_arrays(features, dtype), features.uncertainty)


def copy_image(source: Any, target: Any, name: str) -> None:
    """Add the features of an image of another open file, bit for bit."""
    group = hdf5.group_of(source, name)
    with hdf5.damage_named(f"{source.filename}: {name!r}"):
        arrays, uncertainty = read_arrays(group), _uncertainty(group)
    _write(target, name, arrays, uncertainty)


def _write(file: Any, name: str, arrays: Arrays, uncertainty: float) -> None:
    group = file.create_group(name)
    for key, values in arrays.items():
        group.create_dataset(key, data=values)
    group["keypoints"].attrs["uncertainty"] = uncertainty


# ----------------------------------------------------------------------------------------- reading


class FeatureFile(Mapping[str, Features]):
    """The features of an open file by image name, read when asked for."""

    def __init__(self, file: Any) -> None:
        self._file = file
        settings = hdf5.text_attribute(file, SETTINGS)
        if settings is None:
            raise ValueError(f"{file.filename} was not written by kd_cv: it has no settings")
        with hdf5.damage_named(f"{file.filename}: {SETTINGS}"):
            descriptor = json.loads(settings)["descriptor"]
        #: The settings of the extraction.
        self.settings_text = settings
        #: What it holds: "kd", "sift" or "rootsift".
        self.descriptor = descriptor if descriptor in ("sift", "rootsift") else "kd"

    @cached_property
    def names(self) -> tuple[str, ...]:
        with hdf5.damage_named(self._file.filename):
            return tuple(name_in(name) for name in names_in(self._file))

    def count(self, name: str) -> int:
        """Keypoints of an image."""
        with self._group(name) as group:
            return int(hdf5.dataset(group, "keypoints").shape[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and "keypoints" in hdf5.group_of(self._file, name)
        except KeyError:
            return False

    def __getitem__(self, name: str) -> Features:
        with self._group(name) as group:
            return as_features(read_arrays(group), _uncertainty(group))

    @contextmanager
    def _group(self, name: str) -> Iterator[Any]:
        """The group of an image, to read from; a KeyError if there is none of that name."""
        where = f"{self._file.filename}: {name!r}"
        if name not in self:
            if name in self.names:  # HDF5 keeps a list, and a tree to find by: one may be damaged
                raise ValueError(f"{where} is damaged: listed, but not found")
            raise KeyError(name)
        with hdf5.damage_named(where):
            yield hdf5.group_of(self._file, name)


@contextmanager
def reading(path: PathLike) -> Iterator[FeatureFile]:
    """Open a feature file.

    >>> from kd_cv.collection import extract
    >>> summary = extract("photographs", "features.h5")
    >>> with reading("features.h5") as features:
    ...     features["a.jpg"].descriptors.shape == (len(features["a.jpg"].frames), 128)
    True
    """
    with hdf5.open_hdf5(path) as file:
        yield FeatureFile(file)


def names_in(file: Any) -> Iterator[str]:
    """Names of the images in an open HDF5 file, in its order: groups that hold keypoints.

    Links other than those of HDF5's own tree are not followed, and no group is visited twice.
    """
    h5py = hdf5.load_h5py()
    seen = {hdf5.place(file)}
    waiting = [("", file)]
    while waiting:
        name, group = waiting.pop()
        if name.count("/") >= MAX_DEPTH:
            raise ValueError(f"its groups are nested more than {MAX_DEPTH} deep")
        keys = list(group)
        if "keypoints" in keys and name:
            yield name
        inner = []
        for key in keys:
            if key in KEYS or not isinstance(group.get(key, getlink=True), h5py.HardLink):
                continue
            item = group[key]
            if isinstance(item, h5py.Group) and hdf5.place(item) not in seen:
                seen.add(hdf5.place(item))
                inner.append((f"{name}/{key}" if name else key, item))
        waiting += reversed(inner)


def read_arrays(group: Any) -> Arrays:
    """The datasets of an image; ValueError for what is not simply numbers stored there."""
    datasets = {key: hdf5.dataset(group, key) for key in KEYS}
    total = sum(hdf5.unpacked(item) for item in datasets.values())
    if total > MAX_BYTES:
        raise ValueError(f"it has {total} bytes unpacked, at most {MAX_BYTES} are read")
    return {key: item[()] for key, item in datasets.items()}


def _uncertainty(group: Any) -> float:
    h5py = hdf5.load_h5py()
    keypoints = hdf5.dataset(group, "keypoints")
    if "uncertainty" not in keypoints.attrs:
        return 1.0  # as hloc's own files have none
    stored = keypoints.attrs.get_id("uncertainty")
    if stored.get_type().get_class() != h5py.h5t.FLOAT or stored.shape != ():
        raise ValueError("uncertainty must be a number")
    return float(keypoints.attrs["uncertainty"])

"""The feature file: HDF5 in the layout that hloc reads.

A group per image, named by its path below the collection's folder, with the datasets

==============  ======  =======================================================================
keypoints       (N, 2)  float32 x, y in pixels of the image file, the first pixel's centre at
                        (0, 0); attribute `uncertainty`: pixels of the image file per pixel seen
descriptors     (D, N)  float32, float16, or uint8 (see `settings.to_uint8`)
scores          (N,)    float32, the detector's response
scales, oris    (N,)    float32, sigma in pixels (half of OpenCV's size) and angle in radians
views           (N,)    uint8, the synthetic view of each (see `kd_cv.views`); only if there are any
image_size      (2,)    width, height of the image file
==============  ======  =======================================================================

and the attribute `source`: the root folder, size and modification time of the image file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.descriptor.frames import degrees, radians, sigma_from_size, size_from_sigma
from kd_cv.extractor import to_uint8
from kd_cv.extras import extra
from kd_cv.io.files import PathLike, refused_as

SETTINGS = "kd_cv"  # the root attribute that holds the settings as JSON
SOURCE = "source"  # the attribute of an image
KEYS = ("keypoints", "descriptors", "scores", "scales", "oris", "image_size")
VIEWS = "views"
#: Which programs can use descriptors of each type; also an attribute of the file.
READERS = {
    "float16": "kd_cv, hloc, deep-image-matching",
    "float32": "kd_cv, hloc, deep-image-matching",
    "uint8": "kd_cv alone: 128 stands for 0, and hloc's dot products find nothing in it",
}
DTYPES = tuple(READERS)

# Errors of h5py for a damaged file.
_DAMAGE = (ValueError, TypeError, RuntimeError, OSError, AttributeError, KeyError)


@dataclass(frozen=True)
class ImageFeatures:
    """The features of one image.

    All positions are in pixels of the image file; descriptors of KD have unit norm.
    """

    frames: NDArray[np.float64]  # (N, 4) x, y, size, angle
    descriptors: NDArray[np.float32]  # (N, D)
    scores: NDArray[np.float32]  # (N,)
    image_size: tuple[int, int]  # width, height
    uncertainty: float = 1.0  # pixels of the image file per pixel that the detector saw
    #: (N,) the synthetic view of each; by default 0, the image itself
    views: NDArray[np.int64] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.views is None:
            object.__setattr__(self, "views", np.zeros(len(self.frames), np.int64))


def as_arrays(features: ImageFeatures, dtype: str) -> dict[str, NDArray[Any]]:
    """Convert features to the datasets of an image, with descriptors of `dtype`."""
    x, y, size, angle = features.frames.T
    floats = features.descriptors
    stored = to_uint8(floats) if dtype == "uint8" else floats.astype(dtype, copy=False)
    views = {VIEWS: features.views.astype(np.uint8)} if features.views.any() else {}
    return views | {
        "keypoints": np.stack([x, y], axis=1).astype(np.float32),
        "descriptors": np.ascontiguousarray(stored.T),
        "scores": features.scores.astype(np.float32, copy=False),
        "scales": sigma_from_size(size).astype(np.float32),
        "oris": radians(angle).astype(np.float32),
        "image_size": np.array(features.image_size, np.int64),
    }


def as_features(arrays: Mapping[str, NDArray[Any]], uncertainty: float = 1.0) -> ImageFeatures:
    """Convert the datasets of an image; ValueError if their shapes differ."""
    n = len(arrays["keypoints"])
    shapes = {
        "keypoints": (n, 2), "descriptors": (len(arrays["descriptors"]), n),
        "scores": (n,), "scales": (n,), "oris": (n,), "image_size": (2,),
    }  # fmt: skip
    if VIEWS in arrays:
        shapes[VIEWS] = (n,)
    for key, shape in shapes.items():
        if arrays[key].shape != shape or arrays[key].dtype.kind not in "fiu":
            raise ValueError(f"{key} must be numbers of shape {shape}, got {arrays[key].shape}")
    X = arrays["descriptors"].T
    if X.dtype == np.uint8:  # the inverse of to_uint8, up to rounding
        X = np.where(X.any(axis=1, keepdims=True), X.astype(np.float32) - 128, 0)
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    sizes, angles = size_from_sigma(arrays["scales"]), degrees(arrays["oris"])
    frames = np.column_stack([arrays["keypoints"], sizes, angles])
    width, height = arrays["image_size"].tolist()
    views = arrays.get(VIEWS, np.zeros(n)).astype(np.int64)
    X, scores = np.ascontiguousarray(X, np.float32), np.asarray(arrays["scores"], np.float32)
    size = int(width), int(height)
    return ImageFeatures(frames.astype(np.float64), X, scores, size, uncertainty, views)


class _Disk(io.FileIO):
    """A file for HDF5, which crashes on errors of the disk: `check` raises them."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data)
        while len(rest) and self.error is None:
            try:
                rest = rest[super().write(rest) :]
            except OSError as error:
                self.error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0

    def check(self) -> None:
        """Raise what went wrong so far."""
        if self.error is not None:
            raise self.error


@contextmanager
def writing_hdf5(path: PathLike) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Open a new HDF5 file; the second value raises the errors of the disk so far."""
    h5py = load_h5py()
    with _Disk(path, "w+") as disk:
        try:
            with h5py.File(disk, "w") as file:
                yield file, disk.check
        except Exception:
            disk.check()
            raise
        disk.check()


def write_image(
    file: Any, name: str, features: ImageFeatures, dtype: str, source: str = ""
) -> None:
    """Add the features of an image to an open file."""
    group = file.create_group(name)
    for key, values in as_arrays(features, dtype).items():
        group.create_dataset(key, data=values)
    group["keypoints"].attrs["uncertainty"] = features.uncertainty
    group.attrs[SOURCE] = source


def copy_image(source: Any, target: Any, name: str) -> None:
    """Copy the features of an image from another open file."""
    with _damage_named(f"{source.filename}: {name!r}"):
        group = target.require_group(name)
        for key in _keys(source[name]):
            source.copy(source[name][key], group, name=key)
        group.attrs[SOURCE] = source[name].attrs[SOURCE]


class FeatureFile(Mapping[str, ImageFeatures]):
    """The features of an open file by image name, read when asked for."""

    def __init__(self, file: Any) -> None:
        self._file = file
        settings = settings_in(file)
        if settings is None:
            raise ValueError(f"{file.filename} was not written by kd_cv: it has no settings")
        with _damage_named(f"{file.filename}: {SETTINGS}"):
            descriptor = json.loads(settings)["descriptor"]
        #: The settings of the extraction.
        self.settings_text = settings
        #: What it holds: "kd", "sift" or "rootsift".
        self.descriptor = descriptor if descriptor in ("sift", "rootsift") else "kd"

    @cached_property
    def names(self) -> tuple[str, ...]:
        with _damage_named(self._file.filename):
            return tuple(names_in(self._file))

    def count(self, name: str) -> int:
        """Keypoints of an image."""
        with self._group(name) as group:
            return int(group["keypoints"].shape[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._file and is_image(self._file[name])

    def __getitem__(self, name: str) -> ImageFeatures:
        with self._group(name) as group:
            uncertainty = float(group["keypoints"].attrs.get("uncertainty", 1.0))
            return as_features({key: group[key][()] for key in _keys(group)}, uncertainty)

    @contextmanager
    def _group(self, name: str) -> Iterator[Any]:
        """The group of an image; a KeyError if there is none of that name."""
        where = f"{self._file.filename}: {name!r}"
        with _damage_named(where):
            there = name in self
        if not there:
            raise KeyError(name)
        with _damage_named(where):
            yield self._file[name]


@contextmanager
def reading(path: PathLike) -> Iterator[FeatureFile]:
    """Open a feature file.

    >>> from kd_cv.collection import extract
    >>> summary = extract("photographs", "features.h5")
    >>> with reading("features.h5") as features:
    ...     features["a.jpg"].descriptors.shape == (len(features["a.jpg"].frames), 128)
    True
    """
    with open_hdf5(path) as file:
        yield FeatureFile(file)


def open_hdf5(path: PathLike) -> Any:
    """An HDF5 file to read; ValueError for anything else."""
    h5py = load_h5py()
    try:
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise FileNotFoundError(f"no feature file {str(path)!r}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read as an HDF5 file: {error}") from error


def names_in(file: Any) -> Iterator[str]:
    """List the images of an open HDF5 file."""
    h5py = load_h5py()
    waiting = [("", file)]
    while waiting:
        name, group = waiting.pop()
        if name and is_image(group):
            yield name
        inner = [key for key in group if group.get(key, getclass=True) is h5py.Group]
        waiting += [(f"{name}/{key}" if name else key, group[key]) for key in reversed(inner)]


def is_image(item: Any) -> bool:
    """Return whether a group holds an image; a folder may be named `keypoints` too."""
    h5py = load_h5py()
    return isinstance(item, h5py.Group) and item.get("keypoints", getclass=True) is h5py.Dataset


def _keys(group: Any) -> tuple[str, ...]:
    """The datasets of an image."""
    return (*KEYS, VIEWS) if VIEWS in group else KEYS


def settings_in(file: Any) -> str | None:
    """The settings of an open HDF5 file; None if it was not written by kd_cv."""
    with _damage_named(f"{file.filename}: {SETTINGS}"):
        text = file.attrs.get(SETTINGS)
    return text if isinstance(text, str) else None


def _damage_named(what: str) -> AbstractContextManager[None]:
    return refused_as(f"{what} is damaged", *_DAMAGE)


def load_h5py() -> Any:
    return extra("h5py", "feature files need h5py", "features")

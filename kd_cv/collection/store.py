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

This is the only place where frames become those numbers, and these frames.

A file of others is looked at before it is read: h5py would take some stored types for pointers to
Python objects, and a dataset may claim any size, stand for bytes of another file, or be packed a
thousandfold.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.collection.names import MAX_DEPTH, name_in
from kd_cv.descriptor.frames import degrees, radians, sigma_from_size, size_from_sigma
from kd_cv.io.files import PathLike, check_regular
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
MAX_RATIO = 1100  # bytes that one stored byte may stand for; deflate reaches 1032

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


class _Disk(io.FileIO):
    """A file that HDF5 writes to: what goes wrong is kept here, because HDF5 crashes of it."""

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
    """A new HDF5 file, and a function that raises if the disk has not taken all so far."""
    h5py = load_h5py()
    with _Disk(path, "w+") as disk:
        try:
            with h5py.File(disk, "w") as file:
                yield file, disk.check
        except Exception:
            disk.check()
            raise
        disk.check()


def write_image(file: Any, name: str, features: Features, dtype: str) -> None:
    """Add the features of an image to an open file."""
    _write(file, name, as_arrays(features, dtype), features.uncertainty)


def copy_image(source: Any, target: Any, name: str) -> None:
    """Add the features of an image of another open file, bit for bit."""
    group = group_of(source, name)
    with damage_named(f"{source.filename}: {name!r}"):
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
        settings = text_attribute(file, SETTINGS)
        if settings is None:
            raise ValueError(f"{file.filename} was not written by kd_cv: it has no settings")
        with damage_named(f"{file.filename}: {SETTINGS}"):
            descriptor = json.loads(settings)["descriptor"]
        #: The settings of the extraction.
        self.settings_text = settings
        #: What it holds: "kd", "sift" or "rootsift".
        self.descriptor = descriptor if descriptor in ("sift", "rootsift") else "kd"

    @cached_property
    def names(self) -> tuple[str, ...]:
        with damage_named(self._file.filename):
            return tuple(name_in(name) for name in names_in(self._file))

    def count(self, name: str) -> int:
        """Keypoints of an image."""
        group = self._group(name)
        with damage_named(f"{self._file.filename}: {name!r}"):
            return int(_dataset(group, "keypoints").shape[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and "keypoints" in group_of(self._file, name)
        except KeyError:
            return False

    def __getitem__(self, name: str) -> Features:
        group = self._group(name)
        with damage_named(f"{self._file.filename}: {name!r}"):
            return as_features(read_arrays(group), _uncertainty(group))

    def _group(self, name: str) -> Any:
        """The group of an image; a KeyError if there is none of that name."""
        if name in self:
            return group_of(self._file, name)
        if name in self.names:  # HDF5 keeps a list and a tree to find by, and one may be damaged
            raise ValueError(f"{self._file.filename}: {name!r} is damaged: listed, but not found")
        raise KeyError(name)


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
        check_regular(path)
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise FileNotFoundError(f"no feature file {str(path)!r}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read as an HDF5 file: {error}") from error


def names_in(file: Any) -> Iterator[str]:
    """Names of the images in an open HDF5 file, in its order: groups that hold keypoints.

    Links other than those of HDF5's own tree are not followed, and no group is visited twice.
    """
    h5py = load_h5py()
    seen = {_place(file)}
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
            if isinstance(item, h5py.Group) and _place(item) not in seen:
                seen.add(_place(item))
                inner.append((f"{name}/{key}" if name else key, item))
        waiting += reversed(inner)


def group_of(file: Any, name: str) -> Any:
    """The group of an image in an open file, by links of the file's own tree; or a KeyError."""
    h5py = load_h5py()
    item = file
    with damage_named(f"{file.filename}: {name!r}", but=KeyError):
        for part in PurePosixPath(name).parts:
            inside = isinstance(item, h5py.Group) and part != "/"
            if not inside or not isinstance(item.get(part, getlink=True), h5py.HardLink):
                raise KeyError(name)
            item = item[part]
        if not isinstance(item, h5py.Group):
            raise KeyError(name)
    return item


def read_arrays(group: Any) -> Arrays:
    """The datasets of an image; ValueError for what is not simply numbers stored there."""
    datasets = {key: _dataset(group, key) for key in KEYS}
    total = sum(_unpacked(item) for item in datasets.values())
    if total > MAX_BYTES:
        raise ValueError(f"it has {total} bytes unpacked, at most {MAX_BYTES} are read")
    arrays = {key: item[()] for key, item in datasets.items()}
    for key, values in arrays.items():
        if values.dtype.kind not in "fiu":
            raise ValueError(f"{key} must be numbers, got {values.dtype}")
    return arrays


def _dataset(group: Any, key: str) -> Any:
    """A dataset of numbers, not read yet."""
    h5py = load_h5py()
    item = group[key] if isinstance(group.get(key, getlink=True), h5py.HardLink) else None
    if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
        raise ValueError(f"{key} is not a dataset of the file itself")
    # Not by item.dtype: h5py makes Python objects of what an opaque type says that it is.
    if item.id.get_type().get_class() not in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        raise ValueError(f"{key} must be numbers, and has another type")
    if not 1 <= item.ndim <= 2 or _unpacked(item) > MAX_RATIO * item.id.get_storage_size():
        raise ValueError(f"{key} claims the shape {item.shape}, which is not stored")
    return item


def _unpacked(item: Any) -> int:
    """Bytes that a dataset takes when it is read: its own, or those of a larger piece of it."""
    pieces = math.prod(item.chunks) if item.chunks and item.size else 0
    return max(item.size, pieces) * item.id.get_type().get_size()


def text_attribute(item: Any, name: str) -> str | None:
    """An attribute that is one text; None if it is not there or anything else."""
    h5py = load_h5py()
    with damage_named(f"{item.file.filename}: {name}"):
        if name not in item.attrs:
            return None
        stored = item.attrs.get_id(name)
        if stored.get_type().get_class() != h5py.h5t.STRING or stored.shape != ():
            return None
        value = item.attrs[name]
    return value if isinstance(value, str) else None


def _uncertainty(group: Any) -> float:
    h5py = load_h5py()
    keypoints = _dataset(group, "keypoints")
    if "uncertainty" not in keypoints.attrs:
        return 1.0  # as hloc's own files have none
    stored = keypoints.attrs.get_id("uncertainty")
    if stored.get_type().get_class() != h5py.h5t.FLOAT or stored.shape != ():
        raise ValueError("uncertainty must be a number")
    return float(keypoints.attrs["uncertainty"])


def _place(group: Any) -> int:
    """Where a group lies in its file: the same for all its names."""
    return int(load_h5py().h5o.get_info(group.id).addr)


@contextmanager
def damage_named(what: str, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """What HDF5 raises for a damaged file, as a ValueError that names it."""
    try:
        yield
    except but:
        raise
    except (ValueError, TypeError, KeyError, RuntimeError, OSError, AttributeError) as error:
        raise ValueError(f"{what} is damaged: {error}") from error


def load_h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("feature files need h5py: pip install kd-cv[features]") from error
    return h5py

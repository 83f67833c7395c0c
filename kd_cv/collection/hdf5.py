"""HDF5: files that others may have made, and disks that may be full.

A file is looked at before it is read: h5py would take some stored types for pointers to Python
objects, and a dataset may claim any size, stand for bytes of another file, or be packed a
thousandfold.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import PurePosixPath
from typing import Any

from kd_cv.io.files import PathLike, opened, refused_as
from kd_cv.start import extra

# What HDF5 raises for a damaged file, besides the KeyError of a name that is not there.
_DAMAGE = (ValueError, TypeError, RuntimeError, OSError, AttributeError)
MAX_RATIO = 1100  # bytes that one stored byte may stand for; deflate reaches 1032


class _Disk(io.FileIO):
    """A file that HDF5 writes to. It keeps an error for `check` to raise: HDF5 would crash."""

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


def open_hdf5(path: PathLike) -> Any:
    """An HDF5 file to read; ValueError for anything else."""
    h5py = load_h5py()
    try:
        with opened(path):  # no pipe or device: h5py opens it by itself
            return h5py.File(path, "r")
    except FileNotFoundError:
        raise FileNotFoundError(f"no feature file {str(path)!r}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read as an HDF5 file: {error}") from error


def group_of(file: Any, name: str) -> Any:
    """The group of an image in an open file, by links of the file's own tree; or a KeyError."""
    h5py = load_h5py()
    item = file
    with refused_as(f"{file.filename}: {name!r} is damaged", *_DAMAGE):
        for part in PurePosixPath(name).parts:
            inside = isinstance(item, h5py.Group) and part != "/"
            if not inside or not isinstance(item.get(part, getlink=True), h5py.HardLink):
                raise KeyError(name)
            item = item[part]
        if not isinstance(item, h5py.Group):
            raise KeyError(name)
    return item


def dataset(group: Any, key: str) -> Any:
    """A dataset of numbers, not read yet."""
    h5py = load_h5py()
    item = group[key] if isinstance(group.get(key, getlink=True), h5py.HardLink) else None
    if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
        raise ValueError(f"{key} is not a dataset of the file itself")
    # Not by item.dtype: h5py makes Python objects of what an opaque type says that it is.
    if item.id.get_type().get_class() not in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        raise ValueError(f"{key} must be numbers, and has another type")
    if not 1 <= item.ndim <= 2 or unpacked(item) > MAX_RATIO * item.id.get_storage_size():
        raise ValueError(f"{key} claims the shape {item.shape}, which is not stored")
    return item


def unpacked(item: Any) -> int:
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


def place(group: Any) -> int:
    """Where a group lies in its file: the same for all its names."""
    return int(load_h5py().h5o.get_info(group.id).addr)


def damage_named(what: str) -> AbstractContextManager[None]:
    """What HDF5 raises for a damaged file, as a ValueError that names it."""
    return refused_as(f"{what} is damaged", *_DAMAGE, KeyError)


def load_h5py() -> Any:
    return extra("h5py", "feature files need h5py", "features")

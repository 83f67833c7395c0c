"""One .npz file of stored (never compressed) arrays of numbers and a JSON text, with a checksum.

Matrices, statistics, indices and cached rows are such files. Stored members have one possible
encoding, so equal content gives equal bytes on every machine, and a file cannot ask for more memory
than its own size.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.io.files import PathLike, read_bytes, refused_as, replacing

_META = "meta.json"
_VERSION = 1
MAX_BYTES = 1 << 28
_MAX_MEMBERS = 1024

# The header of an array as it is written here. NumPy's reader takes any Python literal, and so
# raises almost anything.
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(<f4|<f8|<i8|\|u1)', 'fortran_order': False, "
    rb"'shape': \((\d{1,12},|\d{1,12}, \d{1,12})\), \} *\n",
    re.DOTALL,
)

# What zipfile raises for a file that is not a zip file, or a damaged one.
_OF_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    OverflowError,
    RuntimeError,  # an encrypted member, an unknown zip feature; or JSON nested too deep
)


def write_archive(
    path: PathLike, kind: str, arrays: Mapping[str, NDArray[Any]], content: Mapping[str, Any]
) -> None:
    """Write arrays and JSON content as a file of a kind, whole or not at all.

    Arrays have one or two axes; their numbers are float32, float64, int64 or uint8.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"the name of a {kind} file must end in .npz, got {path.name!r}")
    meta = {"format": f"kd_cv {kind}", "version": _VERSION, **content}
    meta["sha256"] = checksum(arrays, meta)
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        _write_member(archive, _META, canonical_json(meta).encode())
        for name in sorted(arrays):
            npy = io.BytesIO()
            little = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), order="C")
            np.lib.format.write_array(npy, little, version=(1, 0), allow_pickle=False)
            _write_member(archive, name + ".npy", npy.getvalue())


def _write_member(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    member.create_system = 3  # or the bytes would name the operating system
    archive.writestr(member, data)


def read_archive(
    path: PathLike, kind: str, limit: int = MAX_BYTES
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and the content of a file of a kind, of at most `limit` bytes.

    ValueError if it is damaged, or a file of another kind.
    """
    with refused_as(f"{path} is not a sound kd_cv {kind} file", *_OF_ZIP, KeyError, TypeError):
        data = _members(read_bytes(path, limit))
        if _META not in data:
            raise ValueError(f"it has no {_META}")
        meta = json.loads(data.pop(_META))
        if not isinstance(meta, dict) or meta.get("format") != f"kd_cv {kind}":
            raise ValueError(f"it does not say that it is a {kind} file")
        if meta.get("version") != _VERSION:
            raise ValueError(f"it is of another version than {_VERSION}")
        arrays = {name.removesuffix(".npy"): array_from_npy(name, data[name]) for name in data}
        if meta.pop("sha256", None) != checksum(arrays, meta):
            raise ValueError("its checksum is wrong: the file is corrupted")
    return arrays, {key: meta[key] for key in meta if key not in ("format", "version")}


def _members(data: bytes) -> dict[str, bytes]:
    """The members of a zip file, which must be stored as they are."""
    # Those that are listed take ten times their size: first count what each of them begins with.
    count = data.count(b"PK\1\2")
    if count > _MAX_MEMBERS:
        raise ValueError(f"it has {count} members, more than {_MAX_MEMBERS}")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if len({member.filename for member in members}) != len(members):
            raise ValueError("it has repeated members")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is packed in another way than such files are")
        total = sum(member.file_size for member in members)
        if total > len(data):
            raise ValueError(f"{total} bytes unpacked, more than the {len(data)} of the file")
        return {member.filename: archive.read(member) for member in members}


def array_from_npy(name: str, data: bytes) -> NDArray[Any]:
    """The array of numbers in a .npy file: exactly what its header says.

    The array takes no more memory than the data has.
    """
    header = _NPY.match(data)
    sound = header is not None and header.end() == 10 + int.from_bytes(data[8:10], "little")
    if header is None or not sound or not name.endswith(".npy"):
        raise ValueError(f"{name} is not an array of numbers with one or two axes")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(side) for side in header[2].replace(b",", b" ").split())
    size = math.prod(shape) * dtype.itemsize
    if size != len(data) - header.end():
        raise ValueError(
            f"{name} has {len(data) - header.end()} bytes, but an array {dtype} {shape} has {size}"
        )
    values: NDArray[Any] = np.frombuffer(data, dtype, offset=header.end())
    return values.reshape(shape).astype(dtype.newbyteorder("="))


def checksum(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> str:
    """SHA-256 of named arrays and of JSON content: the same on every machine."""
    digest = hashlib.sha256(canonical_json(meta).encode())
    for name in sorted(arrays):
        dtype = arrays[name].dtype.newbyteorder("<")
        digest.update(f"\n{name} {dtype.str} {arrays[name].shape}\n".encode())
        digest.update(arrays[name].astype(dtype, order="C").tobytes())
    return digest.hexdigest()


def canonical_json(content: Any) -> str:
    """The one JSON text of a content; ValueError for NaN and infinity."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)

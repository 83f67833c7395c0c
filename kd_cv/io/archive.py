"""One .npz file of stored (never compressed) float arrays and a JSON text, with a checksum.

Stored members have one possible encoding, so equal content gives equal bytes on every machine,
and a file cannot ask for more memory than its own size.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.io.files import read_bytes, replacing

_META = "meta.json"
_VERSION = 1
MAX_BYTES = 1 << 28
_MAX_MEMBERS = 1024

# The header of an array as NumPy writes it. Its own reader takes any Python literal, and so raises
# almost anything.
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<>|](?:b1|[iu][1248]|f[248]|U\d{1,6}))', "
    rb"'fortran_order': (True|False), 'shape': \(((?:\d{1,12}, ?){0,8}(?:\d{1,12})?)\), \} *\n",
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
    path: str | os.PathLike[str],
    kind: str,
    arrays: Mapping[str, NDArray[Any]],
    content: Mapping[str, Any],
) -> None:
    """Write arrays and JSON content as a file of a kind, whole or not at all."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"the name of a {kind} file must end in .npz, got {path.name!r}")
    meta = {"format": f"kd_cv {kind}", "version": _VERSION, **content}
    meta["sha256"] = checksum(arrays, meta)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        _write_member(archive, _META, canonical_json(meta).encode())
        for name in sorted(arrays):
            npy = io.BytesIO()
            little = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), order="C")
            np.lib.format.write_array(npy, little, version=(1, 0), allow_pickle=False)
            _write_member(archive, name + ".npy", npy.getvalue())
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())


def _write_member(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    member.create_system = 3  # or the bytes would name the operating system
    archive.writestr(member, data)


def read_archive(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and the content of a file of a kind; ValueError if it is not a sound one."""
    try:
        return _parse_archive(Path(path), kind)
    except (*_OF_ZIP, KeyError, TypeError) as error:
        raise ValueError(f"{os.fspath(path)} is not a sound kd_cv {kind} file: {error}") from error


def _parse_archive(path: Path, kind: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    packed = read_bytes(path, MAX_BYTES)
    data = _unpacked(packed)
    if _META not in data:
        raise ValueError(f"it has no {_META}")
    meta = json.loads(data.pop(_META))
    if not isinstance(meta, dict) or meta.pop("format", None) != f"kd_cv {kind}":
        raise ValueError(f"it does not say that it is a {kind} file")
    if meta.pop("version", None) != _VERSION:
        raise ValueError(f"it is of another version than {_VERSION}")
    arrays = {name.removesuffix(".npy"): _read_array(name, data[name]) for name in data}
    stated = meta.pop("sha256", None)
    header = {"format": f"kd_cv {kind}", "version": _VERSION}
    if stated != checksum(arrays, {**header, **meta}):
        raise ValueError("its checksum is wrong: the file is corrupted")
    return arrays, meta


def _unpacked(data: bytes) -> dict[str, bytes]:
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


def _read_array(name: str, data: bytes) -> NDArray[Any]:
    if not name.endswith(".npy"):
        raise ValueError(f"{name} is not an array")
    values = array_from_npy(name, data)
    if values.dtype.str not in ("<f4", "<f8") or not values.flags.c_contiguous or values.ndim > 2:
        raise ValueError(
            f"{name} is not a float array in C order, but {values.dtype} {values.shape}"
        )
    return values.astype(values.dtype.newbyteorder("="))


def array_from_npy(name: str, data: bytes) -> NDArray[Any]:
    """The array of numbers or text in a .npy file (a view of it): exactly what its header says.

    The array takes no more memory than the data has.
    """
    header = _NPY.match(data)
    if header is None or header.end() != 10 + int.from_bytes(data[8:10], "little"):
        raise ValueError(f"{name} is not an array of numbers or text")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(side) for side in header[3].replace(b",", b" ").split())
    size = math.prod(shape) * dtype.itemsize
    if dtype.itemsize == 0 or size != len(data) - header.end():
        raise ValueError(
            f"{name} has {len(data) - header.end()} bytes, but an array {dtype} {shape} has {size}"
        )
    values: NDArray[Any] = np.frombuffer(data, dtype, offset=header.end())
    if dtype.kind == "U" and values.view(f"{dtype.str[0]}u4").max(initial=0) > sys.maxunicode:
        raise ValueError(f"{name} holds numbers that stand for no character")
    return values.reshape(shape, order="F" if header[2] == b"True" else "C")


def read_npz(path: str | os.PathLike[str], limit: int) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file of `limit` bytes or less; ValueError for any other.

    Only numbers and text: nothing is unpickled.
    """
    try:
        data = _unpacked(read_bytes(path, limit))
        return {name.removesuffix(".npy"): array_from_npy(name, data[name]) for name in data}
    except _OF_ZIP as error:
        raise ValueError(f"not a sound .npz file: {error}") from error


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

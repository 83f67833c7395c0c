"""One .npz file of stored (never compressed) float arrays and a JSON text, with a checksum.

Stored members have one possible encoding, so equal content gives equal bytes on every machine,
and a file cannot ask for more memory than its own size.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.files import replacing

_META = "meta.json"
_VERSION = 1
_MAX_BYTES = 1 << 28
_MAX_MEMBERS = 1024


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
    meta["sha256"] = _checksum(arrays, meta)
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
    except (
        zipfile.BadZipFile,
        struct.error,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RuntimeError,  # an encrypted member, an unknown zip feature, JSON nested too deep
    ) as error:
        raise ValueError(f"{os.fspath(path)} is not a sound kd_cv {kind} file: {error}") from error


def _parse_archive(path: Path, kind: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"it has {size} bytes, more than {_MAX_BYTES}")
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        if len(names) != len(set(names)) or len(names) > _MAX_MEMBERS:
            raise ValueError(f"it has repeated members or more than {_MAX_MEMBERS}")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it has compressed members")
        if sum(member.file_size for member in members) > size:
            raise ValueError("its members claim more bytes than it has")
        data = {member.filename: archive.read(member) for member in members}
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
    if stated != _checksum(arrays, {**header, **meta}):
        raise ValueError("its checksum is wrong: the file is corrupted")
    return arrays, meta


def _read_array(name: str, data: bytes) -> NDArray[Any]:
    stream = io.BytesIO(data)
    if not name.endswith(".npy") or np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"{name} is not an array")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.str not in ("<f4", "<f8") or fortran or len(shape) > 2 or min(shape, default=0) < 0:
        raise ValueError(f"{name} is not a float array in C order, but {dtype} {shape}")
    values = np.frombuffer(data, dtype, offset=stream.tell())
    return values.reshape(shape).astype(dtype.newbyteorder("="))  # a wrong size raises here


def _checksum(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(canonical_json(meta).encode())
    for name in sorted(arrays):
        dtype = arrays[name].dtype.newbyteorder("<")
        digest.update(f"\n{name} {dtype.str} {arrays[name].shape}\n".encode())
        digest.update(arrays[name].astype(dtype, order="C").tobytes())
    return digest.hexdigest()


def canonical_json(content: Any) -> str:
    """The one JSON text of a content; ValueError for NaN and infinity."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)

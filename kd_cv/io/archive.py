"""NPZ files of arrays and a JSON text, `meta.json`, that says what they are.

Matrices, statistics, indexes and cached descriptors are such files. Arrays are stored without
compression, so equal content gives equal bytes. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.io.files import PathLike, refused_as, replacing

_META = "meta.json"
_VERSION = 1
MAX_BYTES = 1 << 28

# Errors of NumPy, zipfile and json for a file that is damaged or of another kind.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, OverflowError, RuntimeError, KeyError,
    TypeError, MemoryError, NotImplementedError, SyntaxError,
)  # fmt: skip


def write_archive(
    path: PathLike, kind: str, arrays: Mapping[str, NDArray[Any]], content: Mapping[str, Any]
) -> None:
    """Write arrays and JSON content as a file of a kind, whole or not at all."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"the name of a {kind} file must end in .npz, got {path.name!r}")
    meta = {"format": f"kd_cv {kind}", "version": _VERSION, **content}
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        _write_member(archive, _META, canonical_json(meta).encode())
        for name in sorted(arrays):
            npy = io.BytesIO()
            np.lib.format.write_array(npy, _little(arrays[name]), allow_pickle=False)
            _write_member(archive, name + ".npy", npy.getvalue())


def _write_member(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    member.create_system = 3  # otherwise the bytes name the operating system
    archive.writestr(member, data)


def read_archive(
    path: PathLike, kind: str, limit: int = MAX_BYTES
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read the arrays and the content of a file of a kind, of at most `limit` bytes.

    ValueError if it is damaged, or a file of another kind.
    """
    with refused_as(f"{os.fspath(path)} is not a sound kd_cv {kind} file", *_DAMAGE):
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            if _META not in archive.files:
                raise ValueError(f"it has no {_META}")
            size = sum(member.file_size for member in archive.zip.infolist())
            if size > limit:
                raise ValueError(f"it has {size} bytes unpacked, at most {limit} are read")
            damaged = archive.zip.testzip()  # NumPy does not wait for the CRC
            if damaged:
                raise ValueError(f"{damaged} is damaged")
            members = {name: archive[name] for name in archive.files}
        meta = json.loads(members.pop(_META))
        if not isinstance(meta, dict) or meta.get("format") != f"kd_cv {kind}":
            raise ValueError(f"it does not say that it is a {kind} file")
        if meta.get("version") != _VERSION:
            raise ValueError(f"it is of another version than {_VERSION}")
        for name, array in members.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
                raise ValueError(f"{name} is not an array of numbers")
    return members, {k: v for k, v in meta.items() if k not in ("format", "version", "sha256")}


def checksum(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> str:
    """SHA-256 of named arrays and of JSON content: the same on every machine."""
    digest = hashlib.sha256(canonical_json(meta).encode())
    for name in sorted(arrays):
        array = _little(arrays[name])
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _little(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)


def canonical_json(content: Any) -> str:
    """The one JSON text of a content; ValueError for NaN and infinity."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)

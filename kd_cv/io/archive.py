"""NPZ files of arrays and of a JSON text, `meta.json`. Nothing is ever unpickled."""

from __future__ import annotations

import hashlib
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

# Errors of NumPy, zipfile and json for a file that is damaged or of another kind.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, OverflowError, RuntimeError, KeyError,
    TypeError, MemoryError, NotImplementedError, SyntaxError,
)  # fmt: skip


def write_archive(
    path: PathLike, kind: str, arrays: Mapping[str, NDArray[Any]], content: Mapping[str, Any]
) -> None:
    """Write arrays and JSON content, whole or not at all; equal content gives equal bytes."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"the name of a {kind} file must end in .npz, got {path.name!r}")
    meta = canonical_json({"format": f"kd_cv {kind}", "version": _VERSION, **content})
    members: dict[str, Any] = {_META: np.frombuffer(meta.encode(), np.uint8)}
    members |= {name: _little(arrays[name]) for name in sorted(arrays)}
    with replacing(path) as temporary:
        np.savez(temporary, **members)


def read_archive(path: PathLike, kind: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read arrays and content; ValueError if the file is damaged or of another kind."""
    with refused_as(f"{os.fspath(path)} is not a sound kd_cv {kind} file", *_DAMAGE):
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            if archive.zip.testzip():  # NumPy does not read up to the CRC
                raise ValueError("its data is damaged")
            members = {name: archive[name] for name in archive.files}
        meta = json.loads(bytes(members.pop(_META)))
        if (meta.pop("format"), meta.pop("version")) != (f"kd_cv {kind}", _VERSION):
            raise ValueError(f"it is not a {kind} file of version {_VERSION}")
        for name, array in members.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
                raise ValueError(f"{name} is not an array of numbers")
    meta.pop("sha256", None)
    return members, meta


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
    """Sorted JSON without blanks; ValueError for NaN and infinity."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)

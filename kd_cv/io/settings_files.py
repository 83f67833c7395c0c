"""Settings in the files of cv2.FileStorage: YAML, XML or JSON, as OpenCV's features write them."""

import gzip
import re
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np

from kd_cv.descriptor.patches import MAX_SCALES
from kd_cv.io.files import PathLike, refused_as, replacing, utf8

NODE = "feature2d"  # of the settings in a file of their own

FORMATS = {
    ".yml": cv2.FILE_STORAGE_FORMAT_YAML,
    ".xml": cv2.FILE_STORAGE_FORMAT_XML,
    ".json": cv2.FILE_STORAGE_FORMAT_JSON,
}

# A file of settings has about 500 bytes. OpenCV's parser needs memory that grows with the square of
# the depth of nesting: 32 kB of brackets take 1 GB.
MAX_BYTES = 8192

# What OpenCV's parser raises, by version, and gzip's.
_OF_PARSERS = (cv2.error, SystemError, ValueError, EOFError, zlib.error, gzip.BadGzipFile)

_YAML_HEAD = re.compile(r"([%#].*|---)?\s*")
_YAML_KEY = re.compile(r"\w")

Dataclass = TypeVar("Dataclass")


def write_settings(
    feature_name: str, target: PathLike | cv2.FileStorage, node: str | None, *settings: Any
) -> None:
    """Write dataclasses of settings, and the name of the feature, to a path or an open storage."""
    values = {
        field.name: getattr(part, field.name)
        for part in settings
        for field in fields(part)
        if field.repr
    }
    utf8(node or NODE, "a node")
    for name, value in values.items():
        if isinstance(value, str):
            utf8(value, f"the name of {name}")
    if not isinstance(target, cv2.FileStorage):
        # In memory: OpenCV cannot open every name that a file can have.
        suffixes = [suffix.lower() for suffix in Path(target).suffixes[-2:]]
        packed = suffixes[-1:] == [".gz"]
        form = FORMATS.get("".join(suffixes[:-1] if packed else suffixes[-1:]), FORMATS[".yml"])
        flags = cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY | form
        storage = cv2.FileStorage("", flags)
        write_settings(feature_name, storage, node or NODE, *settings)
        data = storage.releaseAndGetString().encode("utf-8")
        with replacing(target) as temporary:
            temporary.write_bytes(gzip.compress(data, mtime=0) if packed else data)
        return
    if node:
        target.startWriteStruct(node, cv2.FileNode_MAP)
    target.write("name", feature_name)
    for name, value in values.items():
        target.write(name, _storable(value))
    if node:
        target.endWriteStruct()


def read_settings(
    feature_name: str,
    source: PathLike | cv2.FileNode,
    kind: type[Dataclass],
) -> Dataclass:
    """The settings of a feature in a file, or in a node of one, that `write_settings` wrote."""
    storage = None if isinstance(source, cv2.FileNode) else _opened(source)
    node: Any = source if storage is None else storage.getNode(NODE)
    if not node.isMap() or node.getNode("name").string() != feature_name:
        raise ValueError(f"no settings of {feature_name} in {source!r}")
    stored = {field: node.getNode(field.name) for field in fields(kind) if field.repr}  # type: ignore[arg-type]
    with refused_as(f"wrong settings in {source!r}", ValueError):
        return kind(**{f.name: _restored(value, f.name, f.default) for f, value in stored.items()})


def _opened(path: PathLike) -> Any:
    """A file of settings, which may be packed by gzip, opened; its nodes live as long as it."""
    path = str(path)
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            data = (gzip.GzipFile(fileobj=file) if packed else file).read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
        text = data.decode("utf-8")
        if not text.startswith(("{", "<?xml")):
            _check_yaml(text)
        storage = cv2.FileStorage(text, cv2.FILE_STORAGE_READ | cv2.FILE_STORAGE_MEMORY)
        storage.getNode(NODE)  # an error if the file is not a map
        return storage
    except _OF_PARSERS as error:
        raise ValueError(f"{path!r} is not YAML, XML or JSON of settings: {error}") from error
    except OSError as error:
        raise OSError(f"cannot read {path!r}: {error.strerror}") from error


def _check_yaml(text: str) -> None:
    """ValueError unless it is one document whose keys begin in the first column.

    Beyond the end of a document OpenCV's parser may meet a "-" and look at it for ever. A document
    ends at "..." or at a line that begins further left than its first.
    """
    lines = iter(text.split("\n"))
    first = next((line for line in lines if not _YAML_HEAD.fullmatch(line)), "")
    if not _YAML_KEY.match(first):
        raise ValueError("its first line is not a key in the first column")
    for line in lines:
        if line.startswith("...") and any(rest.strip() for rest in (line[3:], *lines)):
            raise ValueError("it has more than one document")


def _storable(value: Any) -> Any:
    """A setting as cv2.FileStorage takes it: None as an empty string, a tuple as a matrix."""
    if isinstance(value, tuple):
        return np.array(value, dtype=np.float64)
    return "" if value is None else int(value) if isinstance(value, bool) else value


def _restored(node: Any, name: str, default: Any) -> Any:
    """The setting in a node, of the type of its default."""
    if isinstance(default, tuple):
        return _factors(node)
    if node.isString():
        text = node.string()
        if default is None and not text:
            return None
        if isinstance(default, str):
            return text or (None if name == "whitening" else "")
        raise ValueError(f"{name} must be a number, got the word {text!r}")
    if isinstance(default, str) or not (node.isInt() or node.isReal()):
        raise ValueError(f"{name} must be {'a word' if isinstance(default, str) else 'a number'}")
    value = node.real()
    if not np.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}")
    if isinstance(default, int) and value != int(value):
        raise ValueError(f"{name} must be a whole number, got {value}")
    if isinstance(default, bool) and value not in (0, 1):
        raise ValueError(f"{name} must be 0 or 1, got {value:g}")
    return value if default is None else type(default)(value)


def _factors(node: Any) -> tuple[float, ...]:
    """The numbers of a stored matrix; () if the node holds anything else.

    They are read one by one, because a matrix would be made of whatever size the file claims.
    """
    data = node.getNode("data") if node.isMap() else node
    if data.isReal() or data.isInt():  # a sequence of one, as XML has it
        return (data.real(),)
    if not data.isSeq() or data.size() > MAX_SCALES:
        return ()
    return tuple(data.at(k).real() for k in range(data.size()))

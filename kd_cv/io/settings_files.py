"""Settings in the files of cv2.FileStorage: YAML, XML or JSON, as OpenCV's features write them."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np

from kd_cv.descriptor.patches import MAX_SCALES
from kd_cv.io.files import PathLike, read_text, refused_as, replacing, utf8

NODE = "feature2d"  # of the settings in a file of their own

FORMATS = {
    ".yml": cv2.FILE_STORAGE_FORMAT_YAML,
    ".xml": cv2.FILE_STORAGE_FORMAT_XML,
    ".json": cv2.FILE_STORAGE_FORMAT_JSON,
}

# OpenCV's parser needs memory that grows with the square of the depth of nesting: 32 kB of brackets
# take 1 GB. A file of settings has about 500 bytes.
MAX_BYTES = 8192

# One YAML document whose keys begin in the first column. OpenCV's parser may look for ever at a "-"
# beyond the end of a document, which is "..." or a line that begins further left than the first.
_YAML = re.compile(r"(?:(?:[%#].*|---)?[ \t\r]*\n)*\w(?:(?!\n\.\.\.)[\s\S])*(?:\n\.\.\.\s*)?")
_PARSER_ERRORS = (cv2.error, SystemError, ValueError)

Dataclass = TypeVar("Dataclass")


def write_settings(
    feature_name: str, target: PathLike | cv2.FileStorage, node: str | None, *settings: Any
) -> None:
    """Write dataclasses of settings, and the name of the feature, to a path or an open storage."""
    values = {f.name: getattr(part, f.name) for part in settings for f in fields(part) if f.repr}
    utf8(node or NODE, "a node")
    for name, value in values.items():
        if isinstance(value, str):
            utf8(value, f"the name of {name}")
    if not isinstance(target, cv2.FileStorage):
        # In memory: OpenCV cannot open every name that a file can have.
        form = FORMATS.get(Path(target).suffix.lower(), FORMATS[".yml"])
        storage = cv2.FileStorage("", cv2.FILE_STORAGE_WRITE | cv2.FILE_STORAGE_MEMORY | form)
        write_settings(feature_name, storage, node or NODE, *settings)
        with replacing(target) as temporary:
            temporary.write_bytes(storage.releaseAndGetString().encode("utf-8"))
        return
    if node:
        target.startWriteStruct(node, cv2.FileNode_MAP)
    target.write("name", feature_name)
    for name, value in values.items():
        target.write(name, _storable(value))
    if node:
        target.endWriteStruct()


def read_settings(
    feature_name: str, source: PathLike | cv2.FileNode, kind: type[Dataclass]
) -> Dataclass:
    """Read the settings of a feature that `write_settings` wrote."""
    storage = None if isinstance(source, cv2.FileNode) else _opened(source)
    node: Any = source if storage is None else storage.getNode(NODE)
    if not node.isMap() or node.getNode("name").string() != feature_name:
        raise ValueError(f"no settings of {feature_name} in {source!r}")
    stored = {field: node.getNode(field.name) for field in fields(kind) if field.repr}  # type: ignore[arg-type]
    with refused_as(f"wrong settings in {source!r}", ValueError):
        return kind(**{f.name: _restored(value, f.name, f.default) for f, value in stored.items()})


def _opened(path: PathLike) -> Any:
    """Open a file of settings; its nodes live as long as the storage."""
    with refused_as(f"{str(path)!r} is not YAML, XML or JSON of settings", *_PARSER_ERRORS):
        text = read_text(path, MAX_BYTES, "utf-8")
        if not text.startswith(("{", "<?xml")) and not _YAML.fullmatch(text):
            raise ValueError("expected one YAML document with its keys in the first column")
        storage = cv2.FileStorage(text, cv2.FILE_STORAGE_READ | cv2.FILE_STORAGE_MEMORY)
        storage.getNode(NODE)  # an error if the file is not a map
        return storage


def _storable(value: Any) -> Any:
    """A setting as cv2.FileStorage takes it: None as an empty string, a tuple as a matrix."""
    if isinstance(value, tuple):
        return np.array(value, dtype=np.float64)
    return "" if value is None else int(value) if isinstance(value, bool) else value


def _restored(node: Any, name: str, default: Any) -> Any:
    """The setting in a node, of the type of its default."""
    if isinstance(default, tuple):
        return _factors(node)
    if node.isString() and (default is None or isinstance(default, str)):
        text = node.string()
        if isinstance(default, str):
            return text or (None if name == "whitening" else "")
        if not text:
            return None
    if isinstance(default, str) or not (node.isInt() or node.isReal()):
        raise ValueError(f"{name} must be {'a word' if isinstance(default, str) else 'a number'}")
    value = node.real()
    if isinstance(default, int) and not value.is_integer():
        raise ValueError(f"{name} must be a whole number, got {value}")
    return value if default is None else type(default)(value)


def _factors(node: Any) -> tuple[float, ...]:
    """The numbers of a stored matrix; () if the node holds anything else.

    They are read one by one: a matrix would be as large as the file claims.
    """
    data = node.getNode("data") if node.isMap() else node
    if data.isReal() or data.isInt():  # a sequence of one, as XML has it
        return (data.real(),)
    if not data.isSeq() or data.size() > MAX_SCALES:
        return ()
    return tuple(data.at(k).real() for k in range(data.size()))

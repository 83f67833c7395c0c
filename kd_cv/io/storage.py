"""Settings in the files of cv2.FileStorage: YAML, XML or JSON, as OpenCV's features write them."""

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cv2

from kd_cv.io.files import replacing

NODE = "feature2d"  # of the settings in a file of their own

# A file of settings has about 500 bytes. OpenCV's parser needs memory that grows with the square of
# the depth of nesting: 32 kB of brackets take 1 GB.
MAX_BYTES = 8192


@contextmanager
def written(
    target: str | os.PathLike[str] | cv2.FileStorage, feature_name: str, node: str | None = None
) -> Iterator[cv2.FileStorage]:
    """A storage to write the settings of a feature to: a new file, or an open storage."""
    if isinstance(target, cv2.FileStorage):
        if node:
            target.startWriteStruct(node, cv2.FileNode_MAP)
        target.write("name", feature_name)
        yield target
        if node:
            target.endWriteStruct()
        return
    with replacing(target) as temporary:
        storage = cv2.FileStorage(str(temporary), cv2.FILE_STORAGE_WRITE)
        with written(storage, feature_name, node or NODE):
            yield storage
        storage.release()


@contextmanager
def read(
    source: str | os.PathLike[str] | cv2.FileNode, feature_name: str
) -> Iterator[cv2.FileNode]:
    """The node with the settings of a feature, in a file or a node that `written` made."""
    storage = None if isinstance(source, cv2.FileNode) else _opened(source)
    node: Any = source if storage is None else storage.getNode(NODE)
    if not node.isMap() or node.getNode("name").string() != feature_name:
        raise ValueError(f"no settings of {feature_name} in {source!r}")
    try:
        yield node  # as long as its storage lives
    except ValueError as error:
        raise ValueError(f"wrong settings in {source!r}: {error}") from error


def _opened(path: str | os.PathLike[str]) -> Any:
    """A file of settings, which may be packed by gzip, opened; its nodes live as long as it."""
    path = str(path)
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise OSError(f"cannot read {path!r}: {error.strerror}") from error
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
        flags = cv2.FILE_STORAGE_READ | cv2.FILE_STORAGE_MEMORY
        storage = cv2.FileStorage(data.decode("utf-8"), flags)
        storage.getNode(NODE)  # an error if the file is not a map
        return storage
    # OpenCV's parser, by version; and gzip's
    except (cv2.error, SystemError, ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path!r} is not YAML, XML or JSON of settings: {error}") from error

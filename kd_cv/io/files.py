"""Files of others are read within limits; ours are written whole or not at all."""

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PathLike = str | os.PathLike[str]

OF_DISKS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
FULL = 2**16  # bytes: a disk with less room than that is called full

# ----------------------------------------------------------------------------------------- reading


@contextmanager
def opened(path: PathLike) -> Iterator[BinaryIO]:
    """A file to read; ValueError if it is a directory, a pipe or a device.

    A pipe might never begin, and a device never end. Nothing else in this package opens a file that
    others may have made.
    """
    # NONBLOCK: to open a pipe does not wait for a writer. What was opened is what is looked at.
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        kind = "directory" if stat.S_ISDIR(mode) else "pipe or device"
        raise ValueError(f"{os.fspath(path)} is not a file, but a {kind}")
    with open(number, "rb") as file:
        yield file


def read_bytes(path: PathLike, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(f"{os.fspath(path)} has {size} bytes, at most {limit} are read")
        data = file.read(size + 1)
        if len(data) > size:
            raise ValueError(f"{os.fspath(path)} grew while it was read")
        return data


def read_text(path: PathLike, limit: int, encoding: str = "ascii") -> str:
    """The text of a file of at most `limit` bytes."""
    with refused_as(f"{os.fspath(path)} is not a text file", UnicodeDecodeError):
        return read_bytes(path, limit).decode(encoding)


def as_folder(path: PathLike) -> Path:
    """The path of a folder that is there."""
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    return folder


def digest(data: bytes | memoryview, length: int = 64) -> str:
    """The first `length` hexadecimal digits of the SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()[:length]


# ----------------------------------------------------------------------------------------- writing


@contextmanager
def replacing(path: PathLike, within: Path | None = None) -> Iterator[Path]:
    """A temporary path beside `path`, with its suffix, that takes its place when all went well.

    within: another folder of the same file system for the temporary file.

    >>> with replacing("result.png") as temporary:
    ...     _ = temporary.write_bytes(b"whole")
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a directory, expected a file to write")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no directory {str(target.parent)!r} to write {target.name!r} in")
    with naming(target):
        temporary = _new_file(target, within or target.parent)
    try:
        with naming(target):
            yield temporary
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o777)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def drafting(folder: Path) -> Iterator[Path]:
    """An empty folder for work under way, which is removed at the end, however that comes.

    What is finished is moved out of it. One that a killed run has left is removed first.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        with naming(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def naming(target: Path) -> Iterator[None]:
    """Errors of the disk in the block name the file that is written.

    Libraries that write by themselves may say anything when a disk is full; what they have written
    is still there then.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in OF_DISKS:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
    except Exception as error:
        if shutil.disk_usage(target.parent).free >= FULL:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from error


def _new_file(target: Path, folder: Path) -> Path:
    """An empty file in `folder`, of a name that nobody can foresee."""
    # Not by tempfile: its files are private, and the umask that says what an ordinary new file
    # may be can only be read by setting it, for all threads at once.
    stem = target.stem[:64]  # the name of the target may be as long as names can be
    temporary = folder / f".{stem}-{secrets.token_hex(8)}{target.suffix}"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY  # EXCL: no file or link that is there already
    os.close(os.open(temporary, flags, 0o600 if target.exists() else 0o666))
    return temporary


# ------------------------------------------------------------------------------------------- words


@contextmanager
def refused_as(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Errors of these kinds in the block become a ValueError that says what is wrong, and why.

    >>> with refused_as("mine.npz: damaged matrices", KeyError):
    ...     {}["mu"]
    Traceback (most recent call last):
    ValueError: mine.npz: damaged matrices: 'mu'
    """
    try:
        yield
    except errors as error:
        raise ValueError(f"{what}: {error}") from error


def reason(error: Exception) -> str:
    """What went wrong, without the name of the file."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def utf8(text: str, what: str = "a name") -> str:
    """The text; ValueError if UTF-8 cannot hold it, as names of files may be: it crashes OpenCV."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be text that UTF-8 can hold, got {text!r}") from None
    return text


def printable(text: str) -> str:
    """One line of text without control characters: the name of a file may hold any."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))

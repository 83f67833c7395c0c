"""Read files up to a limit; write files whole or not at all."""

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PathLike = str | os.PathLike[str]

DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}


def read_bytes(path: PathLike, limit: int) -> bytes:
    """Read a file of at most `limit` bytes."""
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{os.fspath(path)} has more than {limit} bytes, the most that are read")
    return data


def read_text(path: PathLike, limit: int, encoding: str = "ascii") -> str:
    """Read a text file of at most `limit` bytes."""
    with refused_as(f"{os.fspath(path)} is not a text file", UnicodeDecodeError):
        return read_bytes(path, limit).decode(encoding)


def as_folder(path: PathLike) -> Path:
    """Check that a path is a folder."""
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    return folder


def digest(data: bytes | memoryview, length: int = 64) -> str:
    """Return the first `length` hexadecimal digits of a SHA-256."""
    return hashlib.sha256(data).hexdigest()[:length]


@contextmanager
def replacing(path: PathLike, within: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path beside `path`, with its suffix, that replaces it on success.

    within: another folder of the same file system for the temporary file.

    >>> with replacing("result.png") as temporary:
    ...     _ = temporary.write_bytes(b"whole")
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a directory, expected a file to write")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no directory {str(target.parent)!r} to write {target.name!r} in")
    # Not tempfile: its files ignore the umask.
    name = f".{target.stem[:64]}-{secrets.token_hex(8)}{target.suffix}"
    temporary = (within or target.parent) / name
    try:
        with naming(target):
            temporary.open("xb").close()
            yield temporary
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o777)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def drafting(folder: Path) -> Iterator[Path]:
    """Yield an empty folder for work in progress; remove it at the end, even after an error."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        with naming(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def naming(target: Path) -> Iterator[None]:
    """Let errors of the disk name the file that is written, not its temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
    except RuntimeError as error:  # all that pycolmap says of a full disk
        if shutil.disk_usage(target.parent).free >= 2**16:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from error


@contextmanager
def refused_as(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors of these types into a ValueError.

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
    """Return the message of an error, without the name of the file."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def utf8(text: str, what: str = "a name") -> str:
    """Check that UTF-8 can hold a text: OpenCV crashes on other names."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be text that UTF-8 can hold, got {text!r}") from None
    return text


def printable(text: str) -> str:
    """Replace control characters and line breaks, which names of files may hold."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))

"""Files are written whole or not at all; their names are shown without steering the terminal."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`, with its suffix, that takes its place when all went well.

    >>> with replacing("result.png") as temporary:
    ...     _ = temporary.write_bytes(b"whole")
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a directory, expected a file to write")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no directory {str(target.parent)!r} to write {target.name!r} in")
    temporary = _new_file(target)
    try:
        yield temporary
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _new_file(target: Path) -> Path:
    """An empty file beside `target`, of a name that nobody can foresee."""
    # Not by tempfile: its files are private, and the umask that says what an ordinary new file
    # may be can only be read by setting it, for all threads at once.
    stem = target.stem[:64]  # the name of the target may be as long as names can be
    temporary = target.with_name(f".{stem}-{secrets.token_hex(8)}{target.suffix}")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY  # EXCL: no file or link that is there already
    os.close(os.open(temporary, flags, 0o600 if target.exists() else 0o666))
    return temporary


def printable(text: str) -> str:
    """One line of text, in which nothing, as of a file's name, steers the terminal."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))

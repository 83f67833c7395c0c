"""The folder `<output>.partial/`: what a run has done so far, in the hands of one run at a time."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kd_cv.collection.extraction import check_settings
from kd_cv.io.files import read_text, replacing

try:
    import fcntl
except ImportError:  # not on Windows, where nothing keeps two runs apart
    fcntl = None  # type: ignore[assignment]

LOCK, SETTINGS_FILE = "lock", "settings.json"
MAX_SETTINGS_BYTES = 2**20

# What a run puts into its folder: these two, partial files, and files that are being written.
_OURS = re.compile(r"lock|settings\.json|[0-9a-f]{24}\.h5|\..*-[0-9a-f]{16}[^/]*", re.DOTALL)


@contextmanager
def owned(output: Path) -> Iterator[Path]:
    """The folder of an output, made if it is missing; for this run alone while the block lasts.

    The lock ends with the process, however that ends.
    """
    folder = output.with_name(output.name + ".partial")
    while True:
        number = _locked(folder, output)
        # The run that had it until now may have removed it: then the lock is of no use.
        try:
            now = os.stat(folder / LOCK, follow_symlinks=False)
            if os.path.samestat(now, os.fstat(number)):
                break
        except FileNotFoundError:
            pass
        os.close(number)
    try:
        yield folder
    finally:
        os.close(number)


def _locked(folder: Path, output: Path) -> int:
    """The number of the open lock file."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    while True:
        try:
            folder.mkdir(exist_ok=True)
            _check_ours(folder)
            number = os.open(folder / LOCK, flags, 0o600)
            break
        except FileNotFoundError:  # another run has just removed it
            if not folder.parent.is_dir():
                raise
        except FileExistsError:
            raise ValueError(_FOREIGN.format(folder, "a folder")) from None
    try:
        if fcntl:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(number)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise BlockingIOError(error.errno, "another run is writing it", str(output)) from None
        raise OSError(
            error.errno, f"no lock can be had there: {error.strerror}", str(folder)
        ) from None
    return number


_FOREIGN = "{} is not {} of an extraction of yours: remove it, or give another output"


def _check_ours(folder: Path) -> None:
    """ValueError for a folder that is a link, belongs to another user, or holds other things."""
    state = folder.lstat()
    user = os.geteuid() if hasattr(os, "geteuid") else state.st_uid
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != user:
        raise ValueError(_FOREIGN.format(folder, "a folder"))
    for entry in os.scandir(folder):
        if not _OURS.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
            raise ValueError(_FOREIGN.format(entry.path, "a file"))


def keep_settings(folder: Path, text: str) -> None:
    """Write the settings of a run; ValueError if others are there already."""
    path = folder / SETTINGS_FILE
    if path.exists():
        check_settings(folder, read_text(path, MAX_SETTINGS_BYTES, "utf-8"), text)
    else:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def clear(folder: Path) -> None:
    """Remove what an earlier run has done."""
    for entry in list(os.scandir(folder)):
        if entry.name != LOCK:
            os.unlink(entry.path)


def remove(folder: Path) -> None:
    """Remove the folder, by the run that owns it."""
    clear(folder)
    os.unlink(folder / LOCK)
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another run has come already
            raise

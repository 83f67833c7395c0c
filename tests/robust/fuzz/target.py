"""What a target of the fuzzing is: a function of bytes, and what it may raise."""

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from kd_cv.io import images

# Photographs here are small: a header that claims more is refused, and one that means more to the
# decoder than to the reader is noticed.
MAX_PIXELS = 2**22

DOCUMENTED = (ValueError, OSError)  # of every reader


@dataclass(frozen=True)
class Target:
    """A function of bytes, and inputs to start from."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    allowed: tuple[type[Exception], ...] = DOCUMENTED
    needs: str | None = None  # a module
    longest: int = 1 << 15  # bytes of an input

    def check(self, data: bytes) -> bool:
        """Whether the input was taken (True) or refused as documented (False)."""
        try:
            with warnings.catch_warnings(), mock.patch.object(images, "MAX_PIXELS", MAX_PIXELS):
                warnings.simplefilter("ignore")
                self.run(data)
        except self.allowed as error:
            if _of_memory(error):
                raise AssertionError(f"refused only after memory had run out: {error}") from error
            assert str(error), "refused without a word"
            return False
        return True


def _of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "nsufficient memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kd_cv-fuzz-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def mode_of(data: bytes) -> tuple[int, bytes]:
    """The first byte, which chooses how the rest is taken, and the rest."""
    return (data[0] if data else 0), data[1:]

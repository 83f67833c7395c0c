"""The command line, `kd-cv`: one line for every error, a traceback only with --debug.

Exit codes: 0 done; 1 no homography was found (`match`), or a check failed; 2 bad input;
3 an error of kd_cv itself; 130 interrupted.
"""

import io
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

MAX_LINE = 500
BAD_INPUT = (ValueError, TypeError, OSError, ImportError)
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `kd-cv` with these arguments (by default the process's) and return the exit code."""
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)


def _run(arguments: list[str]) -> int:
    _prepare_streams()
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"] or ["--help"]
    try:
        from kd_cv.cli.app import COMMANDS, app, usage_error
    except ImportError as error:
        if debug:
            raise
        return _fail(f"{error}; the command line needs: pip install 'kd-cv[cli]'", 2)
    try:
        code = app(arguments, prog_name="kd-cv", standalone_mode=False) or 0
        if code == INTERRUPTED:  # typer makes this of it
            raise KeyboardInterrupt
        sys.stdout.flush()  # a reader that has gone away shows here
        return code
    except BrokenPipeError:
        return _read_enough()
    except SystemExit as error:  # click's own answer to it
        if isinstance(error.__context__, BrokenPipeError):
            return _read_enough()
        raise
    except usage_error as error:
        command = " ".join(["kd-cv", *[a for a in arguments[:1] if a in COMMANDS]])
        return _fail(f"{error.format_message()} ({command} --help shows how)", 2)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, BAD_INPUT):
            if isinstance(error, OSError) and error.filename is not None and error.strerror:
                return _fail(f"{error.filename}: {error.strerror}", 2)
            return _fail(str(error) or type(error).__name__, 2)
        return _fail(f"unexpected {type(error).__name__} (--debug shows where): {error}", 3)


def _prepare_streams() -> None:
    """Accept closed streams, and escape names that a stream cannot show."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _read_enough() -> int:
    """Discard the rest: the reader of `kd-cv ... | head` has gone away."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    return 0


def _fail(message: str, code: int) -> int:
    from kd_cv.io.files import printable

    print(f"kd-cv: error: {printable(message)[:MAX_LINE]}", file=sys.stderr)
    return code

"""Ctrl-C ends a command with one line and the code 130, while its imports still run too."""

import os
import signal
import sys

INTERRUPTED = 130
LINE = "kd-cv: error: interrupted\n"


def while_a_command_starts() -> None:
    """Have Ctrl-C end the process if it is a command, until `as_usual`.

    Before `main` runs nobody can catch it, and NumPy, while it is imported, makes an ImportError of
    it. Programs of others keep their KeyboardInterrupt.
    """
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours and a_command_starts():
        signal.signal(signal.SIGINT, _end)


def a_command_starts() -> bool:
    """Whether the package is imported by `kd-cv` or `python -m kd_cv`, and by no other program."""
    program = sys.argv[0] if sys.argv else ""  # "-m" until the module runs
    named = os.path.basename(program) in ("kd-cv", "kd-cv.exe")
    return named or (program == "-m" and "kd_cv" in sys.orig_argv)


def as_usual() -> None:
    """Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*signalled: object) -> None:
    os.write(2, LINE.encode())
    os._exit(INTERRUPTED)  # nothing has been begun that would have to be ended

"""What comes before all else: Ctrl-C while a command starts, OpenCV as it is installed, and
packages that are not.

It imports nothing of the package, and no NumPy.
"""

import os
import re
import signal
import sys
import warnings
from importlib import import_module
from typing import Any

INTERRUPTED = 130
LINE = "kd-cv: error: interrupted\n"

BUILD = re.compile(r"(opencv_(?:contrib_)?python(?:_headless)?)-([^-]+)\.dist-info")
LIBRARIES = "libgl1 libglib2.0-0 libxcb1"  # their packages in Debian and Ubuntu


def extra(package: str, purpose: str, name: str) -> Any:
    """Import a package of one of our extras; the ImportError says what needs it.

    >>> extra("this_is_missing", "an index needs FAISS", "retrieval")
    Traceback (most recent call last):
    ImportError: an index needs FAISS: pip install kd-cv[retrieval]
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"{purpose}: pip install kd-cv[{name}]") from error


# ---------------------------------------------------------------------------------------- Ctrl-C


def end_when_interrupted() -> None:
    """Have Ctrl-C end the process with one line and the code 130 if it is a command.

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


def interrupt_as_usual() -> None:
    """Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*signalled: object) -> None:
    os.write(2, LINE.encode())
    os._exit(INTERRUPTED)  # nothing has been begun that would have to be ended


# ---------------------------------------------------------------------------------------- OpenCV


def check_opencv() -> None:
    """Load cv2; an ImportError that says how to mend it, or a warning where builds are mixed.

    A command says it in one line: nobody catches what is raised before it begins.

    >>> check_opencv()
    """
    try:
        import cv2
    except ImportError as error:
        if not a_command_starts():
            raise ImportError(_how_to_load(error)) from None
        print(f"kd-cv: error: {_how_to_load(error)}", file=sys.stderr)
        sys.exit(2)
    builds = _builds(cv2.__file__)
    if len(builds) > 1:
        warnings.warn(_how_to_choose(builds), stacklevel=3)


def _how_to_load(error: ImportError) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "cv2":
        return "OpenCV is not installed: pip install opencv-python"
    return (
        f"OpenCV cannot be loaded ({error}): apt-get install {LIBRARIES}, or take its build "
        "without windows: pip uninstall -y opencv-python && pip install opencv-python-headless"
    )


def _builds(path: str) -> dict[str, str]:
    """Name and version of the builds that share the folder of cv2.

    The names of the folders beside it tell; `importlib.metadata` would read every one of them.
    """
    beside = os.listdir(os.path.dirname(os.path.dirname(path)))
    return {m[1].replace("_", "-"): m[2] for m in map(BUILD.fullmatch, sorted(beside)) if m}


def _how_to_choose(builds: dict[str, str]) -> str:
    """Keep what was chosen on purpose, contrib first: opencv-python may be a mere dependency."""
    kept = max(builds, key=lambda name: ("contrib" in name, "headless" in name))
    return (
        f"{' and '.join(builds)} are installed in one folder, and each overwrote files of the "
        f"other. Keep one: pip uninstall -y {' '.join(builds)} && "
        f"pip install {kept}=={builds[kept]}"
    )

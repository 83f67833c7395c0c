"""OpenCV as it is installed: whether it loads, and whether one build of it is there or several.

Imported before anything that needs cv2.
"""

import os
import re
import sys
import warnings

from kd_cv.interrupts import a_command_starts

BUILD = re.compile(r"(opencv_(?:contrib_)?python(?:_headless)?)-([^-]+)\.dist-info")
LIBRARIES = "libgl1 libglib2.0-0 libxcb1"  # their packages in Debian and Ubuntu


def check() -> None:
    """Load cv2; an ImportError that says how to mend it, or a warning where builds are mixed.

    A command says it in one line: nobody catches what is raised before it begins.

    >>> check()
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
        warnings.warn(_how_to_choose(builds), stacklevel=4)


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


check()

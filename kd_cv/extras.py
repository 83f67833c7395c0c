"""Packages that may be missing or installed twice: the extras, and OpenCV.

It imports nothing of the package, and no NumPy.
"""

import os
import re
import warnings
from functools import lru_cache
from importlib import import_module
from typing import Any

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


@lru_cache(maxsize=1)
def check_opencv() -> None:
    """Load cv2, once; an ImportError says how to mend it, a warning says that builds are mixed.

    >>> check_opencv()
    """
    try:
        import cv2
    except ImportError as error:
        raise ImportError(_how_to_load(error)) from None
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

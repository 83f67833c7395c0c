"""Packages that may be missing or installed twice: the extras, and OpenCV."""

import os
import re
import warnings
from functools import lru_cache
from importlib import import_module
from typing import Any

BUILD = re.compile(r"(opencv_(?:contrib_)?python(?:_headless)?)-([^-]+)\.dist-info")
LIBRARIES = "libgl1 libglib2.0-0 libxcb1"  # their packages in Debian and Ubuntu


def extra(package: str, purpose: str, name: str) -> Any:
    """Import a package of an extra; the ImportError names the extra.

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
    """Load cv2, once; warn if several builds of it are installed."""
    try:
        import cv2
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cv2":
            raise ImportError("OpenCV is not installed: pip install opencv-python") from None
        raise ImportError(
            f"OpenCV cannot be loaded ({error}): apt-get install {LIBRARIES}, or take its build "
            "without windows: pip uninstall -y opencv-python && pip install opencv-python-headless"
        ) from None
    # `importlib.metadata` would read the files of every package.
    beside = os.listdir(os.path.dirname(os.path.dirname(cv2.__file__)))
    builds = {m[1].replace("_", "-"): m[2] for m in map(BUILD.fullmatch, sorted(beside)) if m}
    if len(builds) > 1:
        # opencv-python may be a mere dependency: keep the build that was chosen on purpose
        kept = max(builds, key=lambda name: ("contrib" in name, "headless" in name))
        warnings.warn(
            f"{' and '.join(builds)} are installed in one folder, and each overwrote files of the "
            f"other. Keep one: pip uninstall -y {' '.join(builds)} && "
            f"pip install {kept}=={builds[kept]}",
            stacklevel=3,
        )

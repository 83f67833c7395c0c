"""Take OpenCV's headless build where the other cannot be loaded.

    python tools/headless.py

opencv-python needs libraries of X and GL, which servers and slim containers lack. If cv2 does not
load in this environment for want of a library, all builds of it are removed, and
opencv-python-headless of the same version is installed. Where it loads, nothing is done.
"""

import re
import subprocess
import sys
from importlib.metadata import distributions

BUILDS = ("opencv-python", "opencv-python-headless")


def fault() -> str:
    """Why a new interpreter cannot load cv2; nothing if it can."""
    program = "try:\n    import cv2\nexcept ImportError as error:\n    print(error)"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return (child.stdout + child.stderr).strip()


def installed() -> dict[str, str]:
    """Name and version of the builds of OpenCV in this environment."""
    names = ((re.sub("[-_.]+", "-", d.name).lower(), d.version) for d in distributions())
    return {name: version for name, version in names if name in BUILDS}


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    subprocess.run(command, check=True)


def main() -> str | None:
    """An error message, or None."""
    why = fault()
    if ".so" not in why:  # it loads, or is not there at all
        return why or None
    builds = installed()
    if not builds:
        return f"cv2 cannot be loaded, and no build of it is installed by pip: {why}"
    version = builds.get("opencv-python") or builds["opencv-python-headless"]
    print(f"{why.splitlines()[-1]}: taking opencv-python-headless {version}", flush=True)
    pip("uninstall", "--yes", *builds)
    pip("install", f"opencv-python-headless=={version}")
    return fault() or None


if __name__ == "__main__":
    sys.exit(main())

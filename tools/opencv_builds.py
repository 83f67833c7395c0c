"""Check that one build of OpenCV is there, that it is the one named, and that kd_cv works on it.

    python tools/opencv_builds.py opencv-contrib-python-headless

`nox -s builds` runs it in an environment for each build.
"""

import sys
from importlib.metadata import distributions

import cv2
import numpy as np

from kd_cv import KDDescriptor, match

BUILDS = {d.name.lower() for d in distributions() if d.name.lower().startswith("opencv-")}


def main(build: str) -> None:
    """AssertionError if anything is wrong; a line about what was found otherwise."""
    assert {build} == BUILDS, f"expected {build} alone, got {BUILDS}"
    assert hasattr(cv2, "xfeatures2d") == ("contrib" in build)
    rng = np.random.default_rng(0)
    scene = cv2.GaussianBlur(rng.integers(0, 256, (300, 400), dtype=np.uint8), (0, 0), 2.0)
    scene = cv2.normalize(scene, None, 0, 255, cv2.NORM_MINMAX)
    result = match(scene[:, :300], scene[:, 100:])
    assert result.success and result.H_0to1 is not None
    np.testing.assert_allclose(result.H_0to1[:2, 2] / result.H_0to1[2, 2], [-100, 0], atol=0.5)
    rows = KDDescriptor(detector=cv2.ORB_create(200)).detectAndCompute(scene, None)[1]
    assert rows is not None and rows.shape[1] == 128
    print(f"{build} {cv2.__version__}: {result}")


if __name__ == "__main__":
    main(sys.argv[1])

"""What a reader of the README and of the documentation has at hand."""

import cv2
import numpy as np
import pytest


@pytest.fixture(scope="session")
def reader(tmp_path_factory):
    """A folder with left.jpg, right.jpg and a few photographs."""
    data = pytest.importorskip("skimage.data")
    folder = tmp_path_factory.mktemp("reader")
    left = cv2.cvtColor(data.astronaut(), cv2.COLOR_RGB2BGR)
    H = np.array([[0.9, 0.1, 10.0], [-0.1, 0.9, 60.0], [1e-4, 0.0, 1.0]])
    cv2.imwrite(str(folder / "left.jpg"), left)
    cv2.imwrite(str(folder / "right.jpg"), cv2.warpPerspective(left, H, (560, 560)))
    (folder / "photographs").mkdir()
    for name in ("camera", "coffee", "chelsea", "brick"):
        cv2.imwrite(str(folder / "photographs" / f"{name}.png"), getattr(data, name)())
    return folder

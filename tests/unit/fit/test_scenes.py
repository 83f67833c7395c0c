"""Scenes; and damaged files that scenes are made of."""

import warnings

import cv2
import numpy as np
import pytest

from experiments.protocols.patch_sets import read_m50
from kd_cv.fit.scenes import Scene, View
from experiments.scenes.sequences import read_homography
from kd_cv.io.images import read_gray

RNG = np.random.default_rng(0)


def textured(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def write(path, image):
    assert cv2.imwrite(str(path), image)


@pytest.fixture
def scene(tmp_path):
    (tmp_path / "images").mkdir()
    image = textured(20, 30)
    write(tmp_path / "images" / "one two.png", image)
    frames = RNG.random((4, 4))
    return Scene(
        "türme",
        (
            View(tmp_path / "images" / "one two.png", frames, np.array([3, 1, 2, 0])),
            View(textured(10, 12), frames[:2] + 1, np.array([2, 3])),
            View(tmp_path / "images" / "one two.png", np.empty((0, 4)), np.empty(0, np.int64)),
        ),
    )


def test_scene_pairs(scene):
    assert scene.pairs(0, 1).tolist() == [[2, 0], [0, 1]]
    assert scene.all_pairs().tolist() == [[2, 4], [0, 5]]


@pytest.mark.parametrize(
    "change",
    [
        {"frames": np.zeros((2, 3))},
        {"point_ids": np.arange(3)},
        {"point_ids": np.arange(2.0)},
        {"frames": np.array([[0, 0, 1, np.inf], [0, 0, 1, 0]])},
        {"image": np.zeros((4, 4, 3), np.uint8)},
        {"image": np.zeros((4, 4), np.float32)},
    ],
)
def test_view_refuses(change):
    good = {"image": textured(4, 4), "frames": np.zeros((2, 4)), "point_ids": np.arange(2)}
    View(**good)
    with pytest.raises(ValueError):
        View(**(good | change))


# ------------------------------------------------------------------------------------ damage


def damaged(data, rng):
    """Bytes changed, cut off, repeated or inserted."""
    data = bytearray(data)
    for _ in range(int(rng.integers(1, 8))):
        at = int(rng.integers(0, max(len(data), 1)))
        kind = rng.integers(0, 4)
        if kind == 0 and data:
            data[at] = int(rng.integers(0, 256))
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = rng.bytes(int(rng.integers(1, 20)))
        else:
            data[at:at] = data[at : at + 50]
    return bytes(data)


@pytest.mark.slow
def test_damaged_files_raise_or_read(tmp_path):
    """Whatever the bytes: a result or a ValueError, nothing else."""
    for suffix in ("png", "jpg", "bmp", "pgm"):
        write(tmp_path / f"i.{suffix}", textured(65, 65))
    np.savetxt(tmp_path / "H", np.eye(3))
    (tmp_path / "m50.txt").write_text("0 0 0 1 0 0 0\n2 1 0 3 1 0 0\n")
    readers = {
        **{f"i.{suffix}": read_gray for suffix in ("png", "jpg", "bmp", "pgm")},
        "H": read_homography,
        "m50.txt": lambda path: read_m50(path, np.arange(10) // 2),
    }
    rng = np.random.default_rng(1)
    refused = dict.fromkeys(readers, 0)
    for name, reader in readers.items():
        good = (tmp_path / name).read_bytes()
        reader(tmp_path / name)
        for _ in range(150):
            (tmp_path / name).write_bytes(damaged(good, rng))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                try:
                    reader(tmp_path / name)
                except (ValueError, FileNotFoundError):
                    refused[name] += 1
    assert all(count > 0 for count in refused.values()), refused

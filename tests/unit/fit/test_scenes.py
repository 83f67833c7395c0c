"""Scenes: written, read back, then damaged, beside other files that are."""

import warnings
import zipfile

import cv2
import numpy as np
import pytest

from kd_cv.evaluate.patch_sets import read_m50
from kd_cv.fit import scenes
from kd_cv.fit.scenes import Scene, View
from kd_cv.fit.sequences import read_homography
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


def test_scene_round_trip(tmp_path, scene):
    scene.save(tmp_path / "s.npz", tmp_path)
    read = Scene.load(tmp_path / "s.npz", tmp_path)
    assert read.name == scene.name and len(read.views) == 3
    for a, b in zip(read.views, scene.views, strict=True):
        np.testing.assert_array_equal(a.load(), b.load())
        np.testing.assert_array_equal(a.frames, b.frames)
        np.testing.assert_array_equal(a.point_ids, b.point_ids)
        assert a.frames.dtype == np.float64 and a.point_ids.dtype == np.int64
    assert str(tmp_path).encode() not in (tmp_path / "s.npz").read_bytes()


def test_scene_of_no_view_round_trips(tmp_path):
    Scene("empty", ()).save(tmp_path / "s.npz", tmp_path)
    assert Scene.load(tmp_path / "s.npz", tmp_path) == Scene("empty", ())


def test_scene_moves_with_its_image_root(tmp_path, scene):
    scene.save(tmp_path / "s.npz", tmp_path / "images")
    (tmp_path / "images").rename(tmp_path / "moved")
    read = Scene.load(tmp_path / "s.npz", tmp_path / "moved")
    assert read.views[0].load().shape == (20, 30)


def test_scene_pairs(scene):
    assert scene.pairs(0, 1).tolist() == [[2, 0], [0, 1]]
    assert scene.all_pairs().tolist() == [[2, 4], [0, 5]]


def test_scene_save_fails_whole(tmp_path, scene):
    path = tmp_path / "s.npz"
    scene.save(path, tmp_path)
    before = path.read_bytes()
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(ValueError, match="not below image_root"):
        scene.save(path, tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        scene.save(tmp_path / "nowhere" / "s.npz", tmp_path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["elsewhere", "images", "s.npz"]


def test_scene_load_refuses(tmp_path, scene):
    path = tmp_path / "s.npz"
    scene.save(path, tmp_path)
    with np.load(path) as archive:
        good = dict(archive)
    bad = {
        "leaves its folder": {"images": np.array(["../one two.png", "", "x.png"])},
        "leaves": {"images": np.array(["/etc/x.png", "", "x.png"])},
        "counts and images": {"counts": np.array([4, 2])},
        "counts, frames": {"counts": np.array([4, 3, 0])},
        "not an array of numbers": {"frames": np.array([[object()] * 4] * 6)},
        "finite": {"frames": np.full((6, 4), np.nan)},
        r"\(N, 4\)": {"frames": np.zeros((6, 3))},
        "Cannot cast": {"point_ids": np.arange(6.0)},
    }
    for message, change in bad.items():
        np.savez(path, **(good | change))
        with pytest.raises(ValueError, match=message) as error:
            Scene.load(path, tmp_path)
        assert "s.npz" in str(error.value)
    np.savez(path, **{k: v for k, v in good.items() if k != "frames"})
    with pytest.raises(ValueError, match="frames"):
        Scene.load(path, tmp_path)
    with pytest.raises(FileNotFoundError):
        Scene.load(tmp_path / "absent.npz", tmp_path)


def test_scene_load_refuses_a_zip_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(scenes, "MAX_SCENE_BYTES", 2**20)
    with zipfile.ZipFile(tmp_path / "s.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("frames.npy", bytes(2**21))
    with pytest.raises(ValueError, match="unpacked"):
        Scene.load(tmp_path / "s.npz", tmp_path)


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
def test_damaged_files_raise_or_read(tmp_path, scene):
    """Whatever the bytes: a result or a ValueError, nothing else."""
    scene.save(tmp_path / "s.npz", tmp_path)
    for suffix in ("png", "jpg", "bmp", "pgm"):
        write(tmp_path / f"i.{suffix}", textured(65, 65))
    np.savetxt(tmp_path / "H", np.eye(3))
    (tmp_path / "m50.txt").write_text("0 0 0 1 0 0 0\n2 1 0 3 1 0 0\n")
    readers = {
        "s.npz": lambda path: [view.load() for view in Scene.load(path, tmp_path).views],
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

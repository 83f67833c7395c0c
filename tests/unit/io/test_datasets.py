"""Readers: every layout is written by the test, read back, then damaged."""

import struct
import warnings
import zipfile

import cv2
import numpy as np
import pytest

from kd_cv.io import datasets
from kd_cv.io.datasets import NO_POINT, PatchSet, Scene, View

RNG = np.random.default_rng(0)


def textured(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def write(path, image):
    assert cv2.imwrite(str(path), image)


def write_sheet(path, patches):
    """Patches (n <= 256, 64, 64) onto a sheet, laid out with loops."""
    sheet = np.zeros((1024, 1024), np.uint8)
    for n, patch in enumerate(patches):
        row, column = divmod(n, 16)
        sheet[64 * row : 64 * row + 64, 64 * column : 64 * column + 64] = patch
    write(path, sheet)


@pytest.fixture
def phototourism(tmp_path):
    """300 patches of 150 points on two sheets, the second filled up with blanks."""
    patches = textured(300, 64, 64)
    write_sheet(tmp_path / "patches0000.bmp", patches[:256])
    write_sheet(tmp_path / "patches0001.bmp", patches[256:])
    (tmp_path / "info.txt").write_text("".join(f"{n // 2} 0\n" for n in range(300)))
    (tmp_path / "m50_3_3_0.txt").write_text(
        "0 0 0 1 0 0 0\n10 5 0 299 149 0 0\n298 149 0 299 149 0 0\n"
    )
    return tmp_path, patches


# ----------------------------------------------------------------------------- Phototourism


def test_phototourism_round_trip(phototourism):
    folder, patches = phototourism
    read = datasets.read_phototourism(folder)
    np.testing.assert_array_equal(read.patches, patches)
    np.testing.assert_array_equal(read.point_ids, np.arange(300) // 2)
    assert read.pairs.tolist() == [[0, 1], [10, 299], [298, 299]]
    assert read.labels.tolist() == [True, False, True]


def test_phototourism_with_several_m50_files_asks_which(phototourism):
    folder, _ = phototourism
    (folder / "m50_1_1_0.txt").write_text("4 2 0 5 2 0 0\n")
    assert len(datasets.read_phototourism(folder).pairs) == 0
    assert datasets.read_phototourism(folder, "m50_1_1_0.txt").pairs.tolist() == [[4, 5]]


def test_phototourism_without_info_is_unlabelled_and_drops_blanks(phototourism):
    folder, patches = phototourism
    (folder / "info.txt").unlink()
    read = datasets.read_phototourism(folder)
    np.testing.assert_array_equal(read.patches, patches)
    assert (read.point_ids == NO_POINT).all()
    assert len(read.matching_pairs()) == 0
    with pytest.raises(ValueError, match=r"no info\.txt"):
        datasets.read_phototourism(folder, "m50_3_3_0.txt")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("info.txt", "0 0\n" * 299, "not blank"),
        ("info.txt", "0 0\n" * 513, "513 patches, the 2 sheets hold 512"),
        ("info.txt", "", "empty"),
        ("info.txt", "0 0\n1\n", "equal columns"),
        ("info.txt", "zero 0\n" * 300, "whole numbers"),
        ("info.txt", "1.5 0\n" * 300, "whole numbers"),
        ("info.txt", "-1 0\n" * 300, "negative"),
        ("info.txt", "9" * 30 + " 0\n", "whole numbers"),
        ("m50_3_3_0.txt", "0 0 0 1 0 0 0\n0 0 0 300 150 0 0\n", r"line 2.*out of range"),
        ("m50_3_3_0.txt", "-1 0 0 1 0 0 0\n", "out of range"),
        ("m50_3_3_0.txt", "0 0 0 1 1 0 0\n", r"said to show points \[0, 1\]"),
        ("m50_3_3_0.txt", "0 0 0 1\n", "5 columns"),
    ],
)
def test_phototourism_malformed_text(phototourism, name, text, message):
    folder, _ = phototourism
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        datasets.read_phototourism(folder)
    assert name in str(error.value)


def test_phototourism_binary_info(phototourism):
    folder, _ = phototourism
    (folder / "info.txt").write_bytes(bytes(range(256)))
    with pytest.raises(ValueError, match="not a text file"):
        datasets.read_phototourism(folder)


def test_phototourism_text_too_long_is_not_read(phototourism, monkeypatch):
    folder, _ = phototourism
    monkeypatch.setattr(datasets, "MAX_TEXT_BYTES", 100)
    with pytest.raises(ValueError, match="at most 100"):
        datasets.read_phototourism(folder)


def test_phototourism_malformed_sheets(phototourism):
    folder, _ = phototourism
    write(folder / "patches0001.bmp", textured(1024, 960))
    with pytest.raises(ValueError, match=r"patches0001\.bmp.*960 x 1024"):
        datasets.read_phototourism(folder)
    (folder / "patches0001.bmp").rename(folder / "patches0002.bmp")
    with pytest.raises(ValueError, match=r"expected patches0001\.bmp"):
        datasets.read_phototourism(folder)
    with pytest.raises(ValueError, match="holds no sheets"):
        (folder / "none").mkdir()
        datasets.read_phototourism(folder / "none")
    with pytest.raises(ValueError, match="not a folder"):
        datasets.read_phototourism(folder / "absent")


# -------------------------------------------------------------------------------- patch sets


def test_matching_pairs_against_all_pairs():
    ids = RNG.integers(-1, 8, 40)
    found = PatchSet(textured(40, 8, 8), ids).matching_pairs()
    expected = {(i, j) for i in range(40) for j in range(i + 1, 40) if ids[i] == ids[j] != NO_POINT}
    assert {tuple(pair) for pair in found.tolist()} == expected
    assert len(found) == len(expected)


def test_sum_of_patch_sets_shares_no_point():
    a = PatchSet(textured(3, 8, 8), np.array([4, 4, NO_POINT]))
    b = PatchSet(
        textured(3, 8, 8), np.array([4, NO_POINT, 4]), np.array([[0, 2]]), np.array([True])
    )
    both = a + b
    np.testing.assert_array_equal(both.patches[3:], b.patches)
    assert {tuple(pair) for pair in both.matching_pairs().tolist()} == {(0, 1), (3, 5)}
    assert both.pairs.tolist() == [[3, 5]] and both.labels.tolist() == [True]


@pytest.mark.parametrize(
    "change",
    [
        {"patches": textured(3, 8, 9)},
        {"point_ids": np.arange(2)},
        {"pairs": np.array([[0, 3]]), "labels": np.array([True])},
        {"pairs": np.array([[0, -1]]), "labels": np.array([True])},
        {"pairs": np.array([[0, 1]])},
        {"pairs": np.array([0, 1]), "labels": np.array([True, True])},
    ],
)
def test_patch_set_refuses(change):
    with pytest.raises(ValueError):
        PatchSet(**{"patches": textured(3, 8, 8), "point_ids": np.arange(3), **change})


# ---------------------------------------------------------------------------------- HPatches


@pytest.fixture
def release(tmp_path):
    strips = {kind: textured(7, 65, 65) for kind in datasets.STRIPS}
    (tmp_path / "v_a").mkdir()
    for kind, patches in strips.items():
        write(tmp_path / "v_a" / f"{kind}.png", patches.reshape(-1, 65))
    return tmp_path, strips


def test_hpatches_release(release):
    root, strips = release
    assert len(strips) == 16
    ((name, read),) = datasets.read_hpatches_release(root)
    assert name == "v_a" and list(read) == list(strips)
    for kind in strips:
        np.testing.assert_array_equal(read[kind], strips[kind])


def test_hpatches_release_without_tough(release):
    root, strips = release
    for path in (root / "v_a").glob("t*.png"):
        path.unlink()
    assert list(datasets.read_hpatches_strips(root / "v_a")) == list(strips)[:11]


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("ref.png", (7 * 65, 64), "64 x 455"),
        ("e3.png", (7 * 65 + 1, 65), "65 x 456"),
        ("t5.png", (6 * 65, 65), "holds 6 patches"),
    ],
)
def test_hpatches_malformed_strip(release, name, shape, message):
    root, _ = release
    write(root / "v_a" / name, textured(*shape))
    with pytest.raises(ValueError, match=message):
        datasets.read_hpatches_strips(root / "v_a")


def test_hpatches_missing_strips(release):
    root, _ = release
    (root / "v_a" / "ref.png").unlink()
    with pytest.raises(ValueError, match=r"no ref\.png"):
        datasets.read_hpatches_strips(root / "v_a")
    with pytest.raises(ValueError, match=r"no folder with a ref\.png"):
        next(datasets.read_hpatches_release(root))
    (root / "b").mkdir()
    write(root / "b" / "ref.png", textured(65, 65))
    with pytest.raises(ValueError, match="none of e1"):
        datasets.read_hpatches_strips(root / "b")


# --------------------------------------------------------------------------------- sequences


@pytest.mark.parametrize(
    ("image", "homography", "separator"),
    [("{}.ppm", "H_1_{}", " "), ("img{}.png", "H1to{}p", "   "), ("{}.jpg", "H_1_{}", ",")],
)
def test_sequence_layouts(tmp_path, image, homography, separator):
    H = {k: np.eye(3) + 0.01 * RNG.random((3, 3)) for k in range(2, 7)}
    for k in range(1, 7):
        write(tmp_path / image.format(k), textured(20, 30, 3))
    for k in H:
        text = "\n".join(separator.join(repr(float(v)) for v in row) for row in H[k])
        (tmp_path / homography.format(k)).write_text(text + "\n")
    read = datasets.read_sequence(tmp_path)
    assert read.name == tmp_path.name
    assert [path.name for path in read.images] == [image.format(k) for k in range(1, 7)]
    np.testing.assert_array_equal(read.H_1tok, [np.eye(3), *H.values()])


@pytest.fixture
def sequence(tmp_path):
    for k in (1, 2, 3):
        write(tmp_path / f"{k}.png", textured(20, 30))
    for k in (2, 3):
        np.savetxt(tmp_path / f"H_1_{k}", np.eye(3))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0 0 0 1 0 0 0 one", "not a homography"),
        ("1 0 0 0 1 0 0 0", "got 8"),
        ("1 0 0 0 1 0 0 0 nan", "9 finite"),
        ("1 0 0 0 1 0 0 0 inf", "9 finite"),
        ("1 2 3 2 4 6 0 0 1", "singular"),
        ("0 0 0 0 0 0 0 0 0", "singular"),
        ("", "got 0"),
        ("1 " * 5000, "at most 4096"),
    ],
)
def test_sequence_malformed_homography(sequence, text, message):
    (sequence / "H_1_3").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        datasets.read_sequence(sequence)
    assert "H_1_3" in str(error.value)


def test_sequence_malformed(sequence):
    (sequence / "H_1_2").unlink()
    with pytest.raises(ValueError, match="neither H_1_2 nor H1to2p"):
        datasets.read_sequence(sequence)
    write(sequence / "2.jpg", textured(20, 30))
    with pytest.raises(ValueError, match=r"2\.jpg and 2\.png are both 2"):
        datasets.read_sequence(sequence)
    (sequence / "2.jpg").unlink()
    (sequence / "2.png").unlink()
    with pytest.raises(ValueError, match=r"found \['1\.png', '3\.png'\]"):
        datasets.read_sequence(sequence)


# ------------------------------------------------------------------------------- photographs


def test_photos_are_found_below_and_unreadable_ones_named(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    image = textured(20, 30)
    write(tmp_path / "z.png", image)
    write(tmp_path / "a" / "b" / "photo.PNG", image)
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 not a photograph")
    (tmp_path / "notes.txt").write_text("none")
    with pytest.warns(UserWarning, match=r"skipped.*broken\.jpg") as caught:
        read = list(datasets.read_photos(tmp_path))
    assert len(caught) == 1
    assert [path.name for path, _ in read] == ["photo.PNG", "z.png"]
    np.testing.assert_array_equal(read[0][1], image)


def test_photos_none(tmp_path):
    with pytest.raises(ValueError, match="no photographs"):
        list(datasets.read_photos(tmp_path))
    (tmp_path / "a.jpg").write_bytes(b"")
    with (
        pytest.warns(UserWarning, match=r"a\.jpg"),
        pytest.raises(ValueError, match="none of the 1"),
    ):
        list(datasets.read_photos(tmp_path))


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "ppm", "pgm"])
def test_header_tells_the_size_before_decoding(suffix):
    channels = () if suffix == "pgm" else (3,)
    _, data = cv2.imencode(f".{suffix}", textured(37, 53, *channels))
    assert datasets._image_size(data.tobytes()) == (53, 37)


def png_chunk(kind, data):
    import zlib

    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_huge_images_are_refused_undecoded(tmp_path):
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 0, 0, 0, 0)
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header))
    with pytest.raises(ValueError, match=r"bomb\.png.*30000 x 30000"):
        datasets.read_gray(tmp_path / "bomb.png")
    (tmp_path / "bomb.pgm").write_bytes(b"P5\n# " + b"c" * 50 + b"\n99999999 99999999\n255\n")
    with pytest.raises(ValueError, match="at most"):
        datasets.read_gray(tmp_path / "bomb.pgm")


def test_exif_orientation_is_not_applied(tmp_path):
    _, data = cv2.imencode(".jpg", textured(20, 30))
    tiff = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"  # turn by 90
    exif = b"\xff\xe1" + struct.pack(">H", len(tiff) + 8) + b"Exif\0\0" + tiff
    path = tmp_path / "turned.jpg"
    path.write_bytes(data.tobytes()[:2] + exif + data.tobytes()[2:])
    assert cv2.imread(str(path), cv2.IMREAD_GRAYSCALE).shape == (30, 20)  # the tag is understood
    assert datasets.read_gray(path).shape == (20, 30)


# ------------------------------------------------------------------------------------ scenes


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
    monkeypatch.setattr(datasets, "MAX_SCENE_BYTES", 2**20)
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


def test_damaged_files_raise_or_read(tmp_path, scene):
    """Whatever the bytes: a result or a ValueError, nothing else."""
    scene.save(tmp_path / "s.npz", tmp_path)
    for suffix in ("png", "jpg", "bmp", "pgm"):
        write(tmp_path / f"i.{suffix}", textured(65, 65))
    np.savetxt(tmp_path / "H", np.eye(3))
    (tmp_path / "m50.txt").write_text("0 0 0 1 0 0 0\n2 1 0 3 1 0 0\n")
    readers = {
        "s.npz": lambda path: [view.load() for view in Scene.load(path, tmp_path).views],
        **{f"i.{suffix}": datasets.read_gray for suffix in ("png", "jpg", "bmp", "pgm")},
        "H": datasets.read_homography,
        "m50.txt": lambda path: datasets.read_m50(path, np.arange(10) // 2),
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


def test_a_file_longer_than_its_kind(tmp_path):
    (tmp_path / "long.txt").write_bytes(bytes(10))
    with pytest.raises(ValueError, match="has 10 bytes, at most 9 are read"):
        datasets._read_bytes(tmp_path / "long.txt", 9)

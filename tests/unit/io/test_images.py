"""Photographs: which are found, which are too large, at which depth they are read; EXIF."""

import io
import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import pytest

from experiments.scenes.sequences import read_photos
from kd_cv import match
from kd_cv.io import images
from kd_cv.io.images import list_photos, read_gray, read_image_bytes
from kd_cv.io.sources import as_source, focal_in_widths, read_source

Image = pytest.importorskip("PIL.Image")
TiffImagePlugin = pytest.importorskip("PIL.TiffImagePlugin")

RNG = np.random.default_rng(0)
KINDS = ("jpg", "png", "bmp", "pgm", "ppm", "tif", "tiff", "webp")


def textured(*shape, dtype=np.uint8):
    return RNG.integers(0, np.iinfo(dtype).max + 1, shape, dtype=dtype)


def write(path, image, *options):
    assert cv2.imwrite(str(path), image, *options)
    return path


def test_photos_are_found_below_and_unreadable_ones_named(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    image = textured(20, 30)
    write(tmp_path / "z.png", image)
    write(tmp_path / "a" / "b" / "photo.PNG", image)
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 not a photograph")
    (tmp_path / "notes.txt").write_text("none")
    with pytest.warns(UserWarning, match=r"skipped.*broken\.jpg") as caught:
        read = list(read_photos(tmp_path))
    assert len(caught) == 1
    assert [path.name for path, _ in read] == ["photo.PNG", "z.png"]
    np.testing.assert_array_equal(read[0][1], image)


@pytest.mark.parametrize("kind", KINDS)
def test_a_photograph_of_each_kind_is_listed_and_read(kind, camera, tmp_path, monkeypatch):
    path = tmp_path / f"photograph.{kind}"
    write(path, cv2.cvtColor(camera, cv2.COLOR_GRAY2BGR) if kind == "ppm" else camera)
    assert list_photos(tmp_path) == [path]
    gray = read_gray(path)
    assert gray.shape == camera.shape and gray.dtype == np.uint8
    assert np.abs(gray.astype(int) - camera).mean() < 6
    assert read_source(path).pixels.shape == (*camera.shape, 3)
    monkeypatch.setattr(images, "MAX_PIXELS", camera.size - 1)
    with pytest.raises(ValueError, match="512 x 512 pixels, at most 262143 are read"):
        read_image_bytes(path)


def test_the_depth_of_a_file_is_kept(tmp_path):
    deep = textured(40, 50, dtype=np.uint16)
    path = write(tmp_path / "deep.png", deep)
    np.testing.assert_array_equal(read_source(path).pixels[:, :, 0], deep)
    np.testing.assert_allclose(read_gray(path), deep / 65535, atol=1e-6)
    real = RNG.normal(size=(40, 50)).astype(np.float32)
    path = write(tmp_path / "real.tif", real)
    np.testing.assert_allclose(read_gray(path), real, atol=1e-6)
    np.testing.assert_allclose(read_source(path).pixels, real, atol=1e-6)


@pytest.mark.parametrize("mode", ["I", "F", "I;16"])
def test_pillow_images_are_like_their_arrays(mode, camera):
    dtype, factor = {"I": (np.int32, 257), "F": (np.float32, 1 / 255), "I;16": (np.uint16, 257)}[
        mode
    ]
    arrays = [
        (image.astype(np.float64) * factor).astype(dtype)
        for image in (camera[:300], camera[40:340])
    ]
    plain = match(camera[:300], camera[40:340], max_keypoints=300)
    found = match(*map(Image.fromarray, arrays), max_keypoints=300)
    assert found.inliers.sum() > 0.8 * plain.inliers.sum() > 50
    assert as_source(Image.fromarray(arrays[0])).pixels.max() == arrays[0].max()


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.parametrize("side, said", [(12_000, "12000 x 12000"), (65_535, "exceeds limit")])
@pytest.mark.filterwarnings("ignore:Image size:PIL.Image.DecompressionBombWarning")
def test_huge_images_are_refused_undecoded(tmp_path, side, said):
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    rest = png_chunk(b"IDAT", zlib.compress(bytes(64))) + png_chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + rest)
    for read in (read_gray, read_source):
        with pytest.raises(ValueError, match=rf"bomb\.png.*{said}"):
            read(tmp_path / "bomb.png")


def test_a_jpeg_may_have_a_video_behind_it_but_not_thousands_of_scans(tmp_path):
    image = textured(64, 64)
    data = cv2.imencode(".jpg", image)[1].tobytes()
    path = tmp_path / "motion.jpg"
    path.write_bytes(data + RNG.bytes(8 << 20))
    assert read_gray(path).shape == image.shape
    path.write_bytes(data[:-2] + 5000 * b"\xff\xda\0\x08\1\1\0\0\x3f\0" + data[-2:])
    with pytest.raises(ValueError, match=r"has more than 10\d scans"):
        read_gray(path)


def test_exif_orientation_is_applied_to_pictures_and_not_to_collections(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    path = tmp_path / "turned.jpg"
    Image.fromarray(textured(20, 30, 3)).save(path, exif=exif)
    assert read_gray(path).shape == (20, 30)
    assert read_source(path).pixels.shape == (30, 20, 3)


def test_heic_is_read_like_other_photographs(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif")
    path = tmp_path / "a.heic"
    gray = cv2.GaussianBlur(textured(64, 96), (0, 0), 5)
    pillow_heif.from_pillow(Image.fromarray(gray).convert("RGB")).save(path, quality=90)
    assert list_photos(tmp_path) == [path]
    assert np.abs(read_gray(path).astype(int) - gray).mean() < 4
    assert read_source(path).pixels.shape == (64, 96, 3)
    path.write_bytes(path.read_bytes()[:300])
    for read in (read_gray, read_source):
        with pytest.raises(ValueError, match=r"a\.heic cannot be decoded"):
            read(path)


def test_images_are_read_without_pillow(tmp_path):
    path = write(tmp_path / "a.png", textured(20, 30))
    program = (
        "import sys; sys.modules['PIL'] = None\n"
        "from kd_cv.io.images import read_gray; from kd_cv.io.sources import read_source\n"
        f"print(read_gray({str(path)!r}).shape, read_source({str(path)!r}).pixels.shape)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "(20, 30) (20, 30, 3)\n", run.stderr


# -------------------------------------------------------------------------------------------- EXIF


def photograph(tags):
    exif = Image.Exif()
    exif[0x8769] = tags
    target = io.BytesIO()
    Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(target, "JPEG", exif=exif)
    return target.getvalue()


def focal(data):
    return focal_in_widths(Image.open(io.BytesIO(data)))


def rational(number, below=1):
    return TiffImagePlugin.IFDRational(number, below)


def test_the_focal_length_is_read():
    assert focal(photograph({0xA405: 27})) == pytest.approx(27 / 36)
    # 35 mm, 4000 pixels over 24 mm: 10 / 6 pixels a hundredth of a mm
    tags = {0x920A: rational(35), 0xA002: 4000, 0xA20E: rational(4000 * 254, 240), 0xA210: 2}
    assert focal(photograph(tags)) == pytest.approx(35 / 24, rel=1e-4)
    per_cm = tags | {0xA20E: rational(40000, 24), 0xA210: 3}
    assert focal(photograph(per_cm)) == pytest.approx(35 / 24, rel=1e-4)


def test_a_file_without_it_has_none():
    for tags in ({}, {0x920A: rational(35)}, {0xA405: 0}, {0xA002: 4000, 0xA20E: rational(0)}):
        assert focal(photograph(tags)) is None


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_tags_are_not_believed(tmp_path):
    data = photograph({0xA405: 27, 0x920A: rational(35), 0xA002: 4000, 0xA20E: rational(400)})
    rng = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(data)
        for place in rng.integers(20, 200, 3):
            broken[place] = rng.integers(0, 256)
        (tmp_path / "a.jpg").write_bytes(bytes(broken))
        try:
            found = read_source(tmp_path / "a.jpg").focal_in_widths
        except ValueError:
            continue
        assert found is None or 0.01 <= found <= 1000

"""Photographs: which are found, and what their headers say."""

import struct

import cv2
import numpy as np
import pytest

from kd_cv.io.images import _image_size, read_gray, read_photos

RNG = np.random.default_rng(0)


def textured(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def write(path, image):
    assert cv2.imwrite(str(path), image)


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


def test_photos_none(tmp_path):
    with pytest.raises(ValueError, match="no photographs"):
        list(read_photos(tmp_path))
    (tmp_path / "a.jpg").write_bytes(b"")
    with (
        pytest.warns(UserWarning, match=r"a\.jpg"),
        pytest.raises(ValueError, match="none of the 1"),
    ):
        list(read_photos(tmp_path))


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "ppm", "pgm"])
def test_header_tells_the_size_before_decoding(suffix):
    channels = () if suffix == "pgm" else (3,)
    _, data = cv2.imencode(f".{suffix}", textured(37, 53, *channels))
    assert _image_size(data.tobytes()) == (53, 37)


def png_chunk(kind, data):
    import zlib

    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_huge_images_are_refused_undecoded(tmp_path):
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 0, 0, 0, 0)
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header))
    with pytest.raises(ValueError, match=r"bomb\.png.*30000 x 30000"):
        read_gray(tmp_path / "bomb.png")
    (tmp_path / "bomb.pgm").write_bytes(b"P5\n# " + b"c" * 50 + b"\n99999999 99999999\n255\n")
    with pytest.raises(ValueError, match="at most"):
        read_gray(tmp_path / "bomb.pgm")


def test_exif_orientation_is_not_applied(tmp_path):
    _, data = cv2.imencode(".jpg", textured(20, 30))
    tiff = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"  # turn by 90
    exif = b"\xff\xe1" + struct.pack(">H", len(tiff) + 8) + b"Exif\0\0" + tiff
    path = tmp_path / "turned.jpg"
    path.write_bytes(data.tobytes()[:2] + exif + data.tobytes()[2:])
    assert cv2.imread(str(path), cv2.IMREAD_GRAYSCALE).shape == (30, 20)  # the tag is understood
    assert read_gray(path).shape == (20, 30)

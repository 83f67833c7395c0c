"""The focal length in EXIF, read as Pillow writes it, and never more than is there."""

import io

import numpy as np
import pytest

from kd_cv.io.exif import focal_in_widths

Image = pytest.importorskip("PIL.Image")
TiffImagePlugin = pytest.importorskip("PIL.TiffImagePlugin")


def photograph(tags, size=(40, 30)):
    exif = Image.Exif()
    exif[0x8769] = tags
    exif[0x0110] = "A camera"
    target = io.BytesIO()
    Image.fromarray(np.zeros((size[1], size[0], 3), np.uint8)).save(target, "JPEG", exif=exif)
    return target.getvalue()


def rational(number, below=1):
    return TiffImagePlugin.IFDRational(number, below)


def test_the_length_for_film_is_read():
    data = photograph({0xA405: 27})
    assert focal_in_widths(data) == pytest.approx(27 / 36)
    # EXIF in a JPEG is a whole TIFF, as a file of its own would be.
    assert focal_in_widths(data[data.index(b"Exif\0\0") + 6 :]) == pytest.approx(27 / 36)


def test_the_length_and_the_resolution_of_the_sensor_are_read():
    # 35 mm, 4000 pixels over 24 mm: 10 / 6 pixels a hundredth of a mm
    tags = {0x920A: rational(35), 0xA002: 4000, 0xA20E: rational(4000 * 254, 240), 0xA210: 2}
    assert focal_in_widths(photograph(tags)) == pytest.approx(35 / 24, rel=1e-4)
    per_cm = tags | {0xA20E: rational(40000, 24), 0xA210: 3}
    assert focal_in_widths(photograph(per_cm)) == pytest.approx(35 / 24, rel=1e-4)


def test_a_file_without_it_has_none():
    for tags in ({}, {0x920A: rational(35)}, {0xA405: 0}, {0xA002: 4000, 0xA20E: rational(0)}):
        assert focal_in_widths(photograph(tags)) is None
    for data in (b"", b"\xff\xd8", b"\xff\xd8Exif\0\0", b"II*\0", b"MM\0*\0\0\0\xff", b"text"):
        assert focal_in_widths(data) is None


def test_no_byte_of_it_is_believed():
    data = photograph({0xA405: 27, 0x920A: rational(35), 0xA002: 4000, 0xA20E: rational(400)})
    rng = np.random.default_rng(0)
    for _ in range(3000):
        broken = bytearray(data[: rng.integers(0, 300)])
        for place in rng.integers(0, max(1, len(broken)), 3):
            if broken:
                broken[place] = rng.integers(0, 256)
        focal = focal_in_widths(bytes(broken))
        assert focal is None or 0.01 <= focal <= 1000

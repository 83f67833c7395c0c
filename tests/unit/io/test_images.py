"""Images whose header asks for more than OpenCV decodes."""

import struct
import zlib

import pytest

from kd_cv.io.images import read_gray
from kd_cv.io.sources import read_source


def test_a_photograph_of_absurd_size(tmp_path):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 65535, 65535, 8, 0, 0, 0, 0))
    content = header + chunk(b"IDAT", zlib.compress(bytes(64))) + chunk(b"IEND", b"")
    path = tmp_path / "absurd.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    with pytest.raises(ValueError, match=r"absurd\.png: 65535 x 65535 pixels, at most"):
        read_source(path)


def test_an_image_wider_than_opencv_decodes(tmp_path):
    width = 2_000_000
    header = struct.pack("<IiiHHIIiiII", 40, width, 1, 1, 24, 0, 3 * width, 0, 0, 0, 0)
    path = tmp_path / "wide.bmp"
    path.write_bytes(struct.pack("<2sIHHI", b"BM", 54 + 64, 0, 0, 54) + header + bytes(64))
    for read in (read_gray, read_source):
        with pytest.raises(ValueError, match=r"wide\.bmp cannot be decoded"):
            read(path)

"""Images whose header asks for more than OpenCV decodes."""

import errno
import os
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

from kd_cv.io import images
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


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<2sIHHIIHHHH", b"BM", 26, 0, 0, 26, 12, 640, 480, 1, 24),  # of OS/2
        b"RIFF\0\0\0\0WEBPVP8X" + struct.pack("<I4x", 10) + b"\x7f\x02\0\xdf\x01\0",
        b"\xff\xd8\xff\xff\xff\xc0" + struct.pack(">HBHH", 17, 8, 480, 640) + bytes(12),  # filled
    ],
    ids=["bmp", "webp", "jpeg"],
)
def test_sizes_in_headers_that_are_rare(data, tmp_path):
    path = tmp_path / "image"
    path.write_bytes(data)
    assert images._image_size(data) == (640, 480)
    assert images.read_image_bytes(path) == data


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0", b"BM" + bytes(12), b"\xff\xd8\xff\xc0\0\x11"],
    ids=["png", "bmp", "jpeg"],
)
def test_a_header_that_ends_before_the_size_is_not_understood(data):
    assert images._image_size(data) is None


def test_a_folder_that_cannot_be_read_is_said(tmp_path, monkeypatch):
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((4, 4), np.uint8))
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(place):
        if Path(place).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(place))
        return scan(place)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.warns(UserWarning, match="folder skipped: .*closed: Permission denied"):
        assert images.list_photos(tmp_path) == [tmp_path / "a.png"]

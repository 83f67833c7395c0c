"""Every format that `match` reads is read in collections and fits too, and never too large."""

import cv2
import numpy as np
import pytest

from kd_cv.io.images import MAX_PIXELS, list_photos, read_gray, read_image_bytes
from kd_cv.io.sources import read_source

KINDS = ("jpg", "png", "bmp", "pgm", "ppm", "tif", "tiff", "webp")


@pytest.mark.parametrize("kind", KINDS)
def test_a_photograph_of_each_kind_is_listed_and_read(kind, camera, tmp_path):
    path = tmp_path / f"photograph.{kind}"
    picture = cv2.cvtColor(camera, cv2.COLOR_GRAY2BGR) if kind == "ppm" else camera
    assert cv2.imwrite(str(path), picture)
    assert list_photos(tmp_path) == [path]
    gray = read_gray(path)
    assert gray.shape == camera.shape
    assert np.abs(gray.astype(int) - camera).mean() < 6
    assert read_source(path).pixels.shape == (*camera.shape, 3)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("webp", [cv2.IMWRITE_WEBP_QUALITY, 80]),
        ("webp", [cv2.IMWRITE_WEBP_QUALITY, 101]),  # lossless
        ("tif", [cv2.IMWRITE_TIFF_COMPRESSION, 1]),
        ("tif", [cv2.IMWRITE_TIFF_COMPRESSION, 5]),
    ],
)
def test_the_size_is_known_before_a_file_is_decoded(kind, options, tmp_path, monkeypatch):
    path = tmp_path / f"image.{kind}"
    assert cv2.imwrite(str(path), np.zeros((30, 50, 3), np.uint8), options)
    read_image_bytes(path)
    monkeypatch.setattr("kd_cv.io.images.MAX_PIXELS", 1499)
    with pytest.raises(ValueError, match="50 x 30 pixels, at most 1499 are read"):
        read_image_bytes(path)
    assert MAX_PIXELS > 1500


def test_a_webp_with_transparency_is_read(tmp_path):
    path = tmp_path / "image.webp"
    image = np.full((30, 50, 4), 128, np.uint8)
    assert cv2.imwrite(str(path), image)
    assert read_gray(path).shape == (30, 50)


def test_what_only_begins_like_a_photograph_is_refused(tmp_path):
    for name, data in (("a.tif", b"II*\0\xff\xff\xff\xff"), ("a.webp", b"RIFF\0\0\0\0WEBPVP8Z")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match="is not a JPEG, PNG, BMP, PNM, TIFF or WebP image"):
            read_gray(tmp_path / name)

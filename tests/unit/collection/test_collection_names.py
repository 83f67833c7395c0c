"""Names of images: what cannot be one is named with its reason, and the rest goes on."""

import os
import sys

import pytest
from collections_of_photographs import SMALL, photographs

from kd_cv.collection import extract, reading


@pytest.fixture
def folder(tmp_path):
    return photographs(tmp_path / "images")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names of files")
@pytest.mark.parametrize("way", ["folder", "pattern"])
def test_a_name_that_is_not_utf8_is_skipped(folder, tmp_path, way):
    pytest.importorskip("h5py")
    odd = os.fsdecode(b"\xff\xfe.jpg")
    (folder / odd).write_bytes((folder / "01.jpg").read_bytes())
    images = folder if way == "folder" else f"{folder}/**/*"
    for _ in range(2):  # it is tried again
        summary = extract(images, tmp_path / "f.h5", SMALL)
        assert list(summary.skipped) == [odd] and summary.exit_code == 1
        assert "a name must be text that UTF-8 can hold" in summary.skipped[odd]
        assert "skipped ??.jpg: " in str(summary) and "1 of 7 images skipped" in str(summary)
    with reading(tmp_path / "f.h5") as features:
        assert len(features) == 6

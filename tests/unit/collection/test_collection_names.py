"""Names of images: what cannot be one is named with its reason, and the rest goes on."""

import os
import sys

import pytest
from collections_of_photographs import SMALL, photographs

from kd_cv.collection import Collection, extract, reading
from kd_cv.collection.names import MAX_DEPTH


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


@pytest.fixture
def deep(folder):
    """Below the folder, folders in folders, deeper than any path may be long; removed again."""
    places = [os.open(folder, os.O_RDONLY)]
    for _ in range(3000):
        os.mkdir("d", dir_fd=places[-1])
        places.append(os.open("d", os.O_RDONLY, dir_fd=places[-1]))
        if len(places) > 2:
            os.close(places.pop(0))
    os.close(places.pop())
    os.close(places.pop())
    yield folder
    # From above: the second folder becomes the first, until there is none below.
    while os.path.isdir(folder / "d" / "d"):
        os.rename(folder / "d" / "d", folder / "next")
        os.rmdir(folder / "d")
        os.rename(folder / "next", folder / "d")
    os.rmdir(folder / "d")


def test_a_name_of_very_many_folders_is_refused(tmp_path):
    place = tmp_path.joinpath(*["d"] * MAX_DEPTH)
    place.mkdir(parents=True)
    (place / "a.jpg").write_bytes(b"")
    (tmp_path / "b.jpg").write_bytes(b"")
    collection = Collection.of(tmp_path)
    assert collection.names == ("b.jpg",)
    ((_, why),) = collection.refused.items()
    assert why == f"a name may have at most {MAX_DEPTH} parts, this one has {MAX_DEPTH + 1}"


def test_a_list_that_is_no_text_is_named(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe.jpg\n")
    with pytest.raises(ValueError, match=r"list\.txt is not a text file"):
        Collection.of(tmp_path / "list.txt")

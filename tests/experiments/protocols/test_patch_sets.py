"""Public patch sets: every layout is written by the test, read back, then damaged."""

import cv2
import numpy as np
import pytest

from experiments.protocols.patch_sets import (
    STRIPS,
    PatchSet,
    read_hpatches_release,
    read_hpatches_strips,
    read_phototourism,
)
from kd_cv.fit.scenes import NO_POINT

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
    read = read_phototourism(folder)
    np.testing.assert_array_equal(read.patches, patches)
    np.testing.assert_array_equal(read.point_ids, np.arange(300) // 2)
    assert read.pairs.tolist() == [[0, 1], [10, 299], [298, 299]]
    assert read.labels.tolist() == [True, False, True]


def test_phototourism_without_info_is_unlabelled_and_drops_blanks(phototourism):
    folder, patches = phototourism
    (folder / "info.txt").unlink()
    read = read_phototourism(folder)
    np.testing.assert_array_equal(read.patches, patches)
    assert (read.point_ids == NO_POINT).all()
    assert len(read.matching_pairs()) == 0
    with pytest.raises(ValueError, match=r"no info\.txt"):
        read_phototourism(folder, "m50_3_3_0.txt")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("info.txt", "0 0\n" * 299, "not blank"),
        ("info.txt", "0 0\n" * 513, "513 patches, the 2 sheets hold 512"),
        ("info.txt", "", "empty"),
        ("info.txt", "1.5 0\n" * 300, "whole numbers"),
        ("info.txt", "-1 0\n" * 300, "negative"),
        ("m50_3_3_0.txt", "0 0 0 1 0 0 0\n0 0 0 300 150 0 0\n", r"line 2.*out of range"),
        ("m50_3_3_0.txt", "0 0 0 1 1 0 0\n", r"said to show points \[0, 1\]"),
        ("m50_3_3_0.txt", "0 0 0 1\n", "5 columns"),
    ],
)
def test_phototourism_malformed_text(phototourism, name, text, message):
    folder, _ = phototourism
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_phototourism(folder)
    assert name in str(error.value)


# -------------------------------------------------------------------------------- patch sets


def test_matching_pairs_against_all_pairs():
    ids = RNG.integers(-1, 8, 40)
    found = PatchSet(textured(40, 8, 8), ids).matching_pairs()
    expected = {(i, j) for i in range(40) for j in range(i + 1, 40) if ids[i] == ids[j] != NO_POINT}
    assert {tuple(pair) for pair in found.tolist()} == expected
    assert len(found) == len(expected)


# ---------------------------------------------------------------------------------- HPatches


@pytest.fixture
def release(tmp_path):
    strips = {kind: textured(7, 65, 65) for kind in STRIPS}
    (tmp_path / "v_a").mkdir()
    for kind, patches in strips.items():
        write(tmp_path / "v_a" / f"{kind}.png", patches.reshape(-1, 65))
    return tmp_path, strips


def test_hpatches_release(release):
    root, strips = release
    assert len(strips) == 16
    ((name, read),) = read_hpatches_release(root)
    assert name == "v_a" and list(read) == list(strips)
    for kind in strips:
        np.testing.assert_array_equal(read[kind], strips[kind])


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
        read_hpatches_strips(root / "v_a")

"""Image sequences: written by the test, read back, then damaged."""

import cv2
import numpy as np
import pytest

from experiments.scenes.sequences import read_sequence

RNG = np.random.default_rng(0)


def textured(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def write(path, image):
    assert cv2.imwrite(str(path), image)


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
    read = read_sequence(tmp_path)
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
        ("1 " * 5000, "4096"),
    ],
)
def test_sequence_malformed_homography(sequence, text, message):
    (sequence / "H_1_3").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_sequence(sequence)
    assert "H_1_3" in str(error.value)

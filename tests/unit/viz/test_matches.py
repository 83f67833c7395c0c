"""The sheet of matches."""

import subprocess
import sys

import cv2
import numpy as np
import pytest

pytest.importorskip("matplotlib")

from kd_cv import match
from kd_cv.report import page_of
from kd_cv.viz import palette
from kd_cv.viz.matches import _legend, draw_matches, write_picture


@pytest.fixture(scope="module")
def pair(camera):
    return camera[50:350, :300], camera[80:380, 40:440]


@pytest.fixture(scope="module")
def result(pair):
    return match(*pair, max_keypoints=400)


def near(sheet, color, tolerance=30):
    return int((np.abs(sheet.astype(int) - palette.rgb(color)[::-1]).max(axis=2) < tolerance).sum())


def test_a_sheet_has_a_row_for_each_result(pair, result):
    one = draw_matches(*pair, {"KD": result}, 300)
    assert one.shape == (300 + 2 * 48, 300 + 400 + 12 + 32, 3) and one.dtype == np.uint8
    two = draw_matches(*pair, {"KD": result, "again": result}, 300)
    assert len(two) - len(one) == 348
    assert near(one, palette.INLIER) > 1000 and near(one, palette.OUTLINE) > 200
    wide = draw_matches(np.zeros((10, 4000), np.uint8), pair[1], {"KD": result}, 300)
    assert wide.shape[1] <= 2400 + 44
    with pytest.raises(ValueError, match="no results to draw"):
        draw_matches(*pair, {})


def test_lines_end_at_their_points(pair, result):
    sheet = draw_matches(*pair, {"KD": result}, 300)
    points = [result.points0 + (16, 48), result.points1 + (16 + 300 + 12, 48)]
    for place in np.rint(np.concatenate([p[result.inliers] for p in points])).astype(int)[::7]:
        around = sheet[place[1] - 2 : place[1] + 3, place[0] - 2 : place[0] + 3]
        assert near(around, palette.INLIER, 60)


@pytest.mark.parametrize("dtype, factor", [(np.uint16, 257), (np.float32, 1 / 255)])
def test_images_of_any_depth_are_drawn_alike(pair, result, dtype, factor):
    deep = [(image.astype(np.float64) * factor).astype(dtype) for image in pair]
    sheets = [draw_matches(*images, {"KD": result}, 300) for images in (pair, deep)]
    assert np.abs(sheets[0].astype(int) - sheets[1]).max() < 4
    pages = [page_of(tuple(images), ("a", "b"), {"KD": (result, None)}) for images in (pair, deep)]
    assert 0.9 < len(pages[0]) / len(pages[1]) < 1.1


def test_the_legend_has_the_words(tmp_path, pair, result):
    labels = [entry.get_label() for entry in _legend(("on the plane", "off the plane"), True)]
    assert labels[:2] == ["inlier, on the plane", "outlier, off the plane"] and len(labels) == 4
    sheet = result.draw(tmp_path / "m.png")
    assert np.array_equal(cv2.imread(str(tmp_path / "m.png")), sheet)
    with pytest.raises(ValueError, match="cannot write a picture"):
        write_picture(tmp_path / "m.xyz", sheet)


def test_drawing_without_matplotlib_names_the_extra():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import numpy as np; from kd_cv import match\n"
        "image = np.random.default_rng(0).integers(0, 255, (99, 99)).astype(np.uint8)\n"
        "try:\n    match(image, image).draw()\nexcept ImportError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "pictures need matplotlib: pip install kd-cv[cli]", run.stderr

"""The HTML page of a match, in a real browser where Chromium is installed."""

import base64
import json
import re

import cv2
import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("skimage")

from kd_cv import KDDescriptor, report
from kd_cv.cli.pair import Options, Pair, example_pair, run
from kd_cv.descriptor.frames import resizing
from kd_cv.explain import explain
from kd_cv.gray import as_gray
from kd_cv.matching.metrics import homography_corner_error
from kd_cv.matching.pipeline import match
from kd_cv.viz.palette import DIVERGING, rgb

NAMES = ('<img src=x onerror="alert(1)">.png', "b & '@@DATA@@'.png")


@pytest.fixture(scope="module")
def pair():
    image0, image1, H_true = example_pair()
    return cv2.resize(image0, (384, 384)), cv2.resize(image1, (384, 384)), H_true


@pytest.fixture(scope="module")
def found(pair):
    return {name: _run(pair[0], pair[1], name) for name in ("kd", "sift")}


def _run(image0, image1, name="kd"):
    return run(name, Pair(image0, image1, ("a", "b")), Options())


def _page(pair, found, title="KD", **others):
    results = {title: (found.result, found.feature), **others}
    return report.page_of((pair[0], pair[1]), NAMES, results)


def _data(page):
    return json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])


@pytest.mark.slow
def test_page_needs_no_network_and_escapes_names(pair, found):
    page = _page(pair, found["kd"])
    assert "http://" not in page and "https://" not in page and "//" not in _urls(page)
    assert "default-src 'none'" in page
    assert "<img src=x" not in page and "&lt;img src=x" in page
    assert page.count('id="data"') == 1 and "@@" in page  # the name itself is not a placeholder
    assert re.findall("@@[A-Z0-9_]+@@", page) == ["@@DATA@@"] * page.count("@@DATA@@")


def _urls(page):
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(source.startswith("data:") for source in sources)
    return [source for source in sources if not source.startswith("data:image/webp;base64,")]


@pytest.mark.slow
def test_data_agrees_with_the_result(pair, found):
    result = found["kd"].result
    (data,) = _data(_page(pair, found["kd"]))["descriptors"]
    ratio, inlier = np.array(data["ratios"]), np.array(data["inliers"], bool)
    assert (ratio <= 0.85).sum() == len(result.matches) < len(ratio)
    assert inlier[ratio <= 0.85].sum() == result.inliers.sum()
    assert np.all(np.diff(ratio) >= 0)
    first = result.ratios.argmin()
    assert data["points"][0][0] == pytest.approx(result.points0[first], abs=0.01)
    assert data["points"][1][0] == pytest.approx(result.points1[first], abs=0.01)
    keypoint = result.keypoints0[result.matches[first][0]]
    half, turn = 15 * keypoint.size / 2, np.deg2rad(keypoint.angle)
    x, y = half * np.cos(turn), half * np.sin(turn)
    assert data["windows"][0][0] == pytest.approx([x, -y, y, x], abs=0.01)
    assert not np.any(data["views"])


@pytest.mark.slow
def test_keypoints_of_views_are_ellipses_with_the_patches_of_their_views(pair):
    small = KDDescriptor(300, views=3)
    result = match(pair[0], pair[1], small)
    (data,) = _data(_page(pair, run("kd", Pair(*pair[:2], ("a", "b")), Options())._replace(
        result=result, feature=small)))["descriptors"]  # fmt: skip
    views = np.array(data["views"])
    assert set(views.ravel()) == {0, 1, 2}
    axes = np.linalg.svd(np.reshape(data["windows"], (2, -1, 2, 2)), compute_uv=False)
    np.testing.assert_allclose(axes[..., 0] / axes[..., 1], np.where(views > 0, 2, 1), rtol=1e-2)
    # What the patches on the page have in common is what the descriptors have.
    matches, ratios = result.candidates
    i, j = matches[np.argsort(ratios, kind="stable")].T
    d0, d1 = (
        small.compute(image, keypoints)[1]
        for image, keypoints in zip(pair[:2], (result.keypoints0, result.keypoints1), strict=True)
    )
    products = (d0[i] * d1[j]).sum(axis=1)
    np.testing.assert_allclose(data["similarity"], products, atol=2e-2)


@pytest.mark.slow
def test_every_match_of_kd_has_heat_maps_that_sum_to_its_similarity(pair, found):
    own = found["kd"]
    page = _page(pair, own)
    (data,) = _data(page)["descriptors"]
    assert len(data["similarity"]) == len(data["ratios"]) > len(own.result.matches)
    shares = np.array(list(data["shares"].values())).sum(axis=0)
    assert shares == pytest.approx(data["similarity"], abs=2e-3)
    first = own.result.ratios.argmin()
    i, j = own.result.matches[first]
    why = explain(pair[0], own.result.keypoints0[i], pair[1], own.result.keypoints1[j], own.feature)
    assert data["similarity"][0] == pytest.approx(why.similarity, abs=1e-3)
    heat = _tile(page, "heats0", 0).astype(float) / 127.5 - 1  # the sheet is compressed
    expected = np.clip(why.heat0["whitened"] / why.limit(), -1, 1)
    assert np.abs(heat - expected).mean() < 0.03
    assert np.corrcoef(heat.ravel(), expected.ravel())[0, 1] > 0.97


def _tile(page, name, index):
    """A tile of a sheet, as the browser would decode it."""
    encoded = re.findall(f'id="{name}" alt="" src="data:image/webp;base64,([^"]*)"', page)[0]
    sheet = cv2.imdecode(np.frombuffer(base64.b64decode(encoded), np.uint8), cv2.IMREAD_GRAYSCALE)
    row, column = divmod(index, report.COLUMNS)
    size = sheet.shape[1] // report.COLUMNS
    return sheet[row * size : (row + 1) * size, column * size : (column + 1) * size]


@pytest.mark.slow
def test_sift_has_patches_and_says_why_there_is_no_heat(pair, found):
    page = _page(pair, found["sift"], title="SIFT")
    (data,) = _data(page)["descriptors"]
    assert data["similarity"] == [] and "histogram of SIFT" in data["noHeat"]
    assert 'id="patches0"' in page and 'id="heats0"' not in page


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"scales": 3}, {"patch_size": 64}])
def test_other_settings_are_explained_on_tiles_of_the_same_size(pair, settings):
    own = _run(pair[0], pair[1])._replace(feature=KDDescriptor(**settings))
    (data,) = _data(_page(pair, own))["descriptors"]
    assert len(data["similarity"]) == len(data["ratios"]) and data["tile"] == 32


@pytest.mark.slow
def test_others_are_compared_and_share_the_limit(pair, found, monkeypatch):
    monkeypatch.setattr(report, "MAX_MATCHES", 80)
    page = _page(pair, found["kd"], SIFT=(found["sift"].result, None))
    kd, sift = _data(page)["descriptors"]
    assert (kd["title"], sift["title"]) == ("KD", "SIFT")
    assert len(kd["ratios"]) == len(sift["ratios"]) == 40
    assert f"of {len(found['sift'].result.matches)} matches" in sift["counts"]
    assert "The 40 most certain of" in sift["note"] and kd["cut"] and sift["cut"]


@pytest.mark.slow
def test_warped_image_lies_on_the_other(pair, found):
    """The overlay shows image 0 where image 1 shows it too, also when both are reduced."""
    image0, image1, _ = pair
    H_0to1 = found["kd"].result.H_0to1
    shapes = image0.shape, image1.shape
    whole = report._overlay(image0, image1, H_0to1, *shapes)
    small0, small1 = (cv2.resize(i, (192, 192), interpolation=cv2.INTER_AREA) for i in pair[:2])
    half = report._overlay(small0, small1, H_0to1, *shapes)
    for warped, truth in ((whole, image1), (half, small1)):
        side = warped.shape[0]
        inner = np.s_[side // 4 : 3 * side // 4, side // 4 : 3 * side // 4]
        a, b = (as_gray(i)[inner].astype(float).ravel() for i in (warped, truth))
        assert np.corrcoef(a, b)[0, 1] > 0.95
    halved = resizing((10, 10), (5, 5))
    assert homography_corner_error(halved, np.diag([0.5, 0.5, 1]), (9, 9)) < 0.4


@pytest.mark.slow
@pytest.mark.parametrize("texture", [0, 1])
def test_page_without_matches(texture):
    noise = np.random.default_rng(0).integers(0, 255, (2, 64, 64, 3)).astype(np.uint8)
    images = noise * np.uint8(texture)
    own = _run(*images)
    failure, data = own.result.failure, _data(_page(images, own))
    (own,) = data["descriptors"]
    assert not data["overlay"] and "no homography found" in own["summary"]
    assert (len(own["ratios"]) > 0) == bool(texture) == (own["nothing"] == "")
    reason = own["summary" if texture else "nothing"].rstrip(".")
    assert reason.endswith(failure.removeprefix("image 0")) and failure
    if not texture:
        assert f"{NAMES[0]} has no keypoints: it is too dark" in own["nothing"]


@pytest.mark.slow
def test_a_whitening_with_a_square_root_has_no_heat_maps(pair, fitted):
    kd = KDDescriptor(300, patch_size=32, whitening="pcasqrt", weights=fitted)
    page = report.page_of(pair[:2], NAMES, {"KD": (match(*pair[:2], kd), kd)})
    (data,) = _data(page)["descriptors"]
    assert (
        data["noHeat"] == "No heat maps: this whitening takes a square root of the sum over pixels."
    )
    assert len(data["ratios"]) > 0
    assert 'id="patches0"' in page and 'id="heats0"' not in page


# ------------------------------------------------------------------------------------ the browser


@pytest.fixture
def opened(browser, pair, found, tmp_path):
    return _open(browser, _page(pair, found["kd"]), tmp_path)


def _open(browser, page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    browser.get_log("browser")  # what pages before it said
    browser.get(path.as_uri())
    _ready(browser)
    return browser


def _ready(browser):
    _wait(browser, lambda: browser.execute_script("return document.documentElement.dataset.ready"))


def _wait(browser, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 20).until(lambda _: condition())


def _count(browser):
    return [int(n) for n in re.findall(r"\d+", browser.find_element("id", "count").text)]


def _set(browser, name, value):
    browser.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event('input'))", name, value,
    )  # fmt: skip


@pytest.mark.slow
def test_page_loads_without_errors(opened, found):
    assert opened.get_log("browser") == []
    assert opened.title.startswith("<img src=x")
    result = found["kd"].result
    inliers = int(result.inliers.sum())
    assert _count(opened)[:3] == [len(result.matches), inliers, len(result.matches) - inliers]


@pytest.mark.slow
def test_slider_and_switches_change_what_is_shown(opened):
    from selenium.webdriver.common.keys import Keys

    whole = _count(opened)
    slider = opened.find_element("id", "ratio")
    slider.send_keys(Keys.ARROW_LEFT * 10)
    fewer = _count(opened)
    assert 0 < fewer[0] < whole[0]
    _set(opened, "ratio", 1)
    assert _count(opened)[0] > whole[0]
    opened.find_element("id", "inliers").click()
    shown, inliers, outliers, *_ = _count(opened)
    assert inliers == 0 and shown == outliers > 0


PIXELS = """
const from = arguments[0], copy = document.createElement("canvas");
copy.width = from.width; copy.height = from.height;
const pen = copy.getContext("2d", { willReadFrequently: true });
pen.drawImage(from, 0, 0);
return Array.from(pen.getImageData(0, 0, copy.width, copy.height).data);
"""


def _pixels(browser, canvas):
    """The pixels of a canvas (N, 3), by way of a copy that is made to be read."""
    return np.array(browser.execute_script(PIXELS, canvas), np.uint8).reshape(-1, 4)[:, :3]


def _picture(browser):
    return _pixels(browser, browser.find_element("id", "matches"))


def _tiles(browser):
    """The tiles of the explanation, each (32 * 32, 3)."""
    tiles = browser.find_elements("css selector", "#patches canvas")
    return [_pixels(browser, tile) for tile in tiles]


def _click_match(browser, index):
    """Click the first end of a match, as the page is laid out at this width."""
    from selenium.webdriver.common.action_chains import ActionChains

    canvas = browser.find_element("id", "matches")
    data = json.loads(browser.find_element("id", "data").get_attribute("textContent"))
    x, y = data["descriptors"][0]["points"][0][index]
    width, height = canvas.size["width"], canvas.size["height"]
    scale = ((width - 10) / 2 if width >= 600 else width) / 384
    dx, dy = (x + 0.5) * scale - width / 2, (y + 0.5) * scale - height / 2
    ActionChains(browser).move_to_element_with_offset(
        canvas, round(dx), round(dy)
    ).click().perform()


@pytest.mark.slow
def test_a_match_is_selected_from_the_start(opened):
    assert opened.find_element("id", "why-title").text.startswith("Match ")
    tiles = _tiles(opened)
    assert len(tiles) == 4 and all(np.std(tile) > 5 for tile in tiles)  # not blank
    bar = opened.find_element("id", "bar")
    ends = _pixels(opened, bar)[[0, -1]].tolist()
    assert bar.is_displayed() and ends == [list(rgb(DIVERGING[0])), list(rgb(DIVERGING[-1]))]
    gray, colored = tiles[0], tiles[1]
    assert np.ptp(gray, axis=1).max() < 12 and np.ptp(colored, axis=1).max() > 100
    said = opened.find_element("id", "spoken").get_attribute("textContent")
    assert re.match(r"Match \d+ of \d+, (in|out)lier, ratio 0\.\d\d, similarity [01]\.\d\d", said)


@pytest.mark.slow
def test_a_click_explains_a_match_beside_the_photographs(opened):
    before = opened.find_element("id", "facts").text
    _click_match(opened, 11)
    assert opened.find_element("id", "facts").text != before
    panel, canvas = (opened.find_element("id", i).rect for i in ("panel", "matches"))
    assert panel["x"] >= canvas["x"] + canvas["width"]
    facts = opened.find_element("id", "facts").text
    opened.find_element("id", "next").click()
    assert opened.find_element("id", "facts").text != facts
    opened.find_element("id", "previous").click()
    assert opened.find_element("id", "facts").text == facts
    assert opened.get_log("browser") == []


@pytest.mark.slow
def test_a_scene_has_epipolar_lines_in_the_place_of_an_outline(browser, tmp_path):
    from skimage import data

    images = [np.ascontiguousarray(i[::2, ::2, ::-1]) for i in data.stereo_motorcycle()[:2]]
    kd = KDDescriptor(800)
    result = match(*images, kd, model="fundamental")
    page = report.page_of(images, ("left", "right"), {"KD": (result, kd)})
    (own,) = _data(page)["descriptors"]
    assert result.success and own["H"] is None and not _data(page)["overlay"]
    x0, x1 = (np.insert(p[result.inliers], 2, 1, axis=1) for p in (result.points0, result.points1))
    lines = x0 @ np.array(own["F"]).T
    distance = np.abs((lines * x1).sum(axis=1)) / np.linalg.norm(lines[:, :2], axis=1)
    assert np.median(distance) < 1
    _open(browser, page, tmp_path)
    assert "epipolar line" in browser.find_element("id", "line-note").text
    assert not browser.find_element("id", "overlay-card").is_displayed()
    # The pair is rectified: the line runs through the selected point, along its row.
    red, green, blue = _picture(browser).astype(int).T
    yellow = (red > 150) & (green > 140) & (blue < 130)  # of palette.OUTLINE, softened at its edges
    assert yellow.reshape(-1, _width(browser)).any(axis=0).mean() > 0.9
    assert browser.get_log("browser") == []


def _width(browser):
    return browser.execute_script("return document.getElementById('matches').width")

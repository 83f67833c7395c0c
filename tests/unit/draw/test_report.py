"""The HTML page of a match, in a real browser where Chromium is installed."""

import json
import re
import shutil

import cv2
import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("skimage")

from kd_cv import KDDescriptor
from kd_cv.cli.matcher import Options, run
from kd_cv.descriptor.frames import as_gray
from kd_cv.draw import report
from kd_cv.evaluate.metrics import homography_corner_error
from kd_cv.io.builtin import example_pair

NAMES = ('<img src=x onerror="alert(1)">.png', "b & '@@DATA@@'.png")


@pytest.fixture(scope="module")
def pair():
    image0, image1, H_true = example_pair()
    return cv2.resize(image0, (384, 384)), cv2.resize(image1, (384, 384)), H_true


@pytest.fixture(scope="module")
def found(pair):
    return {name: _run(pair[0], pair[1], name) for name in ("kd", "sift")}


def _run(image0, image1, name="kd"):
    return run(name, as_gray(image0), as_gray(image1), Options())


def _page(pair, found, **options):
    return report.report_page(
        pair[0], pair[1], found.result,
        names=NAMES, descriptor=found.feature, **options,
    )  # fmt: skip


def _data(page):
    return json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])


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
    return [source for source in sources if not source.startswith("data:image/jpeg;base64,")]


def test_data_agrees_with_the_result(pair, found):
    result = found["kd"].result
    data = _data(_page(pair, found["kd"], ratio=0.85))
    ratio, inlier = np.array(data["ratio"]), np.array(data["inlier"], bool)
    assert (ratio <= 0.85).sum() == len(result.matches) < len(ratio)
    assert inlier[ratio <= 0.85].sum() == result.inliers.sum()
    assert np.all(np.diff(ratio) >= 0)
    first = result.ratios.argmin()
    assert data["position"][0][0] == pytest.approx(result.points0[first], abs=0.01)
    assert data["position"][1][0] == pytest.approx(result.points1[first], abs=0.01)
    assert data["overlay"]


def test_heat_maps_for_kd_only(pair, found, monkeypatch):
    monkeypatch.setattr(report, "MAX_EXPLAINED", 20)
    data = _data(_page(pair, found["kd"]))
    explained = [i for i, row in enumerate(data["heat"]) if row >= 0]
    kinds = np.array(data["inlier"])[explained]
    assert kinds.sum() == 20 and (kinds == 0).sum() == 20
    assert max(data["heat"]) == 39 and len(data["similarity"]) == 40
    shares = np.array(list(data["shares"].values())).sum(axis=0)
    assert shares == pytest.approx(data["similarity"], abs=2e-3)
    assert set(_data(_page(pair, found["sift"]))["heat"]) == {-1}


def test_several_scales_are_explained(pair, monkeypatch):
    monkeypatch.setattr(report, "MAX_EXPLAINED", 3)
    gray0, gray1 = as_gray(pair[0]), as_gray(pair[1])
    found = _run(gray0, gray1)
    found.feature = KDDescriptor(scales=3)
    assert max(_data(_page(pair, found))["heat"]) == 5


def test_warped_image_lies_on_the_other(pair, found):
    """The overlay shows image 0 where image 1 shows it too, also when both are reduced."""
    image0, image1, _ = pair
    H_0to1 = found["kd"].result.H_0to1
    scale = np.array([1.0, 1.0])
    whole = report._overlay(image0, image1, H_0to1, [scale, scale])
    small0, small1 = (cv2.resize(i, (192, 192), interpolation=cv2.INTER_AREA) for i in pair[:2])
    half = report._overlay(small0, small1, H_0to1, [scale / 2, scale / 2])
    for warped, truth in ((whole, image1), (half, small1)):
        side = warped.shape[0]
        inner = np.s_[side // 4 : 3 * side // 4, side // 4 : 3 * side // 4]
        a, b = (as_gray(i)[inner].astype(float).ravel() for i in (warped, truth))
        assert np.corrcoef(a, b)[0, 1] > 0.95
    assert homography_corner_error(report._scaling(scale / 2), np.diag([0.5, 0.5, 1]), (9, 9)) < 0.4


@pytest.mark.parametrize("texture", [0, 1])
def test_page_without_matches(texture):
    noise = np.random.default_rng(0).integers(0, 255, (2, 64, 64, 3)).astype(np.uint8)
    images = noise * np.uint8(texture)
    page = _page(images, _run(*images))
    data = _data(page)
    assert not data["overlay"] and "no homography found" in page
    assert (len(data["ratio"]) > 0) == bool(texture)


def test_nothing_is_written_into_a_missing_folder(pair, found, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        report.write_report(
            tmp_path / "nowhere" / "r.html", pair[0], pair[1], found["kd"].result,
            names=NAMES, descriptor=found["kd"].feature,
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------ the browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("Chromium and its driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
        "disable-background-networking", "disable-component-update", "disable-sync",
        "disable-dev-shm-usage", "window-size=1280,1000",
        f"user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield browser
    browser.quit()


@pytest.fixture
def opened(browser, pair, found, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(_page(pair, found["kd"]), encoding="utf-8")
    browser.get(path.as_uri())
    _wait(browser, lambda: browser.execute_script("return document.documentElement.dataset.ready"))
    return browser


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


def test_page_loads_without_errors(opened, found):
    assert opened.get_log("browser") == []
    assert opened.title.startswith("<img src=x")
    result = found["kd"].result
    inliers = int(result.inliers.sum())
    assert _count(opened) == [len(result.matches), inliers, len(result.matches) - inliers]


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
    shown, inliers, outliers = _count(opened)
    assert inliers == 0 and shown == outliers > 0


def test_a_click_explains_a_match(opened):
    from selenium.webdriver.common.action_chains import ActionChains

    explanation = opened.find_element("id", "explanation")
    assert not explanation.is_displayed()
    canvas = opened.find_element("id", "matches")
    x, y = json.loads(opened.find_element("id", "data").get_attribute("textContent"))["points"][0][
        0
    ]
    # The left photograph fills the left half of the canvas but for half the gap.
    scale = (canvas.size["width"] - 10) / 2 / 384
    dx, dy = x * scale - canvas.size["width"] / 2, y * scale - canvas.size["height"] / 2
    ActionChains(opened).move_to_element_with_offset(canvas, round(dx), round(dy)).click().perform()
    assert explanation.is_displayed()
    tiles = opened.find_elements("css selector", "#patches canvas")
    assert len(tiles) == 4
    for tile in tiles:  # not blank
        pixels = opened.execute_script(
            "const c = arguments[0]; return Array.from(c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data)", tile,
        )  # fmt: skip
        assert np.std(np.array(pixels).reshape(-1, 4)[:, :3]) > 5
    facts = opened.find_element("id", "facts").text
    opened.find_element("id", "next").click()
    assert opened.find_element("id", "facts").text != facts
    assert opened.get_log("browser") == []


def test_divider_uncovers_the_warped_image(opened):
    _set(opened, "split", 20)
    clip = opened.find_element("id", "warped").value_of_css_property("clip-path")
    assert "80%" in clip
    from selenium.webdriver.common.action_chains import ActionChains

    overlay = opened.find_element("id", "overlay")
    ActionChains(opened).move_to_element(overlay).click_and_hold().move_by_offset(
        overlay.size["width"] // 4, 0
    ).release().perform()
    assert float(opened.find_element("id", "split").get_attribute("value")) == pytest.approx(
        75, abs=2
    )

"""Photographs, keypoints and fitted matrices that the tests share."""

import os
import shutil
import warnings
from dataclasses import replace

# Before NumPy is loaded. The products here are small: BLAS threads would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import cv2
import numpy as np
import pytest
import skimage.data
from hypothesis import HealthCheck, settings

from kd_cv.descriptor.describer import describe_frames
from kd_cv.descriptor.spec import Spec
from kd_cv.keypoints import from_keypoints
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.trained import Sample, train
from kd_cv.whitening.whitening import Whitening

settings.register_profile(
    "quick",
    derandomize=True,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("quick")

NAMES = ("camera", "astronaut", "coffee", "chelsea", "brick", "grass", "gravel", "rocket", "coins")


def bgr_photograph(name: str) -> np.ndarray:
    image = getattr(skimage.data, name)()
    return np.ascontiguousarray(image[..., ::-1]) if image.ndim == 3 else image


@pytest.fixture(scope="session")
def photographs():
    """Name to gray uint8 image of scikit-image's photographs."""
    images = {name: bgr_photograph(name) for name in NAMES}
    return {
        name: cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) if image.ndim == 3 else image
        for name, image in images.items()
    }


@pytest.fixture(scope="session")
def camera(photographs):
    """The cameraman, (512, 512) uint8."""
    return photographs["camera"]


@pytest.fixture(scope="session")
def bgr():
    """A cat in colour, (300, 451, 3) uint8."""
    return bgr_photograph("chelsea")


@pytest.fixture(scope="session")
def keypoints(camera):
    """300 SIFT keypoints of `camera`."""
    return cv2.SIFT_create(300).detect(camera, None)


@pytest.fixture(scope="module")
def one_torch_thread():
    """Many small operations: threads would cost more than they bring."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def threads():
    """cv2.setNumThreads, undone after the test."""
    before = cv2.getNumThreads()
    yield cv2.setNumThreads
    cv2.setNumThreads(before)


def turned(image: np.ndarray, degrees: float, scale: float = 1.0, shift=(0.0, 0.0)):
    """The image turned clockwise about its centre, scaled, shifted; and the (2, 3) matrix."""
    height, width = image.shape[:2]
    centre = np.array([(width - 1) / 2, (height - 1) / 2])
    turn = np.deg2rad(degrees)
    linear = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    side = int(np.ceil(max(1.0, scale) * max(height, width)))
    target = np.array([(side - 1) / 2, (side - 1) / 2]) + shift
    M = np.column_stack([linear, target - linear @ centre])
    if scale < 1:  # what a camera further away would blur: from sigma 0.5 to 0.5 / scale
        image = cv2.GaussianBlur(image, (0, 0), 0.5 * np.sqrt(1 / scale**2 - 1))
    copy = cv2.warpAffine(
        image, M, (side, side), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return copy, M


def moved(frames: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Frames (N, 4) under a similarity M (2, 3)."""
    scale = np.sqrt(abs(np.linalg.det(M[:, :2])))
    turn = np.rad2deg(np.arctan2(M[1, 0], M[0, 0]))
    xy = frames[:, :2] @ M[:, :2].T + M[:, 2]
    return np.column_stack([xy, frames[:, 2] * scale, (frames[:, 3] + turn) % 360])


@pytest.fixture(scope="session")
def similarity():
    """Functions that turn an image and move frames with it."""
    return turned, moved


@pytest.fixture(scope="session")
def fitted(photographs):
    """A Whitening for ("concat", 32) of photographs and their turned copies; not of `camera`."""
    spec = Spec(32)
    statistics = Statistics(spec.dim)
    samples = []
    for i, name in enumerate(("astronaut", "coffee", "chelsea", "brick", "grass", "coins")):
        image = photographs[name]
        copy, M = turned(image, degrees=7.0 * (i - 2), scale=0.9 + 0.05 * i, shift=(0.3, 0.4))
        frames = from_keypoints(cv2.SIFT_create(400).detect(image, None))
        rows = [
            describe_frames(*seen, spec, magnification=12.0)
            for seen in ((image, frames), (copy, moved(frames, M)))
        ]
        both = rows[0].any(axis=1) & rows[1].any(axis=1)
        count = int(both.sum())
        pairs = np.stack([np.arange(count), np.arange(count) + count], axis=1)
        X = np.concatenate([r[both] for r in rows])
        statistics.update(X, pairs)
        samples.append(Sample(X, np.tile(np.arange(count), 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whitening = Whitening.fit(statistics)
    mu_m, A_m = train(samples, statistics.mean, whitening.A_s, whitening.max_dim, steps=20)
    return replace(whitening, mu_m=mu_m, A_m=A_m)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium without a window and without network of its own."""
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

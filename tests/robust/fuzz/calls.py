"""Arguments of any kind for what computes: one small function for each call."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
from choices import FIELDS, STRANGE, Choices
from pieces import texture
from target import Target, folder

from kd_cv import DoG, KDDescriptor, describe, match
from kd_cv.explain import explain as explained
from kd_cv.gray import as_gray
from kd_cv.matching.neighbours import match_descriptors
from kd_cv.matching.two_view import MODELS, NEEDED, estimate
from kd_cv.opencv.patch_sizes import windows as windows_of

REFUSED = (ValueError, TypeError)  # of every call

_IMAGE = texture(40, 48)


def check_rows(rows: np.ndarray) -> None:
    """Descriptors are finite, of norm 1 or 0; bytes are not all 0 unless they stand for nothing."""
    if rows.dtype == np.uint8:
        return
    norms = np.linalg.norm(rows, axis=1)
    assert rows.dtype == np.float32 and np.isfinite(rows).all()
    assert (np.isclose(norms, 1, atol=1e-4) | (norms == 0)).all(), norms


def check_keypoints(keypoints: Any, shape: tuple[int, int]) -> None:
    """Finite keypoints inside the image, of positive size, with an angle or -1."""
    height, width = shape
    for k in keypoints:
        assert -0.5 <= k.pt[0] <= width - 0.5 and -0.5 <= k.pt[1] <= height - 0.5, k.pt
        assert 0 < k.size < np.inf and 0 <= k.response < np.inf, (k.size, k.response)
        assert k.angle == -1 or 0 <= k.angle <= 360, k.angle


@contextmanager
def theirs(feature: Any) -> Iterator[None]:
    """What a feature of OpenCV's raises, of images that are too small for it, is no finding."""
    try:
        yield
    except cv2.error as error:
        if feature is None or type(feature) is DoG:
            raise
        raise ValueError("a feature of OpenCV's raised it") from error


# -------------------------------------------------------------------------------------- detection


def detector(data: bytes) -> None:
    """Any image, mask and parameters."""
    c = Choices(data)
    finder = DoG(
        **c.chosen(
            nfeatures=9, nOctaveLayers=3, contrastThreshold=0.01, edgeThreshold=10, sigma=1.8
        )
    )
    image = c.image()
    mask = c.mask(image)
    frames, responses = finder.detect_frames(image, mask)
    gray = as_gray(image)
    assert frames.shape == (len(responses), 4) and np.isfinite(frames).all()
    assert (np.diff(responses) <= 0).all() and (responses >= 0).all()
    assert not finder.settings.nfeatures or len(frames) <= finder.settings.nfeatures
    if not gray.size:
        assert not len(frames)
        return
    keypoints = finder.detect(image, mask)
    check_keypoints(keypoints, gray.shape)
    assert [k.pt for k in keypoints] == [tuple(xy) for xy in frames[:, :2].tolist()]
    if mask is not None and len(frames):
        mask = np.reshape(mask, gray.shape)
        x, y = np.rint(frames[:, :2]).astype(int).T
        assert mask[y.clip(0, gray.shape[0] - 1), x.clip(0, gray.shape[1] - 1)].all()


def _detector_seeds() -> list[bytes]:
    # which parameters, their values, the image, its sides, pixels, type and layout, the mask
    return [
        bytes([0, 0, 0, 1, 0, 0, 0, 0]),
        bytes([0, 5, 1, 2, 2, 9, 3, 0, 0]),
        bytes([0, 0, 1, 2, 2, 7, 0, 0, 100, 4, 4, 20, 20, 9]),
        bytes([1, 130, 0, 2, 2, 2, 1, 0, 0, 0]),
        bytes([31, 133, 129, 160, 1, 140, 160, 20, 6, 2, 2, 1, *range(0, 240, 10), 4, 0]),
        bytes([16, 143, 0, 1, 1, 26, 3, 0, 0, 128, 63, 0, 0, 1, 200, 1, 1, 30, 30, 255]),
    ]


_KD = (
    KDDescriptor(),
    KDDescriptor(patch_size=16, scales=3, drop=True),
    KDDescriptor(whitening=None, upright=True),
    KDDescriptor(magnification="sift", descriptor_type=cv2.CV_8U),
    KDDescriptor(5, orient=True),
    KDDescriptor(kernel="polar", detector=cv2.ORB_create(20)),
    KDDescriptor(kernel="cart", detector=DoG(3, 1)),
    KDDescriptor(detector=cv2.FastFeatureDetector_create(5), orient=True),
)


def described(data: bytes) -> None:
    """Any image and mask, detected and described."""
    c = Choices(data)
    kd = c.one_of(_KD)
    several = c.byte() >= 224
    image = c.image()
    mask = c.mask(image)
    with theirs(kd._detector):
        if several:
            images, masks = [image, _IMAGE], [mask, c.mask(_IMAGE)]
            found = kd.detect(images, masks)
            _, rows = kd.compute(images, found)
            assert len(found) == len(rows) == 2
            return
        keypoints, rows = kd.detectAndCompute(image, mask)
    if rows is None:
        assert not len(keypoints)
        return
    rows = rows.get() if isinstance(rows, cv2.UMat) else rows
    assert rows.shape == (len(keypoints), kd.descriptorSize())
    check_rows(rows)
    check_keypoints(keypoints, as_gray(image).shape)


def _described_seeds() -> list[bytes]:
    images = [bytes([0, 1, 1, 0, 0, 0]), bytes([6, 1, 2, 2, 5, 3, 0]), bytes([0, 2, 2, 18, 9, 3])]
    return [bytes([k, 255 * (k == 3)]) + image for k in range(len(_KD)) for image in images]


def keypoints(data: bytes) -> None:
    """Keypoints of any fields: a row each, finite, of norm 1 or 0; nothing is raised."""
    c = Choices(data)
    mode = c.byte()
    kd = _KD[mode % len(_KD)]
    points = c.keypoints(24)
    seen = _IMAGE if mode & 64 else _IMAGE.astype(np.float32) / 255
    copies, rows = kd.compute(seen, points)
    if rows is None:
        assert not copies
        return
    assert len(copies) == len(rows) and (kd.settings.drop or len(rows) == len(points))
    check_rows(rows)
    same_rows = copies if kd.settings.drop else points
    alone = [kd.compute(seen, [point])[1] for point in same_rows[:3]]
    for row, same in zip(rows, alone, strict=False):
        assert (row == same[0]).all()


def _keypoints_seeds() -> list[bytes]:
    return [bytes([mode + 64 * (mode % 2)]) + STRANGE for mode in range(len(_KD))]


_DETECTORS = (
    None, cv2.SIFT_create(), cv2.ORB_create(), cv2.ORB_create(patchSize=2), cv2.MSER_create(),
    cv2.GFTTDetector_create(), cv2.FastFeatureDetector_create(), DoG(),
    cv2.SimpleBlobDetector_create(),
)  # fmt: skip


def windows(data: bytes) -> None:
    """The window of a keypoint of any fields: positive, and the same when it is alone."""
    c = Choices(data)
    detector = c.one_of(_DETECTORS)
    points = c.keypoints(24)
    sides = windows_of(points, detector)
    assert sides.shape == (len(points),)
    assert np.isfinite(sides).all() and (sides > 0).all(), sides
    for point, side in zip(points[:3], sides, strict=False):
        assert windows_of([point], detector).tolist() == [side]


def _windows_seeds() -> list[bytes]:
    return [bytes([k]) + STRANGE for k in range(len(_DETECTORS))]


def patches(data: bytes) -> None:
    """Patches of any type, shape and content."""
    c = Choices(data)
    whitening = c.one_of(("best", None, "wua", "ws", "none", 3))
    kernel = c.one_of(("concat", "polar", "cart", "", None))
    dim = c.number(128)
    count = c.byte() % 4
    image = c.image()
    stack = np.stack([np.asarray(image)] * count) if count else np.asarray(image)
    rows = describe(stack, kernel=kernel, whitening=whitening, dim=dim)
    assert len(rows) == count
    check_rows(rows)


def _patches_seeds() -> list[bytes]:
    return [
        bytes([0, 0, 0, 2, 0, 1, 1, 0, 0, 0]),
        bytes([1, 1, 0, 1, 0, 4, 4, 3, *range(0, 240, 10), 7, 3, 0]),
        bytes([2, 2, 0, 3, 0, 3, 3, 9, *range(24), 3, 3, 0, 3]),
    ]


def explanation(data: bytes) -> None:
    """Any image and keypoints: finite heat that sums to the similarity, from -1 to 1."""
    c = Choices(data)
    kd = c.one_of(_EXPLAINED)
    seen = _IMAGE if c.byte() < 200 else c.image()
    first = c.keypoints(1)
    second = Choices(c.rest()[FIELDS.size :]).keypoints(1) or first
    if not first:
        raise ValueError("no keypoint")
    second = second[0] if len(data) % 2 else (second[0].pt + (second[0].size, second[0].angle))
    why = explained(seen, first[0], _IMAGE, second, kd)
    for name, similarity in why.similarities.items():
        assert -1.0001 <= similarity <= 1.0001, (name, similarity)
        for heat in (why.heat0[name], why.heat1[name]):
            assert np.isfinite(heat).all() and abs(heat.sum() - similarity) < 1e-6
        assert 0 < why.limit(name) < np.inf
    assert abs(sum(why.shares.values()) - why.similarity) < 1e-6


_EXPLAINED = (
    KDDescriptor(patch_size=16, whitening=None),
    KDDescriptor(patch_size=16, kernel="cart", scales=2, whitening=None),
    KDDescriptor(whitening="ws"),
)


def _explanation_seeds() -> list[bytes]:
    frames = [STRANGE[at : at + FIELDS.size] for at in range(0, len(STRANGE), FIELDS.size)]
    pairs = [bytes([k % 3, 0]) + frames[0] + frame for k, frame in enumerate(frames)]
    return [*pairs, bytes([0, 201, 0, 1, 1, 0, 0, 0]) + frames[1] * 2]


# --------------------------------------------------------------------------------------- matching


def matched(data: bytes) -> None:
    """Any two images, model, cameras and parameters."""
    c = Choices(data)
    model = c.one_of((*MODELS, "plane", None))
    descriptor = c.one_of(("kd", "kd", "kd", "sift", "rootsift", KDDescriptor(upright=True), "x"))
    finder = c.one_of((None, None, None, DoG(20), cv2.ORB_create(30), cv2.MSER_create(), 5))
    options = c.chosen(
        max_keypoints=30, ratio=0.9, threshold=3.0, max_size=24, camera0=40.0, camera1=35.0
    )
    if "camera0" in options and c.byte() >= 128:
        options["camera0"] = np.diag([options["camera0"], 30.0, 1.0])
    image0 = c.image() if c.byte() & 1 else _SCENE
    image1 = c.image() if c.byte() & 1 else _SCENE[c.byte() % 16 :, c.byte() % 16 :]
    with theirs(finder if descriptor not in ("sift", "rootsift") else descriptor):
        result = match(image0, image1, descriptor, detector=finder, model=model, **options)
    count = len(result.matches)
    assert result.matches.shape == (count, 2) and result.inliers.shape == (count,)
    assert ((result.ratios >= 0) & (result.ratios <= 1)).all()
    assert (result.failure == "") == bool(result.success)
    for matrix in (result.H_0to1, result.F_0to1, result.E_0to1, result.R_0to1, result.t_0to1):
        assert matrix is None or np.isfinite(matrix).all()
    assert not result.inliers.any() or result.matrix is not None
    assert not np.isnan(result.errors(result.points0, result.points1)).any()
    assert len(result.dmatches()) == count
    if data[-1:] == b"\xfe" and min(np.size(image) for image in result.images):
        result.draw()


_SCENE = cv2.GaussianBlur(
    np.random.default_rng(0).integers(0, 256, (64, 80), dtype=np.uint8), (0, 0), 1.5
)


def _matched_seeds() -> list[bytes]:
    # model, descriptor, detector, which options, their values, the images
    return [
        bytes([model, descriptor, 0, options, 0, 0, 0, 0, *rest])
        for model in range(4)
        for descriptor, options, rest in [
            (0, 48, (0, 0, 0, 5, 3)), (3, 48, (0, 0, 9, 1)), (0, 55, (0, 0, 0, 2, 2, 0xFE)),
            (0, 48, (0, 1, 0, 1, 1, 0, 0, 0)),
        ]
    ]  # fmt: skip


def models(data: bytes) -> None:
    """Matching points of any values, as bytes are: of a plane, of a scene, of nothing."""
    c = Choices(data)
    model = c.one_of((*MODELS, "plane"))
    threshold = c.number(3.0)
    K0, K1 = (_camera(c) for _ in range(2))
    count = c.byte() % 64
    kind = c.byte()
    rng = np.random.default_rng(c.byte())
    points0 = rng.uniform(0, 100, (count, 2))
    points1 = points0 * (1 + (kind & 3) / 10) + c.byte()
    if kind & 4:
        points1 = points1 + rng.normal(0, 20, points1.shape) * (rng.random((count, 1)) < 0.3)
    if kind & 8 and count:  # all in one place, or on a line
        points0 = points0[:1] + np.outer(np.arange(count), (kind >> 6 & 1, 0))
    if kind & 16:
        points0, points1 = points0 * 1e-20, points1 * 1e20
    own = np.frombuffer(c.rest()[: len(c.rest()) // 8 * 8], "<f4").reshape(-1, 2)[:count]
    if kind & 32:
        points1[: len(own)] = own
    else:
        points0[: len(own)] = own
    found = estimate(points0, points1, model, threshold=threshold, K0=K0, K1=K1)
    assert found.inliers.shape == (count,) and found.inliers.dtype == bool
    assert (found.model in NEEDED and found.matrix is None) or np.isfinite(found.matrix).all()
    assert found.matrix is not None or not (found.success or found.inliers.any())
    if found.R_0to1 is not None:
        assert np.allclose(found.R_0to1 @ found.R_0to1.T, np.eye(3), atol=1e-6)
        assert np.isclose(np.linalg.norm(found.t_0to1), 1)


def _camera(c: Choices) -> Any:
    kind = c.byte()
    if kind < 64:
        return None
    K = np.array([[80.0, 0, 50], [0, 80, 50], [0, 0, 1]])
    if kind >= 128:
        K[kind % 3, kind // 3 % 3] = c.float32()
    return K if kind < 250 else K[: kind % 3]


def _models_seeds() -> list[bytes]:
    inf, nan = float("inf"), float("nan")
    own = struct.pack("<6f", nan, 1, 3.4e38, -3.4e38, inf, 0)
    return [
        bytes([model, 0, camera, camera, 40, kind, 1, 5]) + own * (kind == 32)
        for model, camera in ((0, 0), (1, 0), (2, 64), (3, 0), (3, 64))
        for kind in (0, 5, 8, 16, 32, 72)
    ]


def rows(data: bytes) -> None:
    """Descriptors of any type, shape and values, matched."""
    c = Choices(data)
    mutual, chunk = bool(c.byte() & 1), c.one_of((2048, 1, 3))
    ratio = c.number(0.9)
    sets = []
    for _ in range(2):
        kind, count, dim = c.byte(), c.byte() % 20, c.one_of((4, 4, 4, 1, 0, 128))
        name = c.one_of(("f4", "f4", "u1", "f8", "f2", "i4", "?", "O", "c8", "U1", ">f4"))
        values = np.random.default_rng(kind).normal(size=(count, dim))
        if kind & 1 and values.size:
            values.flat[c.byte() % values.size] = c.float32()
        if kind & 2:
            values[: count // 2] = values[:1]
        if kind & 4:
            values *= c.float32()
        with np.errstate(all="ignore"):
            values = values.astype(name)
        sets.append(None if kind == 255 else values[0] if kind == 254 and count else values)
    matches, ratios = match_descriptors(*sets, ratio=ratio, mutual=mutual, chunk=chunk)
    assert matches.shape == (len(ratios), 2) and ((ratios >= 0) & (ratios <= 1)).all()
    for column, of in zip(matches.T, sets, strict=True):
        assert not len(column) or (column.min() >= 0 and column.max() < len(of))
        assert not mutual or len(np.unique(column)) == len(column)


def _rows_seeds() -> list[bytes]:
    return [
        bytes([1, 0, 0, 8, 12, 0, 0, 16, 9, 0, 0]),
        bytes([0, 1, 0, 2, 12, 0, 2, 8, 9, 0, 2]),
        bytes([1, 2, 0, 4, 12, 0, 0, *struct.pack("<f", 1e19), 12, 9, 0, 0]),
        bytes([1, 2, 0, 3, 12, 0, 3, 7, *struct.pack("<f", 1e-30), 255, 9, 0, 0]),
    ]


# --------------------------------------------------------------------------------------- settings


def arguments(data: bytes) -> None:
    """Any arguments, written and read back, and the getters and setters of OpenCV."""
    c = Choices(data)
    ours = c.byte() & 1
    options = c.chosen(
        nfeatures=9, nOctaveLayers=3, contrastThreshold=0.01, edgeThreshold=10, sigma=1.8
    )
    if ours:
        options |= c.chosen(
            patch_size=32, dim=100, magnification=10.0, scales=2, upright=True, orient=True,
            drop=True, descriptor_type=0,
        )  # fmt: skip
        options["whitening"] = c.one_of(("best", None, "wua", "none", 5, "\ud800"))
        options["kernel"] = c.one_of(("concat", "concat", "polar", "cart", 5))
    one, other = (KDDescriptor, DoG)[not ours](**options), (KDDescriptor, DoG)[not ours]()
    assert repr(one).startswith(("KDDescriptor(", "DoG("))
    for name in ("NFeatures", "NOctaveLayers", "ContrastThreshold", "EdgeThreshold", "Sigma"):
        getattr(other, f"set{name}")(getattr(one, f"get{name}")())
    with folder() as here:
        path = here / c.one_of(("s.yml", "s.xml", "s.json", "s.yml.gz", "s"))
        one.write(path)
        other.read(path)
    assert repr(one) == repr(other), (one, other)


def _arguments_seeds() -> list[bytes]:
    return [
        bytes([ours, which, *values])
        for ours in (0, 1)
        for which, values in [
            (0, (0,) * 5), (31, (137, 133, 160, 1, 140, 140, 0, 255, 160, 152, 160, 90, 1, 1, 1)),
            (4, (200, 34, 200, 130)),
        ]
    ]  # fmt: skip


def setters(data: bytes) -> None:
    """Any values for OpenCV's setters: what is refused changes nothing."""
    c = Choices(data)
    kd = KDDescriptor(whitening=None)
    before = repr(kd)
    name = c.one_of(("NFeatures", "NOctaveLayers", "ContrastThreshold", "EdgeThreshold", "Sigma"))
    try:
        getattr(kd, f"set{name}")(c.number(5))
    except REFUSED:
        assert repr(kd) == before
        raise
    assert 0 <= getattr(kd, f"get{name}")() < 2**31


def _setters_seeds() -> list[bytes]:
    return [bytes([k, kind]) for k in range(5) for kind in (0, 130, 200)]


CALLS = {
    name: Target(run, seeds, allowed, longest=1024)
    for name, run, seeds, allowed in (
        ("detector", detector, _detector_seeds, REFUSED),
        ("described", described, _described_seeds, REFUSED),
        ("keypoints", keypoints, _keypoints_seeds, ()),
        ("windows", windows, _windows_seeds, ()),
        ("patches", patches, _patches_seeds, REFUSED),
        ("explanation", explanation, _explanation_seeds, REFUSED),
        ("matched", matched, _matched_seeds, (*REFUSED, OSError)),
        ("models", models, _models_seeds, REFUSED),
        ("rows", rows, _rows_seeds, REFUSED),
        ("arguments", arguments, _arguments_seeds, REFUSED),
        ("setters", setters, _setters_seeds, REFUSED),
    )
}

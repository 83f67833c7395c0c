"""Nearest neighbours, ratio test and homography; each against a slow or exact second way."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kd_cv
from kd_cv import KDDescriptor, MatchResult
from kd_cv.matching import pipeline
from kd_cv.matching.metrics import homography_corner_error
from kd_cv.matching.neighbours import match_descriptors
from kd_cv.matching.pipeline import timing
from kd_cv.matching.two_view import TwoViews, find_homography
from kd_cv.opencv.rootsift import RootSIFT, root


def brute_force(d0, d1, ratio, mutual):
    """What match_descriptors promises, by loops in float64."""
    d0, d1 = np.asarray(d0, np.float64), np.asarray(d1, np.float64)
    there = [j for j in range(len(d1)) if d1[j].any()]
    here = [i for i in range(len(d0)) if d0[i].any()]
    matches, ratios = [], []
    for i in here:
        order = sorted(there, key=lambda j: np.linalg.norm(d0[i] - d1[j]))
        if not order:
            continue
        j = order[0]
        best = np.linalg.norm(d0[i] - d1[j])
        second = np.linalg.norm(d0[i] - d1[order[1]]) if len(order) > 1 else np.inf
        r = best / second if second > 0 else 1.0
        back = min(here, key=lambda k: np.linalg.norm(d0[k] - d1[j]))
        if r <= ratio and (not mutual or back == i):
            matches.append((i, j))
            ratios.append(r)
    return matches, ratios


@given(
    n0=st.integers(0, 12),
    n1=st.integers(0, 12),
    ratio=st.sampled_from([1.0, 0.9, 0.7]),
    mutual=st.booleans(),
    scale=st.sampled_from([1.0, 512.0]),
    seed=st.integers(0, 999),
)
def test_matches_equal_brute_force(n0, n1, ratio, mutual, scale, seed):
    rng = np.random.default_rng(seed)
    d0, d1 = (scale * rng.normal(size=(n, 6)).astype(np.float32) for n in (n0, n1))
    d0[rng.random(n0) < 0.2] = 0
    d1[rng.random(n1) < 0.2] = 0
    matches, ratios = match_descriptors(d0, d1, ratio=ratio, mutual=mutual)
    expected, expected_ratios = brute_force(d0, d1, ratio, mutual)
    assert matches.shape == (len(expected), 2) and matches.dtype == np.int64
    assert [tuple(m) for m in matches.tolist()] == expected
    assert ratios.dtype == np.float32
    np.testing.assert_allclose(ratios, expected_ratios, atol=1e-5)


def test_matches_equal_opencvs(camera, similarity):
    copy, _ = similarity[0](camera, 15)
    kd = KDDescriptor()
    d0, d1 = (kd.detectAndCompute(image, None)[1] for image in (camera, copy))
    matches, _ = match_descriptors(d0, d1)
    theirs = cv2.BFMatcher(cv2.NORM_L2, crossCheck=True).match(d0, d1)
    theirs = {(m.queryIdx, m.trainIdx) for m in theirs}
    ours = {tuple(m) for m in matches.tolist()}
    assert len(ours & theirs) > 0.99 * len(theirs) > 300
    # Lowe's ratio test of the tutorials.
    pairs = cv2.BFMatcher().knnMatch(d0, d1, k=2)
    good = {(m.queryIdx, m.trainIdx) for m, n in pairs if m.distance < 0.75 * n.distance}
    kept = {tuple(m) for m in match_descriptors(d0, d1, ratio=0.75, mutual=False)[0].tolist()}
    assert len(kept ^ good) <= 0.01 * len(good) and len(good) > 100


def test_two_copies_of_a_row_are_no_certain_match():
    rng = np.random.default_rng(0)
    d1 = rng.normal(size=(40, 128)).astype(np.float32)
    d1 /= np.linalg.norm(d1, axis=1, keepdims=True)
    twins = np.concatenate([d1, d1[7:8]])
    _, ratios = match_descriptors(d1[7:8], twins)
    assert ratios.tolist() == [1.0]
    assert len(match_descriptors(d1[7:8], twins, ratio=0.9)[0]) == 0
    _, ratios = match_descriptors(d1[7:8], d1)
    assert ratios.tolist() == [0.0]


def test_bytes_and_lists_are_descriptors_too():
    d0 = np.random.default_rng(0).integers(0, 256, (20, 32)).astype(np.uint8)
    d1 = d0[::-1].copy()
    matches, _ = match_descriptors(d0, d1, ratio=0.8)
    assert matches.tolist() == [[i, 19 - i] for i in range(20)]
    assert match_descriptors(d0.tolist(), d1.tolist())[0].tolist() == matches.tolist()


@pytest.mark.parametrize("d0, d1", [(None, 1), (1, None), (None, None), (0, 1), (1, 0), (2, 1)])
def test_nothing_to_match(d0, d1):
    # None, no rows, and rows of zeros, which describe nothing.
    made = {None: None, 0: np.zeros((0, 8)), 1: np.ones((3, 8)), 2: np.zeros((3, 8))}
    matches, ratios = match_descriptors(made[d0], made[d1])
    assert matches.shape == (0, 2) and matches.dtype == np.int64
    assert ratios.shape == (0,) and ratios.dtype == np.float32


def test_one_candidate_has_no_second():
    matches, ratios = match_descriptors(np.eye(3), np.array([[0.0, 1.0, 0.1]]), ratio=0.5)
    assert matches.tolist() == [[1, 0]] and ratios.tolist() == [0.0]


def test_descriptors_of_different_kinds_are_refused():
    with pytest.raises(ValueError, match=r"got \(3, 8\) and \(3, 9\)"):
        match_descriptors(np.ones((3, 8)), np.ones((3, 9)))
    with pytest.raises(ValueError, match=r"got \(8,\) and \(3, 8\)"):
        match_descriptors(np.ones(8), np.ones((3, 8)))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1j, None, "a"])
def test_descriptors_that_are_no_finite_numbers_are_refused(wrong):
    good, bad = np.ones((3, 8)), np.full((3, 8), wrong)
    for pair in ((good, bad), (bad, good)):
        with pytest.raises(ValueError, match=f"must be finite numbers, got .*{bad.dtype}"):
            match_descriptors(*pair)


# RootSIFT -----------------------------------------------------------------------------------------


def test_rootsift_is_the_root_of_l1_normalised_sift(camera):
    keypoints, rows = cv2.SIFT_create().detectAndCompute(camera, None)
    found, roots = RootSIFT().detectAndCompute(camera, None)
    assert len(found) == len(keypoints)
    expected = np.sqrt(rows / np.abs(rows).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(roots, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(roots, axis=1), 1, atol=1e-5)
    assert not root(np.zeros((2, 128), np.float32)).any()
    kept, computed = RootSIFT().compute(camera, keypoints)
    assert len(kept) == len(keypoints) and computed.shape == roots.shape
    assert RootSIFT().detectAndCompute(np.zeros((50, 50), np.uint8), None) == ((), None)
    assert RootSIFT().compute(camera, []) == ((), None)
    assert len(RootSIFT().detect(camera)) == len(keypoints)


# Homography ---------------------------------------------------------------------------------------

H_TRUE = np.array([[0.9, -0.2, 30.0], [0.15, 1.05, -12.0], [1e-4, -5e-5, 1.0]])


def through(H, points):
    return cv2.perspectiveTransform(np.asarray(points, np.float64)[None], H)[0]


def corner_error(H, H_true, shape):
    """Mean distance of the mapped image corners, in pixels."""
    height, width = shape[:2]
    corners = [[0, 0], [width, 0], [width, height], [0, height]]
    return np.linalg.norm(through(H, corners) - through(H_true, corners), axis=1).mean()


def test_homography_of_exact_points_and_outliers():
    rng = np.random.default_rng(0)
    points0 = rng.uniform(0, 500, (80, 2))
    points1 = through(H_TRUE, points0)
    points1[60:] += rng.uniform(50, 200, (20, 2))
    H, inliers = find_homography(points0, points1)
    assert inliers.dtype == bool and inliers[:60].all() and not inliers[60:].any()
    assert corner_error(H, H_TRUE, (500, 500)) < 0.01


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((0, 2)),
        np.ones((3, 2)),
        np.ones((10, 2)),  # all the same
        np.column_stack([np.arange(10.0), np.arange(10.0)]),  # on a line
    ],
)
def test_points_without_a_homography(points):
    H, inliers = find_homography(points, points)
    assert inliers.shape == (len(points),) and inliers.dtype == bool
    if H is None:
        assert not inliers.any()
    else:
        assert H.shape == (3, 3) and np.isfinite(H).all()
    assert H is None or len(points) >= 4


# match --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(camera):
    """A photograph, and its warped, darkened, noisy copy."""
    copy = cv2.warpPerspective(camera, H_TRUE, (512, 512), flags=cv2.INTER_AREA)
    noise = np.random.default_rng(0).normal(0, 4, copy.shape)
    return camera, np.clip(copy * 0.6 + noise, 0, 255).astype(np.uint8)


def is_filled(result):
    """Every field has its type and shape, whatever was found."""
    assert isinstance(result, MatchResult)
    M = len(result.matches)
    assert isinstance(result.keypoints0, tuple) and isinstance(result.keypoints1, tuple)
    assert result.matches.shape == (M, 2) and result.matches.dtype == np.int64
    assert result.ratios.shape == (M,) and result.inliers.shape == (M,)
    assert result.inliers.dtype == bool and isinstance(result.success, bool)
    assert result.points0.shape == result.points1.shape == (M, 2)
    assert result.H_0to1 is None or result.H_0to1.shape == (3, 3)
    assert len(result.dmatches()) == M
    return True


@pytest.mark.slow
@pytest.mark.parametrize("descriptor", ["kd", "sift", "rootsift"])
def test_match_finds_the_homography(pair, descriptor):
    result = kd_cv.match(*pair, descriptor)
    assert is_filled(result) and result.success
    assert corner_error(result.H_0to1, H_TRUE, pair[0].shape) < 2
    error = np.linalg.norm(through(result.H_0to1, result.points0) - result.points1, axis=1)
    assert error[result.inliers].max() < 10 and result.inliers.sum() > 50
    for m, (i, j), r in zip(result.dmatches(), result.matches, result.ratios, strict=True):
        assert (m.queryIdx, m.trainIdx) == (i, j) and m.distance == pytest.approx(r)
        assert result.keypoints0[i].pt is not None and result.keypoints1[j].pt is not None
    canvas = cv2.drawMatches(
        pair[0], result.keypoints0, pair[1], result.keypoints1, result.dmatches(), None
    )
    assert canvas.shape == (512, 1024, 3)


def test_kd_is_the_default_and_objects_are_taken_as_they_are(pair):
    default = kd_cv.match(*pair)
    for other in ("kd", KDDescriptor()):
        assert np.array_equal(kd_cv.match(*pair, other).matches, default.matches)
    bytes_ = kd_cv.match(*pair, KDDescriptor(descriptor_type=cv2.CV_8U))
    assert bytes_.success and corner_error(bytes_.H_0to1, H_TRUE, pair[0].shape) < 2
    orb = kd_cv.match(*pair, cv2.ORB_create(500))
    assert is_filled(orb)


@pytest.mark.slow
def test_options_of_match(pair):
    detector = cv2.SIFT_create(200)
    few = kd_cv.match(*pair, detector=detector)
    assert is_filled(few) and len(few.keypoints0) <= 201 and few.success
    for descriptor in ("sift", "rootsift"):
        assert len(kd_cv.match(*pair, descriptor, detector=detector).keypoints0) <= 201
    strict, loose = (kd_cv.match(*pair, detector=detector, ratio=r) for r in (0.6, 1.0))
    assert len(strict.matches) < len(few.matches) < len(loose.matches)
    assert strict.ratios.max() <= 0.6
    one_way = kd_cv.match(*pair, detector=detector, ratio=1.0, mutual=False)
    assert len(one_way.keypoints0) >= len(one_way.matches) > len(loose.matches)
    wide = kd_cv.match(*pair, detector=detector, threshold=10.0)
    assert wide.inliers.sum() >= few.inliers.sum()


def test_strongest_keypoints_are_matched(pair):
    few = kd_cv.match(*pair, max_keypoints=100)
    assert is_filled(few) and len(few.keypoints0) == len(few.keypoints1) == 100
    strength = sorted((k.response for k in KDDescriptor().detect(pair[0], None)), reverse=True)
    assert sorted((k.response for k in few.keypoints0), reverse=True) == strength[:100]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        kd_cv.match(*pair, max_keypoints=0)


def test_candidates_are_what_the_ratio_test_sees(pair):
    result, loose = (kd_cv.match(*pair, ratio=ratio) for ratio in (0.8, 1.0))
    matches, ratios = result.candidates
    np.testing.assert_array_equal(matches, loose.matches)
    np.testing.assert_array_equal(matches[ratios <= 0.8], result.matches)


def test_every_step_is_timed(pair):
    with timing() as apart:
        kd_cv.match(*pair, detector=cv2.SIFT_create(200))
    assert list(apart) == ["detect", "describe", "match", "geometry"]
    assert min(apart.values()) > 0
    with timing() as at_once:
        kd_cv.match(*pair)
    assert at_once["detect"] == 0 and at_once["describe"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("descriptor", ["kd", "sift", "rootsift"])
def test_failure_fills_the_same_result(camera, photographs, descriptor):
    blank = np.zeros((100, 100), np.uint8)
    for images in ((camera, blank), (blank, camera), (blank, blank)):
        result = kd_cv.match(*images, descriptor)
        assert is_filled(result) and not result.success and result.H_0to1 is None
        assert len(result.matches) == 0
    other = kd_cv.match(camera, photographs["gravel"], descriptor)
    assert is_filled(other) and not other.success


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"detector": "sift"}, TypeError, "detector must have a method detect, got str"),
        ({"max_keypoints": 0}, ValueError, "max_keypoints must be at least 1, got 0"),
        ({"max_keypoints": 1.5}, TypeError, r"max_keypoints must be an int, got 1\.5"),
        ({"max_keypoints": True}, TypeError, "max_keypoints must be an int, got True"),
        ({"ratio": 0}, ValueError, "ratio must be above 0 and at most 1, got 0"),
        ({"ratio": np.nan}, ValueError, "ratio must be above 0 and at most 1, got nan"),
        ({"ratio": "high"}, TypeError, "ratio must be a number, got 'high'"),
        ({"threshold": -1.0}, ValueError, r"threshold must be positive and finite, got -1\.0"),
        ({"threshold": np.inf}, ValueError, "threshold must be positive and finite, got inf"),
        ({"threshold": None}, TypeError, "threshold must be a number, got None"),
    ],
)
def test_wrong_options_are_refused_with_a_reason(options, error, message):
    image = np.zeros((9, 9), np.uint8)
    with pytest.raises(error, match=message):
        kd_cv.match(image, image, **options)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (np.full((8, 90), 128, np.uint8), "tiny, 90 x 8 pixels"),
        (np.full((90, 90), 250, np.uint8), "too bright, 99 of 100 pixels are at least 250"),
        (np.full((90, 90), 128, np.uint8), "flat, nearly all pixels lie from 128 to 128"),
        (np.tile(np.linspace(0, 255, 90), (90, 1)).astype(np.uint8), "no corners or blobs"),
    ],
)
def test_why_an_image_has_no_keypoints(camera, image, reason):
    result = kd_cv.match(image, camera, max_keypoints=50)
    assert not result.success and result.failure.startswith("image 0 has no keypoints: it ")
    assert reason in result.failure


def test_matches_that_have_nothing_in_common(camera, monkeypatch):
    nothing = TwoViews("homography", None, np.zeros(20, bool))
    monkeypatch.setattr(pipeline, "estimate", lambda *_, **__: nothing)
    result = kd_cv.match(camera, camera, max_keypoints=50)
    assert result.failure == "no model fits the 20 matches"


@pytest.fixture(scope="module")
def narrow(camera):
    """A photograph, and the same seen from the side: compressed three times along x."""
    M = np.float64([[1 / 3, 0, 0], [0, 1, 0]])
    small = cv2.warpAffine(cv2.GaussianBlur(camera, (13, 1), 2.2), M, (171, 512))
    return camera, small, np.vstack([M, [0, 0, 1]])


def test_views_are_searched_where_there_are_too_few_inliers(pair, narrow):
    assert kd_cv.match(*pair).views == 1
    image, side, H = narrow
    plain = kd_cv.match(image, side, views=1)
    auto = kd_cv.match(image, side)
    forced = kd_cv.match(image, side, views=3)
    assert plain.views == 1 and auto.views > 1 and forced.views == 3
    assert auto.inliers.sum() > plain.inliers.sum()
    assert homography_corner_error(auto.H_0to1, H, image.shape) < 2


def test_views_that_cannot_be_searched_are_refused(pair):
    with pytest.raises(ValueError, match=r"views must be 'auto' or one of \[1, 3, 5, 11\], got 4"):
        kd_cv.match(*pair, views=4)
    with pytest.raises(ValueError, match="views=3 needs the detector of KDDescriptor itself"):
        kd_cv.match(*pair, "sift", views=3)
    assert kd_cv.match(*pair, KDDescriptor(500, views=3)).views == 3


def test_a_limit_and_a_count_of_keypoints_both_hold(pair):
    for own, limit in ((200, 1000), (1000, 200)):
        found = kd_cv.match(*pair, KDDescriptor(own), max_keypoints=limit, views=1)
        assert len(found.keypoints0) <= 200 and len(found.keypoints1) <= 200


def test_each_descriptor_has_its_usual_ratio(pair):
    for descriptor, usual in (("kd", 0.85), ("sift", 0.8), ("rootsift", 0.8)):
        found = kd_cv.match(*pair, descriptor, max_keypoints=300, views=1)
        assert found.ratio == usual and 0.5 * usual < found.ratios.max() <= usual
    assert kd_cv.match(*pair, "sift", ratio=0.7, max_keypoints=300).ratio == 0.7

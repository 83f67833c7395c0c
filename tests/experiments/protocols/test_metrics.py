"""Every score against a hand-made case and a slow, independent witness."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from experiments.protocols import metrics
from kd_cv.matching.geometry import warp_points
from kd_cv.matching.metrics import homography_corner_error

# Few distinct values: most examples have ties.
ranked = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40)


# FPR95 --------------------------------------------------------------------------------------------


def slow_fpr95(distances, labels):
    """Try every threshold."""
    positive = [d for d, label in zip(distances, labels, strict=True) if label]
    negative = [d for d, label in zip(distances, labels, strict=True) if not label]
    for threshold in sorted(distances):
        if 100 * sum(d <= threshold for d in positive) >= 95 * len(positive):
            return 100 * sum(d <= threshold for d in negative) / len(negative)
    raise AssertionError


@given(ranked)
def test_fpr95_equals_the_search_over_thresholds(pairs):
    distances, labels = zip(*[*pairs, (3, True), (3, False)], strict=True)
    assert metrics.fpr95(distances, labels) == pytest.approx(slow_fpr95(distances, labels))


def test_fpr95_by_hand():
    positive = np.arange(1, 21) / 20  # the 19th, 0.95, gives a recall of 95 %
    for negative, expected in [
        ([2.0, 3.0], 0),  # all right
        ([0.0, 0.01], 100),  # all wrong
        ([0.5, 0.97], 50),
        ([0.95, 0.96, 0.97, 0.98], 25),  # one negative at the threshold
    ]:
        distances = np.concatenate([negative, positive])
        labels = np.arange(len(distances)) >= len(negative)
        assert metrics.fpr95(distances, labels) == expected
        assert metrics.fpr95(distances[::-1], labels[::-1].astype(int)) == expected
    assert metrics.fpr95([0.5, 0.4, 0.6], [1, 0, 0]) == 50  # one positive
    assert metrics.fpr95([1, 1, 1, 1], [1, 1, 0, 0]) == 100  # nothing but ties


# Average precision --------------------------------------------------------------------------------


def slow_average_precision(scores, correct, n_positive=None):
    """Walk down the ranking, adding one trapezoid per answer."""
    n_positive = sum(correct) if n_positive is None else n_positive
    area, tp, recall, precision = 0.0, 0, 0.0, 1.0
    ranking = sorted(zip(scores, correct, strict=True), key=lambda answer: (-answer[0], answer[1]))
    for rank, (_, right) in enumerate(ranking, 1):
        tp += right
        area += (tp / n_positive - recall) * (precision + tp / rank) / 2
        recall, precision = tp / n_positive, tp / rank
    return area


@given(ranked, st.integers(0, 5), st.randoms())
def test_average_precision_equals_the_walk(answers, missing, random):
    answers = [*answers, (2, True)]
    scores, correct = zip(*answers, strict=True)
    n_positive = sum(correct) + missing
    ap = metrics.average_precision(scores, correct, n_positive)
    assert ap == pytest.approx(slow_average_precision(scores, correct, n_positive))
    random.shuffle(answers)  # order in the input does not matter
    assert metrics.average_precision(*zip(*answers, strict=True), n_positive) == ap


def test_average_precision_by_hand():
    ap = metrics.average_precision
    assert ap([3, 2, 1], [1, 1, 1]) == 1  # all correct
    assert ap([3, 2, 1], [0, 0, 0]) == 0  # none correct
    assert ap([], []) == 0
    assert ap([1, 2], [0, 0], n_positive=7) == 0
    # One positive, second of three: recall rises from 0 to 1 as precision goes from 0 to 1/2.
    assert ap([3, 2, 1], [0, 1, 0]) == 0.25
    # Right, wrong, right: precision 1, 1, 1/2, 2/3 at recall 0, 1/2, 1/2, 1.
    assert ap([3, 2, 1], [1, 0, 1]) == pytest.approx(1 / 2 + (1 / 2 + 2 / 3) / 4)
    # In a tie the wrong answer comes first, wherever it stands.
    assert ap([1, 1], [1, 0]) == ap([1, 1], [0, 1]) == 0.25
    # Half of the positives are never found.
    assert ap([2, 1], [1, 1], n_positive=4) == 0.5
    assert ap([2, 1, -np.inf, -np.inf], [1, 1, 1, 1]) == 0.5
    # A better ranking scores higher.
    assert ap([4, 3, 2, 1], [1, 1, 0, 0]) > ap([4, 3, 2, 1], [1, 0, 1, 0])
    with pytest.raises(ValueError, match="n_positive is 1, but 2"):
        ap([2, 1], [1, 1], n_positive=1)


# HPatches -----------------------------------------------------------------------------------------


def test_matching_equals_loops():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(1500, 8))  # more than one chunk
    other = reference + 0.4 * rng.normal(size=reference.shape)
    D = cdist(reference, other)
    correct = [int(np.argmin(row)) == k for k, row in enumerate(D)]
    assert 0.2 < np.mean(correct) < 0.9
    expected = slow_average_precision([-min(row) for row in D], correct, len(correct))
    assert metrics.matching(reference, other) == pytest.approx(expected)


def test_matching_by_hand():
    X = np.eye(4)
    assert metrics.matching(X, X) == 1
    assert metrics.matching(X, np.roll(X, 1, axis=0)) == 0
    # All the same: everything answers row 0, one of four is right; the benchmark ranks it first.
    assert metrics.matching(np.ones((4, 2)), np.ones((4, 2))) == pytest.approx(1 / 4)
    assert metrics.matching(X[:1], X[:1]) == 1
    with pytest.raises(ValueError, match=r"\(4, 4\) and \(3, 4\)"):
        metrics.matching(X, X[:3])
    with pytest.raises(ValueError, match="1 or more"):
        metrics.matching(X[:0], X[:0])


def test_retrieval_equals_loops():
    rng = np.random.default_rng(1)
    queries = rng.normal(size=(12, 3))
    positives = queries[:, None] + 0.5 * rng.normal(size=(12, 5, 3))
    distractors = rng.normal(size=(60, 3))
    own, others = rng.integers(0, 3, 12), rng.integers(0, 3, 60)
    ap = metrics.retrieval(queries, positives, distractors, own, others)
    for q in range(12):
        pool = [(p, True) for p in positives[q]]
        pool += [(d, False) for d, s in zip(distractors, others, strict=True) if s != own[q]]
        distances = [np.linalg.norm(queries[q] - x) for x, _ in pool]
        right = [good for _, good in pool]
        assert ap[q] == pytest.approx(slow_average_precision([-d for d in distances], right))
    assert 0 < ap.min() < ap.max() <= 1


def test_distances_equal_scipys():
    rng = np.random.default_rng(2)
    X0, X1 = rng.normal(size=(7, 128)), rng.normal(size=(9, 128))
    np.testing.assert_allclose(metrics.pairwise_distances(X0, X1), cdist(X0, X1), atol=1e-10)
    np.testing.assert_allclose(
        metrics.pair_distances(X0, X1[:7]), np.diag(cdist(X0, X1)), atol=1e-12
    )
    bytes0 = rng.integers(0, 256, (50, 128)).astype(np.uint8)
    np.testing.assert_array_equal(np.diag(metrics.pairwise_distances(bytes0, bytes0)), 0)


# Matches and homographies -------------------------------------------------------------------------

SHIFT = np.array([[1.0, 0, 10], [0, 1, -5], [0, 0, 1]])
SQUARE = np.array([[0.0, 0], [100, 0], [100, 100], [0, 100], [50, 50]])


def test_warp_points_divides_by_w():
    H = np.array([[2.0, 0, 0], [0, 2, 0], [0.01, 0, 1]])
    np.testing.assert_allclose(warp_points([[100, 50]], H), [[100, 50]])
    np.testing.assert_allclose(warp_points([[100, 50]], -3 * H), [[100, 50]])
    assert np.isinf(warp_points([[-100, 50]], H)).all()
    cv2 = pytest.importorskip("cv2")
    expected = cv2.perspectiveTransform(SQUARE[None], H)[0]
    np.testing.assert_allclose(warp_points(SQUARE, H), expected)


def test_homography_corner_error_by_hand():
    error = homography_corner_error
    assert error(5 * SHIFT, SHIFT, (480, 640)) == pytest.approx(0)
    assert error(np.eye(3), SHIFT, (480, 640)) == pytest.approx(np.hypot(10, 5))
    # Twice the width: the two right corners, at x = 639, move by 639.
    assert error(np.diag([2.0, 1, 1]), np.eye(3), (480, 640, 3)) == pytest.approx(639 / 2)
    assert error(None, SHIFT, (480, 640)) == np.inf
    assert error(np.full((3, 3), np.nan), SHIFT, (480, 640)) == np.inf
    assert error(np.zeros((3, 3)), SHIFT, (480, 640)) == np.inf
    with pytest.raises(ValueError, match="H_true"):
        error(SHIFT, np.zeros((3, 3)), (480, 640))


def slow_auc(errors, threshold):
    """Integrate the curve on a fine grid."""
    errors = sorted(errors)
    below = [e for e in errors if e < threshold]
    # Errors equal to each other are a vertical step, of which interpolation takes the last point.
    xs, ys = [0.0], [0.0]
    for k, e in enumerate(below, 1):
        xs.append(e)
        ys.append(k / len(errors))
    grid = (np.arange(200_000) + 0.5) * threshold / 200_000
    right = np.searchsorted(xs, grid, side="right")
    x0, y0 = np.take(xs, right - 1), np.take(ys, right - 1)
    last = right == len(xs)
    x1 = np.take(xs, np.minimum(right, len(xs) - 1))
    y1 = np.take(ys, np.minimum(right, len(xs) - 1))
    slope = np.where(last, 0, (y1 - y0) / np.where(last, 1, x1 - x0))
    return float(np.mean(y0 + slope * (grid - x0)))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 24).map(lambda k: k / 2), min_size=1, max_size=20))
def test_auc_equals_the_integral(errors):
    for threshold in (3, 5, 10):
        expected = pytest.approx(slow_auc(errors, threshold), abs=1e-4)
        assert metrics.auc(errors, threshold) == expected


def test_auc_by_hand():
    for threshold in (3, 5, 10):
        assert metrics.auc([0, 0, 0], threshold) == 1
        assert metrics.auc([100, np.inf], threshold) == metrics.auc([], threshold) == 0
    # One error of 1 px of two: the curve rises to 1/2 at 1 px and stays.
    assert metrics.auc([1, np.inf], 2) == pytest.approx(0.75 / 2)
    assert metrics.auc([1, np.inf], 4) == pytest.approx(1.75 / 4)
    assert metrics.auc([3.0], 3) == 0  # an error at the threshold is too large
    with pytest.raises(ValueError, match="NaN"):
        metrics.auc([np.nan], 3)


def test_repeatability_of_a_handful_of_places():
    H = np.array([[1.0, 0, 10], [0, 1, 0], [0, 0, 1]])  # ten pixels to the right
    shapes = (100, 100), (100, 100)
    first = [[20, 20], [20, 20], [50, 50], [70, 10], [95, 5]]  # the last one leaves the image
    second = [[30, 21], [60, 52], [80, 10], [5, 5]]  # so does this one, the other way
    # within 1.5: places one and three of three, and as many of the three on the other side
    assert metrics.repeatability(first, second, H, shapes) == pytest.approx(4 / 6)
    assert metrics.repeatability(first, second, H, shapes, threshold=2) == 1
    assert metrics.repeatability(second, first, np.linalg.inv(H), shapes) == pytest.approx(4 / 6)
    assert metrics.repeatability([[95, 5]], second, H, shapes) == 0
    assert metrics.repeatability(np.empty((0, 2)), second, H, shapes) == 0

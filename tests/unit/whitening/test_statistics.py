"""Statistics: exact, mergeable, strict."""

import numpy as np
import pytest
from of_matrices import D, cov, descriptors, rows_of

from experiments.weights.sources import balanced
from kd_cv.whitening import load
from kd_cv.whitening import statistics as statistics_module
from kd_cv.whitening.statistics import Statistics


def test_statistics_equal_numpys(data):
    X, pairs = data
    statistics = Statistics(D).update(X, pairs)
    differences = X[pairs[:, 0]] - X[pairs[:, 1]]
    assert (statistics.count, statistics.pair_count) == (len(X), len(pairs))
    np.testing.assert_allclose(statistics.mean, X.mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(statistics.C, cov(X), atol=1e-14)
    np.testing.assert_allclose(statistics.C_M, differences.T @ differences / len(pairs), atol=1e-14)


def test_two_halves_merged_equal_the_whole(data):
    X, pairs = data
    whole = Statistics(D).update(X, pairs)
    first, second = (Statistics(D).update(*rows_of(X, part)) for part in (pairs[:99], pairs[99:]))
    for a, b in ((first, second), (second, first)):
        merged = Statistics(D).merge(a).merge(b)
        assert (merged.count, merged.pair_count) == (whole.count, whole.pair_count)
        np.testing.assert_allclose(merged.mean, whole.mean, atol=1e-12)
        np.testing.assert_allclose(merged.C, whole.C, atol=1e-12)
        np.testing.assert_allclose(merged.C_M, whole.C_M, atol=1e-12)
    assert first.count == 198  # what is merged is left alone


def test_statistics_are_stable_far_from_the_origin(data):
    X, _ = data
    far = Statistics(D)
    for chunk in np.array_split(X + 1e6, 50):
        far.update(chunk)
    np.testing.assert_allclose(far.C, cov(X), atol=1e-8)


def test_more_rows_than_one_chunk_and_float32():
    X, pairs = descriptors(n=20_000, dim=5)
    X = X.astype(np.float32)
    statistics = Statistics(5).update(X, pairs)
    np.testing.assert_allclose(statistics.C, cov(X.astype(np.float64)), atol=1e-12)
    assert statistics.pair_count == len(pairs) > statistics_module._CHUNK


def test_statistics_survive_a_file(data, tmp_path):
    X, pairs = data
    statistics = Statistics(D).update(X, pairs)
    statistics.save(tmp_path / "s.npz")
    loaded = Statistics.load(tmp_path / "s.npz")
    assert repr(loaded) == repr(statistics)
    np.testing.assert_array_equal(loaded.C, statistics.C)
    np.testing.assert_array_equal(loaded.C_M, statistics.C_M)
    loaded.update(X)  # loaded arrays are writable
    with pytest.raises(ValueError, match="whitening"):
        load(tmp_path / "s.npz")


@pytest.mark.parametrize(
    ("X", "pairs", "message"),
    [
        (np.ones((3, D + 1)), None, r"\(N, 24\)"),
        (np.ones(D), None, r"\(N, 24\)"),
        (np.full((3, D), np.nan), None, "NaN or infinity"),
        (np.full((3, D), np.inf), None, "NaN or infinity"),
        (np.ones((3, D)), [[0, 3]], r"pairs must be 0 to 2, got 0 to 3"),
        (np.ones((3, D)), [[-1, 0]], "got -1 to 0"),
        (np.ones((3, D)), [[0.0, 1.0]], "integers"),
        (np.ones((3, D)), [0, 1], "integers"),
    ],
)
def test_bad_descriptors_are_refused_and_leave_no_trace(X, pairs, message):
    statistics = Statistics(D)
    with pytest.raises(ValueError, match=message):
        statistics.update(X, pairs)
    assert statistics.count == 0
    assert not statistics.mean.any()


def test_other_misuse_of_statistics():
    with pytest.raises(ValueError, match="dim must be at least 1, got 0"):
        Statistics(0)
    with pytest.raises(ValueError, match="24 and 23"):
        Statistics(D).merge(Statistics(D - 1))
    with pytest.raises(TypeError, match="real numbers"):
        Statistics(D).update(np.full((3, D), "a"))
    assert Statistics(D).update(np.zeros((0, D)), np.zeros((0, 2))).count == 0


def test_balanced_statistics_count_each_of_them_the_same(data):
    X, pairs = data
    few, many = rows_of(X, pairs[:40]), rows_of(X, pairs[40:160])
    statistics = [Statistics(D).update(*rows) for rows in (few, many)]
    expected = Statistics(D).update(*many)
    for _ in range(3):  # three times as often, as many as the others are
        expected.update(*few)
    even = balanced(statistics)
    assert (even.count, even.pair_count) == (statistics[0].count + statistics[1].count, 160)
    np.testing.assert_allclose(even.mean, expected.mean, atol=1e-12)
    np.testing.assert_allclose(even.C, expected.C, atol=1e-12)
    np.testing.assert_allclose(even.C_M, expected.C_M, atol=1e-12)

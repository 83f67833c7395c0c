"""The fitted object, and what is refused."""

import numpy as np
import pytest
from of_matrices import D, attenuated, matrices, shrunk

from kd_cv.descriptor.projection import Projection
from kd_cv.io.archive import write_archive
from kd_cv.whitening import load
from kd_cv.whitening.statistics import Statistics, balanced
from kd_cv.whitening.variants import SUPERVISED_T, VARIANTS, shrink_index, supervised
from kd_cv.whitening.whitening import Whitening


def test_the_object_agrees_with_the_functions(data, fitted):
    X, pairs = data
    statistics = Statistics(D).update(X, pairs)
    index = shrink_index(statistics.pair_count, D)
    assert fitted.shrink_index == index and fitted.provenance["supervised_t"] == SUPERVISED_T
    expected = {
        "w": attenuated(statistics.C, t=1, dim=9),
        "wua": attenuated(statistics.C, dim=9),
        "wus": shrunk(statistics.C, D, dim=9),  # 24 eigenvalues: no 40th
        "ws": supervised(statistics.C, statistics.C_M, index, 9, SUPERVISED_T),
        "pcasqrt": attenuated(statistics.C, t=0, dim=9),
    }
    for variant, A in expected.items():
        mu, A_fitted = matrices(fitted.projection(variant, 9))
        assert mu.dtype == A_fitted.dtype == np.float32
        np.testing.assert_allclose(mu, statistics.mean, atol=1e-7)
        np.testing.assert_allclose(A_fitted, A, rtol=1e-5, atol=1e-6 * np.abs(A).max())
    np.testing.assert_allclose(
        fitted.projection("wua", t=0.3).A, attenuated(statistics.C, 0.3), rtol=1e-5
    )
    np.testing.assert_allclose(
        fitted.projection("wus", beta_index=5).A, shrunk(statistics.C, 5), rtol=1e-5
    )


def test_names(fitted):
    for alias, name in {"lw": "ws", "pcaws": "wus", "pcawt": "wua"}.items():
        np.testing.assert_array_equal(fitted.projection(alias).A, fitted.projection(name).A)
    for unknown in ("sw", None, ["ws"]):
        with pytest.raises(ValueError, match="w, wua, wus, ws, wm, pcasqrt"):
            fitted.projection(unknown)
    with pytest.raises(ValueError, match="unknown whitening"):
        fitted.has("x")


def test_without_pairs_the_supervised_variant_is_missing(data):
    X, _ = data
    fitted = Whitening.fit(Statistics(D).update(X))
    assert [v for v in VARIANTS if fitted.has(v)] == ["w", "wua", "wus", "pcasqrt"]
    with pytest.raises(ValueError, match="without matching pairs"):
        fitted.projection("lw")


def test_settings_that_would_do_nothing_are_refused(fitted):
    with pytest.raises(ValueError, match="t is a setting"):
        fitted.projection("ws", t=0.5)
    with pytest.raises(ValueError, match="beta_index is a setting"):
        fitted.projection("wua", beta_index=3)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        fitted.projection("wua", t=1.5)
    with pytest.raises(ValueError, match="dim must be from 1 to 24, got 25"):
        fitted.projection("wua", D + 1)


def test_the_object_is_frozen(fitted):
    with pytest.raises(ValueError, match="read-only"):
        fitted.mu[0] = 1
    with pytest.raises(AttributeError):
        fitted.t = 0.1


def test_project_by_hand():
    A = np.array([[2.0, 0.0], [0.0, 1.0]])
    mu = np.array([1.0, 0.0])
    raw = np.array([[3.0, -3.0], [1.0, 5.0], [0.0, 0.0], [1.0, 0.0]])
    expected = [[0.8, -0.6], [0, 1], [0, 0], [0, 0]]  # zero row; a row equal to mu
    np.testing.assert_allclose(Projection(mu, A)(raw), expected, atol=1e-15)
    root = np.sqrt([4.0, 3.0]) / np.sqrt(7.0)
    np.testing.assert_allclose(Projection(mu, A, 0.5)(raw)[0], root * [1, -1], atol=1e-15)
    assert Projection(mu, A)(np.zeros((0, 2))).shape == (0, 2)
    single = Projection(mu.astype("f"), A.astype("f"))
    assert single(raw.astype("f")).dtype == np.float32
    with pytest.raises(ValueError, match=r"expected raw vectors \(N, 2\), got shape \(4, 1\)"):
        Projection(mu, A)(raw[:, :1])


def test_statistics_of_nothing():
    with pytest.raises(ValueError, match="no statistics were given"):
        balanced([])
    empty = Statistics(3)
    with pytest.raises(ValueError, match="no descriptors were given"):
        _ = empty.C
    with pytest.raises(ValueError, match="no matching pairs were given"):
        _ = empty.C_M
    with pytest.raises(TypeError, match="expected Statistics, got list"):
        Whitening.fit([])


def test_matrices_that_do_not_fit_together():
    mu, lam = np.zeros(3), np.ones(3)
    with pytest.raises(ValueError, match="U must have 1 to 3 columns"):
        Whitening(mu=mu, U=np.zeros((3, 0)), lam=lam)
    with pytest.raises(ValueError, match="mu_s is the mean of A_s, which is missing"):
        Whitening(mu=mu, U=np.eye(3), lam=lam, mu_s=mu)
    tiny = Whitening(mu=mu, U=np.eye(3), lam=np.full(3, 1e-300), beta_index=1)
    with pytest.raises(ValueError, match="leaves no finite 'w'"):
        tiny.projection("w", 3)


def test_damaged_statistics(tmp_path):
    zeros = {"mean": np.zeros(2), "scatter": np.zeros((2, 2)), "pair_scatter": np.zeros((2, 2))}
    meta = {"dim": 2, "count": 5, "pair_count": 0}
    damaged = [
        (zeros, {**meta, "count": -5}, "damaged statistics: count must be at least 0, got -5"),
        ({**zeros, "mean": np.zeros(3)}, meta, "damaged statistics: expected finite arrays"),
    ]
    for arrays, said, message in damaged:
        write_archive(tmp_path / "s.npz", "statistics", arrays, said)
        with pytest.raises(ValueError, match=message):
            Statistics.load(tmp_path / "s.npz")


def test_a_file_of_matrices_with_an_array_too_many(tmp_path):
    write_archive(tmp_path / "w.npz", "whitening", {"stray": np.zeros(2)}, {"entries": {}})
    with pytest.raises(ValueError, match="its entries and its arrays do not agree"):
        load(tmp_path / "w.npz")


def test_a_trained_matrix_without_its_mean_is_refused():
    with pytest.raises(ValueError, match="A_m and mu_m belong together"):
        Whitening(np.zeros(3), np.eye(3), np.ones(3), A_m=np.eye(3))


def test_many_pairs_are_not_shrunk_and_few_by_a_large_eigenvalue():
    assert [shrink_index(n, 238) for n in (4 * 238**2, 10**6)] == [None, None]
    assert [shrink_index(n, 238) for n in (0, 1, 476)] == [1, 1, 119]
    indices = [shrink_index(n, 128) for n in range(128, 10_000)]
    assert indices == sorted(indices)

"""The model object, and what is refused."""

import numpy as np
import pytest
from of_matrices import D, attenuated, matrices, shrunk

from kd_cv.descriptor.projection import Projection
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.variants import SUPERVISED_T, VARIANTS, shrink_index, supervised
from kd_cv.whitening.whitening import Whitening


def test_the_object_agrees_with_the_functions(data, model):
    X, pairs = data
    statistics = Statistics(D).update(X, pairs)
    index = shrink_index(statistics.pair_count, D)
    assert model.shrink_index == index and model.provenance["supervised_t"] == SUPERVISED_T
    expected = {
        "w": attenuated(statistics.C, t=1, dim=9),
        "wua": attenuated(statistics.C, dim=9),
        "wus": shrunk(statistics.C, D, dim=9),  # 24 eigenvalues: no 40th
        "ws": supervised(statistics.C, statistics.C_M, index, 9, SUPERVISED_T),
        "pcasqrt": attenuated(statistics.C, t=0, dim=9),
    }
    for variant, A in expected.items():
        mu, A_fitted = matrices(model.projection(variant, 9))
        assert mu.dtype == A_fitted.dtype == np.float32
        np.testing.assert_allclose(mu, statistics.mean, atol=1e-7)
        np.testing.assert_allclose(A_fitted, A, rtol=1e-5, atol=1e-6 * np.abs(A).max())
    np.testing.assert_allclose(
        model.projection("wua", t=0.3).A, attenuated(statistics.C, 0.3), rtol=1e-5
    )
    np.testing.assert_allclose(
        model.projection("wus", beta_index=5).A, shrunk(statistics.C, 5), rtol=1e-5
    )


def test_names(model):
    for alias, name in {"lw": "ws", "pcaws": "wus", "pcawt": "wua"}.items():
        np.testing.assert_array_equal(model.projection(alias).A, model.projection(name).A)
    for unknown in ("sw", None, ["ws"]):
        with pytest.raises(ValueError, match="w, wua, wus, ws, wm, pcasqrt"):
            model.projection(unknown)
    with pytest.raises(ValueError, match="unknown whitening"):
        model.has("x")


def test_without_pairs_the_supervised_variant_is_missing(data):
    X, _ = data
    model = Whitening.fit(Statistics(D).update(X))
    assert [v for v in VARIANTS if model.has(v)] == ["w", "wua", "wus", "pcasqrt"]
    with pytest.raises(ValueError, match="without matching pairs"):
        model.projection("lw")


def test_the_object_is_frozen(model):
    with pytest.raises(ValueError, match="read-only"):
        model.mu[0] = 1
    with pytest.raises(AttributeError):
        model.t = 0.1


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


def test_many_pairs_are_not_shrunk_and_few_by_a_large_eigenvalue():
    assert [shrink_index(n, 238) for n in (4 * 238**2, 10**6)] == [None, None]
    assert [shrink_index(n, 238) for n in (0, 1, 476)] == [1, 1, 119]
    indices = [shrink_index(n, 128) for n in range(128, 10_000)]
    assert indices == sorted(indices)

"""The projections: theorems, and degenerate input."""

import numpy as np
import pytest
from of_matrices import D, attenuated, cov, rows_of, shrunk
from scipy.linalg import eigh, sqrtm
from scipy.spatial.distance import pdist

from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.variants import VARIANTS, eig, supervised
from kd_cv.whitening.whitening import Whitening


def project(X, mu, A):
    """Rows A^T (x - mu) of unit norm."""
    Y = (X - mu) @ A
    return Y / np.linalg.norm(Y, axis=1, keepdims=True)


def test_whitened_covariance_is_the_identity(data):
    X, _ = data
    np.testing.assert_allclose(cov(X @ attenuated(cov(X), t=1)), np.eye(D), atol=1e-9)


def test_t_0_keeps_distances_and_t_1_is_W(data):
    X, _ = data
    rotation = attenuated(cov(X), t=0)
    np.testing.assert_allclose(pdist(X[:200] @ rotation), pdist(X[:200]), atol=1e-12)
    model = Whitening.fit(Statistics(D).update(X))
    for variant, t in (("w", 1.0), ("pcasqrt", 0.0)):
        A, expected = model.projection(variant).A, model.projection("wua", t=t).A
        np.testing.assert_array_equal(A, expected)


def test_attenuated_variances_are_lam_to_the_1_minus_t(data):
    X, _ = data
    _, lam = eig(cov(X))
    variances = np.diag(cov(X @ attenuated(cov(X), t=0.7)))
    np.testing.assert_allclose(variances, lam**0.3, rtol=1e-9)


def test_shrinkage_whitens_the_shrunk_covariance(data):
    """W_US is W of (1 - beta) C + beta I, C scaled to a largest eigenvalue of 1."""
    X, _ = data
    lam = np.linalg.eigvalsh(cov(X))[::-1]
    beta = lam[10 - 1] / lam[0]
    C_shrunk = (1 - beta) * cov(X) / lam[0] + beta * np.eye(D)
    A = shrunk(cov(X), beta_index=10)
    np.testing.assert_allclose(A.T @ C_shrunk @ A, np.eye(D), atol=1e-9)
    with pytest.raises(ValueError, match="from 1 to 24, got 40"):
        shrunk(cov(X), 40)


def test_supervised_equals_the_papers_formula(data):
    X, pairs = data
    statistics = Statistics(D).update(X, pairs)
    half = np.linalg.inv(sqrtm(statistics.C_M).real)
    _, V = np.linalg.eigh(half @ statistics.C @ half)
    expected = half @ V[:, ::-1]
    A = supervised(statistics.C, statistics.C_M)
    A = A * np.sign((A * expected).sum(axis=0))
    np.testing.assert_allclose(A, expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("shrink_index", [None, 12])
def test_supervised_solves_the_generalised_eigenproblem(data, shrink_index):
    X, pairs = data
    statistics = Statistics(D).update(X, pairs)
    C_M = statistics.C_M
    if shrink_index is not None:
        lam = np.linalg.eigvalsh(C_M)[::-1]
        beta = lam[shrink_index - 1] / lam[0]
        C_M = (1 - beta) * C_M + beta * lam[0] * np.eye(D)
    A = supervised(statistics.C, statistics.C_M, shrink_index)
    np.testing.assert_allclose(A.T @ C_M @ A, np.eye(D), atol=1e-9)
    ratios = np.diag(A.T @ statistics.C @ A)
    np.testing.assert_allclose(ratios, eigh(statistics.C, C_M)[0][::-1], rtol=1e-9)


@pytest.mark.parametrize("weight", [0.1, 10.0, 1e-4])
@pytest.mark.parametrize("dim", [D, 7])
def test_supervised_absorbs_any_weight_of_a_part(data, weight, dim):
    """The paper's appendix: V and W V give the same descriptor after W_S."""
    X, pairs = data
    scales = np.where(np.arange(D) < 15, 1.0, weight)
    plain, weighted = (Statistics(D).update(Y, pairs) for Y in (X, X * scales))
    y = project(X, plain.mean, supervised(plain.C, plain.C_M, dim=dim))
    A = supervised(weighted.C, weighted.C_M, dim=dim)
    np.testing.assert_allclose(project(X * scales, weighted.mean, A), y, atol=1e-9)
    # Unsupervised whitening of fewer dimensions does not have this property.
    y = project(X, plain.mean, attenuated(plain.C, dim=7))
    y_weighted = project(X * scales, weighted.mean, attenuated(weighted.C, dim=7))
    assert np.abs(pdist(y[:100]) - pdist(y_weighted[:100])).max() > 0.1


def test_fewer_dimensions_are_the_first_columns(data):
    X, pairs = data
    C, C_M = cov(X), Statistics(D).update(X, pairs).C_M
    np.testing.assert_array_equal(supervised(C, C_M, dim=5), supervised(C, C_M)[:, :5])
    model = Whitening.fit(Statistics(D).update(X, pairs))
    for variant in filter(model.has, VARIANTS):
        A = model.projection(variant).A
        np.testing.assert_array_equal(model.projection(variant, 5).A, A[:, :5])
    for dims, error, message in (
        ((0, D + 1), ValueError, "dim must be from 1 to 24, got"),
        ((2.0, True), TypeError, "dim must be an int, got"),
    ):
        for dim in dims:
            with pytest.raises(error, match=message):
                supervised(C, C_M, dim=dim)
            with pytest.raises(error, match=message):
                model.projection("wua", dim)


def test_eigenvectors_have_one_sign(data):
    X, _ = data
    C = cov(X)
    U, lam = eig(C)
    assert (np.diff(lam) <= 0).all()
    np.testing.assert_allclose(U * lam @ U.T, C, atol=1e-12)
    assert (U.max(axis=0) == np.abs(U).max(axis=0)).all()


def test_constant_descriptors_are_refused():
    for value in (0.0, 0.1, 1e6):
        statistics = Statistics(D).update(np.full((1000, D), value))
        with pytest.raises(ValueError, match="1000 descriptors are all the same"):
            Whitening.fit(statistics)
    for n in (0, 1):
        with pytest.raises(ValueError, match=f"2 or more descriptors, got {n}"):
            Whitening.fit(Statistics(D).update(np.ones((n, D))))


def test_identical_pairs_are_refused(data):
    X, _ = data
    with pytest.raises(ValueError, match="pairs are identical"):
        Whitening.fit(Statistics(D).update(X, np.zeros((50, 2), int)))


def test_fewer_samples_than_dimensions_warn_and_stay_finite(data):
    X, pairs = data
    rows, few_pairs = rows_of(X, pairs[:5])
    few = Statistics(D).update(rows, [*few_pairs, few_pairs[0]])
    with pytest.warns(UserWarning) as caught:
        model = Whitening.fit(few)
    messages = " ".join(str(w.message) for w in caught)
    assert "only 10 patches for 24" in messages
    assert "only 6 matching pairs for 24" in messages
    for variant in filter(model.has, VARIANTS):
        assert np.isfinite(model.projection(variant).A).all()
        np.testing.assert_allclose(np.linalg.norm(model.apply(X, variant), axis=1), 1, atol=1e-5)


def test_constant_dimensions_stay_finite(data):
    X, pairs = data
    X = X.copy()
    X[:, 3] = 0.25
    model = Whitening.fit(Statistics(D).update(X, pairs))
    for variant in filter(model.has, VARIANTS):
        assert np.isfinite(model.apply(X, variant)).all()


def test_bad_covariances_are_refused():
    for C, message in [
        (np.ones((2, 3)), r"\(D, D\)"),
        (np.full((2, 2), np.nan), "NaN"),
        (np.zeros((2, 2)), "do not vary"),
    ]:
        with pytest.raises(ValueError, match=message):
            eig(C)
    with pytest.raises(ValueError, match="both"):
        supervised(np.eye(2), np.eye(3))

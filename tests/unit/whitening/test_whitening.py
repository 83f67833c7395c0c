"""Whitening: the paper's statements that are theorems, the file format, degenerate input."""

import io
import json
import os
import warnings
import zipfile

import numpy as np
import pytest
from scipy.linalg import eigh, sqrtm
from scipy.spatial.distance import pdist

from kd_cv.descriptor.projection import Projection
from kd_cv.io.archive import MAX_BYTES, write_archive
from kd_cv.whitening import load, save
from kd_cv.whitening import statistics as statistics_module
from kd_cv.whitening.pth import load_pth
from kd_cv.whitening.statistics import Statistics, balanced
from kd_cv.whitening.variants import VARIANTS, eig, shrinkage, supervised
from kd_cv.whitening.whitening import Whitening

D = 24


def descriptors(n=3000, dim=D, seed=0):
    """Unit descriptors of points seen twice with noise, and the pairs of their rows."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(dim, dim)) * np.geomspace(1, 0.03, dim)[:, None]
    noise = rng.normal(size=(dim, dim)) * np.geomspace(0.2, 0.01, dim)
    points = rng.normal(size=(n // 2, dim)) @ mixing + rng.normal(size=dim)
    X = np.concatenate([points, points]) + rng.normal(size=(2 * len(points), dim)) @ noise
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    k = np.arange(len(points))
    return X, np.stack([k, k + len(points)], axis=1)


@pytest.fixture(scope="module")
def data():
    return descriptors()


@pytest.fixture(scope="module")
def fitted(data):
    X, pairs = data
    return Whitening.fit(Statistics(D).update(X, pairs), provenance={"fitted_on": "synthetic"})


def cov(Y):
    return np.cov(Y, rowvar=False, bias=True)


def attenuated(C, t=0.7, dim=None):
    """W_UA by the formula of the paper; W for t = 1, a rotation for t = 0."""
    U, lam = eig(C)
    return (U * lam ** (-t / 2))[:, :dim]


def shrunk(C, beta_index, dim=None):
    """W_US by the formula of the paper."""
    U, lam = eig(C)
    return (U * shrinkage(lam / lam[0], beta_index))[:, :dim]


def project(X, mu, A):
    """Rows A^T (x - mu) of unit norm."""
    Y = (X - mu) @ A
    return Y / np.linalg.norm(Y, axis=1, keepdims=True)


def matrices(projection):
    return projection.mu, projection.A


def rows_of(X, pairs):
    """The descriptors of some pairs, and the pairs of their rows."""
    k = np.arange(len(pairs))
    return X[pairs.T.ravel()], np.stack([k, k + len(pairs)], axis=1)


# Statistics ---------------------------------------------------------------------------------------


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
    for merged in (first + second, Statistics(D).merge(second).merge(first)):
        assert (merged.count, merged.pair_count) == (whole.count, whole.pair_count)
        np.testing.assert_allclose(merged.mean, whole.mean, atol=1e-12)
        np.testing.assert_allclose(merged.C, whole.C, atol=1e-12)
        np.testing.assert_allclose(merged.C_M, whole.C_M, atol=1e-12)
    assert first.count == 198  # + leaves its operands alone


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
        (np.full((3, D), np.nan), None, "NaN or infinity in 3 rows, first in 0"),
        (np.full((3, D), np.inf), None, "NaN or infinity"),
        (np.ones((3, D)), [[0, 3]], r"rows 0\.\.2 of X, got indices 0 to 3"),
        (np.ones((3, D)), [[-1, 0]], "got indices -1 to 0"),
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
    with pytest.raises(ValueError, match="positive integer"):
        Statistics(0)
    with pytest.raises(ValueError, match="24 and 23"):
        Statistics(D).merge(Statistics(D - 1))
    with pytest.raises(TypeError, match="int"):
        Statistics(D).merge(3)
    with pytest.raises(TypeError, match="real numbers"):
        Statistics(D).update(np.full((3, D), "a"))
    assert Statistics(D).update(np.zeros((0, D)), np.zeros((0, 2))).count == 0


# Projections: theorems ----------------------------------------------------------------------------


def test_whitened_covariance_is_the_identity(data):
    X, _ = data
    np.testing.assert_allclose(cov(X @ attenuated(cov(X), t=1)), np.eye(D), atol=1e-9)


def test_t_0_keeps_distances_and_t_1_is_W(data):
    X, _ = data
    rotation = attenuated(cov(X), t=0)
    np.testing.assert_allclose(pdist(X[:200] @ rotation), pdist(X[:200]), atol=1e-12)
    fitted = Whitening.fit(Statistics(D).update(X))
    for variant, t in (("w", 1.0), ("pcasqrt", 0.0)):
        A, expected = fitted.projection(variant).A, fitted.projection("wua", t=t).A
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


def test_the_float32_object_absorbs_weights_too(data):
    X, pairs = data
    scales = np.where(np.arange(D) < 15, 1.0, 10.0)
    y = Whitening.fit(Statistics(D).update(X, pairs)).apply(X, "ws")
    fitted = Whitening.fit(Statistics(D).update(X * scales, pairs))
    np.testing.assert_allclose(fitted.apply(X * scales, "ws"), y, atol=1e-5)


def test_fewer_dimensions_are_the_first_columns(data):
    X, pairs = data
    C, C_M = cov(X), Statistics(D).update(X, pairs).C_M
    np.testing.assert_array_equal(supervised(C, C_M, dim=5), supervised(C, C_M)[:, :5])
    fitted = Whitening.fit(Statistics(D).update(X, pairs))
    for variant in filter(fitted.has, VARIANTS):
        A = fitted.projection(variant).A
        np.testing.assert_array_equal(fitted.projection(variant, 5).A, A[:, :5])
    for dim in (0, D + 1, 2.0, True):
        with pytest.raises(ValueError, match="integer from 1 to 24"):
            supervised(C, C_M, dim=dim)
        with pytest.raises(ValueError, match="integer from 1 to 24"):
            fitted.projection("wua", dim)


def test_eigenvectors_have_one_sign(data):
    X, _ = data
    C = cov(X)
    U, lam = eig(C)
    assert (np.diff(lam) <= 0).all()
    np.testing.assert_allclose(U * lam @ U.T, C, atol=1e-12)
    assert (U.max(axis=0) == np.abs(U).max(axis=0)).all()


# Degenerate input ---------------------------------------------------------------------------------


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
        fitted = Whitening.fit(few)
    messages = " ".join(str(w.message) for w in caught)
    assert "only 10 patches for 24" in messages
    assert "only 6 matching pairs for 24" in messages
    for variant in filter(fitted.has, VARIANTS):
        assert np.isfinite(fitted.projection(variant).A).all()
        np.testing.assert_allclose(np.linalg.norm(fitted.apply(X, variant), axis=1), 1, atol=1e-5)


def test_constant_dimensions_stay_finite(data):
    X, pairs = data
    X = X.copy()
    X[:, 3] = 0.25
    fitted = Whitening.fit(Statistics(D).update(X, pairs))
    for variant in filter(fitted.has, VARIANTS):
        assert np.isfinite(fitted.apply(X, variant)).all()


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


# The fitted object --------------------------------------------------------------------------------


def test_the_object_agrees_with_the_functions(data, fitted):
    X, pairs = data
    statistics = Statistics(D).update(X, pairs)
    expected = {
        "w": attenuated(statistics.C, t=1, dim=9),
        "wua": attenuated(statistics.C, dim=9),
        "wus": shrunk(statistics.C, D, dim=9),  # 24 eigenvalues: no 40th
        "ws": supervised(statistics.C, statistics.C_M, dim=9),
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
    fitted = Whitening.fit(Statistics(D).update(X), shrink_index=12)
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
    with pytest.raises(ValueError, match="integer from 1 to 24"):
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


# Files --------------------------------------------------------------------------------------------


@pytest.fixture
def path(fitted, tmp_path):
    path = tmp_path / "mine.npz"
    save(path, {("concat", 32): fitted})
    return path


def test_a_file_gives_back_every_projection_exactly(data, fitted, tmp_path):
    X, _ = data
    unsupervised = Whitening.fit(Statistics(D).update(X), max_dim=7, t=0.5, beta_index=3)
    entries = {("polar", 64): fitted, ("cart", 32): unsupervised}
    save(tmp_path / "a.npz", entries)
    loaded = load(tmp_path / "a.npz")
    assert set(loaded) == set(entries)
    for key, original in entries.items():
        assert loaded[key].provenance == original.provenance
        for variant in filter(original.has, VARIANTS):
            ours, theirs = (w.projection(variant) for w in (loaded[key], original))
            assert ours.power == theirs.power
            for a, b in zip(matrices(ours), matrices(theirs), strict=True):
                np.testing.assert_array_equal(a, b)
    assert not loaded["cart", 32].has("ws")
    assert loaded["polar", 64].provenance == {
        "fitted_on": "synthetic",
        "patches": 3000,
        "pairs": 1500,
        "supervised_t": 1.0,
    }


def test_equal_content_gives_equal_bytes(fitted, path):
    again = path.with_name("again.npz")
    save(again, load(path))
    assert again.read_bytes() == path.read_bytes()
    assert sorted(p.name for p in path.parent.iterdir()) == ["again.npz", "mine.npz"]
    np.testing.assert_array_equal(np.load(path, allow_pickle=False)["concat-32/U"], fitted.U)


def test_a_failed_write_keeps_the_old_file(fitted, path, monkeypatch):
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save(path, {("concat", 64): fitted})
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["mine.npz"]


def test_bad_names_are_refused(fitted, tmp_path):
    with pytest.raises(ValueError, match=r"end in \.npz"):
        save(tmp_path / "a.bin", {("concat", 32): fitted})
    for key in [("concat/..", 32), ("concat", 0), ("concat", 3.5), ("", 32)]:
        with pytest.raises(ValueError, match="kernel, patch size"):
            save(tmp_path / "a.npz", {key: fitted})
    with pytest.raises(ValueError, match="no entry"):
        save(tmp_path / "a.npz", {})
    assert not list(tmp_path.iterdir())


def test_every_damaged_byte_is_noticed_or_harmless(fitted, path):
    """Flip bytes all over the file: an error of one kind, or the very same matrices."""
    good = path.read_bytes()
    refused = 0
    for position in range(0, len(good), max(1, len(good) // 400)):
        bad = bytearray(good)
        bad[position] ^= 0x5A
        path.write_bytes(bad)
        try:
            loaded = load(path)["concat", 32]
        except ValueError as error:
            assert "mine.npz" in str(error)
            refused += 1
        else:
            np.testing.assert_array_equal(loaded.U, fitted.U)
            np.testing.assert_array_equal(loaded.A_s, fitted.A_s)
            assert loaded.provenance == fitted.provenance
    assert refused > 350


def test_truncated_and_foreign_files_are_refused(path, tmp_path):
    good = path.read_bytes()
    for bad in (b"", b"hello", good[: len(good) // 2], good[:-1], good[100:]):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"mine\.npz is not a sound kd_cv whitening file"):
            load(path)
    np.savez(path, mu=np.zeros(3))
    with pytest.raises(ValueError, match=r"no meta\.json"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.npz")


def rewrite(path, change, compress=zipfile.ZIP_STORED):
    """Write the file anew with changed members, and with the checksum that suits its arrays."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def npy(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def huge_header(members):
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 20, 1 << 20)}
    np.lib.format.write_array_header_1_0(stream, header)
    members["concat-32/U.npy"] = stream.getvalue() + bytes(16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (huge_header, "has 16 bytes, but an array"),
        (lambda m: m.update({"concat-32/U.npy": npy(np.ones((D, D), np.float32))}), "checksum"),
        (lambda m: m.update({"concat-32/U.npy": npy(np.ones(3, int))}), "not a float array"),
        (
            lambda m: m.update({"concat-32/U.npy": npy(np.array([{}]), allow_pickle=True)}),
            "not an array of numbers or text",
        ),
        (lambda m: m.update({"readme.txt": b"hello"}), "not an array"),
        (lambda m: m.update({"meta.json": b"[" * 100_000}), "sound"),
        (lambda m: m.update({"meta.json": b"{}"}), "does not say"),
        (lambda m: m.update({"meta.json": b"\xff"}), "sound"),
        (
            lambda m: m.update({"meta.json": m["meta.json"].replace(b"synth", b"Synth")}),
            "checksum",
        ),
        (
            lambda m: m.update({"meta.json": m["meta.json"].replace(b'sion":1', b'sion":2')}),
            "version",
        ),
    ],
)
def test_hostile_files_are_refused(path, change, message):
    rewrite(path, change)
    with pytest.raises(ValueError, match=message):
        load(path)


def test_a_compressed_bomb_is_refused_unread(path):
    rewrite(path, lambda m: m.update(bomb=bytes(10_000_000)), zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 50_000
    with pytest.raises(ValueError, match="compressed members"):
        load(path)


def test_too_large_a_file_is_refused_unread(path):
    with path.open("r+b") as file:
        file.truncate(MAX_BYTES + 1)  # sparse
    with pytest.raises(ValueError, match="at most"):
        load(path)


@pytest.mark.parametrize(
    ("arrays", "settings", "message"),
    [
        ({"U": np.full((D, 3), np.nan, np.float32)}, {}, "U has NaN"),
        ({"U": np.ones((D + 1, 3), np.float32)}, {}, r"U must have shape \(24, 3\)"),
        ({"lam": -np.ones(D)}, {}, "positive"),
        ({"other": np.ones(3)}, {}, "other"),
        ({}, {"t": 7}, "t must be"),
        ({}, {"t": "a"}, "damaged"),
        ({}, {"beta_index": 1000}, "beta_index"),
        ({}, {"lam_scale": 0}, "lam_scale"),
        ({}, {"provenance": [1]}, "provenance"),
        ({}, {"surprise": 1}, "surprise"),
    ],
)
def test_files_with_a_right_checksum_and_wrong_content_are_refused(
    fitted, tmp_path, arrays, settings, message
):
    names = ("mu", "U", "lam")
    content = {f"concat-32/{name}": getattr(fitted, name) for name in names}
    content.update({f"concat-32/{name}": array for name, array in arrays.items()})
    defaults = {"t": 0.7, "beta_index": 5, "lam_scale": 1.0, "provenance": {}}
    meta = {"entries": {"concat-32": {**defaults, **settings}}}
    write_archive(tmp_path / "a.npz", "whitening", content, meta)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "a.npz")


def test_the_provenance_must_be_json(data):
    X, _ = data
    statistics = Statistics(D).update(X)
    with pytest.raises(TypeError):
        Whitening.fit(statistics, provenance={"path": object()})
    with pytest.raises(ValueError, match="JSON"):
        Whitening.fit(statistics, provenance={"figure": float("nan")})


def test_the_file_says_what_it_is(path):
    with zipfile.ZipFile(path) as archive:
        meta = json.loads(archive.read("meta.json"))
        assert {m.date_time for m in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert meta["format"] == "kd_cv whitening"
    assert meta["entries"]["concat-32"]["provenance"]["fitted_on"] == "synthetic"


# The authors' and Kornia's files ------------------------------------------------------------------


@pytest.fixture(scope="module")
def pth(tmp_path_factory):
    """A file of the layout of mkd-concat-64.pth, of 60 dimensions; and its content."""
    torch = pytest.importorskip("torch")
    models = {}
    for seed, training_set in enumerate(("liberty", "yosemite")):
        X, pairs = descriptors(n=2000, dim=60, seed=seed)
        statistics = Statistics(60).update(X, pairs)
        U, lam = eig(statistics.C)
        A = supervised(statistics.C, statistics.C_M)
        parts = {"pca": (X.mean(0), U, lam / lam[0]), "lw": (X.mean(0) + 0.01, A, lam)}
        models[training_set] = {
            algorithm: {
                name: torch.tensor(value, dtype=torch.float32)
                for name, value in zip(("mean", "eigvecs", "eigvals"), values, strict=True)
            }
            for algorithm, values in parts.items()
        }
    path = tmp_path_factory.mktemp("pth") / "mkd-concat-64.pth"
    torch.save(models, path)
    return path, models, X.astype(np.float32)


@pytest.mark.parametrize("training_set", ["liberty", "yosemite"])
@pytest.mark.parametrize("name", ["pca", "pcawt", "pcaws", "lw"])
@pytest.mark.parametrize("dim", [60, 32])
def test_kornias_file_gives_kornias_descriptors(pth, training_set, name, dim):
    torch = pytest.importorskip("torch")
    mkd = pytest.importorskip("kornia.feature.mkd")
    path, models, X = pth
    layer = mkd.Whitening(name, models[training_set], in_dims=60, output_dims=dim)
    with torch.no_grad():
        expected = layer(torch.from_numpy(X)).numpy()
    ours = load_pth(path, training_set).apply(X, name, dim)
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_kornias_file_through_our_own(pth, tmp_path):
    path, _, X = pth
    matrices = load_pth(path)
    save(tmp_path / "a.npz", {("concat", 64): matrices})
    loaded = load(tmp_path / "a.npz")["concat", 64]
    for variant in filter(matrices.has, VARIANTS):
        np.testing.assert_array_equal(loaded.apply(X, variant), matrices.apply(X, variant))


def test_bad_pth_files_are_refused(pth, tmp_path):
    torch = pytest.importorskip("torch")
    path, _, _ = pth
    with pytest.raises(ValueError, match=r"no training set 'paris', but \['liberty', 'yosemite'\]"):
        load_pth(path, "paris")
    bad = tmp_path / "bad.pth"
    for content in (b"", b"hello", path.read_bytes()[:1000]):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.pth is not a file of torch tensors"):
            load_pth(bad)
    torch.save({"liberty": {"pca": {"mean": torch.zeros(3)}}}, bad)
    with pytest.raises(ValueError, match="expected mean, eigvecs, eigvals"):
        load_pth(bad)
    torch.save([1, 2], bad)
    with pytest.raises(ValueError, match="no training set 'liberty', but list"):
        load_pth(bad)
    torch.save(pytest.approx, bad)  # a pickled function is not loaded
    with pytest.raises(ValueError, match="not a file of torch tensors"):
        load_pth(bad)


def test_no_warning_on_sound_data(data):
    X, pairs = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Whitening.fit(Statistics(D).update(X, pairs)).apply(X, "ws")


# What is refused ----------------------------------------------------------------------------------


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
        (zeros, {**meta, "count": -5}, "damaged statistics: count is -5"),
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

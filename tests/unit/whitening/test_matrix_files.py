"""Files of matrices, ours and those of others."""

from dataclasses import replace

import numpy as np
import pytest
from of_matrices import D, descriptors, matrices

from kd_cv.io.archive import write_archive
from kd_cv.whitening.files import load, load_pth, save
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.variants import VARIANTS, eig, supervised
from kd_cv.whitening.whitening import Whitening


@pytest.fixture
def path(model, tmp_path):
    path = tmp_path / "mine.npz"
    save(path, {("concat", 32): model})
    return path


def test_a_file_gives_back_every_projection_exactly(data, model, tmp_path):
    X, _ = data
    unsupervised = replace(Whitening.fit(Statistics(D).update(X), max_dim=7), t=0.5, beta_index=3)
    entries = {("polar", 64): model, ("cart", 32): unsupervised}
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
        "supervised_t": 0.9,
    }


def test_bad_names_are_refused(model, tmp_path):
    with pytest.raises(ValueError, match=r"end in \.npz"):
        save(tmp_path / "a.bin", {("concat", 32): model})
    for key in [("concat/..", 32), ("concat", 0), ("concat", 3.5), ("", 32)]:
        with pytest.raises(ValueError, match="kernel, patch size"):
            save(tmp_path / "a.npz", {key: model})
    with pytest.raises(ValueError, match="no entry"):
        save(tmp_path / "a.npz", {})
    assert not list(tmp_path.iterdir())


def test_truncated_and_foreign_files_are_refused(path, tmp_path):
    good = path.read_bytes()
    for bad in (b"", b"hello", good[: len(good) // 2], good[:-1], good[100:]):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"mine\.npz is not a sound kd_cv whitening file"):
            load(path)
    np.savez(path, mu=np.zeros(3))
    with pytest.raises(ValueError, match="not a sound kd_cv whitening file"):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.npz")


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
        ({}, {"provenance": [1]}, "cannot convert dictionary"),
        ({}, {"surprise": 1}, "surprise"),
    ],
)
def test_files_with_a_right_checksum_and_wrong_content_are_refused(
    model, tmp_path, arrays, settings, message
):
    names = ("mu", "U", "lam")
    content = {f"concat-32/{name}": getattr(model, name) for name in names}
    content.update({f"concat-32/{name}": array for name, array in arrays.items()})
    defaults = {"t": 0.7, "beta_index": 5, "lam_scale": 1.0, "provenance": {}}
    meta = {"entries": {"concat-32": {**defaults, **settings}}}
    write_archive(tmp_path / "a.npz", "whitening", content, meta)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "a.npz")


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


@pytest.mark.slow
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

"""Files of matrices, ours and those of others."""

import io
import json
import os
import warnings
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from of_matrices import D, descriptors, matrices

from kd_cv.io.archive import MAX_BYTES, write_archive
from kd_cv.whitening.files import load, load_pth, save
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.variants import VARIANTS, eig, supervised
from kd_cv.whitening.whitening import Whitening


@pytest.fixture
def path(fitted, tmp_path):
    path = tmp_path / "mine.npz"
    save(path, {("concat", 32): fitted})
    return path


def test_a_file_gives_back_every_projection_exactly(data, fitted, tmp_path):
    X, _ = data
    unsupervised = replace(Whitening.fit(Statistics(D).update(X), max_dim=7), t=0.5, beta_index=3)
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
        (huge_header, "is not a sound"),
        (
            lambda m: m.update({"concat-32/U.npy": npy(np.ones(3, np.int32))}),
            "U must have shape",
        ),
        (
            lambda m: m.update({"concat-32/U.npy": npy(np.array([{}]), allow_pickle=True)}),
            "Object arrays cannot be loaded",
        ),
        (lambda m: m.update({"readme.txt": b"hello"}), "not an array"),
        (lambda m: m.update({"meta.json": b"[" * 100_000}), "sound"),
        (lambda m: m.update({"meta.json": b"{}"}), "does not say"),
        (lambda m: m.update({"meta.json": b"\xff"}), "sound"),
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
    bomb = npy(np.zeros(MAX_BYTES // 8))
    rewrite(path, lambda m: m.update({"bomb.npy": bomb}), zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(ValueError, match="bytes unpacked, at most"):
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

"""The registry of shipped matrices, and what `weights=` may be."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from kd_cv.whitening import load, save
from kd_cv.whitening import registry as weights
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.whitening import Whitening

DIMS = {"polar": 6, "cart": 4}


def fit(dim, seed=0):
    X = np.random.default_rng(seed).normal(size=(200, dim))
    return Whitening.fit(Statistics(dim).update(X))


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder of shipped matrices: two names, and the entries of the first."""
    entries = {
        (kernel, size): fit(dim, seed=size) for kernel, dim in DIMS.items() for size in (32, 64)
    }
    index = {}
    for name, content in {"town": entries, "wood": {("polar", 32): fit(6, seed=1)}}.items():
        save(tmp_path / f"{name}.npz", content)
        index[name] = {
            "file": f"{name}.npz",
            "sha256": weights.file_sha256(tmp_path / f"{name}.npz"),
            "fitted_on": f"random numbers of a {name}",
            "patches": 200,
            "pairs": 0,
            "scenes": 1,
            "command": "pytest",
            "figures": {"fpr95": 50.0},
        }
    (tmp_path / "index.json").write_text(json.dumps(index))
    monkeypatch.setattr(weights, "folder", lambda: tmp_path)
    return tmp_path, entries


@pytest.mark.usefixtures("shipped")
def test_the_registry_lists_names_and_provenance():
    assert list(weights.registry()) == ["town", "wood"]
    assert weights.registry()["wood"].fitted_on == "random numbers of a wood"
    assert weights.registry()["wood"].figures == {"fpr95": 50.0}
    with pytest.raises(ValueError, match="unknown weights 'liberti': shipped are town, wood"):
        weights.resolve("liberti", "polar", 32)


@pytest.mark.parametrize(
    ("patch_size", "used"), [(32, 32), (64, 64), (16, 32), (49, 64), (48, 32), (41, 32), (200, 64)]
)
def test_load_takes_the_nearest_patch_size(shipped, patch_size, used):
    _, entries = shipped
    loaded = weights.resolve("town", "cart", patch_size)
    np.testing.assert_array_equal(loaded.U, entries["cart", used].U)
    assert loaded is weights.resolve("town", "cart", used)  # read once


def test_a_changed_file_is_refused(shipped):
    where, entries = shipped
    save(where / "town.npz", {("polar", 32): entries["polar", 64]})
    with pytest.raises(ValueError, match="not the file that was shipped"):
        weights.resolve("town", "polar", 32)
    (where / "wood.npz").unlink()
    with pytest.raises(FileNotFoundError, match="wood"):
        weights.resolve("wood", "polar", 32)


def test_resolve_understands_names_paths_and_objects(shipped, monkeypatch):
    where, entries = shipped
    expected = entries["polar", 32].U
    monkeypatch.chdir(where)
    for given in ("town", "town.npz", str(where / "town.npz"), where / "town.npz", entries):
        np.testing.assert_array_equal(weights.resolve(given, "polar", 30, dim=6).U, expected)
    own = entries["polar", 32]
    assert weights.resolve(own, "polar", 32, dim=6) is own


def test_resolve_reads_a_rewritten_file_anew(tmp_path):
    path = tmp_path / "mine.npz"
    for seed in (1, 2):
        save(path, {("polar", 32): fit(6, seed)})
        os.utime(path, ns=(seed, seed))
        np.testing.assert_array_equal(weights.resolve(path, "polar", 32).U, fit(6, seed).U)


def test_resolve_refuses(shipped, tmp_path):
    where, entries = shipped
    with pytest.raises(ValueError, match=r"'twon': shipped are town, wood; a path must end in"):
        weights.resolve("twon", "polar", 32)
    with pytest.raises(FileNotFoundError):
        weights.resolve(tmp_path / "absent.npz", "polar", 32)
    with pytest.raises(TypeError, match="got int"):
        weights.resolve(3, "polar", 32)
    for given in ("town", where / "town.npz", entries, entries["polar", 32]):
        with pytest.raises(ValueError, match="6 dimensions, but the 'polar' descriptor has 175"):
            weights.resolve(given, "polar", 32, dim=175)


def test_resolve_reads_the_authors_files(tmp_path):
    torch = pytest.importorskip("torch")
    fitted = fit(6)
    part = {
        "mean": torch.from_numpy(fitted.mu.copy()),
        "eigvecs": torch.from_numpy(fitted.U.copy()),
        "eigvals": torch.from_numpy(fitted.lam.copy()),
    }
    torch.save({"liberty": {"pca": part, "lw": part}}, tmp_path / "mkd.pth")
    resolved = weights.resolve(tmp_path / "mkd.pth", "polar", 64, dim=6)
    np.testing.assert_array_equal(resolved.U, fitted.U)
    with pytest.raises(ValueError, match="6 dimensions"):
        weights.resolve(str(tmp_path / "mkd.pth"), "cart", 64, dim=4)


def test_every_shipped_file_is_whole():
    assert weights.registry()
    for entry in weights.registry().values():
        path = weights.folder() / entry.file
        assert weights.file_sha256(path) == entry.sha256
        assert all(fitted.has("ws") for fitted in load(path).values())


@pytest.mark.parametrize("entries", [{1: 2}, {("concat", 32): 3}, {"concat": None}])
def test_a_dict_of_something_else(entries):
    with pytest.raises(TypeError, match=r"keys \(kernel, patch size\) and Whitening values"):
        weights.resolve(entries, "concat", 32)


def test_matrices_for_one_use_come_before_those_for_all(tmp_path):
    everything = fit(6, 0)
    entries = {
        ("polar", 32): everything,
        ("polar", 32, "scales"): fit(6, 1),
        ("polar", 64, "patches"): fit(6, 2),
    }
    save(tmp_path / "mine.npz", entries)
    assert load(tmp_path / "mine.npz").keys() == entries.keys()
    chosen = {
        ("images", 32): 0, ("images", 64): 0, ("images", 128): 0,
        ("scales", 32): 1, ("scales", 64): 1,
        ("patches", 16): 0, ("patches", 32): 0, ("patches", 64): 2, ("patches", 48): 0,
    }  # fmt: skip
    for given in (tmp_path / "mine.npz", entries):
        for (use, size), seed in chosen.items():
            found = weights.resolve(given, "polar", size, use=use)
            np.testing.assert_array_equal(found.U, fit(6, seed).U)
    only = {("polar", 32, "scales"): everything}
    with pytest.raises(ValueError, match="'polar' of images, only for polar of scales"):
        weights.resolve(only, "polar", 32)
    with pytest.raises(ValueError, match=r"an entry must be \(kernel, patch size\)"):
        save(tmp_path / "other.npz", {("polar", 32, "sketches"): everything})


def test_the_best_is_the_trained_then_the_supervised_then_the_attenuated():
    X = np.random.default_rng(0).normal(size=(200, 6))
    pairs = np.arange(200).reshape(-1, 2)
    alone = Whitening.fit(Statistics(6).update(X))
    paired = Whitening.fit(Statistics(6).update(X, pairs))
    trained = replace(paired, A_m=paired.A_s[:, ::-1], mu_m=paired.mu)
    for fitted, name in ((alone, "wua"), (paired, "ws"), (trained, "wm")):
        assert fitted.variant("best") == name
        np.testing.assert_array_equal(fitted.projection("best").A, fitted.projection(name).A)
    assert trained.variant("W_S") == "ws"
    with pytest.raises(ValueError, match='"wm" is missing'):
        paired.projection("wm")

"""Files of matrices and settings: cut, changed, of others, or no files."""

import pickle
import warnings

import numpy as np
import pytest
from small_image import RNG

from kd_cv import KDDescriptor, Whitening, describe
from kd_cv.whitening import save
from kd_cv.whitening.statistics import Statistics

DAMAGED = {
    "no bytes": lambda data: b"",
    "one byte": lambda data: data[:1],
    "a half": lambda data: data[: len(data) // 2],
    "all but one byte": lambda data: data[:-1],
    "zeros": lambda data: bytes(1000),
    "text": lambda data: b"not a matrix",
    "a byte changed": lambda data: data[:2000] + bytes([data[2000] ^ 255]) + data[2001:],
    "a pickle": lambda data: pickle.dumps({"mu": 3}),
}
SETTINGS = {
    "empty": lambda text: "",
    "cut": lambda text: text[: len(text) // 2],
    "binary": lambda text: "\0\1\2",
    "another's": lambda text: "a: 1\n",
    "wrong size": lambda text: text.replace("patch_size: 32", "patch_size: 10000000"),
    "no size": lambda text: text.replace("patch_size: 32", ""),
    "a text for a size": lambda text: text.replace("patch_size: 32", "patch_size: x"),
}
NO_PATHS = ["/nowhere/kd.yml", "a folder", "", "\0", None, 3]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file of matrices that is as it should be."""
    statistics = Statistics(238)
    rows = describe(RNG.random((600, 32, 32)), whitening=None)
    statistics.update(rows, np.arange(600).reshape(-1, 2))
    path = tmp_path_factory.mktemp("whole") / "whole.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(path, {("concat", 32): Whitening.fit(statistics)})
    return path


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("suffix", [".npz", ".pth"])
def test_damaged_matrices_are_refused(tmp_path, whole, damage, suffix):
    if suffix == ".pth":
        pytest.importorskip("torch")
    path = tmp_path / f"damaged{suffix}"
    path.write_bytes(damage(whole.read_bytes()))
    with pytest.raises((ValueError, OSError), match=r"\S"):
        KDDescriptor(weights=path)


@pytest.mark.parametrize("damage", SETTINGS.values(), ids=SETTINGS)
def test_damaged_settings_are_refused(tmp_path, damage):
    path = tmp_path / "kd.yml"
    KDDescriptor().write(path)
    path.write_text(damage(path.read_text()))
    with pytest.raises((ValueError, TypeError, OSError), match=r"\S"):
        KDDescriptor().read(path)


@pytest.mark.parametrize("method", [KDDescriptor.write, KDDescriptor.read], ids=["write", "read"])
@pytest.mark.parametrize("path", NO_PATHS, ids=repr)
def test_what_is_no_path_of_settings(tmp_path, method, path):
    with pytest.raises((OSError, ValueError, TypeError), match=r"\S"):
        method(KDDescriptor(), tmp_path if path == "a folder" else path)

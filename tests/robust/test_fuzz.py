"""Readers of files that people share, on the corpus and, nightly, on changes of valid files."""

import os
import random
import time
import warnings
from pathlib import Path

import cv2
import numpy as np
import pytest

from kd_cv import DoG, KDDescriptor
from kd_cv.io.images import read_gray
from kd_cv.io.sources import read_source
from kd_cv.whitening import load, save
from kd_cv.whitening.files import load_pth
from kd_cv.whitening.registry import resolve
from kd_cv.whitening.statistics import Statistics

CORPUS = Path(__file__).parent / "corpus"
SECONDS = float(os.environ.get("KD_FUZZ_SECONDS", "60"))  # for each reader
MAX_BYTES = 2**12  # of a part that is changed


def _both(path):
    read_gray(path)
    read_source(path)


#: Name -> suffix, and the function that reads such a file.
READERS = {
    "photograph": (".jpg", _both),
    "settings": (".yml", lambda path: KDDescriptor().read(path)),
    "detector": (".json", lambda path: DoG().read(path)),
    "weights": (".npz", load),
    "statistics": (".npz", Statistics.load),
    "pth": (".pth", load_pth),
}


def seeds(name: str, folder: Path) -> list[bytes]:
    """Valid files of a reader."""
    if name == "photograph":
        small = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
        suffixes = (".jpg", ".png", ".bmp", ".ppm", ".tif", ".webp")
        return [cv2.imencode(suffix, small)[1].tobytes() for suffix in suffixes]
    path = folder / f"seed{READERS[name][0]}"
    if name == "settings":
        KDDescriptor(scales=3).write(path)
    elif name == "detector":
        DoG(100).write(path)
    elif name == "weights":
        save(path, {("cart", 32): resolve("multiview", "cart", 32)})
    elif name == "statistics":
        Statistics(3).save(path)
    else:
        torch = pytest.importorskip("torch")
        part = {"mean": torch.zeros(3), "eigvecs": torch.eye(3), "eigvals": torch.ones(3)}
        torch.save({"liberty": {"pca": part}}, path)
    return [path.read_bytes()]


def check(name: str, data: bytes, folder: Path) -> None:
    """A reader takes the data, or refuses it with a ValueError or an OSError."""
    suffix, read = READERS[name]
    path = folder / f"file{suffix}"
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(path)
        except (ValueError, OSError):
            pass
        except Exception:
            (folder / f"found-{name}").write_bytes(data)
            raise


def changed(data: bytes, rng: random.Random) -> bytes:
    """Some bytes replaced, cut out, repeated or moved; headers more often than the rest."""
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(min(len(data), rng.choice((64, MAX_BYTES, 2**30))) or 1)
        end = min(len(data), at + rng.choice((1, 1, 2, 4, 8, 64)))
        piece = data[at:end]
        replacement = rng.choice(
            (rng.randbytes(end - at), b"", 2 * piece, b"\xff" * (end - at), bytes(end - at))
        )
        data = data[:at] + replacement + data[end:]
    return data if rng.random() < 0.9 else data[: rng.randrange(len(data) or 1)]


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: path.name)
def test_the_corpus(path, tmp_path):
    if path.parent.name == "pth":
        pytest.importorskip("torch")
    check(path.parent.name, path.read_bytes(), tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_valid_files_and_some_changes(name, tmp_path):
    rng = random.Random(0)
    for data in seeds(name, tmp_path):
        for _ in range(10):
            check(name, changed(data, rng), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_changes_of_valid_files(name, tmp_path):
    rng, known = random.Random(time.time_ns()), seeds(name, tmp_path)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        check(name, changed(rng.choice(known), rng), tmp_path)

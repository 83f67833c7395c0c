"""Retrieval: the image that shows the query comes first, verified, and unknown ones are not."""

import itertools
from pathlib import Path

import cv2
import numpy as np
import pytest
from collections_of_photographs import whitened
from skimage import data

from kd_cv.collection import Extraction, extract, retrieval
from kd_cv.collection.retrieval import Index, default_factory
from kd_cv.io.archive import read_archive, write_archive

faiss = pytest.importorskip("faiss")
pytest.importorskip("h5py")

SHOWN = ("astronaut", "coffee", "chelsea", "camera", "brick", "gravel")


def warped(image: np.ndarray, degrees: float = 12, zoom: float = 0.9) -> tuple[np.ndarray, ...]:
    """The image turned and made smaller, and the homography that does it."""
    height, width = image.shape[:2]
    M = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, zoom)
    return cv2.warpAffine(image, M, (width, height)), np.vstack([M, [0, 0, 1]])


@pytest.fixture(scope="module")
def extraction() -> Extraction:
    return Extraction(whitened(), 500)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory, extraction: Extraction) -> Path:
    folder = tmp_path_factory.mktemp("collection")
    for name in SHOWN:
        image = getattr(data, name)()
        cv2.imwrite(str(folder / f"{name}.png"), image)
        cv2.imwrite(str(folder / f"{name}-turned.png"), warped(image)[0])
    extract(folder, folder / "features.h5", extraction)
    return folder / "features.h5"


@pytest.mark.slow
@pytest.mark.parametrize("factory", [None, "IVF16,SQ8"])
def test_finds_what_is_shown(features: Path, extraction: Extraction, factory: str | None) -> None:
    index = Index.build(features, factory)
    assert len(index.names) == 12 and len(index) > 3000
    for name in ("astronaut", "coffee", "brick"):
        query, H = warped(getattr(data, name)(), degrees=-25, zoom=0.8)
        hits = index.search(query[:, :, ::-1] if query.ndim == 3 else query, extraction, top=5)
        assert {hit.name for hit in hits if hit.verified} == {f"{name}.png", f"{name}-turned.png"}
        assert [hit.verified for hit in hits[:2]] == [True, True]
        whole = next(hit for hit in hits if hit.name == f"{name}.png")
        corners = np.float64([[[100, 100]], [[300, 100]], [[200, 250]]])
        there = cv2.perspectiveTransform(cv2.perspectiveTransform(corners, H), whole.H_0to1)
        assert np.abs(there - corners).max() < 3


@pytest.mark.slow
def test_what_is_not_there(features: Path, extraction: Extraction) -> None:
    index = Index.build(features)
    assert not any(hit.verified for hit in index.search(data.coins(), extraction))
    assert index.search(np.full((100, 100), 7, np.uint8), extraction) == []


def test_votes_are_those_of_the_definition(features: Path) -> None:
    index = Index.build(features)
    rng = np.random.default_rng(0)
    rows = index.faiss.reconstruct_n(0, len(index))
    query = rows[rng.choice(len(rows), 40)] + rng.normal(0, 0.02, (40, 128)).astype(np.float32)
    votes = np.zeros(len(index.names))
    image_of = np.repeat(np.arange(len(index.names)), np.diff(index.starts))
    for q in query:
        squares = ((rows - q) ** 2).sum(axis=1)
        nearest = np.argsort(squares)[:8]
        seen = set()
        for row in nearest:
            if image_of[row] not in seen:
                seen.add(image_of[row])
                votes[image_of[row]] += 1 - squares[row] / squares[nearest[-1]]
    assert np.allclose(index.votes(query), votes, atol=1e-3)


@pytest.mark.slow
def test_pairs_link_views_of_the_same_picture(features: Path) -> None:
    pairs = Index.build(features).pairs(top=1)
    for name in SHOWN:
        assert (f"{name}-turned.png", f"{name}.png") in pairs


@pytest.mark.slow
def test_saved_and_loaded(features: Path, extraction: Extraction, tmp_path: Path) -> None:
    index = Index.build(features, "IVF16,SQ8")
    index.save(tmp_path / "index.npz")
    again = Index.load(tmp_path / "index.npz")
    assert repr(again) == repr(index)
    query = warped(data.coffee())[0]
    for a, b in zip(index.search(query, extraction), again.search(query, extraction), strict=True):
        assert (a.name, a.votes) == (b.name, b.votes)
    write_archive(tmp_path / "other.npz", "index", {"starts": np.zeros(1, np.int64)}, {})
    with pytest.raises(ValueError, match="not an index: it lacks 'index'"):
        Index.load(tmp_path / "other.npz")


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index.npz"
    rows = faiss.IndexFlatL2(4)
    rows.add(np.eye(4, dtype=np.float32))
    made = Index(Path("f.h5"), ("a", "b"), np.array([0, 1, 4]), rows, "{}")
    made.save(path)
    assert len(Index.load(path)) == 4
    arrays, content = read_archive(path, "index")
    stored = arrays["index"].tobytes()
    path.write_bytes(path.read_bytes().replace(stored, stored[:-1] + bytes([stored[-1] ^ 1])))
    with pytest.raises(ValueError, match=r"Bad CRC-32|its checksum is wrong"):
        Index.load(path)
    np.savez_compressed(path, **arrays, zeros=np.zeros(10**6))
    with pytest.raises(ValueError, match="packed in another way"):
        Index.load(path)
    for wrong, said in (
        ({"starts": np.array([0, 1])}, "names and .* starts do not fit"),
        ({"starts": np.array([0.0, 1, 4])}, "names and .* starts do not fit"),
        ({"starts": np.array([0, 1, 5])}, "starts are not those of 4 descriptors"),
        ({"starts": np.array([0, 9, 4])}, "starts are not those of 4 descriptors"),
        ({"index": np.zeros(9, np.uint8)}, "no index of FAISS's"),
        ({"index": np.zeros(9)}, "no index of FAISS's"),
    ):
        write_archive(path, "index", {**arrays, **wrong}, content)
        with pytest.raises(ValueError, match=said):
            Index.load(path)
    for wrong, said in (
        ({"names": "ab"}, "names and .* starts do not fit"),
        ({"names": ["a", 2]}, "must be text"),
        ({"features": None}, "must be text"),
    ):
        write_archive(path, "index", arrays, {**content, **wrong})
        with pytest.raises(ValueError, match=said):
            Index.load(path)
    path.write_bytes(b"PK")
    with pytest.raises(ValueError, match="not a sound"):
        Index.load(path)


def test_query_must_be_described_alike(features: Path) -> None:
    with pytest.raises(ValueError, match="has other settings"):
        Index.build(features).search(data.coffee(), Extraction(whitened(), 400))


def test_size_of_the_index() -> None:
    assert default_factory(5_000) == "Flat"
    assert default_factory(1_000_000) == "IVF4096,SQ8"


def test_an_index_of_blank_images(tmp_path):
    cv2.imwrite(str(tmp_path / "blank.png"), np.zeros((64, 64), np.uint8))
    extract(tmp_path, tmp_path / "features.h5", Extraction("sift", 10))
    with pytest.raises(ValueError, match=r"features\.h5 has no descriptors to index"):
        Index.build(tmp_path / "features.h5")


@pytest.mark.slow
def test_images_beyond_the_candidates_are_listed_by_votes(features, extraction, monkeypatch):
    monkeypatch.setattr(retrieval, "CANDIDATES", 1)
    index = Index.build(features)
    assert len(index) == index.starts[-1] > 3000
    hits = index.search(data.camera(), extraction, top=4)
    assert hits[0].name == "camera.png" and hits[0].verified
    assert [hit.inliers for hit in hits[1:]] == [0, 0, 0]
    assert all(a.votes >= b.votes > 0 for a, b in itertools.pairwise(hits[1:]))

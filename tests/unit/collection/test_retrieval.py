"""Retrieval: the image that shows the query comes first, verified, and unknown ones are not."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from collections_of_photographs import whitened
from skimage import data

from kd_cv.collection import Extraction, extract
from kd_cv.collection.retrieval import Index
from kd_cv.io.archive import read_archive

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


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index.npz"
    rows = faiss.IndexFlatL2(4)
    rows.add(np.eye(4, dtype=np.float32))
    Index(Path("f.h5"), ("a", "b"), np.array([0, 1, 4]), rows, "{}").save(path)
    assert len(Index.load(path)) == 4
    whole = path.read_bytes()
    arrays, _ = read_archive(path, "index")
    stored = arrays["index"].tobytes()
    for damaged in (
        whole[: len(whole) // 2],
        whole.replace(stored, stored[:-1] + bytes([stored[-1] ^ 1])),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="not a sound"):
            Index.load(path)


def test_the_arguments_of_a_search_are_checked(features: Path, extraction: Extraction) -> None:
    index = Index.build(features)
    with pytest.raises(ValueError, match=r"other settings .*: search with the extraction of"):
        index.search(data.coffee(), Extraction(whitened(), 400))
    for top in (-1, 0):
        with pytest.raises(ValueError, match="top must be at least 1"):
            index.search(data.coffee(), extraction, top=top)
        with pytest.raises(ValueError, match="top must be at least 1"):
            index.pairs(top)


@pytest.mark.slow
def test_all_copies_of_a_photograph_are_found(tmp_path: Path, extraction: Extraction) -> None:
    for k in range(12):
        cv2.imwrite(str(tmp_path / f"copy{k}.png"), data.astronaut()[:300, :300, ::-1])
    cv2.imwrite(str(tmp_path / "other.png"), data.coffee())
    extract(tmp_path, tmp_path / "f.h5", extraction)
    hits = Index.build(tmp_path / "f.h5").search(data.astronaut()[:, :, ::-1], extraction, top=20)
    assert sum(hit.name.startswith("copy") and hit.verified for hit in hits) == 12


@pytest.mark.slow
def test_queries_keep_their_precision(features: Path, extraction: Extraction) -> None:
    index, camera = Index.build(features), data.camera()
    for query in (camera.astype(np.uint16), camera.astype(np.float32) * 257, camera - 128.0):
        assert index.search(query, extraction, top=1)[0].inliers > 100

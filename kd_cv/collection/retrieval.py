"""Which images of a collection show this? An index, votes, and geometric verification.

Descriptors of a query vote for the images of their neighbours in one index (FAISS, extra
`retrieval`). Images with most votes are matched with the query and sorted by their inliers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.checks import as_int
from kd_cv.collection import Extraction, FeatureFile, ImageFeatures, reading
from kd_cv.collection.extraction import check_settings
from kd_cv.extras import extra
from kd_cv.gray import as_gray
from kd_cv.io.archive import read_archive, write_archive
from kd_cv.io.files import PathLike
from kd_cv.matching.neighbours import RATIO, match_descriptors
from kd_cv.matching.two_view import Model, estimate
from kd_cv.types import Array32, Image

EXACT_BELOW = 20_000  # descriptors: so few are compared one by one
NEIGHBOURS = 8
NEAR = 0.3  # distance, in norms of a descriptor, below which two may be copies of one
PROBES = 16  # lists of the index that are searched
TRAINED_PER_LIST = 64  # descriptors that the clustering sees
CANDIDATES = 20  # images with most votes that are verified, at least
MIN_INLIERS = 12
THRESHOLD = 8.0  # of the inliers of a plane or a scene, in pixels


@dataclass(frozen=True)
class Hit:
    """An image that may show the query.

    votes     of the query's descriptors
    inliers   of the better of two models
    model     "homography" or "fundamental"
    H_0to1    (3, 3) from the query to the image, or None
    verified  whether there are at least MIN_INLIERS inliers
    """

    name: str
    votes: float
    inliers: int = 0
    H_0to1: NDArray[np.float64] | None = None
    model: Model = "homography"

    @property
    def verified(self) -> bool:
        return self.inliers >= MIN_INLIERS


@dataclass(frozen=True, eq=False, repr=False)
class Index:
    """An index over the descriptors of a feature file, which `search` reads to verify.

    starts  (images + 1,) index of the first descriptor of each image

    >>> from kd_cv.collection import extract
    >>> summary = extract("photographs", "features.h5")
    >>> index = Index.build("features.h5")
    >>> [hit.name for hit in index.search(image) if hit.verified]
    ['a.jpg']
    >>> index.pairs(top=1)[0]
    ('a.jpg', ...)
    """

    features: Path
    names: tuple[str, ...]
    starts: NDArray[np.int64]
    faiss: Any
    settings: str

    def __len__(self) -> int:
        return int(self.faiss.ntotal)

    def __repr__(self) -> str:
        return f"Index({len(self.names)} images, {len(self)} descriptors of {self.faiss.d})"

    @classmethod
    def build(cls, features: PathLike, factory: str | None = None) -> Index:
        """Index a feature file.

        factory  FAISS's description of an index; by default "Flat" for few descriptors, else an
                 inverted file of 4 sqrt(n) lists of 8-bit descriptors ("IVF4096,SQ8")
        """
        faiss = _faiss()
        with reading(features) as stored:
            settings, names = stored.settings_text, stored.names
            counts = [stored.count(name) for name in names]
            total, dim = sum(counts), next((stored[n].descriptors.shape[1] for n in names), 0)
            if total == 0:
                raise ValueError(f"{features} has no descriptors to index")
            factory = factory or default_factory(total)
            index = faiss.index_factory(dim, factory)
            if not index.is_trained:
                lists = getattr(faiss.try_extract_index_ivf(index), "nlist", 256)
                index.train(_sample(stored, counts, TRAINED_PER_LIST * lists))
            for name in names:
                index.add(stored[name].descriptors)
        return cls(Path(features), names, np.cumsum([0, *counts]), index, settings)

    def save(self, path: PathLike) -> None:
        """Write one .npz file, whole or not at all; it names the feature file by its path."""
        arrays = {"index": _faiss().serialize_index(self.faiss), "starts": self.starts}
        content = {"names": self.names, "features": str(self.features.absolute())}
        write_archive(path, "index", arrays, {**content, "settings": self.settings})

    @classmethod
    def load(cls, path: PathLike) -> Index:
        """Read a file written by `save`; ValueError if it is damaged."""
        arrays, content = read_archive(path, "index")
        index, names = _faiss().deserialize_index(arrays["index"]), tuple(content["names"])
        features, settings = Path(content["features"]), content["settings"]
        return cls(features, names, arrays["starts"], index, settings)

    def search(
        self, image: Image, extraction: Extraction | None = None, *, top: int = 10
    ) -> list[Hit]:
        """Find at most `top` images that show the same as `image`, best first.

        extraction  must be equal to that of the feature file
        """
        top = as_int(top, "top")
        extraction = extraction or Extraction()
        advice = "search with the extraction of the feature file"
        check_settings(self.features, self.settings, extraction.settings_text, advice)
        query = extraction.features(as_gray(image))
        votes = self.votes(query.descriptors)
        order = np.argsort(-votes, kind="stable")[: max(top, CANDIDATES)]
        hits = [Hit(self.names[i], float(votes[i])) for i in order[votes[order] > 0]]
        with reading(self.features) as stored:
            hits = [verified(hit, query, stored[hit.name]) for hit in hits]
        return sorted(hits, key=lambda hit: (-hit.inliers, -hit.votes))[:top]

    def votes(self, descriptors: Array32) -> NDArray[np.float64]:
        """Count the votes for each image: (images,).

        A neighbour at distance d gives its image the vote 1 - (d / d_k)^2, where d_k is the
        distance of the k-th neighbour. Copies of one photograph are near to each other: k is
        doubled until d_k is at least `NEAR`. A descriptor votes once for an image.
        """
        votes = np.zeros(len(self.names))
        ivf = _faiss().try_extract_index_ivf(self.faiss)
        if ivf is not None:
            ivf.nprobe = min(PROBES, ivf.nlist)
        queries, count = np.ascontiguousarray(descriptors, np.float32), NEIGHBOURS
        while len(queries):
            count = min(count, len(self))
            squares, indices = self.faiss.search(queries, count)
            valid = indices >= 0
            near = NEAR**2 * (queries**2).sum(axis=1, keepdims=True) + 1e-12
            farthest = np.where(valid, squares, 0).max(axis=1, keepdims=True)
            done = (farthest > near).ravel() | ~valid.all(axis=1) | (count == len(self))
            weights = np.where(valid, 1 - squares / np.maximum(farthest, near), 0).clip(0)
            images = np.searchsorted(self.starts, indices, side="right") - 1
            for j in range(count):
                first = (images[:, :j] != images[:, j : j + 1]).all(axis=1) & valid[:, j] & done
                np.add.at(votes, images[first, j], weights[first, j])
            queries, count = queries[~done], 2 * count
        return votes

    def pairs(self, top: int = 20) -> list[tuple[str, str]]:
        """List pairs of images to match, each image with its `top` by votes, for `reconstruct`."""
        top = as_int(top, "top")
        wanted: dict[tuple[str, str], None] = {}
        with reading(self.features) as stored:
            for i, name in enumerate(self.names):
                votes = self.votes(stored[name].descriptors)
                votes[i] = 0
                for j in np.argsort(-votes, kind="stable")[:top].tolist():
                    if votes[j] > 0:
                        a, b = sorted((name, self.names[j]))
                        wanted[a, b] = None
        return list(wanted)


def verified(hit: Hit, query: ImageFeatures, other: ImageFeatures) -> Hit:
    """Match the query (image 0) with an image (1) and count its inliers."""
    matches, _ = match_descriptors(
        query.descriptors, other.descriptors,
        ratio=RATIO, points0=query.frames[:, :2], points1=other.frames[:, :2],
    )  # fmt: skip
    points0, points1 = query.frames[matches[:, 0], :2], other.frames[matches[:, 1], :2]
    views = estimate(points0, points1, "auto", threshold=THRESHOLD)
    H_0to1 = views.matrix if views.model == "homography" else None
    return replace(hit, inliers=int(views.inliers.sum()), H_0to1=H_0to1, model=views.model)


def default_factory(count: int) -> str:
    """Choose an index for `count` descriptors."""
    return "Flat" if count < EXACT_BELOW else f"IVF{list_count(count)},SQ8"


def list_count(count: int) -> int:
    """Return the lists of an inverted file: about 4 sqrt(count), a power of two."""
    return int(2 ** round(np.log2(4 * np.sqrt(count))))


def _sample(stored: FeatureFile, counts: list[int], wanted: int) -> Array32:
    """Take descriptors of random images until there are `wanted`."""
    order = np.random.default_rng(0).permutation(len(counts))
    enough = int(np.searchsorted(np.cumsum(np.array(counts)[order]), wanted)) + 1
    return np.concatenate([stored[stored.names[i]].descriptors for i in order[:enough]])[:wanted]


def _faiss() -> Any:
    return extra("faiss", "an index needs FAISS", "retrieval")

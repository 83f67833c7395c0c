"""COLMAP: a database with KD descriptors, matches, a reconstruction, and SIFT beside it.

COLMAP takes descriptors of 128 bytes and compares them in two ways: by L2 distance (its index on
the CPU), or by the angle acos(min(a . b / 512^2, 1)) (brute force on the CPU, and on the GPU). The
second takes rows of norm 512 without negative entries for granted. Bytes whose norm is larger, such
as an offset of 128 gives, all get the angle 0 and match nothing. `as_colmap_bytes` makes rows that
serve both ways.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.fft import idct

from kd_cv.collection import Collection, Extraction, extract, reading
from kd_cv.collection.names import MAX_LIST_BYTES
from kd_cv.descriptor.frames import radians, sigma_from_size, to_corner
from kd_cv.fit.surface import camera_mode, largest_model, load_pycolmap, quiet
from kd_cv.io.files import PathLike, read_text, replacing
from kd_cv.neighbours import RATIO, match_descriptors

DIM, NORM = 128, 512.0  # of SIFT in COLMAP
OFFSET = 42.0  # byte that stands for 0: 2.5 standard deviations of an entry fit below it
MODEL = Path("sparse", "0")  # the first of the models, where COLMAP keeps it

Matcher = Literal["kd", "colmap"]
CameraChoice = Literal["auto", "single", "per-folder", "per-image"]
Pair = tuple[str, str]


# -------------------------------------------------------------------------------------- the bytes


def as_colmap_bytes(rows: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Unit rows (N, D), D <= 128, as bytes (N, 128) of norm 512.

    b = OFFSET + a E x, where the columns of E (128, 127) are orthonormal and orthogonal to the
    vector of ones, and a^2 = 512^2 - 128 OFFSET^2. So b . b' = a^2 x . x' + 128 OFFSET^2 and
    |b - b'| = a |x - x'|: both ways of comparing order rows as x does. E is the inverse cosine
    transform without its constant, which leaves room for 127 entries: of 128, the last, the least
    significant one of a whitening, is dropped. Rows of zeros, which describe nothing, stay zeros.
    """
    if rows.ndim != 2 or rows.shape[1] > DIM:
        raise ValueError(
            f"COLMAP takes descriptors of at most {DIM} dimensions, got shape {rows.shape}: "
            "whiten them, or match with matcher='kd'"
        )
    x = rows[:, : DIM - 1].astype(np.float64)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    spectrum = np.zeros((len(x), DIM))
    spectrum[:, 1 : 1 + x.shape[1]] = x / np.maximum(norm, 1e-12)
    a = np.sqrt(NORM**2 - DIM * OFFSET**2)
    levels = np.clip(np.rint(OFFSET + a * idct(spectrum, norm="ortho", axis=1)), 0, 255)
    return np.where(norm > 0, levels, 0).astype(np.uint8)


def sift_bytes(rows: NDArray[np.float32], descriptor: str) -> NDArray[np.uint8]:
    """SIFT of OpenCV, which has norm 512 already, or RootSIFT, as COLMAP stores them."""
    scale = {"sift": 1.0, "rootsift": NORM}[descriptor]
    return np.minimum(np.rint(rows * scale), 255).astype(np.uint8)


# ----------------------------------------------------------------------------------- the database


def write_database(
    features: PathLike,
    image_root: PathLike,
    database: PathLike,
    camera: CameraChoice = "auto",
) -> dict[str, int]:
    """Images, cameras, keypoints and descriptors of a feature file into a new COLMAP database.

    Keypoints move by half a pixel: COLMAP has the corner of the first pixel at (0, 0). Descriptors
    of more than 128 dimensions are left out; they can be matched with matcher="kd" only. Returns
    the id of each image.
    """
    pycolmap = load_pycolmap()
    mode = camera_mode(camera)
    with reading(features) as stored, replacing(database) as temporary:
        temporary.unlink()
        pycolmap.Database.open(temporary).close()  # makes the tables
        names = list(stored)
        pycolmap.import_images(temporary, image_root, mode, image_names=names)
        with _opened(temporary) as target:
            ids = {image.name: image.image_id for image in target.read_all_images()}
            refused = [name for name in names if name not in ids]
            if refused:
                raise ValueError(
                    f"COLMAP refuses {len(refused)} of {len(names)} images, such as {refused[0]}: "
                    f"those of one camera must have one size (camera {camera!r}; try 'auto')"
                )
            for name in names:
                own = stored[name]
                sigma, turn = sigma_from_size(own.frames[:, 2]), radians(own.frames[:, 3])
                keypoints = np.column_stack([to_corner(own.frames[:, :2]), sigma, turn])
                target.write_keypoints(ids[name], keypoints.astype(np.float32))
                if own.descriptors.shape[1] <= DIM:
                    data = _bytes_of(own.descriptors, stored.descriptor)
                    kind = pycolmap.FeatureExtractorType.SIFT
                    target.write_descriptors(ids[name], pycolmap.FeatureDescriptors(kind, data))
    return ids


def _bytes_of(rows: NDArray[np.float32], descriptor: str) -> NDArray[np.uint8]:
    return as_colmap_bytes(rows) if descriptor == "kd" else sift_bytes(rows, descriptor)


# ---------------------------------------------------------------------------------------- matches


def read_pairs(path: PathLike) -> list[Pair]:
    """Pairs of image names, two a line, as COLMAP and hloc write them.

    They are parted by a tab, or by blanks where there is no tab: names may have blanks then.
    """
    lines = read_text(path, MAX_LIST_BYTES, "utf-8").splitlines()
    pairs = [tuple(line.split("\t" if "\t" in line else None)) for line in lines if line.strip()]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2 or not all(pair):
            raise ValueError(f"{path}, pair {number}: expected two names, got {' '.join(pair)!r}")
    return pairs  # type: ignore[return-value]


def write_pairs(path: PathLike, pairs: Sequence[Pair]) -> None:
    """What `read_pairs` reads: with tabs if a name has a blank."""
    names = {name for pair in pairs for name in pair}
    for name in names:
        if "\t" in name or name.splitlines() != [name]:
            raise ValueError(f"a list of pairs cannot hold the name {name!r}")
    between = "\t" if any(name.split() != [name] for name in names) else " "
    with replacing(path) as temporary:
        text = "".join(f"{a}{between}{b}\n" for a, b in pairs)
        temporary.write_text(text, encoding="utf-8")


def match_database(
    database: PathLike,
    features: PathLike,
    pairs: Sequence[Pair],
    *,
    matcher: Matcher = "kd",
    ratio: float = RATIO,
    threads: int = -1,
) -> None:
    """Match the pairs of images of a database and verify the matches by two-view geometry.

    matcher  "kd": mutual nearest neighbours of the descriptors in the feature file;
             "colmap": COLMAP's own, on the bytes in the database
    ratio    largest ratio of the distances to the nearest and the second neighbour
    """
    pycolmap = load_pycolmap()
    if matcher not in ("kd", "colmap"):
        raise ValueError(f"matcher must be 'kd' or 'colmap', got {matcher!r}")
    with _opened(database) as target:
        if matcher == "colmap" and target.num_descriptors() == 0:
            raise ValueError(
                f"{database} has no descriptors of {DIM} dimensions or fewer: use matcher='kd'"
            )
    write_pairs(Path(database).with_name("pairs.txt"), pairs)
    pycolmap.set_random_seed(0)
    if matcher == "kd":
        _write_matches(database, features, pairs, ratio)
    with _listed(database, pairs) as listed:
        if matcher == "kd":
            pycolmap.verify_matches(database, listed)
        else:
            _match_by_colmap(database, listed, ratio, threads)


@contextmanager
def _listed(database: PathLike, pairs: Sequence[Pair]) -> Iterator[Path]:
    """A text file of pairs, as COLMAP takes them.

    In it a blank ends a name and # begins a comment: while it is there, images are named by their
    ids.
    """
    with _opened(database) as target:
        images = target.read_all_images()
    names = {image.image_id: image.name for image in images}
    ids = {name: number for number, name in names.items()}
    listed = Path(database).with_name("pairs by id.txt")
    write_pairs(listed, [(str(ids[a]), str(ids[b])) for a, b in pairs])
    _rename(database, {number: str(number) for number in names})
    try:
        yield listed
    finally:
        _rename(database, names)
        listed.unlink()


def _rename(database: PathLike, names: Mapping[int, str]) -> None:
    with _opened(database) as target:
        for image in target.read_all_images():
            image.name = names[image.image_id]
            target.update_image(image)


def _match_by_colmap(database: PathLike, listed: Path, ratio: float, threads: int) -> None:
    pycolmap = load_pycolmap()
    options = pycolmap.FeatureMatchingOptions()
    options.num_threads = threads
    options.sift.max_ratio = ratio
    pairing = pycolmap.ImportedPairingOptions()
    pairing.match_list_path = listed
    cpu = pycolmap.Device.cpu
    pycolmap.match_image_pairs(
        database, matching_options=options, pairing_options=pairing, device=cpu
    )


def _write_matches(
    database: PathLike, features: PathLike, pairs: Sequence[Pair], ratio: float
) -> None:
    with reading(features) as stored, _opened(database) as target:
        ids = {image.name: image.image_id for image in target.read_all_images()}

        @lru_cache(maxsize=64)
        def rows(name: str) -> NDArray[np.float32]:
            return stored[name].descriptors

        for a, b in pairs:
            matches, _ = match_descriptors(rows(a), rows(b), ratio=ratio)
            target.write_matches(ids[a], ids[b], matches.astype(np.uint32))


# --------------------------------------------------------------------------------- reconstruction


@dataclass(frozen=True)
class Row:
    """A line of the table: what a reconstruction came to.

    images   that could be used; `skipped`: name -> reason of those that could not
    others   files beside them that are no photographs: suffix -> count
    """

    descriptor: str
    images: int
    registered: int
    points: int
    track_length: float  # images that see a point, on average
    error: float  # reprojection error in pixels, on average
    matches: int  # verified, over all pairs
    skipped: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)


def reconstruct(
    images: PathLike | Collection,
    workspace: PathLike,
    extraction: Extraction | None = None,
    *,
    matcher: Matcher = "kd",
    ratio: float = RATIO,
    pairs: PathLike | Sequence[Pair] | None = None,
    camera: CameraChoice = "auto",
    threads: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Row:
    """Extract, match, verify and reconstruct a collection with COLMAP (extra `sfm`).

    pairs   image names to match, or a file of them (see `read_pairs`); all by default
    camera  which photographs share a lens: "auto" goes by their EXIF data
    threads  of the extraction and of COLMAP; as many as there are cores by default

    The workspace keeps features.h5, database.db and, in sparse/0 as COLMAP has it, the model with
    the most images.
    Extraction that was interrupted goes on; the rest is done anew.

    >>> print(table([reconstruct("photographs", "workspace")]))  # doctest: +SKIP
    """
    camera_mode(camera)
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio must lie between 0 and 1, got {ratio!r}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    extraction = extraction or Extraction()
    collection, workspace = Collection.of(images), Path(workspace)
    workspace.mkdir(parents=True, exist_ok=True)
    features, database = workspace / "features.h5", workspace / "database.db"
    summary = extract(
        collection, features, extraction, workers=threads, overwrite=overwrite, progress=progress
    )
    names = [name for name in collection.names if name not in summary.skipped]
    wanted = _pairs(pairs, names)
    count = -1 if threads is None else threads  # as COLMAP says it
    with quiet():
        write_database(features, collection.root, database, camera)
        match_database(database, features, wanted, matcher=matcher, ratio=ratio, threads=count)
        model = largest_model(database, collection.root, workspace / MODEL, count)
    with _opened(database) as target:
        matches = int(target.num_inlier_matches())
    with reading(features) as stored:
        name = stored.descriptor
    if model is None:
        none = float("nan")
        return Row(
            name, len(names), 0, 0, none, none, matches, summary.skipped, summary.others
        )  # fmt: skip
    return Row(
        name,
        len(names),
        model.num_reg_images(),
        model.num_points3D(),
        model.compute_mean_track_length(),
        model.compute_mean_reprojection_error(),
        matches,
        summary.skipped,
        summary.others,
    )


def compare(
    images: PathLike | Collection,
    workspace: PathLike,
    extractions: Sequence[Extraction] | None = None,
    **options: Any,
) -> list[Row]:
    """The same reconstruction with each extraction: KD, RootSIFT and SIFT by default.

    KD has keypoints of its own, RootSIFT and SIFT those of cv2.SIFT. Each has its own folder in the
    workspace. RootSIFT is what COLMAP makes of SIFT.
    """
    extractions = extractions or [Extraction(name) for name in ("kd", "rootsift", "sift")]
    folders = [e.descriptor if isinstance(e.descriptor, str) else "kd" for e in extractions]
    if len(set(folders)) != len(folders):
        raise ValueError(f"each descriptor once, got {folders}")
    return [
        reconstruct(images, Path(workspace) / folder, extraction, **options)
        for folder, extraction in zip(folders, extractions, strict=True)
    ]


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table."""
    lines = [
        "| descriptor | registered | points | track length | error (px) | verified matches |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.descriptor} | {r.registered} of {r.images} | {r.points} | {r.track_length:.2f} "
        f"| {r.error:.2f} | {r.matches} |"
        for r in rows
    ]
    return "\n".join(lines)


def _pairs(pairs: PathLike | Sequence[Pair] | None, names: Sequence[str]) -> list[Pair]:
    if pairs is None:
        return list(itertools.combinations(names, 2))
    listed = read_pairs(pairs) if isinstance(pairs, str | os.PathLike) else list(pairs)
    unknown = {name for pair in listed for name in pair} - set(names)
    if unknown:
        raise ValueError(f"pairs name images that are not there: {sorted(unknown)[:5]}")
    return listed


@contextmanager
def _opened(database: PathLike) -> Iterator[Any]:
    handle = load_pycolmap().Database.open(database)
    try:
        yield handle
    finally:
        handle.close()

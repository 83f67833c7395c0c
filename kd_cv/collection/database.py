"""COLMAP's database: KD descriptors as its bytes, pairs of images, verified matches.

COLMAP takes descriptors of 128 bytes and compares them by L2 distance (its index on the CPU), or by
the angle acos(min(a . b / 512^2, 1)) (brute force on the CPU, and on the GPU), which needs a norm
of 512 without negative entries. `as_colmap_bytes` makes bytes for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.fft import idct

from kd_cv.collection import reading
from kd_cv.collection.store import ImageFeatures
from kd_cv.descriptor.frames import to_corner
from kd_cv.extras import extra
from kd_cv.io.files import PathLike, replacing
from kd_cv.matching.neighbours import RATIO, match_descriptors
from kd_cv.views import affine_of

DIM, NORM = 128, 512.0  # of SIFT in COLMAP
PAIRS = "pairs.txt"  # beside a database: those that were matched
OFFSET = 42.0  # byte that stands for 0: 2.5 standard deviations of an entry fit below it

Matcher = Literal["kd", "colmap"]
CameraChoice = Literal["auto", "single", "per-folder", "per-image"]
Pair = tuple[str, str]


def camera_mode(camera: str) -> Any:
    """Convert our name to pycolmap's CameraMode."""
    choices = get_args(CameraChoice)
    if camera not in choices:
        raise ValueError(f"camera must be one of {list(choices)}, got {camera!r}")
    return getattr(load_pycolmap().CameraMode, camera.upper().replace("-", "_"))


def as_colmap_bytes(descriptors: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Convert unit descriptors (N, D), D <= 128, to bytes (N, 128) of norm 512.

    b = OFFSET + a E x, where the columns of E (128, 127) are orthonormal and orthogonal to the
    vector of ones, and a^2 = 512^2 - 128 OFFSET^2. So b . b' = a^2 x . x' + 128 OFFSET^2 and
    |b - b'| = a |x - x'|: both distances keep the order. E is the inverse cosine transform without
    its constant; the last of 128 entries is dropped. Zero descriptors stay zeros.
    """
    if descriptors.ndim != 2 or descriptors.shape[1] > DIM:
        raise ValueError(
            f"COLMAP takes descriptors of at most {DIM} dimensions, got shape {descriptors.shape}: "
            "whiten them, or match with matcher='kd'"
        )
    x = descriptors[:, : DIM - 1].astype(np.float64)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    spectrum = np.zeros((len(x), DIM))
    spectrum[:, 1 : 1 + x.shape[1]] = x / np.maximum(norm, 1e-12)
    a = np.sqrt(NORM**2 - DIM * OFFSET**2)
    levels = np.clip(np.rint(OFFSET + a * idct(spectrum, norm="ortho", axis=1)), 0, 255)
    return np.where(norm > 0, levels, 0).astype(np.uint8)


def bytes_of(descriptors: NDArray[np.float32], descriptor: str) -> NDArray[np.uint8]:
    """Convert descriptors to COLMAP's bytes; OpenCV's SIFT has norm 512 already."""
    if descriptor == "kd":
        return as_colmap_bytes(descriptors)
    scale = {"sift": 1.0, "rootsift": NORM}[descriptor]
    return np.minimum(np.rint(descriptors * scale), 255).astype(np.uint8)


def write_database(
    features: PathLike,
    image_root: PathLike,
    database: PathLike,
    camera: CameraChoice = "auto",
    names: Sequence[str] | None = None,
) -> dict[str, int]:
    """Write images, cameras, keypoints and descriptors of a feature file to a COLMAP database.

    COLMAP has the corner of the first pixel at (0, 0). Keypoints have its six columns: x, y and the
    affine shape, an ellipse for a keypoint of a synthetic view. Descriptors of more than 128
    dimensions are left out: they need matcher="kd". names: by default all of the feature file.

    Returns the id of each image.
    """
    pycolmap = load_pycolmap()
    mode = camera_mode(camera)
    with reading(features) as stored, replacing(database) as temporary:
        temporary.unlink()
        open_database(temporary).close()  # makes the tables
        names = list(stored if names is None else names)
        missing = [name for name in names if not Path(image_root, name).is_file()]
        if missing:
            raise ValueError(
                f"{len(missing)} of {len(names)} images of {features} are not in {image_root}, "
                f"such as {missing[0]}: extract the features again, with --overwrite"
            )
        pycolmap.import_images(temporary, image_root, mode, image_names=names)
        with open_database(temporary) as target:
            ids = {image.name: image.image_id for image in target.read_all_images()}
            refused = [name for name in names if name not in ids]
            if refused:
                raise ValueError(
                    f"COLMAP refuses {len(refused)} of {len(names)} images, such as {refused[0]}: "
                    "it cannot read that format, or images of one camera differ in size "
                    f"(camera {camera!r})"
                )
            for name in names:
                of_image = stored[name]
                seen = target.read_camera(target.read_image(ids[name]).camera_id)
                if of_image.image_size != (seen.width, seen.height):
                    raise ValueError(
                        f"{name} has changed since its features were extracted: extract them again"
                    )
                frames = of_image.frames
                shapes = affine_of(frames, of_image.views).reshape(-1, 4)
                keypoints = np.column_stack([to_corner(frames[:, :2]), shapes])
                target.write_keypoints(ids[name], keypoints.astype(np.float32))
                if of_image.descriptors.shape[1] <= DIM:
                    data = bytes_of(of_image.descriptors, stored.descriptor)
                    kind = pycolmap.FeatureExtractorType.SIFT
                    target.write_descriptors(ids[name], pycolmap.FeatureDescriptors(kind, data))
    return ids


def read_pairs(path: PathLike) -> list[Pair]:
    """Read pairs of image names, two a line, separated by a tab or, without a tab, by blanks."""
    lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    pairs = [tuple(line.split("\t" if "\t" in line else None)) for line in lines if line.strip()]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2 or not all(pair):
            raise ValueError(f"{path}, pair {number}: expected two names, got {' '.join(pair)!r}")
    return pairs  # type: ignore[return-value]


def write_pairs(path: PathLike, pairs: Sequence[Pair]) -> None:
    """Write pairs for `read_pairs`, with tabs if a name has a blank."""
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
    pairs = list({frozenset(pair): pair for pair in reversed(pairs)}.values())[::-1]
    for a, b in pairs:
        if a == b:
            raise ValueError(f"an image cannot be matched with itself: {a!r}")
    if matcher not in ("kd", "colmap"):
        raise ValueError(f"matcher must be 'kd' or 'colmap', got {matcher!r}")
    with open_database(database) as target:
        if matcher == "colmap" and target.num_descriptors() == 0:
            raise ValueError(
                f"{database} has no descriptors of {DIM} dimensions or fewer: use matcher='kd'"
            )
    write_pairs(Path(database).with_name(PAIRS), pairs)
    pycolmap.set_random_seed(0)
    if matcher == "kd":
        _write_matches(database, features, pairs, ratio)
    with _listed(database, pairs) as listed:
        if matcher == "kd":
            pycolmap.verify_matches(database, listed)
        else:
            pycolmap.match_image_pairs(
                database,
                matching_options={"num_threads": threads, "sift": {"max_ratio": ratio}},
                pairing_options={"match_list_path": listed},
                device=pycolmap.Device.cpu,
            )


@contextmanager
def _listed(database: PathLike, pairs: Sequence[Pair]) -> Iterator[Path]:
    """Write the pairs for COLMAP, and name images by their ids meanwhile.

    In this file a blank ends a name and # begins a comment.
    """
    with open_database(database) as target:
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
    with open_database(database) as target:
        for image in target.read_all_images():
            image.name = names[image.image_id]
            target.update_image(image)


def _write_matches(
    database: PathLike, features: PathLike, pairs: Sequence[Pair], ratio: float
) -> None:
    with reading(features) as stored, open_database(database) as target:
        ids = {image.name: image.image_id for image in target.read_all_images()}

        @lru_cache(maxsize=64)
        def of(name: str) -> ImageFeatures:
            return stored[name]

        for a, b in pairs:
            matches, _ = match_descriptors(
                of(a).descriptors, of(b).descriptors,
                ratio=ratio, points0=of(a).frames[:, :2], points1=of(b).frames[:, :2],
            )  # fmt: skip
            target.write_matches(ids[a], ids[b], matches.astype(np.uint32))


def load_pycolmap() -> Any:
    return extra("pycolmap", "reconstruction needs pycolmap", "sfm")


def open_database(database: PathLike) -> Any:
    return load_pycolmap().Database.open(database)

"""Readers of the public patch sets and image sequences, and the types they share.

Every reader checks sizes before it allocates and raises ValueError naming the file, what was found
and what was expected. Nothing is unpickled.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kd_cv.io.archive import read_npz
from kd_cv.io.files import replacing

PHOTO_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm"})

MAX_PIXELS = 2**27  # a photograph larger than this is taken for a decompression bomb
MAX_IMAGE_BYTES = 2**30
MAX_SCANS = 100  # of a JPEG: each is a pass over all pixels; cameras and editors make 12 at most
MAX_PAIRS = 2**26  # the largest public set, HPatches, has 20 million
MAX_TEXT_BYTES = 2**26  # the largest text file of the public sets has 20 MB
MAX_SCENE_BYTES = 2**31  # uncompressed; 20,000 frames take 1 MB

SHEET_SIDE, PATCH_SIDE = 1024, 64  # Phototourism: 16 x 16 patches a sheet
PATCHES_PER_SHEET = (SHEET_SIDE // PATCH_SIDE) ** 2
STRIP_SIDE = 65  # HPatches release: patches of 65 x 65, stacked vertically
STRIPS = ("ref", *(f"{level}{k}" for level in "eht" for k in range(1, 6)))

NO_POINT = -1  # point id of a patch whose 3D point is not known


# --------------------------------------------------------------------------------------- types


@dataclass(frozen=True)
class View:
    """One image of a scene with the frames found in it.

    image: path of the image, or the gray uint8 image itself (H, W).
    frames: (N, 4) float64, columns x, y, size, angle in OpenCV's convention.
    point_ids: (N,) int64; the same id in two views of a scene is the same physical point.
    """

    image: Path | NDArray[np.uint8]
    frames: NDArray[np.float64]
    point_ids: NDArray[np.int64]

    def __post_init__(self) -> None:
        frames = np.asarray(self.frames, dtype=np.float64)
        point_ids = np.asarray(self.point_ids)
        if frames.ndim != 2 or frames.shape[1] != 4:
            raise ValueError(f"frames must have shape (N, 4), got {frames.shape}")
        if point_ids.shape != (len(frames),) or not np.issubdtype(point_ids.dtype, np.integer):
            raise ValueError(
                f"point_ids must be {len(frames)} integers, one a frame, "
                f"got {point_ids.dtype} of shape {point_ids.shape}"
            )
        if not np.isfinite(frames).all():
            raise ValueError("frames must be finite")
        if isinstance(self.image, np.ndarray):
            if self.image.ndim != 2 or self.image.dtype != np.uint8:
                raise ValueError(
                    f"image must be a gray uint8 array (H, W), "
                    f"got {self.image.dtype} of shape {self.image.shape}"
                )
        else:
            object.__setattr__(self, "image", Path(self.image))
        object.__setattr__(self, "frames", frames)
        object.__setattr__(self, "point_ids", point_ids.astype(np.int64))

    def load(self) -> NDArray[np.uint8]:
        """The gray uint8 image (H, W)."""
        return self.image if isinstance(self.image, np.ndarray) else read_gray(self.image)


@dataclass(frozen=True)
class Scene:
    """Views of one place whose frames are linked by point ids."""

    name: str
    views: tuple[View, ...]

    def pairs(self, i: int, j: int) -> NDArray[np.int64]:
        """Frames of view i and view j that show the same point: (M, 2) row indices."""
        _, rows_i, rows_j = np.intersect1d(
            self.views[i].point_ids, self.views[j].point_ids, return_indices=True
        )
        return np.stack([rows_i, rows_j], axis=1).astype(np.int64)

    def all_pairs(self) -> NDArray[np.int64]:
        """Every two frames of the same point in different views.

        Returns (M, 2) rows into the frames of all views stacked in order.
        """
        offsets = np.cumsum([0, *(len(view.frames) for view in self.views)])
        found = [
            self.pairs(i, j) + offsets[[i, j]]
            for i, j in itertools.combinations(range(len(self.views)), 2)
        ]
        return np.concatenate(found) if found else np.empty((0, 2), np.int64)

    def save(self, path: str | os.PathLike[str], image_root: str | os.PathLike[str]) -> None:
        """Write an .npz without pickle; images are named by their path below image_root.

        An image held as an array is stored inside the file. The file appears whole or not at all.
        """
        root = Path(image_root).resolve()
        names: list[str] = []
        arrays: dict[str, Any] = {}
        for index, view in enumerate(self.views):
            if isinstance(view.image, np.ndarray):
                names.append("")
                arrays[f"image_{index}"] = view.image
                continue
            image = view.image.resolve()
            if not image.is_relative_to(root):
                raise ValueError(f"image {image} is not below image_root {root}")
            names.append(image.relative_to(root).as_posix())
        frames = [view.frames for view in self.views]
        point_ids = [view.point_ids for view in self.views]
        arrays |= {
            "name": np.array(self.name, dtype=np.str_),
            "images": np.array(names, dtype=np.str_),
            "counts": np.array([len(f) for f in frames], dtype=np.int64),
            "frames": np.concatenate([np.empty((0, 4)), *frames]),
            "point_ids": np.concatenate([np.empty(0, np.int64), *point_ids]),
        }
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], image_root: str | os.PathLike[str]) -> Scene:
        """Read a scene written by save; images are looked for below image_root."""
        path, root = Path(path), Path(image_root)
        try:
            arrays = read_npz(path, MAX_SCENE_BYTES)
            names = [str(name) for name in arrays["images"]]
            counts = arrays["counts"].astype(np.int64, casting="safe")
            frames = arrays["frames"].astype(np.float64, casting="safe")
            point_ids = arrays["point_ids"].astype(np.int64, casting="safe")
            if counts.ndim != 1 or len(counts) != len(names):
                raise ValueError("counts and images do not agree")
            if (
                ((counts < 0) | (counts > len(frames))).any()
                or counts.sum() != len(frames)
                or len(frames) != len(point_ids)
            ):
                raise ValueError("counts, frames and point_ids do not agree")
            cuts = np.cumsum(counts)[:-1]
            parts = zip(names, np.split(frames, cuts), np.split(point_ids, cuts), strict=False)
            views = []
            for index, (name, view_frames, view_ids) in enumerate(parts):
                image = root / _inside(name) if name else arrays[f"image_{index}"]
                views.append(View(image, view_frames, view_ids))
            return cls(str(arrays["name"]), tuple(views))
        except FileNotFoundError:
            raise
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise ValueError(f"{path} is not a scene file: {error}") from error


@dataclass(frozen=True)
class PatchSet:
    """Patches cut out already, with what is known of the points they show.

    patches: (N, P, P) uint8. point_ids: (N,) int64, NO_POINT where it is not known.
    pairs: (M, 2) row indices of the set's own evaluation pairs, labels: (M,) bool, True = match.
    """

    patches: NDArray[np.uint8]
    point_ids: NDArray[np.int64]
    pairs: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    labels: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))

    def __post_init__(self) -> None:
        n = len(self.patches)
        if self.patches.ndim != 3 or self.patches.shape[1] != self.patches.shape[2]:
            raise ValueError(f"patches must have shape (N, P, P), got {self.patches.shape}")
        if self.point_ids.shape != (n,):
            raise ValueError(f"point_ids must have shape ({n},), got {self.point_ids.shape}")
        if self.pairs.ndim != 2 or self.pairs.shape[1] != 2:
            raise ValueError(f"pairs must have shape (M, 2), got {self.pairs.shape}")
        if self.labels.shape != (len(self.pairs),):
            raise ValueError(f"labels must have shape ({len(self.pairs)},)")
        if self.pairs.size and (self.pairs.min() < 0 or self.pairs.max() >= n):
            raise ValueError(f"pairs must be rows of the {n} patches")

    def __len__(self) -> int:
        return len(self.patches)

    def matching_pairs(self) -> NDArray[np.int64]:
        """Every two patches of the same known point: (M, 2) row indices, first < second."""
        _, counts = np.unique(self.point_ids[self.point_ids != NO_POINT], return_counts=True)
        total = int((counts * (counts - 1) // 2).sum())
        if total > MAX_PAIRS:
            raise ValueError(f"{total} pairs of patches of the same point, at most {MAX_PAIRS}")
        order = np.argsort(self.point_ids, kind="stable")
        ids = self.point_ids[order]
        found = [np.empty((0, 2), np.int64)]
        # Members of a point are consecutive in `order`: compare each with the one `gap` further on.
        for gap in range(1, len(ids)):
            same = np.flatnonzero((ids[gap:] == ids[:-gap]) & (ids[gap:] != NO_POINT))
            if not len(same):
                break
            found.append(np.stack([order[same], order[same + gap]], axis=1))
        return np.concatenate(found)

    def __add__(self, other: PatchSet) -> PatchSet:
        """Both sets in one; point ids of the second are renumbered so that none is shared."""
        known = other.point_ids != NO_POINT
        offset = max(int(self.point_ids.max(initial=NO_POINT)), NO_POINT) + 1
        return PatchSet(
            np.concatenate([self.patches, other.patches]),
            np.concatenate([self.point_ids, np.where(known, other.point_ids + offset, NO_POINT)]),
            np.concatenate([self.pairs, other.pairs + len(self)]),
            np.concatenate([self.labels, other.labels]),
        )


@dataclass(frozen=True)
class Sequence:
    """Images 1..K of one plane (or from one place) and the homographies from image 1.

    images: K paths. H_1tok: (K, 3, 3) float64; H_1tok[k - 1] maps image 1 to image k.
    """

    name: str
    images: tuple[Path, ...]
    H_1tok: NDArray[np.float64]


# ------------------------------------------------------------------------------------- readers


def read_phototourism(
    folder: str | os.PathLike[str], matches: str | os.PathLike[str] | None = None
) -> PatchSet:
    """Read a Phototourism set (Brown, Hua, Winder): patchesNNNN.bmp, info.txt, m50_*.txt.

    matches: the m50 file that gives the pairs (a name in the folder, or an absolute path). Without
    it the folder's only m50 file is taken; if there are several, or none, the set has no pairs.
    A folder without info.txt is read as unlabelled patches, blank ones dropped.
    """
    folder = _folder(folder)
    sheets = sorted(path for path in folder.glob("patches*.bmp") if path.is_file())
    if not sheets:
        raise ValueError(f"{folder} holds no sheets named patchesNNNN.bmp")
    info = folder / "info.txt"
    if not info.is_file():
        if matches is not None:
            raise ValueError(f"{folder} has no info.txt, so {matches} cannot be used")
        patches = np.concatenate([p[~_blank(p)] for p in map(read_sheet, sheets)])
        return PatchSet(patches, np.full(len(patches), NO_POINT, np.int64))

    for number, sheet in enumerate(sheets):
        if sheet.name != f"patches{number:04d}.bmp":
            raise ValueError(f"{folder}: expected patches{number:04d}.bmp, found {sheet.name}")
    point_ids = _read_table(info, min_columns=1)[:, 0]
    if point_ids.min() < 0:
        raise ValueError(f"{info}: point ids must not be negative")
    n, capacity = len(point_ids), len(sheets) * PATCHES_PER_SHEET
    if n > capacity:
        raise ValueError(f"{info} lists {n} patches, the {len(sheets)} sheets hold {capacity}")
    patches = np.empty((n, PATCH_SIDE, PATCH_SIDE), np.uint8)
    for number, sheet in enumerate(sheets):
        start = number * PATCHES_PER_SHEET
        used = min(max(n - start, 0), PATCHES_PER_SHEET)
        cells = read_sheet(sheet)
        patches[start : start + used] = cells[:used]
        if not _blank(cells[used:]).all():
            raise ValueError(
                f"{info} lists {n} patches, but {sheet.name} holds more that are not blank"
            )
    if matches is None:
        files = sorted(folder.glob("m50_*.txt"))
        if len(files) != 1:
            return PatchSet(patches, point_ids)
        matches = files[0].name
    pairs, labels = read_m50(folder / matches, point_ids)
    return PatchSet(patches, point_ids, pairs, labels)


def read_sheet(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """The 256 patches (256, 64, 64) of one Phototourism sheet, row by row."""
    sheet = read_gray(path)
    if sheet.shape != (SHEET_SIDE, SHEET_SIDE):
        raise ValueError(
            f"{path}: a sheet is {SHEET_SIDE} x {SHEET_SIDE} pixels, "
            f"this one is {sheet.shape[1]} x {sheet.shape[0]}"
        )
    cells = sheet.reshape(SHEET_SIDE // PATCH_SIDE, PATCH_SIDE, -1, PATCH_SIDE).swapaxes(1, 2)
    return np.ascontiguousarray(cells.reshape(-1, PATCH_SIDE, PATCH_SIDE))


def read_m50(
    path: str | os.PathLike[str], point_ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Read a file of pairs; columns: patch, point, -, patch, point, -, -.

    Returns pairs (M, 2) and labels (M,), True where both patches show the same point. The points
    named in the file must be those of point_ids.
    """
    path = Path(path)
    table = _read_table(path, min_columns=5)
    pairs, points = table[:, [0, 3]], table[:, [1, 4]]
    outside = (pairs < 0) | (pairs >= len(point_ids))
    if outside.any():
        line = int(np.flatnonzero(outside.any(axis=1))[0])
        raise ValueError(
            f"{path}, line {line + 1}: patch index out of range, "
            f"got {pairs[line].tolist()}, the set has {len(point_ids)} patches"
        )
    wrong = (point_ids[pairs] != points).any(axis=1)
    if wrong.any():
        line = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"{path}, line {line + 1}: patches {pairs[line].tolist()} are said to show points "
            f"{points[line].tolist()}, info.txt says {point_ids[pairs[line]].tolist()}"
        )
    return pairs, points[:, 0] == points[:, 1]


def read_hpatches_strips(folder: str | os.PathLike[str]) -> dict[str, NDArray[np.uint8]]:
    """Read one sequence of the HPatches release: {"ref", "e1".."e5", "h1".., "t1"..}: (N, 65, 65).

    Row n of every strip shows the same point. A strip that is absent (the first release has no
    tough ones) is left out; "ref" must be there.
    """
    folder = _folder(folder)
    strips = {}
    for kind in STRIPS:
        path = folder / f"{kind}.png"
        if not path.is_file():
            if kind == "ref":
                raise ValueError(f"{folder} has no ref.png")
            continue
        strip = read_gray(path)
        if strip.shape[1] != STRIP_SIDE or strip.shape[0] % STRIP_SIDE:
            raise ValueError(
                f"{path}: a strip is {STRIP_SIDE} pixels wide and a multiple of {STRIP_SIDE} high, "
                f"this one is {strip.shape[1]} x {strip.shape[0]}"
            )
        strips[kind] = strip.reshape(-1, STRIP_SIDE, STRIP_SIDE)
        if len(strips[kind]) != len(strips["ref"]):
            raise ValueError(
                f"{path} holds {len(strips[kind])} patches, ref.png {len(strips['ref'])}"
            )
    if len(strips) == 1:
        raise ValueError(f"{folder} holds ref.png and none of e1.png ... t5.png")
    return strips


def read_hpatches_release(
    root: str | os.PathLike[str],
) -> Iterator[tuple[str, dict[str, NDArray[np.uint8]]]]:
    """Name and strips of every sequence folder (one with a ref.png) of the release, one by one."""
    root = _folder(root)
    folders = sorted(path.parent for path in root.glob("*/ref.png"))
    if not folders:
        raise ValueError(f"{root} holds no folder with a ref.png")
    for folder in folders:
        yield folder.name, read_hpatches_strips(folder)


def read_sequence(folder: str | os.PathLike[str]) -> Sequence:
    """Read an image sequence with homographies: HPatches (1.ppm, H_1_2) or Oxford (img1, H1to2p).

    Images are numbered from 1 without a gap; every one but the first has its homography.
    """
    folder = _folder(folder)
    numbered: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"(?:img)?([1-9]\d{0,3})", path.stem)
        if not match or path.suffix.lower() not in PHOTO_SUFFIXES or not path.is_file():
            continue
        number = int(match[1])
        if number in numbered:
            raise ValueError(f"{folder}: {numbered[number].name} and {path.name} are both {number}")
        numbered[number] = path
    if len(numbered) < 2 or max(numbered) != len(numbered):
        raise ValueError(
            f"{folder}: expected images 1, 2, ... (or img1, img2, ...), "
            f"found {[numbered[k].name for k in sorted(numbered)]}"
        )
    H_1tok = [np.eye(3)]
    for k in range(2, len(numbered) + 1):
        names = (f"H_1_{k}", f"H1to{k}p")
        found = [folder / name for name in names if (folder / name).is_file()]
        if not found:
            raise ValueError(f"{folder} has neither {names[0]} nor {names[1]}")
        H_1tok.append(read_homography(found[0]))
    images = tuple(numbered[k] for k in sorted(numbered))
    return Sequence(folder.resolve().name, images, np.stack(H_1tok))


def read_homography(path: str | os.PathLike[str]) -> NDArray[np.float64]:
    """A 3 x 3 matrix from a text file, numbers parted by blanks or commas."""
    path = Path(path)
    try:
        values = np.array(_read_text(path, 4096).replace(",", " ").split(), dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path} is not a homography: {error}") from error
    if values.size != 9 or not np.isfinite(values).all():
        raise ValueError(f"{path}: a homography is 9 finite numbers, got {values.size}")
    H = values.reshape(3, 3)
    scale = np.abs(H).max()
    if scale == 0 or abs(np.linalg.det(H / scale)) < 1e-15:
        raise ValueError(f"{path}: the homography is singular")
    return H


def list_photos(folder: str | os.PathLike[str]) -> list[Path]:
    """Photographs in a folder and below it, sorted; ValueError if there is none."""
    folder = _folder(folder)
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in PHOTO_SUFFIXES and path.is_file()
    )
    if not paths:
        known = ", ".join(sorted(PHOTO_SUFFIXES))
        raise ValueError(f"{folder} holds no photographs ({known})")
    return paths


def read_photos(folder: str | os.PathLike[str]) -> Iterator[tuple[Path, NDArray[np.uint8]]]:
    """Path and gray image (H, W) of every photograph in a folder and below it.

    One that cannot be read is skipped with a warning that names it; ValueError if none can.
    """
    paths = list_photos(folder)
    read = 0
    for path in paths:
        try:
            image = read_gray(path)
        except (ValueError, OSError) as error:
            warnings.warn(f"photograph skipped: {error}", stacklevel=2)
            continue
        read += 1
        yield path, image
    if not read:
        raise ValueError(f"none of the {len(paths)} photographs in {folder} can be read")


# -------------------------------------------------------------------------------------- images


def read_gray(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """Decode a JPEG, PNG, BMP or PNM file to a gray uint8 image (H, W).

    The pixel grid is the stored one: an EXIF orientation is not applied, as COLMAP does not either,
    so that frames of a reconstruction fit the image.
    """
    data = read_image_bytes(path)
    flags = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise ValueError(f"{path} cannot be decoded: {error}") from error
    if image is None:
        raise ValueError(f"{path} cannot be decoded")
    return np.asarray(image, dtype=np.uint8)


def read_image_bytes(path: str | os.PathLike[str], others: bool = False) -> bytes:
    """The bytes of a JPEG, PNG, BMP or PNM file that does not decode to more than MAX_PIXELS.

    others: also those of another kind of file, of which OpenCV decodes up to 2**30 pixels.
    """
    path = Path(path)
    data = _read_bytes(path, MAX_IMAGE_BYTES)
    if others and not data.startswith(_SIGNATURES):
        return data
    size = _image_size(data)
    if size is None:
        raise ValueError(f"{path} is not a JPEG, PNG, BMP or PNM image")
    width, height = size
    if not 0 < width * height <= MAX_PIXELS:
        raise ValueError(f"{path}: {width} x {height} pixels, at most {MAX_PIXELS} are read")
    return data


_SIGNATURES = (b"\x89PNG", b"BM", b"P2", b"P3", b"P5", b"P6", b"\xff\xd8")

# The header of a PNM file: blanks and comments, a number, ... ; as strict as OpenCV's reader, or
# what is read here would not be what is decoded there.
_BLANKS = rb"(?:\s|#[^\r\n]*[\r\n])*"
_PNM = re.compile(rb"P[2356]\s" + _BLANKS + rb"(\d{1,9})\s" + _BLANKS + rb"(\d{1,9})\s")


def _image_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) from the header, before anything is decoded; None if it is not understood."""
    try:
        if data[:8] == b"\x89PNG\r\n\x1a\n" and data[8:16] == b"\0\0\0\x0dIHDR":
            width, height = struct.unpack(">II", data[16:24])
            return width, height
        if data[:2] == b"BM":
            (header,) = struct.unpack("<I", data[14:18])
            if header == 12:
                width, height = struct.unpack("<HH", data[18:22])
            else:
                width, height = struct.unpack("<ii", data[18:26])
            return width, abs(height)  # a negative height means top row first
        if found := _PNM.match(data[:4096]):
            return int(found[1]), int(found[2])
        if data[:2] == b"\xff\xd8" and data.count(b"\xff\xda") <= MAX_SCANS:
            return _jpeg_size(data)
    except struct.error:
        return None
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        # Frame headers are C0..CF but for the tables C4, C8, CC.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        # Before it come tables, application data and comments. A decoder reads on behind other
        # markers as if they had no length: they could hide the true frame header.
        (length,) = struct.unpack(">H", data[at + 2 : at + 4])
        if marker not in (0xC4, 0xCC, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)) or length < 2:
            return None
        at += 2 + length
    return None


# --------------------------------------------------------------------------------------- files


def _folder(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    return folder


def _blank(patches: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(N, P, P) -> (N,): patches of one gray value, as sheets are filled up with."""
    return patches.min(axis=(1, 2)) == patches.max(axis=(1, 2))


def _read_bytes(path: Path, limit: int) -> bytes:
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):  # a pipe might never end, nor even begin
        kind = "directory" if stat.S_ISDIR(state.st_mode) else "pipe or device"
        raise ValueError(f"{path} is not a file, but a {kind}")
    if state.st_size > limit:
        raise ValueError(f"{path} has {state.st_size} bytes, at most {limit} are read")
    return path.read_bytes()


def _read_text(path: Path, limit: int) -> str:
    try:
        return _read_bytes(path, limit).decode("ascii")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file: {error}") from error


def _read_table(path: Path, min_columns: int) -> NDArray[np.int64]:
    """Whole numbers of a text file, (lines, columns)."""
    lines = _read_text(path, MAX_TEXT_BYTES).splitlines()
    if not any(line.strip() for line in lines):
        raise ValueError(f"{path} is empty")
    try:
        with warnings.catch_warnings():
            # NumPy before 2.3 only warns of fractions, and cuts them off.
            warnings.simplefilter("error", DeprecationWarning)
            table = np.loadtxt(lines, dtype=np.int64, ndmin=2, comments=None)
    except (ValueError, OverflowError, DeprecationWarning) as error:
        raise ValueError(f"{path}: expected whole numbers in equal columns: {error}") from error
    if table.shape[1] < min_columns:
        raise ValueError(f"{path}: expected {min_columns} columns or more, got {table.shape[1]}")
    return table


def _inside(name: str) -> PurePosixPath:
    """A relative path that stays below its root."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or "\\" in name or "\0" in name:
        raise ValueError(f"image path {name!r} leaves its folder")
    return relative

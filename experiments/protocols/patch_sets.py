"""The public patch sets: Phototourism, and the release of HPatches.

Every reader checks sizes before it allocates; errors name the file, the value and the expected one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kd_cv.fit.scenes import NO_POINT
from kd_cv.io.files import as_folder, read_text
from kd_cv.io.images import read_gray

MAX_PAIRS = 2**26  # the largest public set, HPatches, has 20 million
MAX_TEXT_BYTES = 2**26  # the largest text file of the public sets has 20 MB

SHEET_SIDE, PATCH_SIDE = 1024, 64  # Phototourism: 16 x 16 patches a sheet
PATCHES_PER_SHEET = (SHEET_SIDE // PATCH_SIDE) ** 2
STRIP_SIDE = 65  # HPatches release: patches of 65 x 65, stacked vertically
STRIPS = ("ref", *(f"{level}{k}" for level in "eht" for k in range(1, 6)))


@dataclass(frozen=True)
class PatchSet:
    """Patches and the points that they show, if known.

    patches: (N, P, P) uint8. point_ids: (N,) int64, NO_POINT where it is not known.
    pairs: (M, 2) row indices of the set's own evaluation pairs, labels: (M,) bool, True = match.
    """

    patches: NDArray[np.uint8]
    point_ids: NDArray[np.int64]
    pairs: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    labels: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))

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
        pairs = [np.empty((0, 2), np.int64)]
        # Members of a point are consecutive in `order`: compare each with the one `gap` further on.
        for gap in range(1, len(ids)):
            same = np.flatnonzero((ids[gap:] == ids[:-gap]) & (ids[gap:] != NO_POINT))
            if not len(same):
                break
            pairs.append(np.stack([order[same], order[same + gap]], axis=1))
        return np.concatenate(pairs)


def read_phototourism(
    folder: str | os.PathLike[str], matches: str | os.PathLike[str] | None = None
) -> PatchSet:
    """Read a Phototourism set (Brown, Hua, Winder): patchesNNNN.bmp, info.txt, m50_*.txt.

    matches: the m50 file that gives the pairs (a name in the folder, or an absolute path). Without
    it the folder's only m50 file is taken; if there are several, or none, the set has no pairs.
    A folder without info.txt is read as unlabelled patches, blank ones dropped.
    """
    folder = as_folder(folder)
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
    outside = ((pairs < 0) | (pairs >= len(point_ids))).any(axis=1)
    if outside.any():
        line = outside.argmax()
        raise ValueError(
            f"{path}, line {line + 1}: patch index out of range, "
            f"got {pairs[line].tolist()}, the set has {len(point_ids)} patches"
        )
    wrong = (point_ids[pairs] != points).any(axis=1)
    if wrong.any():
        line = wrong.argmax()
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
    folder = as_folder(folder)
    strips = {}
    if not (folder / "ref.png").is_file():
        raise ValueError(f"{folder} has no ref.png")
    for path in filter(Path.is_file, [folder / f"{kind}.png" for kind in STRIPS]):
        strip = read_gray(path)
        if strip.shape[1] != STRIP_SIDE or strip.shape[0] % STRIP_SIDE:
            raise ValueError(
                f"{path}: a strip is {STRIP_SIDE} pixels wide and a multiple of {STRIP_SIDE} high, "
                f"this one is {strip.shape[1]} x {strip.shape[0]}"
            )
        patches = strips[path.stem] = strip.reshape(-1, STRIP_SIDE, STRIP_SIDE)
        if len(patches) != len(strips["ref"]):
            raise ValueError(f"{path} holds {len(patches)} patches, ref.png {len(strips['ref'])}")
    if len(strips) == 1:
        raise ValueError(f"{folder} holds ref.png and none of e1.png ... t5.png")
    return strips


def read_hpatches_release(
    root: str | os.PathLike[str], names: Collection[str] | None = None
) -> Iterator[tuple[str, dict[str, NDArray[np.uint8]]]]:
    """Name and strips of every sequence folder (one with a ref.png) of the release, one by one.

    names  of the sequences that are read; all by default
    """
    root = as_folder(root)
    folders = sorted(path.parent for path in root.glob("*/ref.png"))
    if not folders:
        raise ValueError(f"{root} holds no folder with a ref.png")
    for folder in folders:
        if names is None or folder.name in names:
            yield folder.name, read_hpatches_strips(folder)


def _blank(patches: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(N, P, P) -> (N,): patches of one gray value, as sheets are filled up with."""
    return patches.min(axis=(1, 2)) == patches.max(axis=(1, 2))


def _read_table(path: Path, min_columns: int) -> NDArray[np.int64]:
    """Whole numbers of a text file, (lines, columns)."""
    lines = read_text(path, MAX_TEXT_BYTES).splitlines()
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

"""What the HPatches benchmark asks: which pairs are verified, which patches are retrieved.

The benchmark comes with files of its tasks, one set for each split of its sequences; `read_tasks`
takes them. For other sequences `draw_tasks` draws tasks the same way:

- verification: a matching pair is one patch in two of the first five images (image 0 is the
  reference); a non-matching one replaces the second patch by another of the same sequence ("near"),
  or by one of any sequence ("far"), the images staying the same;
- retrieval: queries and distractors are patches of reference images whose gray values have a
  standard deviation above 10, each of them once, and no query is a distractor.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kd_cv.io.files import read_text, replacing

Table = NDArray[np.int64]

MAX_BYTES = 2**28  # of a file; the largest of the benchmark has 60 MB
FIRST_IMAGES = 5  # verification draws from images 0 to 4, of six
MIN_CONTRAST = 10.0  # standard deviation of a patch that is worth retrieving
PAIR_FIELDS = ("s1", "t1", "idx1", "s2", "t2", "idx2")
PATCH_FIELDS = ("s", "idx")
FILES = {
    "positive": ("verif_pos_split-{}.csv", PAIR_FIELDS),
    "near": ("verif_neg_intra_split-{}.csv", PAIR_FIELDS),
    "far": ("verif_neg_inter_split-{}.csv", PAIR_FIELDS),
    "queries": ("retr_queries_split-{}.csv", PATCH_FIELDS),
    "distractors": ("retr_distractors_split-{}.csv", PATCH_FIELDS),
}


@dataclass(frozen=True)
class Tasks:
    """Rows of integers; a sequence is given by its number in `sequences`.

    positive, near, far     (M, 6): sequence, image, patch, and the same of the second
    queries, distractors    (Q, 2): sequence, patch; of the reference image
    """

    sequences: tuple[str, ...]
    positive: Table
    near: Table
    far: Table
    queries: Table
    distractors: Table

    def __post_init__(self) -> None:
        if len(self.positive) != len(self.near) or len(self.positive) != len(self.far):
            raise ValueError(
                "verification has as many matching pairs as non-matching ones of each kind, got "
                f"{len(self.positive)}, {len(self.near)} and {len(self.far)}"
            )

    def check(self, counts: Mapping[str, int], images: int) -> None:
        """ValueError if a task asks for a sequence, an image or a patch that is not there.

        counts: how many patches each sequence has; images: how many images each has at least.
        """
        missing = [name for name in self.sequences if name not in counts]
        if missing:
            raise ValueError(
                f"the tasks are about {len(self.sequences)} sequences, {len(missing)} of which are "
                f"not there, first {missing[0]!r}"
            )
        number = np.array([counts[name] for name in self.sequences])
        for name, (_, fields) in FILES.items():
            table = getattr(self, name)
            end: Any = 0
            for field, values in zip(fields, table.T, strict=True):
                if field[0] == "s":
                    end, sequence = len(number), values
                else:
                    end = images if field[0] == "t" else number[sequence]
                wrong = (values < 0) | (values >= end)
                if wrong.any():
                    row = table[wrong.argmax()].tolist()
                    raise ValueError(f"{name}: {row} asks for what is not there ({field})")


def draw_tasks(
    contrast: Mapping[str, NDArray[np.float64]],
    *,
    images: int = 6,
    pairs: int = 20_000,
    queries: int = 1000,
    distractors: int = 5000,
    seed: int = 42,
) -> Tasks:
    """Tasks for sequences, drawn as the benchmark draws its own.

    contrast: for each sequence the standard deviations (N,) of its reference patches. images: how
    many each sequence has, the reference among them. The benchmark has a million pairs, 10,000
    queries and 20,000 distractors.

    >>> tasks = draw_tasks({"a": np.full(9, 50.0), "b": np.full(7, 50.0)}, pairs=20, queries=3)
    >>> tasks.positive.shape, tasks.queries.shape, len(tasks.distractors)
    ((20, 6), (3, 2), 13)
    """
    names = tuple(contrast)
    if not names:
        raise ValueError("there are no sequences to draw tasks from")
    if images < 2:
        raise ValueError(f"a sequence has 2 images or more, got {images}")
    number = np.array([len(contrast[name]) for name in names])
    if number.min() < 2:
        raise ValueError(f"{names[number.argmin()]} has fewer than 2 patches")
    rng = np.random.default_rng(seed)
    s = rng.integers(len(names), size=pairs)
    patch = rng.integers(number[s])
    other = (patch + rng.integers(1, number[s])) % number[s]
    first = min(FIRST_IMAGES, images)
    image = rng.integers(first, size=pairs)
    second = (image + rng.integers(1, first, size=pairs)) % first
    stranger = rng.integers(len(names), size=pairs)
    far = rng.integers(number[stranger])
    # The benchmark lets a patch be a stranger to itself, which matters where there are few.
    far = np.where((stranger == s) & (far == patch), other, far)
    textured = np.array(
        [
            (k, row)
            for k, name in enumerate(names)
            for row in np.flatnonzero(contrast[name] > MIN_CONTRAST)
        ],
        np.int64,
    ).reshape(-1, 2)
    # Each sequence is as likely as any other, however many patches it has.
    order = np.argsort(rng.exponential(size=len(textured)) * number[textured[:, 0]])
    chosen = textured[order]
    return Tasks(
        names,
        np.column_stack([s, image, patch, s, second, patch]),
        np.column_stack([s, image, patch, s, second, other]),
        np.column_stack([s, image, patch, stranger, second, far]),
        chosen[:queries],
        chosen[queries : queries + distractors],
    )


def read_tasks(folder: str | os.PathLike[str], split: str) -> Tasks:
    """The tasks of a split ("a", "b", "c", "full", "illum", "view") from the benchmark's files.

    folder: its `tasks`, with `splits/splits.json`, which names the sequences to test on.
    """
    folder = Path(folder)
    listed = folder / "splits" / "splits.json"
    try:
        splits = json.loads(read_text(listed, MAX_BYTES, "utf-8"))
        names = tuple(map(str, splits[split]["test"]))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{listed} has no split {split!r}: {error}") from error
    number = {name: k for k, name in enumerate(names)}
    tables = {
        field: _read(folder / file.format(split), fields, number)
        for field, (file, fields) in FILES.items()
    }
    return Tasks(names, **tables)


def write_tasks(folder: str | os.PathLike[str], tasks: Tasks, split: str) -> None:
    """Files that `read_tasks`, and the benchmark itself, can read."""
    folder = Path(folder)
    (folder / "splits").mkdir(parents=True, exist_ok=True)
    listed = {split: {"name": split, "test": list(tasks.sequences), "train": []}}
    with replacing(folder / "splits" / "splits.json") as temporary:
        temporary.write_text(json.dumps(listed))
    for field, (file, fields) in FILES.items():
        with replacing(folder / file.format(split)) as temporary:
            temporary.write_text("\n".join(_lines(getattr(tasks, field), fields, tasks.sequences)))


def _lines(table: Table, fields: Sequence[str], names: Sequence[str]) -> Iterable[str]:
    yield ",".join(fields)
    for row in table.tolist():
        words = zip(fields, row, strict=True)
        yield ",".join(names[v] if field[0] == "s" else str(v) for field, v in words)
    yield ""


def _read(path: Path, fields: Sequence[str], number: Mapping[str, int]) -> Table:
    rows: list[list[Any]] = []
    lines = csv.reader(read_text(path, MAX_BYTES, "utf-8").splitlines())
    header = next(lines, [])
    if header != list(fields):
        raise ValueError(f"{path}: expected the columns {','.join(fields)}, got {header}")
    for line in lines:
        try:
            words = zip(fields, line, strict=True)
            rows.append([number[v] if field[0] == "s" else int(v) for field, v in words])
        except (KeyError, ValueError) as error:
            where = f"{path}, line {lines.line_num}"
            raise ValueError(f"{where}: {line} is not a row of the split: {error}") from error
    return np.array(rows, np.int64).reshape(-1, len(fields))

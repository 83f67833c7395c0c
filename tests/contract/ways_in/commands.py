"""The ways in from the command line."""

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from kd_cv.collection.extraction import CONTRAST
from kd_cv.detector.detect import extrema
from kd_cv.detector.orientation import oriented
from kd_cv.detector.settings import DoGSettings
from ways_in.arrays import is_table
from ways_in.entry import Entry, Rows


def run_command(*arguments: Any) -> dict[str, Any]:
    """The JSON that a command of kd-cv prints."""
    code, out, err = command(*arguments)
    assert (code, err) == (0, ""), (code, err)
    return json.loads(out)


def command(*arguments: Any) -> tuple[int, str, str]:
    """kd-cv in this process: exit code, stdout, stderr."""
    from kd_cv.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


_scratch: list[tempfile.TemporaryDirectory[str]] = []


def scratch() -> str:
    """A folder that is removed when the process ends."""
    if not _scratch:
        _scratch.append(tempfile.TemporaryDirectory())
    return _scratch[0].name


class CommandLine(Entry):
    """A command on files in a folder; what it prints is one JSON object, and nothing else."""

    needs = ("typer", "rich")
    slow = True

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        folder = Path(tempfile.mkdtemp(prefix="contract ", dir=scratch()))
        for i, image in enumerate(batch):
            cv2.imwrite(str(folder / f"{i}.png"), image)
        return (folder,)

    def snapshot(self, folder: Path) -> Any:
        return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder.iterdir())}

    def layouts(self, folder: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
        files = sorted(folder.iterdir())
        linked = Path(tempfile.mkdtemp(prefix="links ", dir=scratch()))
        for path in files:
            (linked / path.name).symlink_to(path)
        yield "symbolic links", (linked,)
        for path in files:
            path.chmod(0o444)
        folder.chmod(0o555)
        try:
            yield "read-only files", (folder,)
        finally:
            folder.chmod(0o755)
        yield "a relative path", (Path(os.path.relpath(folder)),)

    def check_nothing(self) -> None:
        (folder,) = self.arguments(np.zeros((0, 1, 1), np.uint8))
        (folder / "nothing.png").touch()
        code, out, err = command(*self.refused(folder))
        assert (code, out, err.count("\n")) == (2, "", 1), (code, out, err)
        assert err.startswith("kd-cv: error: ") and folder.name in err

    def refused(self, folder: Path) -> tuple[Any, ...]:
        """A command on nothing: on a file without a byte, or in a folder without a photograph."""
        raise NotImplementedError


def keypoint_counts(image: np.ndarray, contrast: float | None = None) -> set[int]:
    """How many keypoints an image has, places that are equal but for their rounding: mostly one.

    With and without Numba places differ by up to 0.0004 pixels. A hump of the gradients' angles
    that is all but flat is a maximum, and so an angle, with the one and not with the other.
    """
    # More than there are, as the commands ask for.
    settings = DoGSettings(nfeatures=5000, contrastThreshold=contrast)
    places = extrema(image, settings.space, settings.nfeatures)
    frames = np.column_stack([places[:, :2], 2 * places[:, 2], np.full(len(places), -1.0)])
    rng = np.random.default_rng(0)
    moved = rng.uniform(-4e-4, 4e-4, (20, len(frames), 3))
    moved = np.concatenate([frames[None, :, :3], frames[:, :3] + moved])
    return {len(oriented(image, np.column_stack([own, frames[:, 3]]))[0]) for own in moved}


class MatchCommand(CommandLine):
    name = "kd-cv match"
    rounding = 0.01  # of H_0to1, whose last column is in pixels

    def same(self, rows: np.ndarray, expected: np.ndarray, image: np.ndarray) -> bool:
        counts = np.unique(rows[:, :4])  # an image is matched with itself: all are the same
        known = len(counts) == 1 and set(counts) <= keypoint_counts(image)
        return known and super().same(rows[:, 4:], expected[:, 4:], image)

    def call(self, folder: Path) -> Any:
        return [run_command("match", path, path, "--json") for path in sorted(folder.iterdir())]

    def refused(self, folder: Path) -> tuple[Any, ...]:
        return "match", folder / "nothing.png", folder / "nothing.png", "--json"

    def rows(self, result: Any) -> Rows:
        assert all(found["success"] is True for found in result)
        keys = ("matches", "inliers")
        return [
            np.array([[*found["keypoints"], *map(found.get, keys), *np.ravel(found["H_0to1"])]])
            for found in result
        ]


class ExtractCommand(CommandLine):
    name = "kd-cv extract"
    rounding = 5e-3  # of the faintest keypoints, whose angles are the least sure
    needs = ("typer", "rich", "h5py")

    def same(self, rows: np.ndarray, expected: np.ndarray, image: np.ndarray) -> bool:
        if len(rows) == len(expected):
            return super().same(rows, expected, image)
        few, many = sorted((rows, expected), key=len)
        off = np.abs(many - few[:, None]).max(axis=2).min(axis=1)
        counts = keypoint_counts(image, CONTRAST)
        return {len(few), len(many)} <= counts and off.max() <= self.rounding

    def call(self, folder: Path) -> Any:
        import h5py

        names = sorted(p.name for p in folder.iterdir())
        output = Path(tempfile.mkdtemp(dir=scratch())) / "features.h5"
        run_command("extract", folder, "-o", output, "--dtype", "float32", "--workers", 1, "--json")
        with h5py.File(output) as file:
            return [file[name]["descriptors"][:].T.copy() for name in names]

    def refused(self, folder: Path) -> tuple[Any, ...]:
        (folder / "nothing.png").unlink()
        return "extract", folder, "-o", folder.parent / "none.h5", "--json"

    def rows(self, result: Any) -> Rows:
        for row in result:
            is_table(row, np.float32)
        return result

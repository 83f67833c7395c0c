"""One contract for every public way in: a table of entry points and a list of checks.

Each entry point is an adapter from a common input, a batch of gray images (B, side, side) uint8, to
a common output, one array of rows for each of them. `cv2.SIFT`, whose place KDDescriptor takes, is
among them. The tests run every check on every entry; as a script the suite runs in an interpreter
that cannot import a given module:

    python tests/contract/contract_suite.py --without numba --save rows.npz
"""

import argparse
import contextlib
import copy
import importlib.abc
import importlib.util
import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

Rows = list[np.ndarray]
LAYOUTS = ("strided", "Fortran order", "inside a larger array", "reversed", "read-only")


def photographs(side: int) -> np.ndarray:
    """Three different pieces (3, side, side) of photographs."""
    import skimage.data

    camera, gravel = skimage.data.camera(), skimage.data.gravel()
    corners = ((camera, 90, 170), (camera, 300, 60), (gravel, 100, 200))
    return np.stack([image[y : y + side, x : x + side] for image, y, x in corners])


# Entry points -------------------------------------------------------------------------------------


class Entry:
    """A public way in.

    needs      modules without which it is not there
    types      of arrays or tensors that it takes beside those of `arguments`
    side       of the images that it is given
    tolerance  between a batch and its items one by one
    rounding   without Numba, where BLAS sums as the shapes and strides suggest, and to the rows
               with Numba
    """

    name = ""
    needs: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    layout_names: tuple[str, ...] = LAYOUTS
    side = 128
    tolerance = 0.0
    rounding = 1e-4

    def available(self) -> bool:
        return all(importlib.util.find_spec(module) for module in self.needs)

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        """What the call takes, for a batch (B, side, side)."""
        raise NotImplementedError

    def call(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def rows(self, result: Any) -> Rows:
        """What it found in each image, (n, D); checks the types of the result on the way."""
        raise NotImplementedError

    def type_of(self, result: Any) -> str:
        """The type of the descriptors, where it follows that of the arguments."""
        return ""

    def check_nothing(self) -> None:
        """No items give no rows, in the same types."""
        assert self.rows(self.call(*self.arguments(photographs(self.side)[:0]))) == []

    def layouts(self, *arguments: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """The same arguments, otherwise laid out in memory."""
        for name in self.layout_names:
            yield name, tuple(relaid(argument, name) for argument in arguments)

    def snapshot(self, *arguments: Any) -> Any:
        """The values of the arguments, to be compared later."""
        return [values(argument) for argument in arguments]

    def __repr__(self) -> str:
        return self.name


class Compute(Entry):
    """compute of a list of images, at keypoints that are given."""

    def feature(self) -> Any:
        raise NotImplementedError

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        detector = cv2.SIFT_create(40)
        return list(batch), [detector.detect(image, None) for image in batch]

    def call(self, images: list[np.ndarray], keypoints: list[Any]) -> Any:
        return self.feature().compute(images, keypoints)

    def rows(self, result: Any) -> Rows:
        kept, rows = result
        assert type(kept) is tuple and type(rows) is tuple and len(kept) == len(rows)
        for keypoints, row in zip(kept, rows, strict=True):
            assert type(keypoints) is tuple and len(keypoints) == len(row)
            assert all(type(keypoint) is cv2.KeyPoint for keypoint in keypoints)
            is_table(row, np.float32)
        return list(rows)


class OfKDDescriptor(Compute):
    name = "KDDescriptor.compute"
    types = ("uint16", "float16", "float32", "float64")

    def feature(self) -> Any:
        from kd_cv import KDDescriptor

        return KDDescriptor()


class OfBytes(Compute):
    name = "KDDescriptor.compute, 8 bits"
    rounding = 1.0  # one step

    def feature(self) -> Any:
        from kd_cv import KDDescriptor

        return KDDescriptor(descriptor_type=cv2.CV_8U, scales=3)

    def rows(self, result: Any) -> Rows:
        for row in result[1]:
            is_table(row, np.uint8)
        return [row.astype(np.float32) for row in result[1]]


class OfSIFT(Compute):
    name = "cv2.SIFT.compute"

    def feature(self) -> Any:
        return cv2.SIFT_create()


class DetectAndCompute(Entry):
    """detectAndCompute of one image after the other, within a mask."""

    name = "KDDescriptor.detectAndCompute"

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        mask = np.zeros(batch.shape[1:], np.uint8)
        mask[20:, 30:] = 255
        return list(batch), [mask] * len(batch)

    def call(self, images: list[np.ndarray], masks: list[np.ndarray]) -> Any:
        from kd_cv import KDDescriptor

        feature = KDDescriptor()
        return [feature.detectAndCompute(*pair) for pair in zip(images, masks, strict=True)]

    def rows(self, result: Any) -> Rows:
        for kept, row in result:
            assert type(kept) is tuple and len(kept) == len(row)
            is_table(row, np.float32)
        return [row for _, row in result]


class Describe(Entry):
    """describe of patches."""

    name = "describe"
    types = ("float16", "float32", "float64")
    side = 32

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        return (batch,)

    def call(self, patches: np.ndarray) -> Any:
        from kd_cv import describe

        return describe(patches)

    def rows(self, result: Any) -> Rows:
        is_table(result, np.float32)
        return [row[None] for row in result]


class Match(Entry):
    """match of each image with a shifted copy of it."""

    name = "match"
    types = ("uint16", "float32", "float64")

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        return list(batch), [np.roll(image, 5, axis=1) for image in batch]

    def call(self, images0: list[np.ndarray], images1: list[np.ndarray]) -> Any:
        from kd_cv import match

        return [match(*pair) for pair in zip(images0, images1, strict=True)]

    def rows(self, result: Any) -> Rows:
        from kd_cv import MatchResult

        for found in result:
            M = len(found.matches)
            assert type(found) is MatchResult and found.success is True
            assert type(found.keypoints0) is tuple and type(found.keypoints1) is tuple
            assert found.matches.shape == (M, 2) and found.matches.dtype == np.int64
            assert found.ratios.shape == (M,) and found.ratios.dtype == np.float32
            assert found.inliers.shape == (M,) and found.inliers.dtype == bool
            assert found.H_0to1.shape == (3, 3) and found.H_0to1.dtype == np.float64
        return [np.column_stack([found.points0, found.points1]) for found in result]


class OfKDModule(Entry):
    """KDModule on patches."""

    name = "KDModule"
    needs = ("torch",)
    types = ("float16", "bfloat16", "float64")
    layout_names = LAYOUTS[:3]  # the others are not there in torch
    side = 32

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        return (as_images(batch),)

    def call(self, patches: Any) -> Any:
        from kd_cv import KDModule

        rows = KDModule().to(patches.device)(patches)
        assert rows.device == patches.device
        return rows

    def rows(self, result: Any) -> Rows:
        is_tensor(result, 2)
        return [row[None] for row in result.double().numpy()]

    def type_of(self, result: Any) -> str:
        return str(result.dtype)


class OfKDFeature(Entry):
    """KDFeature on images, with Kornia's detector."""

    name = "KDFeature"
    needs = ("torch", "kornia")
    types = ("float64",)
    layout_names = LAYOUTS[:3]  # the others are not there in torch
    side = 64
    tolerance = 1e-4  # convolutions of a batch are summed in another order

    def arguments(self, batch: np.ndarray) -> tuple[Any, ...]:
        return (as_images(batch),)

    def call(self, images: Any) -> Any:
        import torch

        from kd_cv import KDFeature

        with torch.no_grad():
            found = KDFeature(20).to(images.device)(images)
        assert all(tensor.device == images.device for tensor in found)
        return found

    def rows(self, result: Any) -> Rows:
        lafs, responses, descriptors = result
        B, N = responses.shape
        assert lafs.shape == (B, N, 2, 3) and descriptors.shape == (B, N, 128)
        for tensor, dim in ((lafs, 4), (responses, 2), (descriptors, 3)):
            is_tensor(tensor, dim)
        return list(descriptors.double().numpy())

    def type_of(self, result: Any) -> str:
        (dtype,) = {str(tensor.dtype) for tensor in result}
        return dtype


class CommandLine(Entry):
    """A command on files in a folder; what it prints is one JSON object, and nothing else."""

    needs = ("typer", "rich")

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


class MatchCommand(CommandLine):
    name = "kd-cv match"

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
    needs = ("typer", "rich", "h5py")

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


ENTRIES: tuple[Entry, ...] = (
    OfSIFT(),
    OfKDDescriptor(),
    OfBytes(),
    DetectAndCompute(),
    Describe(),
    Match(),
    OfKDModule(),
    OfKDFeature(),
    MatchCommand(),
    ExtractCommand(),
)


# Checks -------------------------------------------------------------------------------------------


def check_types(entry: Entry) -> None:
    """The promised types and shapes, whatever the type of the arguments; torch keeps theirs."""
    batch = photographs(entry.side)
    arguments = entry.arguments(batch)
    for name in ("", *entry.types):
        result = entry.call(*(cast(argument, name) for argument in arguments))
        assert entry.type_of(result) in ("", "torch." + (name or "float32"))
        found = entry.rows(result)
        assert len(found) == len(batch)
        for rows in found:
            assert rows.ndim == 2 and len(rows) and np.isfinite(rows).all() and rows.any()


def check_arguments_stay(entry: Entry) -> None:
    """No argument is changed, and the result shares no memory with one."""
    arguments = entry.arguments(photographs(entry.side))
    before = copy.deepcopy(entry.snapshot(*arguments))
    result = entry.call(*arguments)
    assert same(entry.snapshot(*arguments), before)
    expected = [rows.copy() for rows in entry.rows(result)]
    for array in arrays(arguments):
        array.fill(0)
    assert same(entry.rows(result), expected)


def check_batched_equals_unbatched(entry: Entry) -> None:
    """A batch, in any order, gives what its items give one by one."""
    batch = photographs(entry.side)
    together = entry.rows(entry.call(*entry.arguments(batch)))
    turned = entry.rows(entry.call(*entry.arguments(batch[::-1].copy())))
    for i, rows in enumerate(together):
        (alone,) = entry.rows(entry.call(*entry.arguments(batch[i : i + 1])))
        np.testing.assert_allclose(alone, rows, rtol=0, atol=tolerance(entry))
        np.testing.assert_allclose(turned[-1 - i], rows, rtol=0, atol=tolerance(entry))


def check_empty_batch(entry: Entry) -> None:
    """No items give no rows, in the same types; from the command line, one line that says so."""
    entry.check_nothing()


def check_layouts(entry: Entry) -> None:
    """Strides, order and write protection of the arguments do not matter."""
    arguments = entry.arguments(photographs(entry.side))
    expected = entry.rows(entry.call(*arguments))
    for name, relaid_arguments in entry.layouts(*arguments):
        found = entry.rows(entry.call(*relaid_arguments))
        for rows, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(rows, other, rtol=0, atol=tolerance(entry), err_msg=name)


def tolerance(entry: Entry) -> float:
    from kd_cv.descriptor.engine import load_fused

    return entry.tolerance if load_fused() else max(entry.tolerance, entry.rounding)


def check_again(entry: Entry) -> None:
    """The same call gives the same bits."""
    arguments = entry.arguments(photographs(entry.side))
    first, second = (entry.rows(entry.call(*arguments)) for _ in range(2))
    assert same(first, second)


CHECKS: tuple[Callable[[Entry], None], ...] = (
    check_types,
    check_arguments_stay,
    check_batched_equals_unbatched,
    check_empty_batch,
    check_layouts,
    check_again,
)


# Help ---------------------------------------------------------------------------------------------


def relaid(argument: Any, layout: str) -> Any:
    """An equal array (tensor, list of arrays) in another layout; all else as it is."""
    if isinstance(argument, list):
        return [relaid(item, layout) for item in argument]
    if is_torch(argument):
        import torch

        return torch.from_numpy(relaid(argument.numpy(), layout))
    if not isinstance(argument, np.ndarray) or argument.dtype == object:
        return argument
    if layout == "read-only":
        view = argument.copy()
        view.flags.writeable = False
    elif layout == "strided":
        view = np.repeat(argument, 2, axis=-1)[..., ::2]
    elif layout == "reversed":
        view = np.ascontiguousarray(argument[..., ::-1, ::-1])[..., ::-1, ::-1]
    elif layout == "Fortran order":
        view = np.asfortranarray(argument)
    else:
        view = np.pad(argument, [(1, 2)] * argument.ndim)[(slice(1, -2),) * argument.ndim]
    assert np.array_equal(view, argument)
    return view


def cast(argument: Any, dtype: str) -> Any:
    """The same image in another type; bytes become 0..65535 or 0..1."""
    if not dtype:
        return argument
    if isinstance(argument, list):
        return [cast(item, dtype) for item in argument]
    if is_torch(argument):
        import torch

        return argument.to(getattr(torch, dtype))
    if isinstance(argument, np.ndarray) and argument.dtype == np.uint8:
        return (argument * (257.0 if dtype == "uint16" else 1 / 255)).astype(dtype)
    return argument


def values(argument: Any) -> Any:
    """Numbers of an array, tensor, keypoint, or nested lists of them."""
    if isinstance(argument, list | tuple):
        return [values(item) for item in argument]
    if isinstance(argument, cv2.KeyPoint):
        k = argument
        return (*k.pt, k.size, k.angle, k.response, k.octave, k.class_id)
    return argument.numpy() if is_torch(argument) else argument


def arrays(argument: Any) -> list[np.ndarray]:
    """All arrays in nested lists, tensors as arrays of the same memory."""
    if isinstance(argument, list | tuple):
        return [array for item in argument for array in arrays(item)]
    if is_torch(argument):
        return [argument.numpy()]
    return [argument] if isinstance(argument, np.ndarray) else []


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, in nested lists too."""
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def is_torch(argument: Any) -> bool:
    return type(argument).__module__ == "torch"


def as_images(batch: np.ndarray) -> Any:
    """(B, H, W) bytes as a float tensor (B, 1, H, W) in 0..1."""
    import torch

    return torch.from_numpy(batch[:, None].astype(np.float32) / 255)


def is_table(rows: Any, dtype: Any) -> None:
    assert type(rows) is np.ndarray and rows.dtype == dtype and rows.ndim == 2
    assert rows.flags.c_contiguous and rows.flags.writeable and rows.shape[1] == 128


def is_tensor(tensor: Any, dim: int) -> None:
    import torch

    assert type(tensor) is torch.Tensor and tensor.dim() == dim and tensor.is_floating_point()


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


# As a script --------------------------------------------------------------------------------------


class Absent(importlib.abc.MetaPathFinder):
    """Finds first, and then says that it is not there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] == self.name:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def main() -> None:
    """Every check on every entry that is there; exit code 1 if one fails."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--without", action="append", default=[], help="a module, as if not there")
    parser.add_argument("--check", help="only this one")
    parser.add_argument("--save", help=".npz for the rows of each entry")
    options = parser.parse_args()
    for name in options.without:
        assert name not in sys.modules
        sys.meta_path.insert(0, Absent(name))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from kd_cv.descriptor.engine import load_fused

        load_fused()
    for warning in caught:
        print("warning:", warning.message)
    saved, failures = {}, 0
    for entry in ENTRIES:
        if set(entry.needs) & set(options.without) or not entry.available():
            print(f"{entry.name}: not there")
            continue
        for check in CHECKS:
            if options.check not in (None, check.__name__):
                continue
            try:
                check(entry)
            except AssertionError as error:
                failures += 1
                print(f"{entry.name}: {check.__name__} failed: {error}")
        rows = entry.rows(entry.call(*entry.arguments(photographs(entry.side))))
        saved |= {f"{entry.name} {i}": row for i, row in enumerate(rows)}
        print(f"{entry.name}: ok")
    for name in options.without:
        assert not [m for m in sys.modules if m.partition(".")[0] == name], name
    if options.save:
        np.savez(options.save, **saved)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()

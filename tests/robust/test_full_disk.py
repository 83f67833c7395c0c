"""A full disk and a read-only folder at every writer: one clear line, and nothing half-written.

Every writer is given a folder on a file system of its own. That takes the right to mount one; where
there is none, the tests are skipped.
"""

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from collections_of_photographs import SMALL, photographs
from skimage import data

from kd_cv import DoG, KDDescriptor, match
from kd_cv.cli import main
from kd_cv.collection import extract
from kd_cv.collection.colmap import _check_written
from kd_cv.collection.database import write_database, write_pairs
from kd_cv.whitening import Statistics, save
from kd_cv.whitening.registry import resolve

pytestmark = pytest.mark.nightly

ROOM = 2**23  # bytes of the file system
SAID = {errno.ENOSPC: "No space left on device", errno.EROFS: "Read-only file system"}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs, a feature file and an index, on a disk with room."""
    folder = tmp_path_factory.mktemp("material")
    photographs(folder / "images", count=5, side=160)
    pytest.importorskip("h5py")
    extract(folder / "images", folder / "features.h5", SMALL)
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if sys.platform != "linux" or not shutil.which("mount") or _mount(folder, f"size={ROOM}"):
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def _mount(folder: Path, options: str) -> int:
    command = ["mount", "-t", "tmpfs", "-o", options, "kd_cv", folder]
    return subprocess.run(command, capture_output=True).returncode


def fill(disk: Path, room: int) -> Path:
    """Leave `room` bytes, of a page each, on the disk."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    os.truncate(filler, filler.stat().st_size - room)
    return filler


def tree(folder: Path) -> dict[str, bytes]:
    """The files below a folder and what is in them; of folders, only those that are not empty."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "filler"
    }


# ------------------------------------------------------------------------------------- the writers


def _drawn(path: Path, material: Path) -> None:
    image = data.camera()
    match(image, image[10:, 20:], max_keypoints=99).draw(path)


def _match(option: str) -> Callable[[Path, Path], int]:
    return lambda path, material: main(["match", option, str(path)])


def _index(path: Path, material: Path) -> None:
    pytest.importorskip("faiss")
    from kd_cv.collection.retrieval import Index

    Index.build(material / "features.h5").save(path)


def _database(path: Path, material: Path) -> None:
    pytest.importorskip("pycolmap")
    write_database(material / "features.h5", material / "images", path)


def _colmap(path: Path, material: Path) -> int:
    pytest.importorskip("pycolmap")
    options = ["--max-keypoints", "200"]
    return main(["colmap", str(material / "images"), "--workspace", str(path), *options])


def _export(path: Path, material: Path) -> int:
    for module in ("torch", "onnxruntime", "onnxscript"):
        pytest.importorskip(module)
    return main(["export", "-o", str(path)])


#: What is written -> how: a command, which gives its exit code, or a function.
WRITERS: dict[str, Callable[[Path, Path], int | None]] = {
    "settings.yml": lambda path, _: KDDescriptor().write(str(path)),
    "detector.json": lambda path, _: DoG().write(path),
    "matrices.npz": lambda path, _: save(
        path, {("concat", 32): resolve("multiview", "concat", 32)}
    ),
    "statistics.npz": lambda path, _: Statistics(9).save(path),
    "pairs.txt": lambda path, _: write_pairs(path, [("a.jpg", "b.jpg")]),
    "database.db": _database,
    "index.npz": _index,
    "drawn.png": _drawn,
    "matches.png": _match("-o"),
    "report.html": _match("--report"),
    "H.json": _match("--save-homography"),
    "explanation.png": lambda path, _: main(["explain", "-o", str(path)]),
    "features.h5": lambda path, m: main(["extract", str(m / "images"), "-o", str(path)]),
    "workspace": _colmap,
    "kd.onnx": _export,
}
FOLDERS = {"workspace"}
#: Where a run leaves what it has done, for the next one to go on with.
GOES_ON = {"features.h5", "workspace"}


def refused(name: str, code: int, disk: Path, material: Path, err: Callable[[], str]) -> None:
    """One clear line, an exit code that is not 0, and the disk as it was."""
    before = tree(disk)
    err()
    try:
        assert WRITERS[name](disk / name, material) == 2
        line = err()
        assert line.startswith("kd-cv: error: ") and line.count("\n") == 1
    except OSError as error:
        assert error.errno == code
        line = str(error)
    assert str(disk) in line and SAID[code] in line
    after = tree(disk)
    if name in GOES_ON:
        after = {path: data for path, data in after.items() if ".partial/" not in path}
    assert after == before


@pytest.fixture
def err(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What was said on the terminal since it was last asked."""
    return lambda: capsys.readouterr().err


def old(disk: Path, name: str) -> None:
    """What was there before, where it may be written over."""
    if name not in FOLDERS | GOES_ON:
        (disk / name).write_bytes(b"old")


@pytest.mark.parametrize("code", SAID, ids=SAID.get)
@pytest.mark.parametrize("name", WRITERS)
def test_nothing_can_be_written(disk, material, name, code, err):
    old(disk, name)
    if code == errno.ENOSPC:
        fill(disk, room=0)
    else:
        assert not _mount(disk, "remount,ro")
    refused(name, code, disk, material, err)


def test_a_model_cut_short_is_not_called_written(tmp_path):
    """The same where no file system can be mounted."""
    pycolmap = pytest.importorskip("pycolmap")
    model = pycolmap.synthesize_dataset(pycolmap.SyntheticDatasetOptions())
    model.write(tmp_path)
    _check_written(tmp_path, model)
    os.truncate(tmp_path / "points3D.bin", 100)
    with pytest.raises(OSError, match="could not be written, is the disk full"):
        _check_written(tmp_path, model)


@pytest.mark.skipif(sys.platform == "win32", reason="files have no limit there")
def test_files_that_may_not_grow():
    """The same where no file system can be mounted, by the limit of a process on its files."""
    program = """
        import os, resource, sys, tempfile
        from kd_cv import KDDescriptor
        from kd_cv.whitening import Statistics
        for limit, write in ((99, KDDescriptor().write), (999, Statistics(40).save)):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "file.npz")
                open(path, "w").close()
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
                try:
                    write(path)
                except OSError as error:
                    print(error.strerror, error.filename == path, os.listdir(folder))
                    print(os.path.getsize(path))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert said == "File too large True ['file.npz']\n0\n" * 2

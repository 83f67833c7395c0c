"""Collections into HDF5: the layout, what is skipped, what a killed run leaves, what is refused."""

import multiprocessing
import random
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from collections_of_photographs import RAW, SMALL, photographs, whitened, whole_parts
from PIL import Image
from skimage import data

from kd_cv import DoG, KDDescriptor
from kd_cv.collection import Collection, Extraction, extract, reading
from kd_cv.collection.batches import run_batch
from kd_cv.collection.extraction import CONTRAST
from kd_cv.collection.run import owned
from kd_cv.descriptor.frames import MAGNIFICATION
from kd_cv.io import images
from kd_cv.keypoints import from_keypoints
from kd_cv.matching.neighbours import match_descriptors

h5py = pytest.importorskip("h5py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return photographs(tmp_path / "images")


def gray(path: Path) -> np.ndarray:
    return images.read_gray(path)


def test_hloc_layout(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "features.h5"
    summary = extract(folder, output, SMALL)
    assert (summary.done, summary.kept, summary.skipped, summary.exit_code) == (6, 0, {}, 0)
    with h5py.File(output, "r") as file:
        # As hloc lists a file: every group that holds a dataset is an image.
        found = set()
        file.visititems(
            lambda _, item: (
                found.add(item.parent.name.strip("/")) if isinstance(item, h5py.Dataset) else None
            )
        )
        assert found == {"below/00.png", "01.jpg", "02.jpg", "below/03.png", "04.jpg", "05.jpg"}
        total = 0
        for name in found:
            image = gray(folder / name)
            keypoints = DoG(200, contrastThreshold=CONTRAST).detect(image)
            group = file[name]
            places = {(k.pt[0], k.pt[1], np.float32(k.response)) for k in keypoints}
            stored = zip(*group["keypoints"][()].T, group["scores"][()], strict=True)
            assert {(float(x), float(y), s) for x, y, s in stored} == places
            sizes = sorted(np.float32(k.size / 2) for k in keypoints)
            assert np.allclose(sorted(group["scales"][()]), sizes)
            assert group["descriptors"].shape == (238, len(keypoints))
            assert group["descriptors"].dtype == np.float32
            assert group["image_size"][()].tolist() == [image.shape[1], image.shape[0]]
            assert group["keypoints"].attrs["uncertainty"] == 1.0
            total += len(keypoints)
        assert summary.keypoints == total > 600


def test_descriptors_are_those_of_the_keypoints(folder: Path, tmp_path: Path) -> None:
    extract(folder, tmp_path / "f.h5", SMALL)
    with reading(tmp_path / "f.h5") as features:
        assert len(features) == 6
        own = features["below/03.png"]
    keypoints = RAW.detect(gray(folder / "below/03.png"))
    frames = from_keypoints(keypoints)
    _, rows = RAW.compute(gray(folder / "below/03.png"), keypoints)
    for frame, row in zip(own.frames, own.descriptors, strict=True):
        near = np.abs(frames - frame).sum(axis=1).argmin()
        assert np.allclose(frames[near], frame, atol=1e-3)
        assert np.array_equal(rows[near], row)


def test_large_images_are_reduced_and_keypoints_mapped_back(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    image = data.astronaut()[:400, :500]
    cv2.imwrite(str(folder / "a.png"), image)
    extract(folder, tmp_path / "f.h5", Extraction(RAW, 50, max_size=250, dtype="float32"))
    reduced = cv2.resize(gray(folder / "a.png"), (250, 200), interpolation=cv2.INTER_AREA)
    expected = DoG(50).detect(reduced)
    with reading(tmp_path / "f.h5") as features:
        own = features["a.png"]
    # A point of the reduced image covers 2 x 2 pixels: its pixel 0 is centred at 0.5.
    wanted = np.array(sorted((2 * k.pt[0] + 0.5, 2 * k.pt[1] + 0.5, 2 * k.size) for k in expected))
    assert np.allclose(np.array(sorted(own.frames[:, :3].tolist())), wanted, atol=1e-3)
    assert own.image_size == (500, 400)
    with h5py.File(tmp_path / "f.h5") as file:
        assert file["a.png/keypoints"].attrs["uncertainty"] == 2.0


@pytest.mark.slow
def test_nearest_neighbours_as_hloc_takes_them(folder: Path, tmp_path: Path) -> None:
    """By dot products of (D, N) descriptors, which must be of unit norm."""
    image = cv2.imread(str(folder / "01.jpg"))
    cv2.imwrite(str(folder / "turned.jpg"), cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE))
    extract(folder, tmp_path / "f.h5", Extraction(whitened(), 200))
    with h5py.File(tmp_path / "f.h5") as file:
        d0, d1 = (file[name]["descriptors"][()].astype(float) for name in ("01.jpg", "turned.jpg"))
        p0, p1 = (file[name]["keypoints"][()] for name in ("01.jpg", "turned.jpg"))
    similarity = np.einsum("dn,dm->nm", d0, d1)
    there, back = similarity.argmax(axis=1), similarity.argmax(axis=0)
    mutual = np.flatnonzero(back[there] == np.arange(len(there)))
    expected = np.stack([199 - p0[mutual, 1], p0[mutual, 0]], axis=1)  # the image is 200 x 200
    near = np.linalg.norm(expected - p1[there[mutual]], axis=1) < 1
    assert len(mutual) > 50 and near.mean() > 0.8
    with reading(tmp_path / "f.h5") as features:
        pairs, _ = match_descriptors(
            features["01.jpg"].descriptors, features["turned.jpg"].descriptors
        )
    assert np.array_equal(pairs, np.stack([mutual, there[mutual]], axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("dtype, tolerance", [("float16", 1e-3), ("uint8", 0.05)])
def test_smaller_types(folder: Path, tmp_path: Path, dtype: str, tolerance: float) -> None:
    kd = whitened()
    extract(folder, tmp_path / "full.h5", Extraction(kd, 200, dtype="float32"))
    extract(folder, tmp_path / "small.h5", Extraction(kd, 200, dtype=dtype))
    with reading(tmp_path / "full.h5") as full, reading(tmp_path / "small.h5") as small:
        for name in full:
            exact, rounded = full[name].descriptors, small[name].descriptors
            assert np.linalg.norm(exact - rounded, axis=1).mean() < tolerance
    with h5py.File(tmp_path / "small.h5") as file:
        assert file["01.jpg/descriptors"].dtype == dtype


def test_sources(folder: Path, tmp_path: Path) -> None:
    everything = Collection.of(folder)
    assert len(everything.names) == 6 and everything.root == folder
    assert Collection.of(f"{folder}/*.jpg").names == ("01.jpg", "02.jpg", "04.jpg", "05.jpg")
    assert set(Collection.of(f"{folder}/**/*").names) == set(everything.names)
    listed = folder / "list.txt"
    listed.write_text("# two\n02.jpg\n\nbelow/00.png\n02.jpg\n")
    assert Collection.of(listed).names == ("02.jpg", "below/00.png")
    elsewhere = tmp_path / "list.txt"
    elsewhere.write_text("02.jpg\n")
    assert Collection.of(elsewhere, root=folder) == Collection(folder, ("02.jpg",))


@pytest.mark.parametrize("name", ["../secret.jpg", "a/../../b.jpg", "/etc/passwd", "."])
def test_names_stay_below_their_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "list.txt").write_text(name)
    with pytest.raises(ValueError, match="below the folder"):
        extract(tmp_path / "list.txt", tmp_path / "f.h5", SMALL)


def test_nothing_to_extract(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        extract(tmp_path / "nowhere", tmp_path / "f.h5")
    with pytest.raises(ValueError, match="one file"):
        extract(folder / "01.jpg", tmp_path / "f.h5")
    with pytest.raises(ValueError, match="no images"):
        extract(f"{folder}/*.bmp", tmp_path / "f.h5")
    with pytest.raises(FileNotFoundError, match="missing"):
        extract(folder, tmp_path / "missing" / "f.h5")


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"descriptor": "surf"}, "unknown descriptor 'surf'"),
        ({"dtype": "int4"}, "dtype must be one of"),
        ({"max_keypoints": 0}, "max_keypoints must be from 1 to 524288, got 0"),
        ({"max_size": 1.5}, "max_size must be an int, got 1.5"),
        ({"descriptor": "sift", "dtype": "uint8"}, "is for KD descriptors"),
    ],
)
def test_wrong_settings(arguments: dict, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        Extraction(**arguments)


@pytest.mark.slow
def test_what_cannot_be_read_is_skipped_and_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = cv2.imencode(".png", cv2.imread(str(folder / "01.jpg")))[1].tobytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_text("not a picture")
    cv2.imwrite(str(folder / "huge.png"), np.zeros((300, 300), np.uint8))
    cv2.imwrite(str(folder / "plain.png"), np.full((50, 50), 9, np.uint8))
    monkeypatch.setattr(images, "MAX_PIXELS", 200 * 200)
    summary = extract(folder, tmp_path / "f.h5", SMALL)
    assert summary.exit_code == 1 and summary.done == 7
    reasons = dict(summary.skipped)
    assert reasons.pop("cut.png") == "is not an image that OpenCV can decode"
    assert reasons.pop("empty.png") == "is not an image that OpenCV can decode"
    assert reasons.pop("text.jpg") == "is not an image that OpenCV can decode"
    assert reasons.pop("huge.png").startswith("300 x 300 pixels")
    assert not reasons
    for name, reason in summary.skipped.items():
        assert f"skipped {name}: {reason}" in str(summary)
    with reading(tmp_path / "f.h5") as features:
        assert features["plain.png"].descriptors.shape == (0, 238)  # nothing to see is no error
        assert "cut.png" not in features
    # What was skipped is tried again.
    (folder / "cut.png").write_bytes(whole)
    again = extract(folder, tmp_path / "f.h5", SMALL)
    assert (again.done, again.kept, len(again.skipped)) == (1, 7, 3)
    state = (tmp_path / "f.h5").stat()
    again = extract(folder, tmp_path / "f.h5", SMALL)
    assert (again.done, again.kept, len(again.skipped)) == (0, 8, 3)
    now = (tmp_path / "f.h5").stat()  # nothing to add, so not touched; but it was read
    assert (now.st_ino, now.st_mtime_ns, now.st_size) == (
        state.st_ino, state.st_mtime_ns, state.st_size
    )  # fmt: skip


@pytest.mark.slow
def test_new_images_are_added(folder: Path, tmp_path: Path) -> None:
    (folder / "list.txt").write_text("01.jpg\nbelow/00.png\n")
    extract(folder / "list.txt", tmp_path / "f.h5", SMALL)
    summary = extract(folder, tmp_path / "f.h5", SMALL)
    assert (summary.done, summary.kept) == (4, 2)
    extract(folder, tmp_path / "whole.h5", SMALL)
    same_content(tmp_path / "f.h5", tmp_path / "whole.h5")
    state = (tmp_path / "f.h5").stat()
    summary = extract(folder, tmp_path / "f.h5", SMALL)
    assert (summary.done, summary.kept) == (0, 6)
    assert (tmp_path / "f.h5").stat() == state  # not touched


@pytest.mark.slow
def test_changed_settings_are_refused(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "f.h5"
    extract(folder, output, SMALL)
    before = output.read_bytes()
    for other in (
        Extraction(RAW, 100, dtype="float32"),
        Extraction(RAW, 200, dtype="float16"),
        Extraction(KDDescriptor(whitening=None, magnification=10), 200, dtype="float32"),
        Extraction("sift", 200, dtype="float32"),
    ):
        with pytest.raises(ValueError, match="has other settings"):
            extract(folder, output, other)
    with pytest.raises(ValueError, match=f"magnification {MAGNIFICATION} there and 10.0 here"):
        extract(
            folder,
            output,
            Extraction(KDDescriptor(whitening=None, magnification=10), 200, dtype="float32"),
        )
    assert output.read_bytes() == before
    extract(folder, output, Extraction(RAW, 100, dtype="float32"), overwrite=True)
    with reading(output) as features:
        assert max(len(features[name].frames) for name in features) == 100
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["something"] = 1
    with pytest.raises(ValueError, match="was not written by kd_cv"):
        extract(folder, tmp_path / "foreign.h5", SMALL)
    with h5py.File(tmp_path / "foreign.h5", "r+") as file:
        file.attrs["kd_cv"] = "[1, 2]"  # JSON, but of no settings
    with pytest.raises(ValueError, match="was not written by kd_cv"):
        extract(folder, tmp_path / "foreign.h5", SMALL)
    (tmp_path / "text.h5").write_text("no features")
    with pytest.raises(ValueError, match=r"text\.h5 cannot be read as an HDF5 file"):
        extract(folder, tmp_path / "text.h5", SMALL)
    with pytest.raises(FileNotFoundError, match="no feature file"), reading(tmp_path / "none.h5"):
        pass
    assert (tmp_path / "text.h5").read_text() == "no features"


@pytest.mark.nightly
def test_killed_at_any_moment(tmp_path: Path) -> None:
    """SIGKILL, again and again, at random moments: in the end the file is the undisturbed one."""
    folder = photographs(tmp_path / "images", count=40, side=128)
    extract(folder, tmp_path / "whole.h5", SMALL)
    output = tmp_path / "f.h5"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["kd_cv.collection.run", "kd_cv.descriptor.compiled", "h5py", "skimage.data"]
    )
    rng = random.Random(0)
    left_behind = [0]
    for _ in range(7):
        process = context.Process(target=extract, args=(folder, output, SMALL))
        process.start()
        enough = left_behind[-1] + rng.randint(1, 7)
        while process.is_alive() and whole_parts(output) < enough:
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.02))
        process.kill()
        process.join()
        if output.exists():
            break
        left_behind.append(whole_parts(output))
    assert left_behind == sorted(left_behind) and len(left_behind) > 3, left_behind
    process = context.Process(target=extract, args=(folder, output, SMALL))
    process.start()
    while process.is_alive() and not list((tmp_path / "f.h5.partial").glob(".f-*")):
        time.sleep(0.001)
    process.kill()  # while the output is put together
    process.join()
    extract(folder, output, SMALL)
    assert output.read_bytes() == (tmp_path / "whole.h5").read_bytes()
    assert not (tmp_path / "f.h5.partial").exists()


def same_content(a: Path, b: Path) -> None:
    with reading(a) as one, reading(b) as other:
        assert set(one) == set(other)
        for name in one:
            assert np.array_equal(one[name].frames, other[name].frames)
            assert np.array_equal(one[name].descriptors, other[name].descriptors)


# ---------------------------------------------------------- processes, resumed and repeated runs


@pytest.mark.slow
def test_threads_and_processes_write_the_same_file(folder: Path, tmp_path: Path) -> None:
    (folder / "broken.png").write_bytes(b"no picture")
    threads = cv2.getNumThreads()
    for name, workers in (("threads", None), ("one", 1), ("processes", 2)):
        summary = extract(folder, tmp_path / f"{name}.h5", SMALL, workers=workers)
        assert summary.done == 6 and list(summary.skipped) == ["broken.png"]
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "threads.h5").read_bytes()
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "processes.h5").read_bytes()
    assert cv2.getNumThreads() == threads and not list(tmp_path.glob("*.partial"))


@pytest.mark.slow
def test_no_port_is_opened_and_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")
    many = photographs(tmp_path / "many", count=150, side=256)
    command = ["-m", "kd_cv", "extract", str(many), "-o", str(tmp_path / "f.h5"), "--workers", "2"]
    parent = psutil.Popen([sys.executable, *command])
    while whole_parts(tmp_path / "f.h5") < 2:
        time.sleep(0.02)
    children = parent.children(recursive=True)
    assert len(children) >= 2
    assert not [c for p in (parent, *children) for c in p.net_connections() if c.status == "LISTEN"]
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive


def test_an_error_stops_the_other_workers(tmp_path: Path, monkeypatch) -> None:
    begun: list[str] = []

    def fail(self, gray, clock=None):
        begun.append("image")
        time.sleep(0.05)
        raise RuntimeError("no luck")

    monkeypatch.setattr(Extraction, "features", fail)
    many = photographs(tmp_path / "many", count=200, side=32)
    with pytest.raises(RuntimeError, match="no luck"):
        extract(many, tmp_path / "f.h5", Extraction("sift", 10))
    assert len(begun) < 30


class Stopped(Exception):
    pass


def stopping_after(count: int):
    def runner(plan, extraction):
        for batch in plan[:count]:
            yield run_batch(batch, extraction)
        raise Stopped

    return runner


@pytest.mark.slow
def test_a_stopped_run_continues_and_does_damaged_parts_again(folder: Path, tmp_path: Path) -> None:
    extract(folder, tmp_path / "whole.h5", SMALL)
    output = tmp_path / "f.h5"
    with pytest.raises(Stopped):
        extract(folder, output, SMALL, runner=stopping_after(3))
    parts = sorted((tmp_path / "f.h5.partial").glob("*.h5"))
    assert len(parts) == 3 and not output.exists()
    parts[0].write_bytes(parts[0].read_bytes()[:1000])
    parts[1].write_bytes(b"")
    summary = extract(folder, output, SMALL)
    assert (summary.done, summary.kept) == (5, 1)
    assert output.read_bytes() == (tmp_path / "whole.h5").read_bytes()
    assert not (tmp_path / "f.h5.partial").exists()


def test_partial_results_belong_to_their_folder_and_settings(folder: Path, tmp_path: Path) -> None:
    other = photographs(tmp_path / "other")
    output = tmp_path / "f.h5"
    with pytest.raises(Stopped):
        extract(folder, output, SMALL, runner=stopping_after(4))
    with pytest.raises(Stopped):
        extract(other, output, Extraction("sift", 9), runner=stopping_after(1))
    summary = extract(other, output, SMALL)
    assert (summary.done, summary.kept) == (6, 0)


@pytest.mark.slow
def test_changed_photographs_are_extracted_again(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "f.h5"
    extract(folder, output, SMALL)
    image = cv2.imread(str(folder / "01.jpg"))
    cv2.imwrite(str(folder / "01.jpg"), image[:100])
    summary = extract(folder, output, SMALL)
    assert (summary.done, summary.kept) == (1, 5)
    with reading(output) as features:
        assert features["01.jpg"].image_size == (200, 100)
    moved = folder.rename(tmp_path / "moved")  # another root
    assert extract(moved, output, SMALL).done == 6


@pytest.mark.slow
def test_overwriting_replaces_the_file_at_the_end(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "f.h5"
    extract(folder, output, SMALL)
    before = output.read_bytes()
    with pytest.raises(Stopped):
        extract(folder, output, SMALL, overwrite=True, runner=stopping_after(2))
    assert output.read_bytes() == before
    assert extract(folder, output, SMALL, overwrite=True).done == 6
    assert output.read_bytes() == before


def test_an_input_is_never_overwritten(folder: Path) -> None:
    before = (folder / "01.jpg").read_bytes()
    (folder / "link.h5").symlink_to("01.jpg")
    for output in (folder / "01.jpg", folder / "link.h5"):
        with pytest.raises(ValueError, match="is one of the photographs"):
            extract(folder, output, SMALL, overwrite=True)
    assert (folder / "01.jpg").read_bytes() == before


def test_one_run_at_a_time_has_an_output(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "f.h5"
    for overwrite in (False, True):
        with (
            owned(output),
            pytest.raises(BlockingIOError, match="another run is writing it") as caught,
        ):
            extract(folder, output, SMALL, overwrite=overwrite)
        assert caught.value.filename == str(output)
    assert not (tmp_path / "f.h5.partial").exists()


def test_images_keep_their_precision(camera, tmp_path: Path) -> None:
    """A dim 16-bit photograph has the features of the bright one."""
    (tmp_path / "p").mkdir()
    cv2.imwrite(str(tmp_path / "p" / "dim.png"), camera.astype(np.uint16))
    cv2.imwrite(str(tmp_path / "p" / "full.png"), camera.astype(np.uint16) * 257)
    extract(tmp_path / "p", tmp_path / "f.h5", SMALL)
    with reading(tmp_path / "f.h5") as features:
        assert len(features["dim.png"].frames) > 0.8 * len(features["full.png"].frames) > 100


def test_heic_photographs_are_extracted(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    (tmp_path / "images").mkdir()
    pillow_heif.from_pillow(Image.fromarray(data.coins())).save(tmp_path / "images" / "a.HEIC")
    summary = extract(tmp_path / "images", tmp_path / "f.h5", SMALL)
    assert summary.done == 1 and not summary.skipped and summary.keypoints > 20

"""Collections into HDF5: the layout, what is skipped, what a killed run leaves, what is refused."""

import errno
import multiprocessing
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from collections_of_photographs import RAW, SMALL, photographs, whitened, whole_parts
from skimage import data

from kd_cv import DoG, KDDescriptor
from kd_cv.collection import Collection, Extraction, FeatureFile, extract, reading
from kd_cv.collection.batches import Batch, Report, batches
from kd_cv.collection.extraction import CONTRAST, STAGES
from kd_cv.collection.run import by_threads, duration, shown
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


def test_weak_keypoints_count_in_a_collection_unless_a_contrast_is_given() -> None:
    assert Extraction().feature.getContrastThreshold() == 0.02
    strict = Extraction(KDDescriptor(contrastThreshold=0.05))
    assert strict.feature.getContrastThreshold() == 0.05
    assert strict.settings["detector"]["contrastThreshold"] == 0.05
    photograph = data.camera()
    assert len(Extraction().features(photograph).frames) > len(strict.features(photograph).frames)


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
    with pytest.raises(FileNotFoundError, match="no directory"):
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
    assert reasons.pop("empty.png") == "empty file"
    assert reasons.pop("text.jpg").startswith("is not a JPEG")
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
def test_what_is_not_read_is_counted(folder: Path, tmp_path: Path) -> None:
    """Beside photographs of every kind: TIFF and WebP count as photographs, as in `match`."""
    image = cv2.imread(str(folder / "01.jpg"))
    for name in ("below/a.tif", "b.TIFF", "c.webp"):
        assert cv2.imwrite(str(folder / name), image)
    for name in ("a.heic", "below/b.HEIC", "notes.txt", "Makefile", ".hidden"):
        (folder / name).write_text("no picture")
    summary = extract(folder, tmp_path / "f.h5", SMALL)
    assert (summary.done, summary.exit_code, summary.skipped) == (9, 0, {})
    assert summary.others == {".heic": 2, ".txt": 1, "": 1}
    said = "4 other files are not read: 2 .heic (convert them to .jpg first), 1 "
    assert said in str(summary)
    assert extract(f"{folder}/*", tmp_path / "g.h5", SMALL).others == {
        ".heic": 1, ".txt": 1, "": 1,
    }  # fmt: skip
    for path in Collection.of(folder).names:
        (folder / path).unlink()
    with pytest.raises(ValueError, match=r"no images found in .*; 4 other files are not read: 2"):
        extract(folder, tmp_path / "h.h5", SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32", "uint8"])
def test_the_file_says_who_reads_it(folder: Path, tmp_path: Path, dtype: str) -> None:
    extract(folder / "*.jpg", tmp_path / "f.h5", Extraction(RAW, 50, dtype=dtype))
    with h5py.File(tmp_path / "f.h5") as file:
        assert ("hloc, deep" in file.attrs["readers"]) == (dtype != "uint8")
        assert "kd_cv" in file.attrs["readers"]


def test_missing_image_of_a_list(folder: Path, tmp_path: Path) -> None:
    (folder / "list.txt").write_text("01.jpg\ngone.jpg\nbelow\n")
    summary = extract(folder / "list.txt", tmp_path / "f.h5", SMALL)
    assert summary.skipped.keys() == {"gone.jpg", "below"} and summary.done == 1
    assert summary.skipped["gone.jpg"] == "not found"


def test_image_that_may_not_be_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> np.ndarray:
        if path.name == "01.jpg":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return gray(path)

    monkeypatch.setattr("kd_cv.collection.batches.read_gray", read)  # nothing is forbidden to root
    summary = extract(folder, tmp_path / "f.h5", SMALL)
    assert summary.skipped == {"01.jpg": "Permission denied"} and summary.exit_code == 1


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


@pytest.mark.slow
def test_number_of_workers_does_not_matter(folder: Path, tmp_path: Path) -> None:
    threads = cv2.getNumThreads()
    for workers in (1, 3):
        extract(folder, tmp_path / f"{workers}.h5", SMALL, workers=workers)
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "3.h5").read_bytes()
    assert cv2.getNumThreads() == threads
    assert not list(tmp_path.glob("*.partial"))


def test_batches_shrink_towards_the_end(tmp_path: Path) -> None:
    names = tuple(f"{i}.jpg" for i in range(3000))
    plan = batches(Collection(tmp_path, names), names, tmp_path, "{}")
    sizes = [len(batch.names) for batch in plan]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 16 and sizes[-100:] == [1] * 100
    assert [name for batch in plan for name in batch.names] == list(names)
    assert len({batch.part for batch in plan}) == len(plan)
    assert plan == batches(Collection(tmp_path, names), names, tmp_path, "{}")


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 6], ids=["batches of one", "one batch"])
def test_images_are_decoded_ahead(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """While an image is worked on, the next one is decoded, in the same batch or not."""
    decoded = threading.Semaphore(0)
    behind: list[bool] = []

    def read(path: Path) -> np.ndarray:
        image = gray(path)
        decoded.release()
        return image

    def features(self, image, clock):  # type: ignore[no-untyped-def]
        if len(behind) < 5:  # the last has no next one
            behind.append(decoded.acquire(timeout=20))
        return original(self, image, clock)

    original = Extraction.features
    monkeypatch.setattr("kd_cv.collection.batches.read_gray", read)
    monkeypatch.setattr(Extraction, "features", features)
    collection = Collection.of(folder)
    plan = [
        Batch(folder, collection.names[i : i + size], tmp_path / f"{i}.h5", SMALL.settings_text)
        for i in range(0, 6, size)
    ]
    decoded_first = threading.Thread(target=decoded.acquire)  # the first image is not "next"
    decoded_first.start()
    reports = list(by_threads(plan, SMALL, 1))
    decoded_first.join()
    assert behind == [True] * 5
    assert sum(report.done for report in reports) == 6
    assert all(report.seconds["decode"] > 0 for report in reports)


def test_progress_tells_the_rate_and_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = dict.fromkeys(STAGES, 0.0)
    kept, done = Report(0, 9, {}, idle, kept=80), Report(9, 9, {"a": "empty file"}, idle)
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def reports() -> Iterator[Report]:
        now[0] += 1
        yield kept
        for _ in range(2):
            now[0] += 2
            yield done

    assert list(shown(reports(), 100, progress=True)) == [kept, done, done]
    lines = [line.strip() for line in capsys.readouterr().err.split("\r")]
    assert lines == [
        "",
        "80/100 images, 0.0/s",  # those that were there say nothing
        "90/100 images, 3.3/s, 0:00:03 left",
        "100/100 images, 4.0/s, 0:00:00 left",
    ]
    assert duration(90061.5) == "25:01:02"
    assert list(shown(reports(), 100, progress=False)) and capsys.readouterr().err == ""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_collection(tmp_path: Path) -> None:
    """What 100 images more put into the file is not kept, but for some of HDF5's directory."""
    code = (
        "import resource, sys\n"
        "from kd_cv import DoG, KDDescriptor\n"
        "from kd_cv.collection import Extraction, extract\n"
        "extraction = Extraction(KDDescriptor(whitening=None), 300, dtype='float32')\n"
        "extract(sys.argv[1], sys.argv[2], extraction, workers=2)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    peaks, sizes = [], []
    for count in (20, 120):
        folder = photographs(tmp_path / f"{count}", count, side=256)
        output = tmp_path / f"{count}.h5"
        command = [sys.executable, "-c", code, str(folder), str(output)]
        peaks.append(int(subprocess.check_output(command, text=True)))
        sizes.append(output.stat().st_size)
    assert sizes[1] - sizes[0] > 20e6
    assert peaks[1] - peaks[0] < (sizes[1] - sizes[0]) / 2, (peaks, sizes)


@pytest.mark.slow
def test_damaged_part_is_done_again(folder: Path, tmp_path: Path) -> None:
    extract(folder, tmp_path / "whole.h5", SMALL)

    def stop_after_three(plan, extraction):  # type: ignore[no-untyped-def]
        from kd_cv.collection.batches import run_batch

        for batch in plan[:3]:
            yield run_batch(batch, extraction)
        raise KeyboardInterrupt

    output = tmp_path / "f.h5"
    with pytest.raises(KeyboardInterrupt):
        extract(folder, output, SMALL, runner=stop_after_three)
    parts = sorted((tmp_path / "f.h5.partial").glob("*.h5"))
    assert len(parts) == 3 and not output.exists()
    parts[0].write_bytes(parts[0].read_bytes()[:1000])
    parts[1].write_bytes(b"")
    with pytest.raises(ValueError, match="has other settings"):
        extract(folder, output, Extraction(RAW, 100, dtype="float32"))
    summary = extract(folder, output, SMALL)
    assert (summary.done, summary.kept) == (5, 1)
    assert output.read_bytes() == (tmp_path / "whole.h5").read_bytes()


@pytest.mark.slow
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


def test_a_feature_file_of_others(tmp_path):
    with (
        h5py.File(tmp_path / "other.h5", "w") as file,
        pytest.raises(ValueError, match=r"other\.h5 was not written by kd_cv"),
    ):
        FeatureFile(file)


def test_extraction_of_no_descriptor_and_by_no_worker(tmp_path):
    with pytest.raises(TypeError, match="descriptor must be a name or a KDDescriptor, got int"):
        Extraction(3)
    cv2.imwrite(str(tmp_path / "blank.png"), np.zeros((64, 64), np.uint8))
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        extract(tmp_path, tmp_path / "features.h5", Extraction("sift", 10), workers=0)


def test_more_keypoints_than_a_file_can_be_read_back_with_are_refused():
    with pytest.raises(ValueError, match="max_keypoints must be from 1 to 524288"):
        Extraction(max_keypoints=2**20)


def test_an_image_that_opencv_cannot_process_is_skipped(tmp_path, monkeypatch):
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((40, 40), np.uint8))

    def refuse(self, gray, clock=None):
        raise cv2.error("no memory")

    monkeypatch.setattr(Extraction, "features", refuse)
    summary = extract(tmp_path, tmp_path / "f.h5", Extraction("sift", 10), workers=1)
    assert summary.skipped == {"a.png": "OpenCV cannot process it: no memory"}
    assert (summary.done, summary.exit_code) == (0, 1)

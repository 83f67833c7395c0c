"""A real local cluster of two processes, one of which is killed in the middle of the run."""

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collections_of_photographs import SMALL, photographs, whole_parts
from skimage import data

from kd_cv import KDDescriptor
from kd_cv.cli import main
from kd_cv.collection import Extraction, batches, cluster, extract
from kd_cv.fit import fit_photos
from kd_cv.fit.scenes import Scene, View
from kd_cv.gray import as_gray
from kd_cv.keypoints import from_keypoints, to_keypoints
from kd_cv.whitening.files import save
from kd_cv.whitening.statistics import Statistics
from kd_cv.whitening.whitening import Whitening

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed")
pytest.importorskip("h5py")
pytest.importorskip("threadpoolctl")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with cluster.connected(workers=2) as client:
        assert len(client.nthreads()) == 2
        yield client


def kill_one(client: Any) -> None:
    pids = client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)


def test_extraction_survives_a_lost_worker(client: Any, tmp_path: Path) -> None:
    folder = photographs(tmp_path / "images", count=40, side=128)
    (folder / "broken.jpg").write_text("no picture")
    output = tmp_path / "cluster.h5"

    def kill() -> None:
        while whole_parts(output) < 3:
            time.sleep(0.002)
        killed_at.append(whole_parts(output))
        kill_one(client)

    killed_at: list[int] = []
    killer = threading.Thread(target=kill)
    killer.start()
    summary = cluster.extract(folder, output, SMALL, client=client)
    killer.join()
    assert killed_at[0] < 40
    assert summary.done + summary.kept == 40 and list(summary.skipped) == ["broken.jpg"]
    extract(folder, tmp_path / "one.h5", SMALL)
    assert output.read_bytes() == (tmp_path / "one.h5").read_bytes()


@pytest.mark.filterwarnings("error:Port .* is already in use")
def test_extraction_survives_a_worker_that_hangs(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped, as by a debugger or a disk that does not answer, and never goes on.

    Another cluster is beside it, which has a port of its own.
    """
    monkeypatch.setattr(cluster, "SILENCE", 5)
    folder = photographs(tmp_path / "images", count=20, side=128)
    output = tmp_path / "cluster.h5"
    with cluster.connected(workers=2) as another:

        def stop() -> None:
            while whole_parts(output) < 3:
                time.sleep(0.002)
            stopped.append(next(iter(another.run(os.getpid).values())))
            os.kill(stopped[0], signal.SIGSTOP)

        stopped: list[int] = []
        stopper = threading.Thread(target=stop)
        stopper.start()
        summary = cluster.extract(folder, output, SMALL, client=another)
        stopper.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped[0], signal.SIGKILL)
    assert summary.done + summary.kept == 20 and not summary.skipped
    extract(folder, tmp_path / "one.h5", SMALL)
    assert output.read_bytes() == (tmp_path / "one.h5").read_bytes()


def test_a_task_that_hangs_in_a_worker_that_answers_is_named(
    client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("typer")
    folder = photographs(tmp_path / "images", count=12, side=128)
    output, settings = tmp_path / "f.h5", ["--max-keypoints", "200"]
    cluster.extract(folder, output, Extraction("kd", 200), client=client)
    whole = output.read_bytes()

    def never(path: Path) -> Any:
        while path.name == "05.jpg" and hanging.exists():
            time.sleep(0.1)
        return decode(path)

    def decode_by(function: Any) -> None:
        batches.decode = function

    hanging, decode = tmp_path / "hanging", batches.decode
    hanging.touch()
    client.run(decode_by, never)
    address = client.scheduler.address
    command = ["extract", str(folder), "-o", str(output), *settings, "--overwrite"]
    assert main([*command, "--scheduler", address, "--limit", "5"]) == 2
    line = capsys.readouterr().err
    assert line == "kd-cv: error: no end after 5 seconds: 05.jpg\n"
    assert not output.exists() and whole_parts(output) >= 4
    hanging.unlink()
    assert main([*command[:-1], "--scheduler", address]) == 0  # goes on
    assert output.read_bytes() == whole


def test_what_hangs_or_fails_within_the_limit_of_a_worker_is_said() -> None:
    def fail(item: object) -> None:
        raise RuntimeError(f"no {item}")

    assert cluster._within(60, "{}{}".format, "a", "b") == "ab"
    with pytest.raises(RuntimeError, match="no luck"):
        cluster._within(60, fail, "luck")
    scene, ended = Scene("gorge", ()), threading.Event()
    for item in (scene, ("gorge", 1), (("gorge", "bridge"), 1)):
        with pytest.raises(TimeoutError, match=r"no end after 0\.01 seconds: gorge(, bridge)?$"):
            cluster._within(0.01, lambda _: ended.wait(60), item)
    ended.set()


def test_a_limit_is_a_positive_number_of_seconds(client: Any, tmp_path: Path) -> None:
    folder = photographs(tmp_path / "images", count=1, side=64)
    for limit in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="the limit must be a positive number of seconds"):
            cluster.extract(folder, tmp_path / "f.h5", SMALL, client=client, limit=limit)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a scheduler; its process, and those of two workers."""
    where = tmp_path / "scheduler.json"
    at = ["--scheduler-file", str(where), "--no-dashboard"]
    commands = [
        ["dask_scheduler", "--port", "0", *at],
        *2 * [["dask_worker", "--nthreads", "1", "--no-nanny", *at]],
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{program}", *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path,
        )
        for program, *options in commands
    ]  # fmt: skip
    try:
        while not where.exists() or not where.read_text():
            time.sleep(0.05)
        address = json.loads(where.read_text())["address"]
        with distributed.Client(address) as client:
            client.wait_for_workers(2, timeout=120)
        yield address, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_lost_worker_then_a_lost_scheduler(
    elsewhere: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("typer")
    address, (scheduler, worker, _) = elsewhere
    folder = photographs(tmp_path / "images", count=60, side=128)
    output = tmp_path / "f.h5"

    def kill() -> None:
        for parts, process in ((3, worker), (6, scheduler)):
            while whole_parts(output) < parts:
                time.sleep(0.002)
            process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    options = ["--max-keypoints", "200"]
    command = ["extract", str(folder), "-o", str(output), *options]
    capfd.readouterr()
    assert main([*command, "--scheduler", address]) == 2
    killer.join()
    line = capfd.readouterr().err
    assert line.startswith(f"kd-cv: error: the scheduler at {address} is lost")
    assert line.count("\n") == 1 and not output.exists()
    done = whole_parts(output)
    assert main([*command, "--json"]) == 0  # goes on, here
    summary = json.loads(capfd.readouterr().out)
    assert 6 <= done <= summary["kept"] < 60 and summary["done"] + summary["kept"] == 60


def test_statistics_survive_a_lost_worker(client: Any) -> None:
    scenes = [scene(name, i) for i, name in enumerate(("astronaut", "coffee", "brick") * 5)]
    kd = KDDescriptor(whitening=None, scales=2)
    alone = cluster.fit_statistics(scenes, kd)
    killed: list[int] = []

    class Deadly(list):  # type: ignore[type-arg]
        """The scenes; taking the tenth, when some are finished and others under way, kills."""

        def __iter__(self) -> Iterator[Any]:
            for i in range(len(self)):
                if i == 10:
                    kill_one(client)
                    killed.append(i)
                yield self[i]

    together = cluster.fit_statistics(Deadly(scenes), kd, client=client)
    assert killed == [10]
    for name in ("count", "pair_count", "mean", "C", "C_M"):
        assert np.array_equal(getattr(alone, name), getattr(together, name)), name
    assert alone.count > 2000 and alone.pair_count > 1000
    rows = Whitening.fit(alone).projection("ws", 64).A
    assert np.array_equal(rows, Whitening.fit(together).projection("ws", 64).A)


def test_matrices_are_those_of_one_process(client: Any, tmp_path: Path) -> None:
    """From photographs to the file of matrices, bit for bit; what cannot be read is said here."""
    folder = photographs(tmp_path / "images", count=12, side=200)
    (folder / "broken.jpg").write_text("no picture")
    told: list[str] = []
    for name, run in (("one", cluster.one_by_one), ("cluster", cluster.in_order(client))):
        with pytest.warns(UserWarning, match="photograph skipped.*broken"):
            entries = fit_photos(
                folder, kernels=["cart"], max_keypoints=200, run=run, progress=told.append
            )
        save(tmp_path / f"{name}.npz", entries)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "cluster.npz").read_bytes()
    one, other = told[: len(told) // 2], told[len(told) // 2 :]
    assert one == other and len(set(one[:12])) == 12  # the photographs, then the training
    assert entries["cart", 32].provenance["pairs"] > 500


def test_commands_on_a_scheduler(
    client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("typer")
    folder = photographs(tmp_path / "images", count=12, side=256)
    there = ["--scheduler", client.scheduler.address]
    output = tmp_path / "mine.npz"
    assert main(["fit", str(folder), "-o", str(output), *there, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["provenance"]["fitted_on"] == "10 photographs" and output.is_file()
    features = tmp_path / "features.h5"
    command = ["extract", str(folder), "-o", str(features), "--weights", str(output)]
    assert main([*command, *there, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 12


def scene(name: str, shift: int) -> Scene:
    """A photograph and its copy moved by `shift`, with keypoints of which the last is outside."""
    gray = as_gray(getattr(data, name)()[:256, :256])
    frames = from_keypoints(KDDescriptor(whitening=None).detect(gray))[:200]
    frames = np.concatenate([frames, [[9000, 9000, 5, 0]]])
    ids = np.arange(len(frames))
    moved = frames + [shift, 0, 0, 0]
    return Scene(name, (View(gray, frames, ids), View(np.roll(gray, shift, axis=1), moved, ids)))


def test_statistics_are_those_of_the_descriptors() -> None:
    one = scene("coffee", 3)
    kd = KDDescriptor(whitening=None)
    rows = [
        kd.compute(v.image, to_keypoints(v.frames))[1][:-1] for v in one.views
    ]  # the last is outside
    n = len(rows[0])
    expected = Statistics(238)
    expected.update(np.concatenate(rows), np.stack([np.arange(n), n + np.arange(n)], axis=1))
    found = cluster.fit_statistics([one])
    assert (found.count, found.pair_count) == (2 * n, n)
    assert np.allclose(found.C, expected.C, atol=1e-6)
    assert np.allclose(found.C_M, expected.C_M, atol=1e-6)


def test_wrong_arguments() -> None:
    with (
        pytest.raises(ValueError, match="its own workers"),
        cluster.connected("tcp://a:1", workers=2),
    ):
        pass
    with pytest.raises(ValueError, match="at least 1"), cluster.connected(workers=0):
        pass


def test_what_is_sent_to_workers(tmp_path: Path) -> None:
    extraction = Extraction("rootsift", 100)
    assert extraction.feature is not None  # which itself cannot be sent
    assert pickle.loads(pickle.dumps(extraction)) == extraction


def test_a_scheduler_that_says_nothing_is_not_waited_for(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "PATIENCE", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OSError, match="no scheduler answers at"), cluster.connected(address):
            pass

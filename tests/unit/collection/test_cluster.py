"""A Dask cluster of two processes, one of which is killed in the middle of the run."""

import os
import shutil
import signal
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
from kd_cv.collection import Extraction, cluster, extract
from kd_cv.fit.scenes import Scene, View
from kd_cv.gray import as_gray
from kd_cv.keypoints import from_keypoints, to_keypoints
from kd_cv.whitening.registry import folder as folder_of_weights
from kd_cv.whitening.statistics import Statistics

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed")
pytest.importorskip("h5py")
pytest.importorskip("threadpoolctl")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as local,
        cluster.connected(local.scheduler_address) as client,
    ):
        yield client


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
    kd = KDDescriptor(whitening=None)  # which drops the last: it is outside
    rows = [kd.compute(v.image, to_keypoints(v.frames))[1] for v in one.views]
    n = len(rows[0])
    expected = Statistics(238)
    expected.update(np.concatenate(rows), np.stack([np.arange(n), n + np.arange(n)], axis=1))
    found = cluster.fit_statistics([one])
    assert (found.count, found.pair_count) == (2 * n, n)
    assert np.allclose(found.C, expected.C, atol=1e-6)
    assert np.allclose(found.C_M, expected.C_M, atol=1e-6)


def test_nothing_is_started_without_the_address_of_a_scheduler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "expected the address of a Dask scheduler"
    with pytest.raises(ValueError, match=said), cluster.connected("local"):
        pass
    folder = photographs(tmp_path / "images", count=1, side=64)
    command = ["extract", str(folder), "-o", str(tmp_path / "f.h5"), "--scheduler"]
    assert main([*command, "local"]) == 2
    assert main([*command, "tcp://a:1", "--workers", "2"]) == 2
    assert "--scheduler has workers of its own" in capsys.readouterr().err


def test_a_lost_worker_changes_nothing(client: Any, tmp_path: Path) -> None:
    """Of an extraction, then of the statistics of a fit."""
    folder = photographs(tmp_path / "images", count=40, side=128)
    (folder / "broken.jpg").write_text("no picture")
    output = tmp_path / "cluster.h5"

    def kill() -> None:
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    def kill_after_three() -> None:
        while whole_parts(output) < 3:
            time.sleep(0.002)
        kill()

    killer = threading.Thread(target=kill_after_three)
    killer.start()
    summary = cluster.extract(folder, output, SMALL, client=client)
    killer.join()
    assert summary.done + summary.kept == 40 and list(summary.skipped) == ["broken.jpg"]
    extract(folder, tmp_path / "one.h5", SMALL)
    assert output.read_bytes() == (tmp_path / "one.h5").read_bytes()

    class Deadly(list):  # type: ignore[type-arg]
        """The scenes; taking the last, when some are finished and others under way, kills."""

        def __iter__(self) -> Iterator[Any]:
            for i in range(len(self)):
                if i == len(self) - 1:
                    kill()
                yield self[i]

    client.wait_for_workers(2, timeout=60)
    scenes = [scene(name, i) for i, name in enumerate(("astronaut", "coffee", "brick") * 3)]
    alone = cluster.fit_statistics(scenes)
    together = cluster.fit_statistics(Deadly(scenes), client=client)
    for name in ("count", "pair_count", "mean", "C", "C_M"):
        assert np.array_equal(getattr(alone, name), getattr(together, name)), name


def test_matrices_travel_to_the_workers(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path that means another file in the folder of the workers."""
    for name, weights in (("here", "liberty"), ("there", "hpatches")):
        (tmp_path / name).mkdir()
        shutil.copy(folder_of_weights() / f"{weights}.npz", tmp_path / name / "mine.npz")
    images = photographs(tmp_path / "images", count=1, side=128)
    client.run(os.chdir, str(tmp_path / "there"))
    monkeypatch.chdir(tmp_path / "here")
    extraction = Extraction(KDDescriptor(weights="mine.npz", whitening="wua"), 50)
    assert cluster.extract(images, "cluster.h5", extraction, client=client).done == 1
    extract(images, "here.h5", extraction)
    assert Path("cluster.h5").read_bytes() == Path("here.h5").read_bytes()

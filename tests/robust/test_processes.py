"""Threads, forks, a vanished folder, little memory, a deleted cache of compiled code."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from small_image import IMAGE, RNG

from kd_cv import KDDescriptor, match
from kd_cv.keypoints import from_keypoints, to_keypoints

POINTS = to_keypoints(
    np.column_stack([RNG.uniform(0, 80, (500, 2)), RNG.uniform(1, 9, 500), np.zeros(500)])
)


@pytest.fixture(scope="module")
def kd():
    return KDDescriptor()


@pytest.fixture(scope="module")
def expected(kd):
    return kd.compute(IMAGE, POINTS)[1]


def at_once(work, count=16):
    """What `count` threads return that all do the same."""
    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(work) for _ in range(count)]]


def alone(program, seconds=60, **environment):
    """Exit code, standard output and the end of the errors of a program in a new interpreter."""
    child = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=seconds, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    return child.returncode, child.stdout, child.stderr[-600:]


def test_threads_that_detect(kd):
    image = cv2.resize(IMAGE, (400, 300), interpolation=cv2.INTER_CUBIC)
    keypoints, rows = kd.detectAndCompute(image, None)
    frames = from_keypoints(keypoints)
    assert len(frames) > 50
    for found, again in at_once(lambda: kd.detectAndCompute(image, None)):
        assert np.array_equal(from_keypoints(found), frames) and np.array_equal(again, rows)


def test_threads_that_match():
    assert all(found.keypoints0 for found in at_once(lambda: match(IMAGE, IMAGE)))


def test_threads_that_write_and_read_one_file(kd, tmp_path):
    path = tmp_path / "kd.yml"
    kd.write(path)

    def write_and_read():
        kd.write(path)
        other = KDDescriptor(whitening=None)
        other.read(path)
        return other.descriptorSize()

    assert at_once(write_and_read, 8) == [128] * 8


def test_the_working_folder_is_deleted(kd, expected, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert np.array_equal(kd.compute(IMAGE, POINTS)[1], expected)
    assert KDDescriptor().descriptorSize() == 128


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited and read as Linux does")
def test_hardly_any_memory_left():
    """An error, or a result, but no crash."""
    code, out, err = alone("""
        import resource, numpy as np, cv2
        from kd_cv import KDDescriptor
        image = np.random.default_rng(0).integers(0, 255, (3000, 3000)).astype(np.uint8)
        points = [cv2.KeyPoint(float(x), float(x), 300.0) for x in range(0, 3000, 2)]
        kd = KDDescriptor()
        kd.compute(image, points[:9])
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20),) * 2)
        try:
            kd.compute(image.astype(np.float32), points * 100)
        except (MemoryError, RuntimeError, cv2.error):
            pass
        print("alive")
    """)
    assert (code, out) == (0, "alive\n"), err


@pytest.mark.slow
def test_the_cache_is_deleted_while_in_use(tmp_path):
    program = """
        import os, pathlib, shutil, sys
        import numpy as np, cv2
        from kd_cv import KDDescriptor
        image = np.random.default_rng(0).integers(0, 255, (60, 60)).astype(np.uint8)
        points = [cv2.KeyPoint(30.0, 30.0, 3.0)]
        first = KDDescriptor().compute(image, points)[1]
        folder = pathlib.Path(os.environ["NUMBA_CACHE_DIR"])
        assert any(folder.rglob("*.nb?")), "nothing was cached"
        shutil.rmtree(folder)
        assert np.array_equal(KDDescriptor().compute(image, points)[1], first)
        assert KDDescriptor().compute(image.astype(np.float32), points)[1].any()
    """
    cache = str(tmp_path / "not there yet")
    assert alone(program, seconds=600, NUMBA_CACHE_DIR=cache) == (0, "", "")

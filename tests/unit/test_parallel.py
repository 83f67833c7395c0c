"""One pool of threads: every job once, errors and interrupts that leave nothing behind."""

import multiprocessing
import os
import signal
import threading

import cv2
import numpy as np
import pytest

from kd_cv import KDDescriptor
from kd_cv.parallel import in_chunks, in_parallel, thread_count


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = cv2.getNumThreads()
    cv2.setNumThreads(request.param)
    yield request.param
    cv2.setNumThreads(before)


@pytest.fixture
def four_threads():
    before = cv2.getNumThreads()
    cv2.setNumThreads(4)
    yield
    cv2.setNumThreads(before)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 1000])
def test_each_item_is_worked_on_once(threads, count):
    done = np.zeros(count, int)

    def work(start, stop):
        done[start:stop] += 1

    in_chunks(count, work)
    assert (done == 1).all()


def test_jobs_run_on_as_many_threads_as_opencv_uses(threads):
    together = threading.Barrier(threads, timeout=10)  # broken if fewer threads come
    in_parallel(range(threads), lambda job: together.wait())
    assert thread_count() == threads


def test_an_error_stops_the_other_jobs(four_threads):
    started, failed = [], threading.Event()

    def work(job):
        started.append(job)
        if job == 0:
            failed.set()
            raise ValueError("job 0")
        failed.wait(10)

    with pytest.raises(ValueError, match="job 0"):
        in_parallel(range(200), work)
    assert len(started) < 20


def test_nested_calls_finish(four_threads):
    done = []
    in_parallel(range(20), lambda job: in_parallel(range(5), done.append))
    assert sorted(done) == sorted(list(range(5)) * 20)


def test_interrupted_calls_leave_nothing_behind(four_threads):
    class Late(Exception):
        pass

    def late(*_):
        raise Late

    rng = np.random.default_rng(0)
    image = cv2.GaussianBlur(rng.integers(0, 256, (120, 160), dtype=np.uint8), (0, 0), 1.5)
    kd = KDDescriptor()
    expected = kd.detectAndCompute(image, None)[1]
    before, interrupted = signal.signal(signal.SIGALRM, late), 0
    try:
        for _ in range(150):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0002, 0.01))
                for _ in range(10):
                    kd.detectAndCompute(image, None)
            except Late:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 50
    found = []
    other = threading.Thread(target=lambda: found.append(kd.detectAndCompute(image, None)[1]))
    other.start()
    other.join(30)
    assert np.array_equal(found[0], expected)


def test_many_callers_get_the_same_bits(camera):
    kd = KDDescriptor(300)
    expected = kd.detectAndCompute(camera, None)[1]
    results = [None] * 8

    def call(i):
        results[i] = kd.detectAndCompute(camera, None)[1]

    callers = [threading.Thread(target=call, args=(i,)) for i in range(len(results))]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(np.array_equal(result, expected) for result in results)


def _in_child(image, results):
    results.put((thread_count(), KDDescriptor(300).detectAndCompute(image, None)[1]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_computes_on_one_thread_with_the_same_bits(camera):
    expected = KDDescriptor(300).detectAndCompute(camera, None)[1]  # the pool has threads now
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_in_child, args=(camera, results))
    child.start()
    count, descriptors = results.get(timeout=60)
    child.join(60)
    assert count == 1 and child.exitcode == 0
    assert np.array_equal(descriptors, expected)

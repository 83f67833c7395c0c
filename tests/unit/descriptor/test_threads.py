"""The threads of a call: one setting for all callers, whatever happens to them."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kd_cv import KDDescriptor
from kd_cv import parallel as descriptor_threads
from kd_cv.parallel import KEPT, Scratch, in_chunks, in_parallel, on_threads, scratch

CALLERS = 16


class Watched:
    """Work that counts how many threads do it at the same time."""

    def __init__(self) -> None:
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def __call__(self, job: int) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.002)
        with self.lock:
            self.now -= 1


@pytest.mark.parametrize("count", [1, 2, 4])
def test_many_callers_do_not_multiply_the_threads(threads, count, monkeypatch):
    """Three cores: as many callers at work, or as many as threads, and the helpers."""
    monkeypatch.setattr("kd_cv.parallel.cores", lambda: 3)
    threads(count)
    work = Watched()
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(lambda _: in_parallel(range(20), work), range(2 * CALLERS)))
    assert max(3, count) <= work.most <= max(3, count) + count - 1


def test_callers_that_were_told_their_threads_do_not_wait(threads, monkeypatch):
    """As workers of an extraction are: each has one, whatever OpenCV has."""
    monkeypatch.setattr("kd_cv.parallel.cores", lambda: 1)
    threads(1)
    together = threading.Barrier(CALLERS)

    def call(_):
        with on_threads(1):
            in_parallel(range(1), lambda job: together.wait(20))

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(call, range(CALLERS)))


def test_callers_whose_helpers_call_do_not_wait_for_themselves(threads, monkeypatch):
    monkeypatch.setattr("kd_cv.parallel.cores", lambda: 2)
    threads(2)
    work = Watched()

    def call(_):
        in_parallel(range(4), lambda job: in_parallel(range(4), work))

    with ThreadPoolExecutor(CALLERS) as pool:
        assert len(list(pool.map(call, range(CALLERS), timeout=60))) == CALLERS


def test_calls_within_a_call_do_not_multiply_the_threads(threads):
    threads(4)
    work = Watched()
    in_parallel(range(8), lambda _: in_parallel(range(8), work))
    assert 2 <= work.most <= 4


def test_the_next_caller_has_all_threads_again(threads):
    """Also after calls that failed."""
    threads(4)
    for _ in range(3):
        all_at_once = threading.Barrier(4)
        in_parallel(range(4), lambda _, b=all_at_once: b.wait(20))
        with pytest.raises(ZeroDivisionError):
            in_parallel(range(40), lambda job: 1 // 0)


def test_a_block_that_says_another_number(threads):
    threads(4)
    work = Watched()
    with on_threads(1):
        in_parallel(range(8), work)
    assert work.most == 1
    with on_threads(2):
        in_parallel(range(8), work)
    assert work.most == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_that_was_forked_while_helpers_worked_has_its_own():
    program = """
        import os, threading, cv2
        from kd_cv.parallel import in_parallel
        cv2.setNumThreads(4)
        begun, go_on = threading.Barrier(5), threading.Event()
        def work(job):
            begun.wait(20)
            go_on.wait(20)
        busy = threading.Thread(target=in_parallel, args=(range(4), work))
        busy.start()
        begun.wait(20)
        child = os.fork()
        all_four = threading.Barrier(4)
        if child == 0:
            in_parallel(range(4), lambda job: all_four.wait(20))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        go_on.set()
        busy.join()
        raise SystemExit(code)
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    subprocess.run(command, check=True, timeout=60)


@pytest.mark.parametrize("available", [0, 1])
def test_where_no_thread_can_be_started_the_caller_does_the_work(
    camera, keypoints, threads, monkeypatch, available
):
    expected = KDDescriptor().compute(camera, keypoints)[1]
    threads(4)
    started = []

    def start(thread):
        if len(started) == available:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        thread.run()  # one was to be had, and has done what it could

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(threading.Thread, "join", lambda thread: None)
    assert np.array_equal(KDDescriptor().compute(camera, keypoints)[1], expected)
    assert len(started) == available


def test_an_error_in_another_thread_reaches_the_caller(threads):
    threads(4)
    begun = threading.Barrier(4)

    def work(a, b):
        begun.wait(20)
        if threading.current_thread() is not threading.main_thread():
            raise OverflowError("of a helper")

    with pytest.raises(OverflowError, match="of a helper"):
        in_chunks(64, work)


@pytest.fixture
def shelf(monkeypatch):
    """Where scratch is put back, empty at first, on a machine of two cores."""
    monkeypatch.setattr(descriptor_threads, "_shelf", [])
    monkeypatch.setattr(descriptor_threads, "cores", lambda: 2)
    return descriptor_threads._shelf


def test_scratch_of_one_name_is_used_again():
    arrays = Scratch()
    mine = arrays.empty("D", (3, 4))
    mine.fill(7.0)
    smaller = arrays.empty("D", (2, 5))
    assert smaller.shape == (2, 5) and np.shares_memory(mine, smaller)
    assert not np.shares_memory(mine, arrays.empty("levels", (3, 4)))
    assert arrays.empty("D", (40, 40)).shape == (40, 40)  # more than there was
    assert not arrays.zeros("D", (3, 4)).any()


def test_scratch_is_nobody_elses_and_then_the_next_ones(shelf):
    with scratch() as mine, ThreadPoolExecutor(1) as other:
        first = mine.empty("D", (3, 4))

        def theirs():
            with scratch() as arrays:
                return arrays.empty("D", (3, 4))

        assert not np.shares_memory(other.submit(theirs).result(), first)
        with scratch() as nested:
            assert not np.shares_memory(nested.empty("D", (3, 4)), first)
    with pytest.raises(OverflowError), scratch() as arrays:
        assert np.shares_memory(arrays.empty("D", (3, 4)), first)
        raise OverflowError
    with scratch() as arrays:
        assert np.shares_memory(arrays.empty("D", (3, 4)), first)


def test_little_scratch_is_kept(shelf):
    with scratch(), scratch(), scratch():
        pass
    assert len(shelf) == 2
    shelf.clear()
    with scratch() as arrays:
        arrays.empty("D", (KEPT // 4 + 1,))
    assert not shelf


def test_calls_leave_their_scratch_to_the_next(shelf, camera, threads):
    threads(2)
    kd = KDDescriptor(500)
    for _ in range(2):
        kd.detectAndCompute(camera, None)
    kept = {id(arrays): arrays.nbytes for arrays in shelf}
    for _ in range(4):
        kd.detectAndCompute(camera, None)
    assert {id(arrays) for arrays in shelf} >= kept.keys() and 1 <= len(shelf) <= 2
    assert all(0 < arrays.nbytes <= KEPT for arrays in shelf)


def test_all_processors_count_where_the_system_does_not_say_which_may_be_used(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert descriptor_threads.cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert descriptor_threads.cores() == 1

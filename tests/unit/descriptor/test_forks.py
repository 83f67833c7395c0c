"""A child that is forked while other threads work can work too."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import cv2
import pytest

from kd_cv import KDDescriptor, match
from kd_cv.fit.keypoints import detect
from kd_cv.matching import pipeline
from kd_cv.opencv.rootsift import RootSIFT
from kd_cv.parallel import Gate, around, opencv

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def exit_code(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def forked(work):
    """The exit code of a forked child that does `work`, a second one at most."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if work() else 1)
    return exit_code(child)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(
    "name", ["pyrDown", "cvtColor", "meanStdDev", "dilate", "remap", "findHomography"]
)
def test_a_fork_waits_for_the_call_of_opencv_under_way(camera, monkeypatch, name):
    began, ended = threading.Event(), threading.Event()
    original = getattr(cv2, name)

    def slow(*arguments, **keywords):
        began.set()
        time.sleep(0.3)
        result = original(*arguments, **keywords)
        ended.set()
        return result

    monkeypatch.setattr(cv2, name, slow)
    colour = cv2.merge([camera] * 3)
    kd = KDDescriptor()
    work = {
        "pyrDown": lambda: kd.compute(camera, [cv2.KeyPoint(256, 256, 100)]),
        "cvtColor": lambda: kd.compute(colour, [cv2.KeyPoint(256, 256, 8)]),
        "meanStdDev": lambda: kd.detect(camera),
        "dilate": lambda: detect(camera, ["hessian"]),
        "remap": lambda: detect(camera, ["harris"], 10),
        "findHomography": lambda: match(camera, camera, max_keypoints=50),
    }[name]
    thread = threading.Thread(target=work)
    thread.start()
    assert began.wait(60)
    assert forked(ended.is_set) == 0
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sift", "rootsift", "kd"])
def test_the_features_of_opencv_pass_the_gate(camera, monkeypatch, name):
    entered, enter = [], Gate.__enter__

    def counted(gate):
        entered.append(gate)
        enter(gate)

    monkeypatch.setattr(Gate, "__enter__", counted)
    sift = cv2.SIFT_create(50)
    work = {
        "sift": lambda: pipeline._extract(sift, None, camera, 10**6, None),
        "rootsift": lambda: RootSIFT(50).detectAndCompute(camera, None),
        "kd": lambda: KDDescriptor(detector=sift).detect(camera),
    }[name]
    work()
    assert entered == [opencv]


def test_the_gate_is_for_the_objects_of_opencv_alone():
    class Mine:
        def detect(self, image, mask=None):
            return ()

    assert around(cv2.SIFT_create()) is opencv and around(cv2.ORB_create()) is opencv
    assert around(KDDescriptor()) is not opencv and around(Mine()) is not opencv


@pytest.mark.slow
def test_a_child_forked_while_another_thread_compiles_can_compile():
    pytest.importorskip("numba")
    program = """
        import os, signal, threading, time
        import cv2, numpy as np
        import kd_cv
        from kd_cv.descriptor.describer import load_compiled
        load_compiled()
        from numba.core.compiler_lock import global_compiler_lock
        holding = threading.Event()

        def compile():
            with global_compiler_lock:
                holding.set()
                time.sleep(0.5)

        thread = threading.Thread(target=compile)
        thread.start()
        holding.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            image = np.random.default_rng(0).integers(0, 255, (60, 60)).astype(np.uint8)
            rows = kd_cv.KDDescriptor().compute(image, [cv2.KeyPoint(30, 30, 3)])[1]
            os._exit(0 if rows.any() else 1)
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    assert run.stdout == "0\n"


def test_a_child_does_without_the_pool_of_opencv_once_there_is_one():
    program = """
        import os
        import cv2, numpy as np
        from kd_cv import KDDescriptor

        def threads_of_a_child():
            child = os.fork()
            if child == 0:
                os._exit(cv2.getNumThreads())
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        cv2.setNumThreads(3)
        before = threads_of_a_child()
        KDDescriptor().detect(np.zeros((60, 60), np.uint8))
        print(before, threads_of_a_child(), cv2.getNumThreads())
    """
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    assert run.stdout == "3 1 3\n"


def test_a_fork_inside_the_gate_does_not_wait_for_itself():
    gate = Gate()
    with gate, gate:
        gate.close()
        gate.open()
    assert not gate._inside


def test_calls_pass_side_by_side_and_none_while_it_is_closed():
    gate, both = Gate(), threading.Barrier(2)

    def call():
        with gate:
            both.wait(20)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gate.close()
    passed = threading.Event()

    def late():
        with gate:
            passed.set()

    thread = threading.Thread(target=late)
    thread.start()
    assert not passed.wait(0.1)
    gate.open()
    thread.join()
    assert passed.is_set()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_children_forked_while_others_compute_all_end(camera):
    kd, stop = KDDescriptor(), threading.Event()
    points = [cv2.KeyPoint(256, 256, size) for size in (4, 40, 100)]
    expected = kd.compute(camera, points)[1]

    def busy():
        while not stop.is_set():
            kd.compute(camera, points)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            assert forked(lambda: (kd.compute(camera, points)[1] == expected).all()) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()

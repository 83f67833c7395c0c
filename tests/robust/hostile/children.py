"""Describe in child processes, in a process that has loaded nothing but kd_cv.

    python tests/robust/hostile/children.py "fork among threads"

Prints "the same" if every child gives the rows of its parent.
"""

import multiprocessing
import sys
import threading
import warnings
from typing import Any

import cv2
import numpy as np

from kd_cv import KDDescriptor
from kd_cv.keypoints import to_keypoints

rng = np.random.default_rng(0)
IMAGE = cv2.GaussianBlur(rng.integers(0, 256, (60, 80)).astype(np.uint8), (0, 0), 1.0)
FRAMES = np.column_stack([rng.uniform(0, 80, (500, 2)), rng.uniform(1, 9, 500), np.zeros(500)])


def describe(connection: Any, kd: KDDescriptor) -> None:
    connection.send(kd.compute(IMAGE, to_keypoints(FRAMES))[1])


def in_child(method: str, kd: KDDescriptor, expected: np.ndarray) -> bool:
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=describe, args=(there, kd))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside threads: that is the test
        child.start()
    same = here.poll(30) and np.array_equal(here.recv(), expected)
    child.join(5)
    if child.is_alive():
        child.kill()
    return bool(same) and child.exitcode == 0


def among_threads(kd: KDDescriptor, expected: np.ndarray) -> bool:
    """Three forks while three threads compute."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            kd.compute(IMAGE, to_keypoints(FRAMES))

    busy = [threading.Thread(target=work) for _ in range(3)]
    for thread in busy:
        thread.start()
    try:
        return all(in_child("fork", kd, expected) for _ in range(3))
    finally:
        stop.set()
        for thread in busy:
            thread.join()


if __name__ == "__main__":
    kd = KDDescriptor()
    expected = kd.compute(IMAGE, to_keypoints(FRAMES))[1]
    way = sys.argv[1]
    if way == "fork among threads":
        same = among_threads(kd, expected)
    elif way == "fork twice":
        same = in_child("fork", kd, expected) and in_child("fork", kd, expected)
    else:
        same = in_child(way, kd, expected)
    print("the same" if same else "another result, or none")

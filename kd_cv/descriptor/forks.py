"""What a fork has to wait for, so that the child can go on.

A child has only the thread that forked. A lock that another thread held at that moment stays held
in it for ever: that of Numba's compiler, and those of OpenCV's pool of threads.
"""

import os
import threading
from contextlib import AbstractContextManager, ContextDecorator, nullcontext
from typing import Any

import cv2


class Gate(ContextDecorator):
    """Calls pass side by side; a fork waits until none is under way, and no new one begins.

    Only around the call itself: what waits for another thread in here may wait for ever.

    >>> opencv = Gate()
    >>> with opencv:
    ...     halved = cv2.pyrDown(image)
    >>> @opencv
    ... def half(image):
    ...     return cv2.pyrDown(image)
    """

    def __init__(self) -> None:
        self._state = threading.Condition()
        self._inside: list[int] = []  # the threads, each as often as it came in
        self._forks = 0  # that wait or are under way

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._state:
            self._state.wait_for(lambda: not self._forks or me in self._inside)
            self._inside.append(me)

    def __exit__(self, *error: object) -> None:
        with self._state:
            self._inside.remove(threading.get_ident())
            self._state.notify_all()

    def close(self) -> None:
        """Wait for the calls of other threads, and let nobody in."""
        self._state.acquire()
        self._forks += 1
        # A signal handler that forks may run inside: it cannot wait for itself.
        me = threading.get_ident()
        self._state.wait_for(lambda: all(thread == me for thread in self._inside))

    def open(self) -> None:
        """After `close`, by the same thread."""
        self._forks -= 1
        self._state.notify_all()
        self._state.release()

    def open_in_child(self) -> None:
        """`open` where there is no other thread, and none that waits to fork."""
        self._forks = 0
        self._state.release()


#: Around every call of OpenCV that may use its pool of threads.
opencv = Gate()


def around(feature: object) -> AbstractContextManager[None]:
    """The gate for a call of a detector or descriptor that is OpenCV's.

    Others may wait for threads that come to the gate themselves, ours too.
    """
    ours = not issubclass(type(feature), cv2.Algorithm)  # KDDescriptor only says that it is one
    return nullcontext() if ours else opencv


def held_at_fork(acquire: Any, release: Any, in_child: Any = None) -> None:
    """Have every fork of this process hold a lock: then no other thread holds it in the child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=acquire, after_in_parent=release, after_in_child=in_child or release
        )


held_at_fork(opencv.close, opencv.open, opencv.open_in_child)

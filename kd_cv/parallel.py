"""Threads: how many a call works on, and what a fork waits for.

`cv2.setNumThreads` says how many, for all callers of a process. A call shares its work with
helpers, threads that end with it. All callers of a process together have one helper less than there
are threads, so threads that call from sixteen places at once are not multiplied; who comes when no
helper is free works alone. And no more callers are at work than there are cores, or threads asked
for: the others sleep, or they would take the cores from the one that has Python's lock.

A forked child has only the thread that forked. A lock that another thread held at that moment stays
held in it for ever: that of Numba's compiler, and those of OpenCV's calls. So forks wait. The
threads of OpenCV's pool take locks after a call, too, when nobody can wait for them, and are not in
the child anyway: OpenCV works there without them, as after `cv2.setNumThreads(0)`.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ContextDecorator, contextmanager, nullcontext
from contextvars import ContextVar
from threading import Condition, Thread, get_ident, local
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

CHUNK = 192  # items a thread takes at a time, at most: what bounds the memory
KEPT = 8 * 2**20  # bytes of arrays that are kept for the next call, for each core

_threads: ContextVar[int | None] = ContextVar("threads", default=None)
# An entry for each helper of this process. Without a lock, which another thread might hold at a
# fork: entries come and go, each in one step.
_helpers: list[None] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.clear)  # where there is no other thread


class _Turns:
    """Callers at work, of which each thread is one at most."""

    def __init__(self) -> None:
        self.state, self.taken, self.mine = Condition(), 0, local()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a turn, unless this thread has one, or was told how many threads it has."""
        if getattr(self.mine, "has", False) or _threads.get():
            yield
            return
        with self.state:
            self.state.wait_for(lambda: self.taken < max(cores(), cv2.getNumThreads()))
            self.taken += 1
        self.mine.has = True
        try:
            yield
        finally:
            self.mine.has = False
            with self.state:
                self.taken = max(0, self.taken - 1)  # in a child that was forked meanwhile
                self.state.notify()


_turns = _Turns()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turns.__init__)  # type: ignore[misc]


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Calls of this thread work on `count` threads while the block lasts."""
    token = _threads.set(count)
    try:
        yield
    finally:
        _threads.reset(token)


def thread_count() -> int:
    """Threads of a call: those that `on_threads` says, else as many as OpenCV uses."""
    return _threads.get() or max(1, cv2.getNumThreads())


def in_chunks(count: int, work: Callable[[int, int], None]) -> None:
    """work(a, b) over [0, count), in parallel."""
    threads = thread_count()
    # Each thread gets as many chunks; a multiple of 16 fills the blocks of the fused kernel.
    chunks = threads * max(1, -(-count // (threads * CHUNK)))
    size = min(CHUNK, max(16, -(-count // (chunks * 16)) * 16))
    in_parallel(range(0, count, size), lambda a: work(a, min(a + size, count)))


class Scratch:
    """Arrays of one thread, by their names, each used again for what has its name next.

    >>> with scratch() as arrays:
    ...     arrays.empty("levels", (3, 4)).shape
    (3, 4)
    """

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[np.float32]] = {}

    @property
    def nbytes(self) -> int:
        """Of all arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def empty(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Of any content: the one that had this name before, if it is large enough."""
        size = math.prod(shape)
        if name not in self._arrays or self._arrays[name].size < size:
            # Some more: the first strip of an image has fewer rows than the others.
            self._arrays[name] = np.empty(size + size // 4, np.float32)
        return self._arrays[name][:size].reshape(shape)

    def zeros(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The same, of zeros."""
        array = self.empty(name, shape)
        array.fill(0.0)
        return array


# What threads have put back. Without a lock, as the helpers.
_shelf: list[Scratch] = []


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Arrays that no other thread has while the block lasts, those of an earlier block if possible.

    Where the C library gives large arrays back to the system at once, as Dask has it in its
    workers, every new one has to be made of new pages. What was used by as many threads as there
    are cores is kept for the next call, if it is `KEPT` bytes at most for each.
    """
    try:
        arrays = _shelf.pop()
    except IndexError:
        arrays = Scratch()
    try:
        yield arrays
    finally:
        if arrays.nbytes <= KEPT and len(_shelf) < cores():
            _shelf.append(arrays)


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parallel(jobs: Sequence[int], work: Callable[[int], None]) -> None:
    """work(job) for each job, on `thread_count()` threads if no other caller has them."""
    with _turns.one():
        _share_out(jobs, work)


def _share_out(jobs: Sequence[int], work: Callable[[int], None]) -> None:
    waiting = iter(jobs)

    def share() -> None:
        for job in waiting:  # each goes to whoever comes first
            work(job)

    errors: list[BaseException] = []

    def help_out() -> None:
        _turns.mine.has = True  # that of its caller
        try:
            share()
        except BaseException as error:
            errors.append(error)

    # The calling thread works too; threads of this call alone cost little and survive a fork.
    most = thread_count() - 1
    started: list[Thread] = []
    try:
        while len(started) < min(most, len(jobs) - 1) and _may_come(most):
            started.append(Thread(target=help_out))
            try:
                started[-1].start()
            except RuntimeError:  # no more threads are to be had: those that there are do it all
                break
        share()
    finally:
        for helper in started:
            if helper.ident is not None:  # it has begun
                helper.join()
        del _helpers[: len(started)]
    if errors:
        raise errors[0]


def _may_come(most: int) -> bool:
    """Whether a caller has one helper more, of `most` in this process; it has an entry then."""
    _helpers.append(None)
    if len(_helpers) <= most:
        return True
    _helpers.pop()
    return False


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
        self.used = False
        self._state = Condition()
        self._inside: list[int] = []  # the threads, each as often as it came in
        self._forks = 0  # that wait or are under way

    def __enter__(self) -> None:
        me = get_ident()
        with self._state:
            self._state.wait_for(lambda: not self._forks or me in self._inside)
            self._inside.append(me)
            self.used = True

    def __exit__(self, *error: object) -> None:
        with self._state:
            self._inside.remove(get_ident())
            self._state.notify_all()

    def close(self) -> None:
        """Wait for the calls of other threads, and let nobody in."""
        self._state.acquire()
        self._forks += 1
        # A signal handler that forks may run inside: it cannot wait for itself.
        me = get_ident()
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
    # By their types: KDDescriptor only says that it is one. OpenCV 4 has no base for all.
    theirs = issubclass(type(feature), (cv2.Algorithm, cv2.Feature2D))
    return opencv if theirs else nullcontext()


def held_at_fork(acquire: Any, release: Any, in_child: Any = None) -> None:
    """Have every fork of this process hold a lock: then no other thread holds it in the child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=acquire, after_in_parent=release, after_in_child=in_child or release
        )


def _in_child() -> None:
    opencv.open_in_child()
    if opencv.used:  # else it may have no pool yet, and can make one
        cv2.setNumThreads(0)


held_at_fork(opencv.close, opencv.open, _in_child)

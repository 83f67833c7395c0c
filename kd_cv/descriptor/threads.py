"""How many threads a call works on: `cv2.setNumThreads` says it, for all callers of a process.

A call shares its work with helpers, threads that end with it. All callers of a process together
have one helper less than there are threads, so threads that call from sixteen places at once are
not multiplied; who comes when no helper is free works alone.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Thread

import cv2

CHUNK = 192  # items a thread takes at a time, at most: what bounds the memory

_threads: ContextVar[int | None] = ContextVar("threads", default=None)
# An entry for each helper of this process. Without a lock, which another thread might hold at a
# fork: entries come and go, each in one step.
_helpers: list[None] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.clear)  # where there is no other thread


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


def in_parallel(jobs: Sequence[int], work: Callable[[int], None]) -> None:
    """work(job) for each job, on `thread_count()` threads if no other caller has them."""
    waiting = iter(jobs)

    def share() -> None:
        for job in waiting:  # each goes to whoever comes first
            work(job)

    errors: list[BaseException] = []

    def help_out() -> None:
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

"""One pool of threads for all calls of a process.

`cv2.setNumThreads` sets the number of threads of a call. The calling thread works too, so a call
finishes even if the pool is busy or no thread can be started. Compiled code releases the GIL.

A signal handler may raise an exception between any two steps of the main thread, and would leave
the locks of `ThreadPoolExecutor.submit` locked. So the main thread hands work over, and waits for
it, by single calls of C: `SimpleQueue.put`, `lock.acquire`, `start_new_thread`.
"""

import os
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import cv2

CHUNK = 192  # items a thread takes at a time, at most; bounds the memory of a call

_tasks: SimpleQueue["_Helper"] = SimpleQueue()
_started = 0  # threads of the pool


def thread_count() -> int:
    """Return the number of threads of a call, OpenCV's."""
    return max(1, cv2.getNumThreads())


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_chunks(count: int, work: Callable[[int, int], None]) -> None:
    """Call work(start, stop) for chunks that cover [0, count), in parallel."""
    threads = thread_count()
    # Each thread gets as many chunks; a multiple of 16 fills the blocks of the compiled kernel.
    chunks = threads * max(1, -(-count // (threads * CHUNK)))
    size = min(CHUNK, max(16, -(-count // (chunks * 16)) * 16))
    in_parallel(range(0, count, size), lambda start: work(start, min(start + size, count)))


def in_parallel(jobs: Sequence[int], work: Callable[[int], None]) -> None:
    """Call work(job) for each job. The first error stops the other jobs and is raised."""
    waiting = iter(jobs)
    stopped = False

    def take_jobs() -> None:
        nonlocal stopped
        try:
            for job in waiting:  # each job goes to the next free thread
                if stopped:
                    return
                work(job)
        except BaseException:
            stopped = True
            raise

    helpers = [_Helper(take_jobs) for _ in range(min(thread_count(), len(jobs)) - 1)]
    try:
        for number, helper in enumerate(helpers):
            _start_thread(number)
            _tasks.put(helper)
        take_jobs()
    finally:
        stopped = True
        for helper in helpers:
            helper.finish()
    for helper in helpers:
        if helper.error is not None:
            raise helper.error


class _Helper:
    """Work for a thread of the pool.

    `finish` waits for it, or takes it back if no thread has begun: nested calls cannot deadlock.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._taken, self._busy = allocate_lock(), allocate_lock()
        self._busy.acquire()
        self.error: BaseException | None = None

    def run(self) -> None:
        if self._taken.acquire(blocking=False):
            try:
                self._work()
            except BaseException as error:
                self.error = error
            finally:
                self._busy.release()

    def finish(self) -> None:
        if not self._taken.acquire(blocking=False):
            self._busy.acquire()


def _start_thread(number: int) -> None:
    global _started
    if number >= _started:
        try:
            start_new_thread(_serve, (_tasks,))
            _started = number + 1
        except RuntimeError:
            pass


def _serve(tasks: SimpleQueue[_Helper]) -> None:
    while True:
        tasks.get().run()


def _after_fork() -> None:
    # Threads do not survive a fork. OpenCV's pool may also hold a lock that its threads will never
    # release in the child, so a forked child uses OpenCV, and this module, on one thread.
    global _tasks, _started
    _tasks, _started = SimpleQueue(), 0
    cv2.setNumThreads(0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

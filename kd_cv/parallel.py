"""One pool of threads for all calls of a process.

`cv2.setNumThreads` sets how many threads a call uses. The calling thread works too, so a call
finishes even if the pool is busy or no thread can be started. Compiled code releases the GIL.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import cv2

CHUNK = 192  # items a thread takes at a time, at most; bounds the memory of a call

_pool: tuple[int, ThreadPoolExecutor] | None = None  # its size, and itself


def thread_count() -> int:
    """Return the number of threads of a call: as many as OpenCV uses."""
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

    helpers = _submit(take_jobs, min(thread_count(), len(jobs)) - 1)
    try:
        take_jobs()
    finally:
        stopped = True
        # A helper that has not started will never be needed: nested calls cannot wait for ever.
        started = [helper for helper in helpers if not helper.cancel()]
        wait(started)
    for helper in started:
        helper.result()


def _submit(work: Callable[[], None], count: int) -> list[Future[None]]:
    """Start up to `count` helpers; fewer if the process cannot have more threads."""
    global _pool
    if count < 1:
        return []
    size, pool = _pool or (0, None)
    if pool is None or size < count:
        pool = ThreadPoolExecutor(count, thread_name_prefix="kd_cv")
        _pool = count, pool  # the threads of an earlier pool end when nobody uses it any more
    helpers = []
    try:
        for _ in range(count):
            helpers.append(pool.submit(work))
    except RuntimeError:  # the interpreter is shutting down, or there are no more threads
        pass
    return helpers


def _after_fork() -> None:
    # Threads do not survive a fork. OpenCV's pool may also hold a lock that its threads will never
    # release in the child, so a forked child uses OpenCV, and this module, on one thread.
    global _pool
    _pool = None
    cv2.setNumThreads(0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""Extraction and whitening statistics on a Dask cluster (extra `cluster`).

Workers see the same files as the caller, under the same paths. The caller merges partial files and
statistics in a fixed order, so the result has the bits of one process on such a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kd_cv.collection import Collection, Extraction, Summary, run
from kd_cv.collection.batches import Batch, Report, run_batch
from kd_cv.extractor import Extractor
from kd_cv.extras import extra
from kd_cv.io.files import PathLike

if TYPE_CHECKING:
    from kd_cv.fit.scenes import Scene
    from kd_cv.opencv.kd_descriptor import KDDescriptor
    from kd_cv.settings import Settings
    from kd_cv.whitening.statistics import Statistics

PATIENCE = 30  # seconds that a scheduler has to answer

Result = TypeVar("Result")


@contextmanager
def connected(scheduler: str) -> Iterator[Any]:
    """Connect a Dask client to a running scheduler, such as "tcp://host:8786"."""
    if "://" not in scheduler:
        raise ValueError(
            f"expected the address of a Dask scheduler, such as tcp://host:8786, got {scheduler!r}"
            "; on one machine give a number of workers instead"
        )
    with _distributed().Client(scheduler, timeout=PATIENCE) as client:
        yield client


def extract(
    images: PathLike | Collection,
    output: PathLike,
    extraction: Extraction | None = None,
    *,
    client: Any,
    **options: Any,
) -> Summary:
    """Run `kd_cv.collection.extract` on a cluster.

    >>> with connected("tcp://scheduler:8786") as client:  # doctest: +SKIP
    ...     print(extract("/shared/photographs", "/shared/features.h5", client=client))
    """

    def on_workers(plan: Sequence[Batch], extraction: Extraction) -> Iterator[Report]:
        return (report for _, report in _map(client, run_batch, plan, extraction))

    threads = max(1, sum(client.nthreads().values()))
    output = Path(output).absolute()  # the workers may stand in another folder
    return run.extract(images, output, extraction, workers=threads, runner=on_workers, **options)


def fit_statistics(
    scenes: Sequence[Scene], kd: KDDescriptor | None = None, *, client: Any = None
) -> Statistics:
    """Compute the statistics of the raw descriptors of scenes and of their matching pairs.

    kd      the descriptor; its whitening is not used
    client  of a Dask cluster, or None for this process

    >>> whitening = Whitening.fit(fit_statistics(scenes, client=client))  # doctest: +SKIP
    """
    from kd_cv.settings import Settings
    from kd_cv.whitening.statistics import Statistics

    raw = (Settings(whitening=None) if kd is None else kd.settings).raw
    run = one_by_one if client is None else in_order(client)
    total = Statistics(raw.descriptor_size)
    for statistics in run(partial(_statistics_of, raw), scenes):
        total.merge(statistics)
    return total


def _statistics_of(raw: Settings, scene: Scene) -> Statistics:
    from kd_cv.fit.scenes import scene_statistics

    return scene_statistics([scene], Extractor(raw).describe, raw.descriptor_size)


def one_by_one(work: Callable[[Any], Result], items: Sequence[Any]) -> Iterator[Result]:
    """Map with one BLAS thread: the last bits of a matrix product depend on their number."""
    return (_single_threaded(item, work) for item in items)


def in_order(client: Any) -> Callable[[Callable[[Any], Result], Sequence[Any]], Iterator[Result]]:
    """Return `one_by_one` on the workers of a Dask client, with the same bits.

    >>> fit_photos("/shared/photographs", run=in_order(client))  # doctest: +SKIP
    """

    def run(work: Callable[[Any], Result], items: Sequence[Any]) -> Iterator[Result]:
        # Rounding depends on the order of a sum.
        ready: dict[int, Result] = {}
        given = 0
        for index, result in _map(client, _single_threaded, items, work):
            ready[index] = result
            while given in ready:
                yield ready.pop(given)
                given += 1

    return run


def _single_threaded(item: Any, work: Callable[[Any], Result]) -> Result:
    purpose = "statistics that can be repeated need threadpoolctl"
    with extra("threadpoolctl", purpose, "cluster").threadpool_limits(1):
        return work(item)


def _map(
    client: Any, work: Callable[..., Result], items: Sequence[Any], *arguments: Any
) -> Iterator[tuple[int, Result]]:
    """Yield index and result of work(item, *arguments) as they finish."""
    distributed = _distributed()
    index_of: dict[Any, int] = {}
    waiting = iter(enumerate(items))
    running = distributed.as_completed()

    def submit() -> None:
        index, item = next(waiting, (None, None))
        if index is not None:
            future = client.submit(work, item, *arguments, pure=False)
            index_of[future] = index
            running.add(future)

    for _ in range(4 * max(1, sum(client.nthreads().values()))):
        submit()
    try:
        for future in running:
            try:
                result = future.result()
            except (CancelledError, distributed.comm.CommClosedError) as error:
                raise ConnectionError(
                    f"the scheduler at {client.scheduler.address} is lost: start it again, then "
                    "this; an extraction continues where it was"
                ) from error
            yield index_of.pop(future), result
            submit()
    finally:  # after an error nothing more is begun
        client.cancel(list(index_of))


def _distributed() -> Any:
    return extra("distributed", "a cluster needs Dask", "cluster")

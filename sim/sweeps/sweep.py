"""The runs of figures, searches and grids, side by side, with progress: on this machine's cores or on a Ray cluster.

Where a job runs changes nothing in its result, and results come in the order of their jobs, whatever the order in which
they end. So a sweep is the same on one core and on a cluster that loses nodes."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from headrace.sim.sweeps.processes import processes

Job = TypeVar("Job")
Result = TypeVar("Result")


class Progress(Protocol):
    def stage(self, text: str, total: int | None = None) -> None: ...

    def skip(self, count: int) -> None: ...  # so many of the stage's steps were done before it began

    def step(self) -> None: ...


class Pool(Protocol):
    """Who does the jobs: sim/sweeps/processes.py, sim/sweeps/cluster.py."""

    def run(
        self, work: Callable[[Job], Result], jobs: Sequence[tuple[int, Job]]
    ) -> Iterator[tuple[int, Result]]: ...  # with their numbers, as they end


class Keeper(Protocol[Result]):
    """What remembers results: sim/sweeps/journal.py."""

    def known(self, job: Any) -> Result | None: ...

    def keep(self, job: Any, result: Result) -> None: ...


class SweepWorkers:
    """Workers that stay, and keep what they have loaded and cached, for as many sweeps as are wanted. After an error
    they are of no further use."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def sweep(
        self,
        work: Callable[[Job], Result],
        jobs: Sequence[Job],
        step: Callable[[], None],
        journal: Keeper[Result] | None = None,
        skip: Callable[[int], None] = lambda count: None,
    ) -> list[Result]:
        """As `sweep`. What `journal` knows is not run, and what is run it keeps. `skip` is told first how many jobs it
        knows, for which `step` is not called."""
        results: dict[int, Result] = {}
        if journal is not None:
            for number, job in enumerate(jobs):
                if (known := journal.known(job)) is not None:
                    results[number] = known
            skip(len(results))
        rest = [(number, job) for number, job in enumerate(jobs) if number not in results]
        for number, result in self._pool.run(work, rest):
            results[number] = result
            if journal is not None:
                journal.keep(jobs[number], result)
            step()
        return [results[number] for number in range(len(jobs))]


@contextmanager
def sweep_workers(most: int = sys.maxsize, ray: str | None = None) -> Iterator[SweepWorkers]:
    """`most` workers on this machine, or as many as there are cores; with `ray` all that the cluster at this address
    has, as sim/sweeps/cluster.py takes it."""
    if ray is None:
        with processes(min(len(os.sched_getaffinity(0)), most)) as pool:
            yield SweepWorkers(pool)
        return
    from headrace.sim.sweeps.cluster import cluster  # Ray is an extra, and takes a second to load

    with cluster(ray) as nodes:
        yield SweepWorkers(nodes)


def sweep(
    work: Callable[[Job], Result], jobs: Sequence[Job], step: Callable[[], None], ray: str | None = None
) -> list[Result]:
    """work(job) for every job, in the order of the jobs; `step` is called as each is done.

    `work` must be a function of a module, and jobs and results what can be pickled. Raises what `work` raises, with the
    worker's traceback as a note, and HeadraceError if a job's worker dies again and again."""
    with sweep_workers(len(jobs), ray) as workers:
        return workers.sweep(work, jobs, step)

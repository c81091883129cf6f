"""Run the jobs of figures, searches and grids side by side, with progress: on this machine's cores or on a Ray cluster.

The place where a job runs changes nothing in its result. Results come in the order of their jobs, whatever the order in
which these end. So a sweep gives the same on one core and on a cluster that loses nodes.
"""

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

    def skip(self, count: int) -> None: ...  # this number of the stage's steps was done before it began

    def step(self) -> None: ...


class Backend(Protocol):
    """The processes that run jobs: sim/sweeps/processes.py, sim/sweeps/cluster.py."""

    def run(
        self, work: Callable[[Job], Result], jobs: Sequence[tuple[int, Job]]
    ) -> Iterator[tuple[int, Result]]: ...  # it yields results with the numbers of their jobs, as they end


class Keeper(Protocol[Result]):
    """The memory for results: sim/sweeps/journal.py."""

    def known(self, job: Any) -> Result | None: ...

    def keep(self, job: Any, result: Result) -> None: ...


class WorkerPool:
    """Workers that keep what they have loaded and cached, for any number of sweeps. After an error they are of no
    further use."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def sweep(
        self,
        work: Callable[[Job], Result],
        jobs: Sequence[Job],
        step: Callable[[], None],
        journal: Keeper[Result] | None = None,
        skip: Callable[[int], None] = lambda count: None,
    ) -> list[Result]:
        """Run a sweep as the function `sweep` does.

        Jobs that `journal` knows are not run, and the results of all others are kept there. `skip` first receives the
        number of jobs that are known; `step` is not called for these."""
        results: dict[int, Result] = {}
        if journal is not None:
            for number, job in enumerate(jobs):
                if (known := journal.known(job)) is not None:
                    results[number] = known
            skip(len(results))
        rest = [(number, job) for number, job in enumerate(jobs) if number not in results]
        for number, result in self._backend.run(work, rest):
            results[number] = result
            if journal is not None:
                journal.keep(jobs[number], result)
            step()
        return [results[number] for number in range(len(jobs))]


@contextmanager
def worker_pool(max_workers: int = sys.maxsize, ray: str | None = None) -> Iterator[WorkerPool]:
    """Start workers for the duration of the context.

    Args:
        max_workers: The greatest number of workers on this machine, which has at most one for each core.
        ray: The address of a Ray cluster, all of which is used, as `sim.sweeps.cluster.cluster` takes it; None for this
            machine.
    """
    if ray is None:
        with processes(min(len(os.sched_getaffinity(0)), max_workers)) as backend:
            yield WorkerPool(backend)
        return
    from headrace.sim.sweeps.cluster import cluster  # Ray is an extra, and takes a second to load

    with cluster(ray) as nodes:
        yield WorkerPool(nodes)


def sweep(
    work: Callable[[Job], Result], jobs: Sequence[Job], step: Callable[[], None], ray: str | None = None
) -> list[Result]:
    """Return work(job) for every job, in the order of the jobs. `step` is called after each.

    `work` must be a function of a module, and jobs and results must be picklable. Raises what `work` raises, with the
    worker's traceback as a note. Raises HeadraceError if a job's worker dies again and again."""
    with worker_pool(len(jobs), ray) as workers:
        return workers.sweep(work, jobs, step)

"""The jobs of figures, side by side on all cores, with progress.

Each core has a worker: this file, run as a module in a process of its own, which takes jobs from a connection. However
the sweep ends (all done, an error, Ctrl-C), it kills its workers, and the kernel does where it cannot. So nothing needs
to be told to stop, and a job need not be one that listens.
"""

import ctypes
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Protocol, TypeVar

from headrace.batching.errors import HeadraceError, UsageError
from headrace.sim.experiments.journal import Journal

Job = TypeVar("Job")
Result = TypeVar("Result")

PR_SET_PDEATHSIG = 1  # of prctl(2)


class Progress(Protocol):
    def stage(self, text: str, total: int | None = None) -> None: ...

    def step(self) -> None: ...


def sweep(work: Callable[[Job], Result], jobs: Sequence[Job], step: Callable[[], None]) -> list[Result]:
    """work(job) for every job, in the order of the jobs; `step` is called as each is done.

    `work` must be a function of a module, and jobs and results what can be pickled. Raises what `work` raises, with the
    worker's traceback as a note, and HeadraceError if a worker dies."""
    with crew(len(jobs)) as workers:
        return workers.sweep(work, jobs, step)


class Crew:
    """Workers that stay, and keep what they have loaded and cached, for as many sweeps as are wanted. After an error
    they are of no further use."""

    def __init__(self, workers: Sequence[Connection]) -> None:
        self._workers = workers

    def sweep(
        self,
        work: Callable[[Job], Result],
        jobs: Sequence[Job],
        step: Callable[[], None],
        journal: Journal[Result] | None = None,
    ) -> list[Result]:
        """As `sweep`. What `journal` knows is not run, and what is run it keeps."""
        results: dict[int, Result] = {}
        if journal is not None:
            for number, job in enumerate(jobs):
                if (known := journal.known(job)) is not None:
                    results[number] = known
                    step()
        following = iter([(number, job) for number, job in enumerate(jobs) if number not in results])
        at: dict[Connection, int] = {}  # the jobs that are at work

        def give(worker: Connection) -> None:
            for number, job in following:
                at[worker] = number
                worker.send((work, job))
                return

        for worker in self._workers:
            give(worker)
        while at:
            for ready in wait(list(at)):
                assert isinstance(ready, Connection)
                try:
                    error, result = ready.recv()
                except (EOFError, ConnectionError) as lost:
                    raise HeadraceError(f"the process at job {at[ready]} died; see whether memory was short") from lost
                if error is not None:
                    raise error
                number = at.pop(ready)
                results[number] = result
                if journal is not None:
                    journal.keep(jobs[number], result)
                step()
                give(ready)
        return [results[number] for number in range(len(jobs))]


@contextmanager
def crew(most: int = sys.maxsize) -> Iterator[Crew]:
    """`most` workers, or as many as there are cores."""
    with _workers(min(len(os.sched_getaffinity(0)), most)) as workers:
        yield Crew(workers)


@contextmanager
def _workers(count: int) -> Iterator[list[Connection]]:
    """Connections to so many workers. They are in process groups of their own: Ctrl-C is the sweep's business."""
    # Not by fork: a progress display has threads, and a lock that one of them held would stay locked in the child.
    # numpy's BLAS has a thread for every core; with a process on every core as well, they wait for each other, and that
    # takes many times as long.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    connections: list[Connection] = []
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            ours, theirs = Pipe()
            connections.append(ours)
            with theirs:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", __name__, str(theirs.fileno()), str(os.getpid())],
                        stdin=subprocess.DEVNULL,
                        env=environment,
                        pass_fds=[theirs.fileno()],
                        process_group=0,
                    )
                )
        yield connections
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait(timeout=5.0)
        for connection in connections:
            connection.close()


def _serve(connection: Connection, parent: int) -> None:
    """Do jobs until there are none to come. Dies with its parent, at whatever it is."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that took effect
        return
    while True:
        try:
            work, job = connection.recv()
        except EOFError:
            return
        try:
            connection.send((None, work(job)))
        except Exception as error:
            error.add_note(f"in the process of the job:\n{traceback.format_exc()}")
            connection.send((error, None))


def run_figures(
    figures: Sequence[str], known: Sequence[str],
    jobs_for: Callable[[str], Sequence[Job]], run_job: Callable[[Job], list[Result]],
    progress: Progress, describe: Callable[[Sequence[Job]], str], order: Callable[[Job], Any] = lambda job: 0,
) -> list[tuple[str, list[Result]]]:  # fmt: skip
    """The figures with the rows of their jobs; a job that several figures have is run once. `order` is the key by which
    jobs are begun. Raises UsageError for a figure that is not among those `known`."""
    for figure in figures:
        if figure not in known:
            raise UsageError(f"--figure {figure}: choose from {', '.join(known)}, all")
    jobs = sorted(dict.fromkeys(job for figure in figures for job in jobs_for(figure)), key=order)
    progress.stage(describe(jobs), len(jobs))
    done = dict(zip(jobs, sweep(run_job, jobs, progress.step), strict=True))
    return [(figure, [row for job in jobs_for(figure) for row in done[job]]) for figure in figures]


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])), int(sys.argv[2]))

"""The jobs of figures, side by side on all cores, with progress."""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, Protocol, TypeVar

from headrace.batching.errors import UsageError

Job = TypeVar("Job")
Result = TypeVar("Result")


class Progress(Protocol):
    def stage(self, text: str, total: int | None = None) -> None: ...

    def step(self) -> None: ...


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """For processes started meanwhile: numpy's BLAS has a thread for every core, and with a process on every core as
    well they wait for each other; that takes many times as long."""
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def sweep(work: Callable[[Job], Result], jobs: Sequence[Job], step: Callable[[], None]) -> list[Result]:
    """work(job) for every job, in the order of the jobs; `step` is called as each is done.

    `work` must be a function of a module, and jobs and results what can be pickled."""
    cores = len(os.sched_getaffinity(0))
    results: dict[int, Result] = {}
    # Not by fork: a progress display has threads, and a lock that one of them held would stay locked in the child.
    context = multiprocessing.get_context("spawn")
    with _one_thread_each(), ProcessPoolExecutor(min(cores, max(1, len(jobs))), mp_context=context) as pool:
        futures = {pool.submit(work, job): number for number, job in enumerate(jobs)}
        try:
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                step()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[number] for number in range(len(jobs))]


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

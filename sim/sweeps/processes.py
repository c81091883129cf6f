"""The workers of a sweep on this machine, one for each core.

Each worker is this file, run as a module in a process of its own, which takes jobs from a connection. When the sweep
ends (all done, an error, Ctrl-C), it kills its workers, and the kernel does where it cannot. So a job needs no way to
be stopped. If a worker dies, another one runs its job again.
"""

import ctypes
import os
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Final, TypeVar

from headrace.batching.errors import HeadraceError

Job = TypeVar("Job")
Result = TypeVar("Result")

PR_SET_PDEATHSIG: Final = 1  # the option of prctl(2)
ATTEMPTS: Final = 3  # the attempts at a job: one may take too much memory next to others, but hardly every time


class Processes:
    def __init__(self, count: int) -> None:
        self._workers: dict[Connection, subprocess.Popen[bytes]] = {}
        self._count = count

    def start(self) -> None:
        for _ in range(self._count):
            self._add()

    def _add(self) -> Connection:
        # This does not fork. A progress display has threads, and a lock that one of them holds would stay locked in the
        # child. numpy's BLAS has a thread for every core. With a process on every core as well, the threads wait for
        # each other, which takes many times as long.
        ours, theirs = Pipe()
        with theirs:
            # The worker has a process group of its own, because the sweep handles Ctrl-C.
            self._workers[ours] = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "OPENBLAS_NUM_THREADS": "1",
                    # A job may have a policy from a module that lies in the folder of the user's script.
                    "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
                },
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        return ours

    def close(self) -> None:
        for process in self._workers.values():
            process.kill()
        for connection, process in self._workers.items():
            process.wait(timeout=5.0)
            connection.close()

    def run(self, work: Callable[[Job], Result], jobs: Sequence[tuple[int, Job]]) -> Iterator[tuple[int, Result]]:
        """Run jobs and yield their numbers with their results, as they end.

        Raises what `work` raises, and HeadraceError if a job's worker has died ATTEMPTS times."""
        following = iter(jobs)
        at: dict[Connection, tuple[int, Job]] = {}  # the jobs that run, by worker
        deaths: Counter[int] = Counter()

        def give(worker: Connection, numbered: tuple[int, Job] | None) -> None:
            if numbered is not None:
                at[worker] = numbered
                with suppress(ConnectionError):  # the worker died while idle; `recv` will notice
                    worker.send((work, numbered[1]))

        for worker in list(self._workers):
            give(worker, next(following, None))
        while at:
            for ready in wait(list(at)):
                assert isinstance(ready, Connection)
                numbered = at.pop(ready)
                number = numbered[0]
                try:
                    error, result = ready.recv()
                except (EOFError, ConnectionError) as lost:
                    deaths[number] += 1
                    if deaths[number] == ATTEMPTS:
                        raise HeadraceError(
                            f"the process at job {number} died {ATTEMPTS} times; see whether memory was short"
                        ) from lost
                    dead = self._workers.pop(ready)
                    dead.kill()  # the process has closed its end, and may still be ending
                    dead.wait(timeout=5.0)
                    ready.close()
                    give(self._add(), numbered)
                    continue
                if error is not None:
                    raise error
                give(ready, next(following, None))
                yield number, result


@contextmanager
def processes(count: int) -> Iterator[Processes]:
    workers = Processes(count)
    try:
        workers.start()
        yield workers
    finally:
        workers.close()


def _serve(connection: Connection, parent: int) -> None:
    """Run jobs until no more come. The process dies with its parent, whatever it is doing."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before prctl took effect
        return
    while True:
        try:
            work, job = connection.recv()
        except EOFError:
            return
        except Exception as error:  # a class of the job cannot be imported here
            connection.send((error, None))
            continue
        try:
            connection.send((None, work(job)))
        except Exception as error:
            error.add_note(f"in the process of the job:\n{traceback.format_exc()}")
            connection.send((error, None))


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])), int(sys.argv[2]))

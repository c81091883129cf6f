"""The workers of a sweep on the nodes of a Ray cluster.

Every node has Headrace installed, in the version of the caller. Only jobs are sent, and a node with other code refuses
them. Ray itself runs jobs again whose node or worker is lost.
"""

import logging
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

from headrace.batching.errors import HeadraceError, UsageError
from headrace.sim.sweeps.journal import code_version

# Ray would report every cluster to its makers; it reads this when it is loaded
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # Ray would warn of a future change in how jobs see GPUs
os.environ["RAY_DEDUP_LOGS_SKIP_REGEX"] = ".*"  # Ray would print on stdout, between the results, that nodes are lost
try:
    import ray
    from ray.exceptions import RayError, RayTaskError
except ImportError as missing:
    raise UsageError("--ray needs Ray: pip install 'headrace[ray]'") from missing

Job = TypeVar("Job")
Result = TypeVar("Result")

ATTEMPTS: Final = 5  # the attempts at a job whose node or worker is lost
AHEAD: Final = 2  # the jobs sent for each core, so that no core waits; Ray remembers all of them
REACH_S: Final = 5.0  # the time for a head node to accept a connection
ANSWER_S: Final = 30.0  # the time for it to answer as a head; the command that asks takes seconds to load
LOCAL_STARTS: Final = 3  # the starts of a cluster of our own: Ray waits 30 s for its node, too short on a busy machine


@dataclass
class Cluster:
    version: str = field(default_factory=code_version)  # the version of the code that nodes must have

    def run(self, work: Callable[[Job], Result], jobs: Sequence[tuple[int, Job]]) -> Iterator[tuple[int, Result]]:
        """Run jobs and yield their numbers with their results, as they end.

        Raises what `work` raises. Raises HeadraceError if a job's worker or node was lost ATTEMPTS times, or the
        cluster with them. Jobs that run then, or at Ctrl-C, end with the connection to the cluster. `ray.cancel` would
        abort this process if one of them ends meanwhile (Ray's task_manager.cc: "that was not pending")."""
        following = iter(jobs)
        remote = _run.options(max_retries=ATTEMPTS - 1)
        at: dict[Any, int] = {}
        while True:
            room = max(1, AHEAD * _cores()) - len(at)
            for number, job in islice(following, max(0, room)):
                at[remote.remote(self.version, work, job)] = number
            if not at:
                return
            # the wait is in turns, so that Ctrl-C is handled between them and nodes may come
            done, _ = ray.wait(list(at), timeout=1.0)
            for each in done:
                number = at.pop(each)
                error, result = _got(each, number)
                if error is not None:
                    raise error
                yield number, result


def _cores() -> int:
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("CPU", 0))


def _got(reference: Any, number: int) -> tuple[Exception | None, Any]:
    try:
        outcome: tuple[Exception | None, Any] = ray.get(reference)
    except RayTaskError as error:  # `_run` returns the errors of jobs, so the node could not load or pickle it
        raise HeadraceError(
            f"a node of the Ray cluster could not do job {number}; see whether Headrace is installed there: "
            f"{str(error.cause).splitlines()[0]}"
        ) from error
    except RayError as error:
        raise HeadraceError(
            f"job {number} was lost with its node or its process {ATTEMPTS} times; see whether memory was short: "
            f"{str(error).splitlines()[0]}"
        ) from error
    return outcome


@ray.remote(num_cpus=1)
def _run(version: str, work: Callable[[Any], Any], job: Any) -> tuple[Exception | None, Any]:
    if (here := code_version()) != version:
        return UsageError(
            f"--ray: the node {socket.gethostname()} has other code of Headrace ({here}) than this machine "
            f"({version}): install the same on all"
        ), None
    try:
        return None, work(job)
    except Exception as error:
        error.add_note(f"in the process of the job:\n{traceback.format_exc()}")
        return error, None


@contextmanager
def cluster(address: str) -> Iterator[Cluster]:
    """Connect to a Ray cluster for the duration of the context.

    Args:
        address: "local" starts a cluster of this machine's cores and ends it after the sweep. "auto" is the cluster
            that this machine is a node of. HOST:PORT is the one with that head; this machine must be a node of it, too.

    Raises:
        UsageError: There is no such cluster, it has another Python or Ray, or its node does not start.
    """
    if address not in ("local", "auto"):
        _reach(address)
    starts = LOCAL_STARTS if address == "local" else 1
    for start in range(1, starts + 1):
        try:
            _init(address)
            break
        except Exception as error:  # Ray raises several classes; a node that does not start in time is a bare Exception
            ray.shutdown()  # end the parts that have started
            reason = " ".join(str(error).split())
            if start < starts and "timed out" in reason.lower():
                continue
            joins = address != "local" and "ersion" not in reason
            hint = "no cluster that this machine is a node of; see `ray start`: " if joins else ""
            raise UsageError(f"--ray {address}: {hint}{reason}") from error
    try:
        yield Cluster()
    finally:
        ray.shutdown()


def _init(address: str) -> None:
    own: dict[str, Any] = {"include_dashboard": False, "num_cpus": len(os.sched_getaffinity(0))}
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    ray.init(address=address, **quiet, **(own if address == "local" else {}))


def _reach(address: str) -> None:
    """Raise UsageError at once if the head does not answer. Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"--ray {address}: give local, auto, or HOST:PORT of a cluster's head")
    try:
        socket.create_connection((host, int(port)), timeout=REACH_S).close()
        # The listener need not be Ray. Ray's own command checks it, in a process that can be ended, because it may wait
        # long.
        check = subprocess.run(
            [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"no answer in {ANSWER_S:g} s" if isinstance(error, subprocess.TimeoutExpired) else error
        raise UsageError(f"--ray {address}: {reason}; give the head of a Ray cluster") from error
    if check.returncode:
        raise UsageError(f"--ray {address}: it does not answer as the head of a Ray cluster of this release does")

"""The values that a runtime gives to its callers: results, errors, and statistics.

Rule: this module knows no worker, no policy and no clock, so that every other module of the runtime may import it.
All times are seconds from the runtime's origin.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.batching import HeadraceError, Served, Task


class Overloaded(HeadraceError):
    """There is no memory for another request. Send fewer requests at a time, or give the runtime more memory."""


class RuntimeClosed(HeadraceError):
    """The runtime was closed before it answered the request."""


class NoWorker(HeadraceError):
    """No worker has been in service for longer than requests wait for one (`RuntimeSettings.outage_s`)."""


class TooLate(HeadraceError):
    """The request was dropped, because it had not begun in time for its deadline (`RuntimeSettings.drop_late`)."""


class Execution(NamedTuple):
    """A task as it ended.

    The runtime hands the task to the worker at `handed`. The worker takes it at `started`, has its inputs together at
    `gathered`, and has computed its outputs at `ended`. The runtime reads the answer at `finished`:

        runtime  handed ................................ finished
        worker            started .. gathered .. ended

    `worker` is the index of the worker in its pool. `error` is None if the task ran well. A task that was lost with its
    worker has no times of the worker: its `started` and `gathered` equal `handed`.
    """

    worker: int
    task: Task
    handed: float
    started: float
    gathered: float
    ended: float
    finished: float
    error: str | None

    @property
    def execute_s(self) -> float:
        """The seconds that the network took, without the gathering of its inputs."""
        return self.ended - self.gathered

    @property
    def nodes(self) -> int:
        """The number of nodes that were executed."""
        return self.task.stop - self.task.start


class Inference(NamedTuple):
    """The result of one request.

    `outputs` maps names to arrays, or is what the kind of task gives instead. `execution` is the last task that ran the
    request. `execute_s` sums the network's time over all tasks of the request.
    """

    request_id: int
    outputs: Any
    served: Served
    execution: Execution
    execute_s: float

    @property
    def output(self) -> Any:
        """The output of a network that has exactly one."""
        if isinstance(self.outputs, Mapping):
            (output,) = self.outputs.values()
            return output
        return self.outputs


@dataclass(frozen=True, slots=True)
class Statistics:
    """Sums over all tasks since the runtime was made, and the requests that are in flight now.

    `node_runs` counts node executions. `request_node_runs` counts each of them once for every request of its batch.
    `reasons` counts tasks by the reason for which the policy sent them. `workers_up` is how many workers are in service
    now. `waiting` (not begun) and `running` (begun) count the requests in flight by model.
    """

    tasks: int
    failed_tasks: int
    busy_s: float
    node_runs: int
    request_node_runs: int
    reasons: Mapping[str, int]
    workers_lost: int
    workers_up: int
    nan_outputs: int
    waiting: Mapping[str, int]
    running: Mapping[str, int]


@dataclass(slots=True)
class TaskSums:
    """The sums of `Statistics` over all tasks that ended so far."""

    failed_tasks: int = 0
    busy_s: float = 0.0
    node_runs: int = 0
    request_node_runs: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, execution: Execution) -> None:
        """Add a task that ended."""
        self.reasons[execution.task.reason] += 1
        self.busy_s += execution.ended - execution.started
        self.node_runs += execution.nodes
        self.request_node_runs += execution.nodes * execution.task.batch_size
        self.failed_tasks += execution.error is not None


class WorkerState(NamedTuple):
    """The present state of a worker. `busy_s` sums its time at tasks so far; `at` is the task that it runs now."""

    name: str
    up: bool
    busy_s: float
    at: Task | None

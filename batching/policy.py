"""The seam between scheduling and everything else.

A policy is a plain state machine. A driver tells it what happened, and asks it which task to run. Two rules hold for
every policy:

1. It reads no clock. The time `now` is an argument, and never decreases.
2. It does no I/O.

The simulator drives a policy with virtual time, and the live runtime drives the same object with the wall clock. So the
simulated behaviour is the served behaviour.

Both drivers check every answer (checked_policy.py). An answer that breaks a rule ends the run with a PolicyError.
"""

from typing import Protocol

from headrace.batching.request import Request, Task


class Policy(Protocol):
    """A scheduling policy: it takes requests and decides which tasks the workers run. Times are seconds from the run's
    origin."""

    @property
    def ahead(self) -> int:
        """Return the number of tasks that a worker may be given before the first of them has ended."""
        ...

    def latest_start(self, request: Request) -> float:
        """Return the latest time (s) at which the request can begin and still meet its deadline, as the policy predicts
        it.

        A policy that predicts nothing returns the deadline. A driver that drops late requests drops the request at this
        time."""
        ...

    def largest_batch(self, model: str) -> int:
        """Return the largest batch that a task of `model` may have. Workers are warmed up to this size.

        The size is in requests, or in cells where tasks consist of cells. Raises UnknownModel."""
        ...

    def submit(self, request: Request, now: float) -> None:
        """Add a request to the policy. If this raises UnknownModel, the policy keeps nothing of the request."""
        ...

    def next_task(self, worker: int, now: float) -> Task | None:
        """Return the task that `worker`, which is idle, must run now; None leaves it idle.

        The requests of a task belong to its model. They were submitted, have not ended, and are in no running task.
        Only tasks of cells may share requests with running tasks. A task has at most `largest_batch` requests."""
        ...

    def complete(self, task: Task, now: float) -> list[Request]:
        """Take back a task that ended, in the state in which it ended (see `Task`). Return the requests that it
        finished."""
        ...

    def withdraw(self, request: Request, now: float) -> bool:
        """Remove a request whose caller has gone. Return whether the policy removed it.

        The policy removes a request that has not begun, and returns True. It returns False for a request that it does
        not know or that has begun; such a request runs on. A request that must begin anew counts as not begun.

        The call takes at most time in proportion to the waiting requests. It may make a batch due, so the driver asks
        for tasks afterwards."""
        ...

    def wakeup(self) -> float:
        """Return the time (s) at which to ask for a task although nothing else happens; inf if there is none.

        The time may lie in the past while no worker is idle. If a worker is idle when the time comes, `next_task` must
        return a task."""
        ...


class LatencyModel(Protocol):
    """The execution times of one network on one kind of hardware. Nothing else in batching/ knows hardware."""

    def latency(self, node: int, batch: int, length: float) -> float:
        """Return the execution time (s) of one node.

        Args:
            node: The node's number in the graph.
            batch: The number of requests.
            length: The longest input of the batch, in the model's unit.
        """
        ...

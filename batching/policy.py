"""The seam between scheduling and everything else.

A policy is a plain state machine that is told what happened and asked what to run. Two rules hold for every one:
it reads no clock (`now` is an argument, and never decreases) and it does no I/O. The simulator drives it with virtual
time and the live runtime drives the same object with the wall clock, so what is simulated is what is served.

Both drivers check every answer (checked_policy.py). One that breaks a rule ends the run with a PolicyError.
"""

from typing import Protocol

from headrace.batching.request import Request, Task


class Policy(Protocol):
    """The rules of a policy. A policy of one's own has these methods; it need not inherit from this class."""

    @property
    def ahead(self) -> int:
        """How many tasks a worker may be handed before the first of them has ended."""
        ...

    def latest_start(self, request: Request) -> float:
        """When the request must have begun to meet its deadline, as far as the policy can tell (s): the deadline itself
        where it predicts nothing. A driver that drops what is late drops it then."""
        ...

    def largest_batch(self, model: str) -> int:
        """The largest batch that a task of `model` may have, in entries where tasks are of cells: what a worker must be
        warmed up to. Raises UnknownModel."""
        ...

    def submit(self, request: Request, now: float) -> None:
        """Take a request. Raises UnknownModel, and then keeps nothing of it."""
        ...

    def next_task(self, worker: int, now: float) -> Task | None:
        """Asked when `worker` is idle: the task that it shall run now, or None to leave it idle.

        The requests of a task are of its model, were submitted, have not ended, and are in no task that runs. Only a
        task of cells may have some that run. They are as many as `largest_batch` at most."""
        ...

    def complete(self, task: Task, now: float) -> list[Request]:
        """Told that a task ended, as it ended (see `Task`). Returns a list of the requests that it finished."""
        ...

    def withdraw(self, request: Request, now: float) -> bool:
        """Told that the caller of `request` has gone. True if the request had not begun: nothing of it is left here.
        False if it is not known or has begun, and then it runs on. One that is to begin anew has not begun.

        Takes time in proportion to the waiting requests at most. A worker may have become due for a task by it."""
        ...

    def wakeup(self) -> float:
        """When to ask again though nothing else happens (s); inf if there is no such time.

        It may lie in the past while no worker is idle. Where one is, a task must follow when the time has come."""
        ...


class LatencyModel(Protocol):
    """The only thing that knows hardware."""

    def latency(self, node: int, batch: int, length: float) -> float:
        """Execution time (s) of node number `node` at `batch` requests of input length `length`."""
        ...

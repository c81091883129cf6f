"""The seam between scheduling and everything else.

A policy is a plain state machine. A driver tells it what happened, and asks it which task to run. Two rules hold for
every policy:

1. It reads no clock. The time `now` is an argument, and never decreases.
2. It does no I/O.

The simulator drives a policy with virtual time, and the live runtime drives the same object with the wall clock. So the
simulated behaviour is the served behaviour.

Both drivers check every answer (checked_policy.py). An answer that breaks a rule ends the run with a PolicyError.
The rules stand at the end of this file. `headrace check-policy` plays random histories against all of them
(conformance/).
"""

from dataclasses import dataclass
from typing import Final, Protocol

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
        """Add a request to the policy.

        Raises UnknownModel, and BadInput for a request with more tokens than a batch may have. The policy then keeps
        nothing of the request."""
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


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the contract. `source` tells where the contract has it."""

    name: str
    sentence: str
    source: str


def _rule(name: str, member: str, sentence: str) -> Rule:
    return Rule(name, sentence, f"batching/policy.py, {member}")


METHODS: Final = _rule(
    "methods",
    "Policy",
    "The policy has every method of the contract, and `ahead` is a whole number of 1 or more.",
)
NO_ERRORS: Final = _rule(
    "no-errors",
    "Policy",
    "No method raises an error, except UnknownModel where the contract allows it.",
)
ANSWERS: Final = _rule(
    "answers",
    "Policy",
    "Every answer has the type that the contract gives it, and no time is NaN.",
)
RETURNS: Final = _rule("returns", "Policy", "Every call returns within a bounded time.")
NO_CLOCK: Final = _rule("no-clock", "head of the file", "The policy reads no clock and does no input or output.")
SAME_ANSWERS: Final = _rule(
    "same-answers",
    "head of the file",
    "Two policies that are told the same give the same answers.",
)
UNKNOWN_MODEL: Final = _rule(
    "unknown-model",
    "Policy.submit",
    "`submit` and `largest_batch` raise UnknownModel for a model that the policy does not have, and keep nothing.",
)
ONE_MODEL: Final = _rule(
    "one-model", "Policy.next_task", "All requests of a task are of its model, which workers have."
)
WAITING_REQUESTS: Final = _rule(
    "waiting-requests",
    "Policy.next_task",
    "A task has requests that were submitted and have not ended, each of them once.",
)
ONE_TASK: Final = _rule(
    "one-task",
    "Policy.next_task",
    "A request is in one running task at a time, unless tasks are of cells.",
)
BATCH_LIMIT: Final = _rule(
    "batch-limit",
    "Policy.largest_batch",
    "A task has at least one request, and at most `largest_batch` of its model.",
)
NODE_ORDER: Final = _rule(
    "node-order",
    "Policy.next_task",
    "Each request runs the nodes of its model in order, from where it stands, on the worker where it began.",
)
CELL_ORDER: Final = _rule(
    "cell-order",
    "Policy.next_task",
    "Each cell of a request runs once, after the cells that it depends on.",
)
REASON: Final = _rule("reason", "Policy.next_task", "The reason of a task is one of REASONS (batching/request.py).")
FINISHES: Final = _rule(
    "finishes",
    "Policy.complete",
    "`complete` returns each request once, with the task that runs its last node.",
)
NOTHING_LOST: Final = _rule(
    "nothing-lost",
    "Policy.next_task",
    "Every request runs to its end: no request waits forever while workers are idle.",
)
LOST_WORKER: Final = _rule(
    "lost-worker",
    "Policy.complete",
    "A task that is lost with its worker finishes no request, and its requests begin again.",
)
WITHDRAWAL: Final = _rule(
    "withdrawal",
    "Policy.withdraw",
    "`withdraw` returns True exactly for requests that wait and have not begun.",
)
FORGETS: Final = _rule("forgets", "Policy.withdraw", "The policy keeps nothing of a request that was withdrawn.")
WAKEUP: Final = _rule(
    "wakeup",
    "Policy.wakeup",
    "A task follows when the time of `wakeup` has come and a worker is idle; it is infinite when no request waits.",
)
LATEST_START: Final = _rule(
    "latest-start",
    "Policy.latest_start",
    "`latest_start` is at most the deadline of the request.",
)
NO_STARVATION: Final = _rule(
    "no-starvation",
    "Policy.next_task",
    "A request begins, however many others come after it.",
)
BOUNDED_MEMORY: Final = _rule(
    "bounded-memory",
    "Policy",
    "The policy does not grow with the number of requests that were served or withdrawn.",
)
COST: Final = _rule(
    "cost",
    "Policy.withdraw",
    "A call takes time in proportion to the waiting requests at most.",
)
RULES: Final = (
    METHODS,
    NO_ERRORS,
    ANSWERS,
    RETURNS,
    NO_CLOCK,
    SAME_ANSWERS,
    UNKNOWN_MODEL,
    ONE_MODEL,
    WAITING_REQUESTS,
    ONE_TASK,
    BATCH_LIMIT,
    NODE_ORDER,
    CELL_ORDER,
    REASON,
    FINISHES,
    NOTHING_LOST,
    LOST_WORKER,
    WITHDRAWAL,
    FORGETS,
    WAKEUP,
    LATEST_START,
    NO_STARVATION,
    BOUNDED_MEMORY,
    COST,
)

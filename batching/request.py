"""Requests and tasks: the values that go into a policy and come out of it.

Rule: these are values. Nothing changes after construction, except the mark that the drivers' checks keep on a request
(`Request.held_by`). Times are float seconds from the run's origin, and nothing here reads a clock.

Both are plain classes instead of frozen dataclasses, because this file is compiled (setup.py). A simulation makes
millions of them, and the compiler turns only such plain classes into C structs.
"""

import math
from collections.abc import Iterable
from typing import Final

from headrace.batching.errors import UsageError

# The reason why a policy released a task at its time (`Task.reason`).
FULL: Final = "full"  # the batch reached its limit
WINDOW: Final = "window"  # the oldest request waited as long as the policy allows
KNEE: Final = "knee"  # the batch reached the knee of the profile, beyond which throughput hardly grows
IDLE: Final = "idle"  # the worker was idle and there was no reason to wait; or the worker continues its batch
TABLE: Final = "table"  # a solved table gives this batch size for the queue length
SLACK: Final = "slack"  # newcomers preempt the running batch, because every request keeps its slack
DEADLINE: Final = "deadline"  # others wait but must not join, because a deadline would be missed
DELAY: Final = "delay"  # others wait but must not join, because they would delay the batch by more than they gain
MERGE: Final = "merge"  # the batch was merged with another one
REASONS: Final = (FULL, WINDOW, KNEE, IDLE, TABLE, SLACK, DEADLINE, DELAY, MERGE)

UNTIL_END = 1 << 40  # `Task.stop` of a decoder run that ends with the first output that ends


class Request:
    """One inference request.

    Args:
        id: A number that no other request in flight has.
        model: The model's name.
        arrival: The time of arrival (s).
        deadline: The time (s) by which the request must have finished; inf if it has no deadline.
        input_len: The input's length in the model's unit: words, or steps of audio; 1 for images. The encoder runs that
            many steps, rounded, and at least 1.
        output_len: The true number of decoder steps. A driver ends the request by it, and a policy must not read it.

    The attribute `held_by` belongs to the checks in checked_policy.py. Nothing else reads or writes it.

    Raises:
        UsageError: A time or the length is not a number. Such a value would spread to every value it is compared with.
    """

    def __init__(
        self,
        id: int,
        model: str,
        arrival: float,
        deadline: float = math.inf,
        input_len: float = 1.0,
        output_len: int = 1,
    ) -> None:
        if arrival != arrival or deadline != deadline:
            raise UsageError(f"request {id} arrives at {arrival} s, deadline {deadline} s: give times, or no deadline")
        if not 0.0 <= input_len < math.inf:
            raise UsageError(f"request {id} has an input of length {input_len}: give a length of 0 or more")
        self.id: Final[int] = id
        self.model: Final[str] = model
        self.arrival: Final[float] = arrival
        self.deadline: Final[float] = deadline
        self.input_len: Final[float] = input_len
        self.output_len: Final[int] = output_len
        self.held_by: object = None

    def __repr__(self) -> str:
        return f"Request({self.id}, {self.model!r}, arrival={self.arrival}, deadline={self.deadline})"


class Task:
    """A sub-batch of requests and a run of consecutive graph nodes.

    Args:
        id: The task's number, which its policy gives.
        model: The model's name.
        requests: The requests of the batch.
        start: The first node.
        stop: The node boundary at which the run ends. UNTIL_END stands for the first end of an output.
        preemptible: Whether the driver may end the task at an earlier node boundary.
        ended: In a task that ended: the requests whose output, or open chain of cells, ended with it.
        cells: In a task of cells: the cell number of each request.
        reason: Why the policy released the task at this time; one of REASONS. It stays with the task to its end.
        padded_to: The input length of the graph, where graphs have fixed lengths; else 0.

    There are three kinds of tasks:

    - A whole-graph task runs nodes [start, stop) to the end. It runs encoder and decoder nodes as often as its longest
      request needs.
    - A preemptible task counts node executions. It runs in graph order until it has executed stop - start nodes. Within
      an encoder or decoder section it returns from the last node to the first. It never leaves the first section that
      it meets, because the policy decides where its requests go from there (see `execution.NodeTimes`). Its driver may
      end it at any node boundary after `start`. The driver must end a decoder run with the step in which the first
      output ends.
    - A task of cells (cell_graph.py) runs one cell for each entry, all of the cell type `start`. A request may stand in
      it several times. The task always runs as a whole.

    A driver gives an ended task back to `Policy.complete`, with the boundary that it reached as `stop`. A task that was
    lost with its worker comes back with `stop == start`. In that case nothing ran, the worker's state of its requests
    is lost, and the policy has the requests again. Requests that the driver has given up are then no longer in
    `requests`.
    """

    def __init__(
        self,
        id: int,
        model: str,
        requests: tuple[Request, ...],
        start: int,
        stop: int,
        preemptible: bool = False,
        ended: tuple[Request, ...] = (),
        cells: tuple[int, ...] = (),
        reason: str = IDLE,
        padded_to: float = 0.0,
    ) -> None:
        self.id: Final[int] = id
        self.model: Final[str] = model
        self.requests: Final[tuple[Request, ...]] = requests
        self.start: Final[int] = start
        self.stop: Final[int] = stop
        self.preemptible: Final[bool] = preemptible
        self.ended: Final[tuple[Request, ...]] = ended
        self.cells: Final[tuple[int, ...]] = cells
        self.reason: Final[str] = reason
        self.padded_to: Final[float] = padded_to

    def ended_at(self, stop: int, ended: tuple[Request, ...] = ()) -> "Task":
        """Return the same task as it ended at node boundary `stop`."""
        return Task(
            self.id,
            self.model,
            self.requests,
            self.start,
            stop,
            self.preemptible,
            ended,
            self.cells,
            self.reason,
            self.padded_to,
        )

    def lost(self, keep: Iterable[Request]) -> "Task":
        """Return the same task after its worker was lost. No node ran, and only the requests in `keep` run again."""
        return Task(self.id, self.model, tuple(keep), self.start, self.start, self.preemptible, reason=self.reason)

    @property
    def batch_size(self) -> int:
        return len(self.requests)

    def __repr__(self) -> str:
        ids = ", ".join(str(request.id) for request in self.requests)
        return f"Task({self.id}, {self.model!r}, requests {ids}, nodes {self.start} to {self.stop})"

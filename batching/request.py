"""What travels through a policy: requests in, tasks out.

Rule: values only, never changed once made, but for the mark that the drivers' checks leave on a request
(`Request.held_by`). Times are float seconds from the run's origin; nothing here reads a clock.
Both are plain classes and not frozen dataclasses because this file is compiled (setup.py): a simulator makes millions
of them, and the compiler turns just such a class into a C struct.
"""

import math
from collections.abc import Iterable
from typing import Final

from headrace.batching.errors import UsageError

# Why a task left when it did (`Task.reason`).
FULL: Final = "full"  # its batch has reached the limit
WINDOW: Final = "window"  # its oldest request has waited as long as the policy lets it wait for others
KNEE: Final = "knee"  # its batch has reached the knee of the profile, where more would cost latency and gain nothing
IDLE: Final = "idle"  # a worker was idle, and nothing was to be waited for: it takes what there is, or goes on with it
TABLE: Final = "table"  # a solved table says to serve so many at this length of the queue
SLACK: Final = "slack"  # newcomers, let in above what ran because everyone keeps their slack: they run first
DEADLINE: Final = "deadline"  # others wait and must not join, as a deadline would be missed: what ran goes on
MERGE: Final = "merge"  # it goes on with what it was merged with
REASONS: Final = (FULL, WINDOW, KNEE, IDLE, TABLE, SLACK, DEADLINE, MERGE)

UNTIL_END = 1 << 40  # `Task.stop` of a decoder run: as far as the first end of a sequence


class Request:
    """One inference request.

    `input_len` is the length of the input in the model's own unit (words, or seconds of audio; 1 for images): the
    number of encoder steps is that, rounded, and at least 1. `output_len` is the true number of decoder steps: a driver
    ends the request by it and a policy must not read it. `held_by` belongs to the checks of a policy's answers
    (checked_policy.py), and nobody else reads or writes it.

    Raises UsageError for a time or a length that is not a number: it would spread to whatever it is compared with.
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
    """A sub-batch of requests and the run of graph nodes from `start` up to the node boundary `stop`.

    A whole-graph task runs nodes [start, stop) to the end, encoder and decoder nodes as often as its longest request
    needs. `padded_to` is the length of its graph's input where graphs are of fixed lengths; 0 where they are not.

    A preemptible task counts node executions: it runs in graph order, and from the last node of the first encoder or
    decoder section that it meets back to that section's first, until it has executed stop - start nodes (see
    `execution.NodeTimes`). It never leaves such a section: where requests go from there, the policy decides. Its
    driver may end it at any node boundary behind `start`, and must end a decoder run with the step in which the output
    of the first of its requests ends.

    A task of cells (cell_graph.py) has in `cells` the number of each request's cell, all of the type `start`; a request
    may stand in it several times. It runs as a whole; `ended` then has the requests whose open chain has ended with it.

    A driver hands a task back to `Policy.complete` as it ended: `stop` is the boundary reached, and `ended` has the
    requests whose output ended with this run's last decoder step. A task that was lost with its worker comes back with
    `stop == start`: nothing ran, whatever the worker held of its requests is lost, and they are the policy's again.
    Requests that the driver has given up on are no longer among `requests`.

    `reason`, one of REASONS, is why the policy let it go when it did; it stays with the task to its end.
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
        """The same task, ended at node boundary `stop` by the driver."""
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
        """The same task after its worker was lost: no node ran, and only the requests in `keep` are to be run again."""
        return Task(self.id, self.model, tuple(keep), self.start, self.start, self.preemptible, reason=self.reason)

    @property
    def batch_size(self) -> int:
        return len(self.requests)

    def __repr__(self) -> str:
        ids = ", ".join(str(request.id) for request in self.requests)
        return f"Task({self.id}, {self.model!r}, requests {ids}, nodes {self.start} to {self.stop})"

"""What travels through a policy: requests in, tasks out.

Rule: values only. Times are float seconds from the run's origin; nothing here reads a clock.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Request:
    """One inference request.

    `input_len` is the length of the input in the model's own unit (words, or seconds of audio; 1 for images).
    `output_len` is the true number of decoder steps: a driver ends the request by it and a policy must not read it.
    """

    id: int
    model: str
    arrival: float
    deadline: float = math.inf
    input_len: float = 1
    output_len: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """A sub-batch of requests and the run of consecutive graph nodes [start, stop) that a worker is to execute.

    A driver hands the task back to `Policy.complete` as it ended. A preemptible task may have been ended early, so
    `stop` is then the node boundary that was reached. A task that was lost with its worker comes back with
    `stop == start`: nothing ran, and its requests are the policy's again. Requests that the driver has given up on
    are no longer among `requests`.
    """

    id: int
    model: str
    requests: tuple[Request, ...]
    start: int
    stop: int
    preemptible: bool = False

    def ended_at(self, stop: int) -> "Task":
        """The same task, ended at node boundary `stop` by the driver."""
        return replace(self, stop=stop)

    def lost(self, keep: Iterable[Request]) -> "Task":
        """The same task after its worker was lost: no node ran, and only the requests in `keep` are to be run again."""
        return replace(self, requests=tuple(keep), stop=self.start)

    @property
    def batch_size(self) -> int:
        return len(self.requests)

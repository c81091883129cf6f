"""The interface between the runtime and one kind of task.

Rule: the runtime schedules requests and never looks into them. A kind of task (whole networks, nodes, cells) is one
class with the interface `Tasks`. That class knows where a request lies in shared memory, how a task becomes a message
to a worker, and what the worker's answer means.

The runtime calls the methods for each request in this order; `lost` and `restart` come only after a fault:

    admit -> message -> ended -> ... -> message -> ended -> result -> release
                     \\-> lost -> restart -> message -> ...
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from headrace.batching import Policy, Request, Task
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.host.memory.files import SharedFile


class Written(NamedTuple):
    """An output that a worker has written to the file in which the caller placed it."""

    shape: tuple[int, ...]
    nbytes: int


# Returns an output by its name, as an array that stays.
Keep = Callable[[str], NDArray[Any]]
# Takes the outputs of a request by name, while they lie in the shared memory, and returns what the caller gets.
Read = Callable[[Mapping[str, NDArray[Any] | Written], Keep], Any]


class Tasks(Protocol):
    """One kind of task on shared memory. Requests are identified by their ids."""

    @property
    def nan_outputs(self) -> int:
        """The number of requests that ended with NaN in an output."""
        ...

    @property
    def graphs(self) -> Mapping[str, ModelGraph | None]:
        """The graph of each model, by name. None stands for a network that workers run as one piece."""
        ...

    @property
    def cells(self) -> bool:
        """Tell whether tasks are batches of cells."""
        ...

    @property
    def wait_at_worker(self) -> bool:
        """Tell whether a worker that is busy keeps the next task until it is idle."""
        ...

    @property
    def in_files(self) -> bool:
        """Tell whether workers read inputs and write outputs in files of clients. `admit` then takes the option
        `outputs`, the places of outputs by name."""
        ...

    def admit(self, id: int, model: str, value: Any, *_: Any, **options: Any) -> tuple[float, int]:
        """Take memory for a request and write its inputs there.

        Each kind of task has options of its own, all by keyword. `*_` only tells the type checker so.

        Returns:
            The input length and the output length of the request (see `Request`).

        Raises:
            UnknownModel, BadInput, Overloaded: The request is not admitted, and holds no memory.
        """
        ...

    def message(self, task: Task) -> bytes:
        """Return the message that hands the task to a worker."""
        ...

    def files(self, task: Task) -> Sequence[SharedFile]:
        """Return the files in which tensors of the task lie."""
        ...

    def ended(self, task: Task, answer: bytes) -> Task:
        """Return the task as it ended, after the worker's answer."""
        ...

    def lost(self, task: Task) -> Sequence[Request]:
        """Take note that the task will not end. Return the requests of it that are still at this task."""
        ...

    def restart(self, request: Request) -> None:
        """Forget everything that was computed for the request, because it begins again."""
        ...

    def result(self, request: Request, read: Read | None = None) -> Any:
        """Return a copy of the outputs of a finished request, or what `read` makes of them.

        Outputs that do not lie in the shared memory by name are returned without a call of `read`. Raises the errors of
        `read`.
        """
        ...

    def abandon(self, request: Request) -> None:
        """Note that nobody takes the result of a request any more, while it runs on. No file is written for it."""
        ...

    def release(self, request: Request) -> None:
        """Free the memory of a request that has left the runtime."""
        ...

    def arena_use(self) -> Mapping[str, tuple[int, int]]:
        """Return how many places of the shared memory are held, and how many there are, by the kind of place."""
        ...

    def isolated_policy(self) -> Policy:
        """Return a new policy for one worker. It runs a few suspect requests at once, and waits for no others."""
        ...

    def close(self) -> None:
        """Free the shared memory."""
        ...

"""The types that the HTTP and gRPC load generators share: a server, its clients, and the ways in which requests end."""

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from headrace.batching import HeadraceError, UsageError
from headrace.host.bench.inputs import ModelMetadata, Place, Tensor

ASK_S = 10.0  # timeout of a request for metadata of the server or a model


@dataclass(frozen=True, slots=True)
class Secure:
    """Settings for TLS. The server's certificate must be signed by a certificate in the file `authorities`. Without a
    file, one of this machine's trusted authorities must have signed it."""

    authorities: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context for Python's ssl module. Raises UsageError."""
        try:
            return ssl.create_default_context(cafile=self.authorities)
        except ssl.SSLError as error:
            raise UsageError(f"{self.authorities}: {error.reason or error}; give certificates in PEM format") from None


class Unreachable(HeadraceError):
    """The server does not answer, or its answer does not follow the protocol."""


class Refused(Unreachable):
    """The server answered with an error."""


class Status(IntEnum):
    """Name the ways in which a request ends.

    SHED: the server refused the request because it has too many (HTTP 429, 503 with Retry-After; RESOURCE_EXHAUSTED).
    LATE: the request passed its timeout (HTTP 408, 504; DEADLINE_EXCEEDED).
    UNAVAILABLE: the server is not available (any other HTTP 503; UNAVAILABLE).
    UNANSWERED: the connection was refused or lost, or no answer came within the time limit of the run."""

    OK = 0
    SHED = 1
    LATE = 2
    UNAVAILABLE = 3
    ERROR = 4
    UNANSWERED = 5


@dataclass(frozen=True, slots=True)
class Statistics:
    """Hold the counters of one model from the statistics extension, since the server's start."""

    inferences: int
    executions: int
    queue_ns: int


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of the requests of a run.

    Args:
        timeout_us: timeout that the request states, in microseconds; 0 states none.
        classes: number of labels to ask for in place of each output; 0 asks for the outputs.
        outputs: the place in shared memory for each output, by name."""

    timeout_us: int = 0
    classes: int = 0
    outputs: Mapping[str, Place] = field(default_factory=dict)


# Called at the end of a request with its number, the time when it was sent (seconds of the client's clock, None if it
# was never sent), its status, and the server's error text if the status is not OK.
OnAnswer = Callable[[int, float | None, Status, str], None]
Now = Callable[[], float]


class Client(Protocol):
    """Send requests to one server. It is an async context manager, which cancels unanswered requests at its end."""

    async def __aenter__(self) -> "Client": ...

    async def __aexit__(self, *_: object) -> None: ...

    def send(self, number: int, message: bytes) -> None:
        """Send a request now if a connection is free, else as soon as one is.

        The client calls on_answer once for each request, except for requests that it cancels."""
        ...


class Target(Protocol):
    """A server and the way to send it requests. It can be pickled."""

    def metadata(self, model: str) -> ModelMetadata:
        """Return the metadata of a model. Raises Unreachable with the server's error text."""
        ...

    def models(self) -> list[str]:
        """Return the names of the models that are ready. Raises Unreachable, also if the server lists no models."""
        ...

    def statistics(self, model: str) -> Statistics | None:
        """Return the counters of a model, or None if the server has none."""
        ...

    def message(self, model: ModelMetadata, tensors: Sequence[Tensor], options: RequestOptions) -> bytes:
        """Return a complete request, ready to send. Raises UsageError."""
        ...

    def register(self, region: str, key: str, size: int) -> None:
        """Register a region of shared memory with the server. Raises Unreachable."""
        ...

    def unregister(self, region: str) -> None:
        """Unregister a region. This does nothing if the server is gone."""
        ...

    def client(self, on_answer: OnAnswer, connections: int, now: Now = time.monotonic) -> Client:
        """Return a client whose clock is `now`, in seconds."""
        ...

"""Both transports share these types: a server, the clients that send it requests, and the ways in which those end."""

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from headrace.batching import HeadraceError, UsageError
from headrace.host.bench.inputs import ModelMetadata, Place, Tensor

ASK_S = 10.0  # for a question about the server or a model


@dataclass(frozen=True, slots=True)
class Secure:
    """TLS; the server's certificate must come from one in the file, or, without, from one that this machine trusts."""

    authorities: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Raises UsageError."""
        try:
            return ssl.create_default_context(cafile=self.authorities)
        except ssl.SSLError as error:
            raise UsageError(f"{self.authorities}: {error.reason or error}; give certificates as PEM") from None


class Unreachable(HeadraceError):
    """The server does not answer, or not as the protocol has it."""


class Refused(Unreachable):
    """The server answers, but with an error."""


class Status(IntEnum):
    """How a request ended. `SHED`: refused, as there are too many (HTTP 429, 503 with Retry-After; RESOURCE_EXHAUSTED).
    `LATE`: past its timeout (408, 504; DEADLINE_EXCEEDED). `UNAVAILABLE`: 503 else, or UNAVAILABLE. `UNANSWERED`: the
    connection was refused or lost, or no answer came within the run's bound."""

    OK = 0
    SHED = 1
    LATE = 2
    UNAVAILABLE = 3
    ERROR = 4
    UNANSWERED = 5


@dataclass(frozen=True, slots=True)
class Statistics:
    """A server with the statistics extension has counted these for a model so far."""

    inferences: int
    executions: int
    queue_ns: int


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Requests may ask for `classes` labels in place of each output, or for `outputs` in shared memory, by name.

    0 classes means that no labels are asked for."""

    timeout_us: int = 0
    classes: int = 0
    outputs: Mapping[str, Place] = field(default_factory=dict)


# Of a request's number: when it was sent (seconds of the client's clock; None if it never was), how it ended, and what
# the server said if that is not OK.
OnAnswer = Callable[[int, float | None, Status, str], None]
Now = Callable[[], float]


class Client(Protocol):
    """Use as an async context manager. At its end, what is not answered is cut."""

    async def __aenter__(self) -> "Client": ...

    async def __aexit__(self, *_: object) -> None: ...

    def send(self, number: int, message: bytes) -> None:
        """Send at once, if there is a connection to be had; else as soon as there is. Every request is told of once,
        but those that are cut."""
        ...


class Target(Protocol):
    """A server, with what is needed to ask it; it can be pickled."""

    def metadata(self, model: str) -> ModelMetadata:
        """Raises Unreachable, with what the server says."""
        ...

    def models(self) -> list[str]:
        """Return the names of the models that are ready. Raises Unreachable, also if the server lists none."""
        ...

    def statistics(self, model: str) -> Statistics | None:
        """None where the server has none."""
        ...

    def message(self, model: ModelMetadata, tensors: Sequence[Tensor], asked: RequestOptions) -> bytes:
        """A whole request, ready to be sent. Raises UsageError."""
        ...

    def register(self, region: str, key: str, size: int) -> None:
        """Tell the server of a region of shared memory. Raises Unreachable."""
        ...

    def unregister(self, region: str) -> None:
        """A server that has gone is left in peace."""
        ...

    def client(self, on_answer: OnAnswer, connections: int, now: Now = time.monotonic) -> Client:
        """Return clients whose clock is `now`, in seconds."""
        ...

"""Workers that serve together. What the runtime needs of each is here; a process or a simulated accelerator has it."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from headrace.batching import UsageError


class Worker(Protocol):
    """Messages are those of messages.py."""

    @property
    def name(self) -> str: ...

    def fileno(self) -> int:
        """Readable when there is a message; -1 while it does not run."""
        ...

    async def start(self) -> None:
        """Start it, also again after its end; returns when it is ready. Raises WorkerLost."""
        ...

    def send(self, number: int, message: bytes) -> None:
        """A task, under a number of its own."""
        ...

    def interrupt(self, number: int) -> None:
        """End that task, if it is preemptible, at the next node boundary; nothing if it has ended."""
        ...

    def receive(self) -> bytes | None:
        """The next message, None if there is none yet. Raises WorkerLost."""
        ...

    async def stop(self) -> str:
        """End it, whatever it is at, in bounded time. Returns its last words."""
        ...


class WorkerPool:
    """Starts the workers, all at once, and ends them all. Use as an async context manager."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        if not workers:
            raise UsageError("a pool needs at least one worker")
        self.workers = tuple(workers)
        self.in_use = False  # by a runtime: two would read each other's answers

    async def __aenter__(self) -> "WorkerPool":
        """If one cannot be started, ends them all and raises its error."""
        started = await asyncio.gather(*(worker.start() for worker in self.workers), return_exceptions=True)
        errors = [error for error in started if isinstance(error, BaseException)]
        if errors:
            await self.close()
            raise errors[0]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self.workers))

"""Start and end workers together. `Worker` is the interface that the runtime needs."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Protocol

from headrace.batching import UsageError
from headrace.host.memory.files import SharedFile


class Worker(Protocol):
    """A worker process or a simulated accelerator. Its messages are those of messages.py."""

    @property
    def name(self) -> str: ...

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is a message, or -1 while the worker does not run."""
        ...

    async def start(self) -> None:
        """Start the worker, also again after its end, and return when it is ready. Raises WorkerLost."""
        ...

    def send(self, number: int, message: bytes, files: Sequence[SharedFile] = ()) -> None:
        """Send a task under a number of its own. Tensors of it lie in these files."""
        ...

    def interrupt(self, number: int) -> None:
        """End that task at the next node boundary, if it is preemptible. Does nothing if it has ended."""
        ...

    def receive(self) -> bytes | None:
        """Return the next message, or None if there is none yet. Raises WorkerLost."""
        ...

    async def stop(self) -> str:
        """End the worker in bounded time, whatever it does. Returns the last lines that it printed."""
        ...


class WorkerPool:
    """Workers that start and end together. Use it as an async context manager."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        if not workers:
            raise UsageError("a pool needs at least one worker")
        self.workers = tuple(workers)
        self.in_use = False  # set by a runtime, as two runtimes would read each other's answers
        self.request_ids = itertools.count()  # of all runtimes, as workers know requests by their ids

    async def __aenter__(self) -> "WorkerPool":
        """Start all workers at once. If one cannot be started, end all of them and raise its error."""
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

"""Prompts with ready features wait here until a policy lets the engine begin them.

An engine works on a prompt as a whole before it can answer the first token. A policy forms batches of prompts for that.
A batch goes to the engine at once. Its place is free when the engine has begun to answer each of its prompts, and then
the next batch may go. So features come from units that take single inputs, and the engine gets batches.

The runtime of the server runs the policy. A prompt is a request, and a place is a worker.
"""

import asyncio
import os
import struct
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

from headrace.batching import (
    Policy,
    PolicyContext,
    Profile,
    ProfilePoint,
    Request,
    Task,
    UsageError,
    WorkConservingBatching,
)
from headrace.batching.graphs.model_graph import ModelGraph
from headrace.batching.registry import PolicySettings, find_policy, policy_names
from headrace.host.adapters.render.engine import Engine
from headrace.host.adapters.render.front import together
from headrace.host.adapters.render.request import MeasuredPrompts, Prompt
from headrace.host.live.results import Overloaded
from headrace.host.live.runtime import Runtime
from headrace.host.live.settings import RuntimeSettings
from headrace.host.live.tasks.interface import Read
from headrace.host.memory.files import SharedFile
from headrace.host.workers.messages import ANSWER, DONE
from headrace.host.workers.pool import WorkerPool

PROMPTS: Final = "prompts"  # the name of the only model of the runtime
NEEDS_RATE: Final = "smdp"  # the policy whose tables are for a rate of arrivals
MARGIN_S: Final = 30.0  # of a place beyond the engine's own time limit
LENGTHS: Final = (64, 512)  # tokens of the prompts that are measured
LARGEST: Final = 16  # prompts of the largest batch that is measured
BATCHES: Final = (1, 2, 4, 8, LARGEST)


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """How prompts wait for the engine.

    Attributes:
        policy: The settings of the policy.
        places: How many batches the engine may work on before it has begun to answer them.
        max_waiting: Largest number of prompts that wait or are in a place. More are refused.
        first_token_s: The time from a request's arrival in which its first token is due. A policy may use it.
        drop_late: Refuse a prompt that has not gone to the engine in time for that.
    """

    policy: PolicySettings
    places: int = 1
    max_waiting: int = 256
    first_token_s: float = float("inf")
    drop_late: bool = False


def check_policy(name: str) -> None:
    """Raise UsageError unless the policy batches whole requests and needs no rate of arrivals."""
    known = [each for each in policy_names() if find_policy(each).tasks == "graph" and each != NEEDS_RATE]
    if find_policy(name).tasks != "graph":
        raise UsageError(f"--policy {name}: it does not batch whole prompts; choose from {', '.join(known)}")
    if name == NEEDS_RATE:
        raise UsageError(f"--policy {name}: it needs the rate of arrivals; choose from {', '.join(known)}")


@dataclass(eq=False, slots=True)
class Ticket:
    """A prompt that waits. `begun` is set when it may go to the engine, and `answered` when its first token came or it
    ended without one."""

    tokens: int
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class PromptTasks:
    """Prompts as the requests of a runtime. They need no memory, because the tickets are in this process."""

    nan_outputs = 0
    cells = False
    wait_at_worker = False  # the engine begins each prompt that it gets
    in_files = False
    graphs: Mapping[str, ModelGraph | None] = {PROMPTS: None}

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self.tickets: dict[int, Ticket] = {}

    def admit(self, id: int, model: str, value: Any, *_: Any, **options: Any) -> tuple[float, int]:
        if len(self.tickets) >= self._max_waiting:
            raise Overloaded(f"{self._max_waiting} prompts wait for the engine; send fewer at a time")
        self.tickets[id] = value
        return value.tokens, 1

    def message(self, task: Task) -> bytes:
        ids = [request.id for request in task.requests]
        for id in ids:
            self.tickets[id].begun.set()
        return struct.pack(f"<{len(ids)}Q", *ids)

    def files(self, task: Task) -> Sequence[SharedFile]:
        return ()

    def ended(self, task: Task, answer: bytes) -> Task:
        return task

    def lost(self, task: Task) -> Sequence[Request]:
        return task.requests

    def restart(self, request: Request) -> None: ...

    def result(self, request: Request, read: Read | None = None) -> Any:
        return None

    def abandon(self, request: Request) -> None: ...

    def release(self, request: Request) -> None:
        del self.tickets[request.id]

    def arena_use(self) -> Mapping[str, tuple[int, int]]:
        return {PROMPTS: (len(self.tickets), self._max_waiting)}

    def isolated_policy(self) -> Policy:
        return WorkConservingBatching([ModelGraph.opaque(PROMPTS)], self._max_waiting)

    def close(self) -> None: ...


class Place:
    """A worker that waits until each prompt of a batch is answered. It works within the event loop."""

    def __init__(self, name: str, tasks: PromptTasks) -> None:
        self.name = name
        self._tasks = tasks
        self._fd = -1
        self._answers: deque[bytes] = deque()
        self._watching: set[asyncio.Task[None]] = set()

    def fileno(self) -> int:
        return self._fd

    async def start(self) -> None:
        await self.stop()
        self._fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK)

    def send(self, number: int, message: bytes, files: Sequence[SharedFile] = ()) -> None:
        tickets = [self._tasks.tickets[id] for (id,) in struct.iter_unpack("<Q", message)]
        watching = asyncio.create_task(self._watch(number, tickets))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)

    async def _watch(self, number: int, tickets: Sequence[Ticket]) -> None:
        began = time.monotonic()
        for ticket in tickets:
            await ticket.answered.wait()
        self._answers.append(ANSWER.pack(DONE, number, began, began, time.monotonic()))
        os.eventfd_write(self._fd, 1)

    def interrupt(self, number: int) -> None: ...

    def receive(self) -> bytes | None:
        if not self._answers:
            return None
        os.eventfd_read(self._fd)
        return self._answers.popleft()

    async def stop(self) -> str:
        for watching in self._watching:
            watching.cancel()
        self._watching.clear()
        self._answers.clear()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        return ""


class Admission:
    """Lets prompts go to an engine as a policy says. Use it as an async context manager."""

    def __init__(self, engine: Engine, settings: AdmissionSettings, profile: Profile) -> None:
        """Build the policy. `profile` has the times to the first token by batch and tokens. Raises UsageError."""
        self.engine = engine
        self._settings = settings
        context = PolicyContext(
            {PROMPTS: profile.times()}, settings.places, {PROMPTS: profile}, slo_s=settings.first_token_s
        )
        tasks = PromptTasks(settings.max_waiting)
        pool = WorkerPool([Place(f"place {number}", tasks) for number in range(settings.places)])
        limits = RuntimeSettings(task_timeout_s=engine.timeout_s + MARGIN_S, attempts=1, drop_late=settings.drop_late)
        self._pool = pool
        self._runtime = Runtime(settings.policy.build(context), pool, tasks, limits)
        self._stack = AsyncExitStack()
        self._left: set[asyncio.Task[Any]] = set()

    @classmethod
    async def measured(cls, engine: Engine, settings: AdmissionSettings, prompts: MeasuredPrompts) -> Self:
        """Measure the times to the first token, and build the policy with them. The engine should be idle meanwhile.

        Raises UsageError, EngineGone and EngineRefused."""
        largest = min(LARGEST, getattr(settings.policy, "max_batch", LARGEST))
        points = []
        for length in (each for each in LENGTHS if each <= prompts.max_tokens):
            await engine.generate(prompts.of(length))  # the first one may compile
            for batch in (each for each in BATCHES if each <= largest):
                began = time.perf_counter()
                await together([engine.generate(prompts.of(length)) for _ in range(batch)])
                seconds = time.perf_counter() - began
                points.append(ProfilePoint(batch, seconds, settings.places * batch / seconds, float(length)))
        if not points:
            raise UsageError(f"the engine takes prompts of {prompts.max_tokens} tokens only; leave --policy out")
        return cls(engine, settings, Profile(PROMPTS, settings.places, tuple(points), joined=True))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._pool)
            await stack.enter_async_context(self._runtime)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def turns(self) -> "Turns":
        """Return what passes on the prompts of a request that came now, as an engine does."""
        return Turns(self, self._runtime.now())

    @asynccontextmanager
    async def turn(self, prompt: Prompt, arrival: float) -> AsyncIterator[Ticket]:
        """Wait until the prompt may go to the engine. A client that leaves takes its prompt along."""
        ticket = Ticket(prompt.tokens)
        due = arrival + self._settings.first_token_s
        running = asyncio.create_task(self._runtime.infer(PROMPTS, ticket, arrival=arrival, deadline=due))
        begun = asyncio.create_task(ticket.begun.wait())
        try:
            await asyncio.wait({running, begun}, return_when=asyncio.FIRST_COMPLETED)
            if not ticket.begun.is_set():
                running.result()  # raises the reason
            yield ticket
        finally:
            ticket.answered.set()
            begun.cancel()
            if not ticket.begun.is_set():
                running.cancel()
            self._left.add(running)  # it ends with its batch, and the client does not wait for that
            running.add_done_callback(self._forget)

    def _forget(self, running: asyncio.Task[Any]) -> None:
        self._left.discard(running)
        if not running.cancelled():
            running.exception()  # the client had it already, or has left


class Turns:
    """Passes on the prompts of one request, each when it is its turn.

    Prompts must ask for a streamed answer, because the first token of it tells that a place is free."""

    def __init__(self, admission: Admission, arrival: float) -> None:
        """Store the time at which the request came, before its features were made. Its first token is due so long after
        it as the settings say."""
        self._admission = admission
        self._arrival = arrival

    async def stream(self, prompt: Prompt) -> AsyncGenerator[dict[str, Any]]:
        """Yield the parts of an answer. Raises Overloaded and TooLate, and what `Engine.stream` raises."""
        async with (
            self._admission.turn(prompt, self._arrival) as ticket,
            aclosing(self._admission.engine.stream(prompt)) as parts,
        ):
            async for part in parts:
                ticket.answered.set()
                yield part

    async def generate(self, prompt: Prompt) -> dict[str, Any]:
        """Return the whole answer. Raises what `stream` raises."""
        async with aclosing(self.stream(prompt)) as parts:
            return joined([part async for part in parts])


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parts of a streamed answer as a whole one."""
    choices: dict[int, dict[str, Any]] = {}
    usage = None
    for part in parts:
        usage = part.get("usage") or usage
        for piece in part["choices"]:
            made = choices.setdefault(piece["index"], {"index": piece["index"], "text": "", "token_ids": []})
            made["text"] += piece["text"]
            made["token_ids"] += piece.get("token_ids") or []
            for name in ("finish_reason", "stop_reason"):
                made[name] = piece.get(name) if piece.get(name) is not None else made.get(name)
            made["logprobs"] = _more_logprobs(made.get("logprobs"), piece.get("logprobs"))
    return {"choices": [choices[index] for index in sorted(choices)], "usage": usage}


def _more_logprobs(before: dict[str, Any] | None, more: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if more is None:
        return before
    if before is None:
        return dict(more)
    return {name: [*(before.get(name) or []), *(of or [])] if of is not None else None for name, of in more.items()}

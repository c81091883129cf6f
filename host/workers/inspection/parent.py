"""Describe networks in a process of its own: a fork of the fork server, which ends when it has answered.

The process that serves then needs no torch, holds no weights, and survives a network that crashes. Each function here
does what the function of the same name does in networks/ (`models`, `split`, `step_models`) or `batch_differences`. It
raises the same errors, UsageError, and blocks.
"""

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeVar

from headrace.batching import ModelGraph, UsageError
from headrace.host.workers.fork_server.client import ENVIRONMENT, SHARED, ForkedProcess, ForkServer
from headrace.host.workers.inspection.json_values import NotPlain, from_plain, to_plain
from headrace.host.workers.networks.description import NetworkDescription
from headrace.host.workers.networks.foreign.limits import CPU_S
from headrace.host.workers.networks.foreign.rules import ANY_FILE, FileRules
from headrace.host.workers.networks.program import NodeModel, StepNodes, preloads
from headrace.host.workers.networks.sequence_networks import KINDS, Network
from headrace.host.workers.networks.steps import Signature

READER = "headrace.host.workers.inspection.child"
LIMIT_S = 180.0  # a cold import of torch on a busy machine, and a large network's weights
ENDING_S = 3.0  # longest wait for the end of a process that was killed, and for the rest of its stderr
LOOK_S = 0.05  # pause between two looks whether the waiting task was cancelled
MAX_ANSWER = 1 << 26  # bytes; the graph of a large network takes one or two million


class _Scope:
    """The readings that one call of `in_thread` has begun. They end with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: set[_Reading] = set()
        self._cancelled = False

    @contextlib.contextmanager
    def holds(self, reading: "_Reading") -> Iterator[None]:
        with self._lock:
            self._readings.add(reading)
            if self._cancelled:
                reading.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._readings.discard(reading)

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            for reading in self._readings:
                reading.cancel()


_scope: ContextVar[_Scope] = ContextVar("scope", default=_Scope())  # noqa: B039  the default scope is never cancelled
_Found = TypeVar("_Found")


async def in_thread(work: Callable[..., _Found], *given: Any) -> _Found:
    """Run `work`, which calls functions of this module, in a thread, so that the event loop serves meanwhile.

    If the caller is cancelled, the processes that read end at once, and `work` with them."""
    scope = _Scope()
    reset = _scope.set(scope)
    try:
        return await asyncio.to_thread(work, *given)
    finally:
        scope.cancel()
        _scope.reset(reset)


def require_torch() -> None:
    """Raise ModuleNotFoundError if torch or torchvision is not installed.

    A command that loads networks late calls this first."""
    for name in ("torch", "torchvision"):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def describe(
    source: str, weights: str | None = None, input_shape: str | None = None, rules: FileRules = ANY_FILE
) -> NetworkDescription:
    """Return the description that `models.load_model` makes, without the network."""
    answer: NetworkDescription = _read("describe", source, weights, input_shape, rules, preload=preloads([source]))
    return answer


def graph(
    source: str, weights: str | None, input_shape: str | None, name: str, rules: FileRules = ANY_FILE
) -> ModelGraph:
    """Return the operators of a network in nodes (`torch_graph.from_torch`), under `name`."""
    answer: ModelGraph = _read("graph", source, weights, input_shape, name, rules, preload=preloads([source], cut=True))
    return answer


def node_model(
    source: str,
    max_batch: int,
    weights: str | None = None,
    input_shape: str | None = None,
    *,
    name: str | None = None,
    whole: bool = False,
    rules: FileRules = ANY_FILE,
) -> tuple[NodeModel, ModelGraph]:
    given = (source, max_batch, weights, input_shape, name, whole, rules)
    model, split_graph = _read("node_model", *given, preload=preloads([source], cut=True))
    return model, split_graph


def is_step_model(name: str) -> bool:
    return name in KINDS or (":" in name and bool(_read("is_step_model", name)))


def signature(network: Network) -> Signature:
    return _own_signature(network) if network.kind in KINDS else _signature(network)


def step_nodes(network: Network, max_batch: int) -> tuple[StepNodes, ModelGraph]:
    model_signature = signature(network)
    return StepNodes(network, model_signature.inputs, model_signature.outputs, max_batch), model_signature.graph


def batch_difference(model: NodeModel, batches: Sequence[int]) -> dict[str, Any]:
    answer: dict[str, Any] = _read("batch_difference", model, batches, preload=preloads([model.source], cut=True))
    return answer


def step_difference(network: Network, batch: int) -> dict[str, Any]:
    answer: dict[str, Any] = _read("step_difference", network, batch)
    return answer


def _signature(network: Network) -> Signature:
    answer: Signature = _read("signature", network)
    return answer


_own_signature = lru_cache(64)(_signature)  # Headrace's own networks stay what they are


def _read(function: str, *given: Any, preload: Sequence[str] = ()) -> Any:
    """Return the answer of this function of child.py.

    Raises UsageError, also if the process does not end in order, and ModuleNotFoundError without torch."""
    require_torch()
    try:
        task = asyncio.current_task()  # this task and its event loop wait meanwhile
    except RuntimeError:
        task = None
    reading = _Reading()
    thread = threading.Thread(target=reading.run, args=(function, given, preload), name="reading", daemon=True)
    thread.start()
    with _scope.get().holds(reading):
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    return reading.answer.result(None if task is None else LOOK_S)
                if (
                    task is not None and task.cancelling()
                ):  # after Ctrl-C, for example, which asyncio reports no other way
                    raise asyncio.CancelledError
        except BaseException:  # KeyboardInterrupt, for example: the process ends with its caller
            reading.cancel()
            raise


class _Reading:
    """One call, in a thread with an event loop of its own, as the caller may have a running one."""

    def __init__(self) -> None:
        self.answer: Future[Any] = Future()
        self._cancelled = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def run(self, function: str, given: Sequence[Any], preload: Sequence[str]) -> None:
        try:
            self.answer.set_result(asyncio.run(self._run(function, given, preload)))
        except BaseException as error:
            self.answer.set_exception(error)

    async def _run(self, function: str, given: Sequence[Any], preload: Sequence[str]) -> Any:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._cancelled.is_set():
            raise asyncio.CancelledError
        return await _answered(SHARED, function, given, preload)

    def cancel(self) -> None:
        self._cancelled.set()
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._task.cancel)


async def _answered(server: ForkServer, function: str, given: Sequence[Any], preload: Sequence[str]) -> Any:
    what = f"model {getattr(given[0], 'name', given[0])!r}"
    call = os.memfd_create("headrace-reading", os.MFD_CLOEXEC)
    process: ForkedProcess | None = None
    try:
        os.pwrite(call, to_plain([function, *given]), 0)
        env = {**os.environ, **ENVIRONMENT}
        try:
            async with asyncio.timeout(LIMIT_S):
                process = await server.fork(READER, [], [call], env, preload)
                passing_on = asyncio.create_task(_passed_on(process.stderr))
                await process.wait()
        except TimeoutError:
            raise UsageError(f"{what} was not read within {LIMIT_S:g} s; does its code wait for something?") from None
        except ConnectionError as error:
            raise UsageError(f"{what} cannot be read: {error}") from error
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(passing_on, ENDING_S)
        if process.returncode == -signal.SIGINT:  # all processes of a terminal get Ctrl-C, in any order
            raise KeyboardInterrupt
        if process.returncode == -signal.SIGXCPU:
            raise UsageError(f"{what} was not read within {CPU_S} s of processor time; does its code end?")
        if process.returncode != 0:
            raise UsageError(f"{what}: the process that read it was ended by {_end(process.returncode)}")
        return _checked(os.pread(call, MAX_ANSWER + 1, 0), what)
    finally:
        os.close(call)
        if process is not None:
            process.kill()
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ENDING_S):
                        await process.wait()
            finally:
                process.close()
                process.close_stderr()


async def _passed_on(stream: asyncio.StreamReader) -> None:
    """Pass the prints of a network's code on to this process's stderr."""
    while chunk := await stream.read(1 << 16):
        sys.stderr.write(chunk.decode(errors="replace"))
        sys.stderr.flush()


def _end(status: int | None) -> str:
    return signal.Signals(-status).name if status is not None and status < 0 else f"exit status {status}"


def _checked(data: bytes, what: str) -> Any:
    if len(data) > MAX_ANSWER:
        raise UsageError(f"{what}: its description has more than {MAX_ANSWER} bytes")
    try:
        error, answer = from_plain(data)
    except (NotPlain, ValueError) as damaged:
        raise UsageError(f"{what}: {damaged}") from damaged
    if error:
        raise UsageError(answer)
    return answer

"""`headrace` with timers around the stages of a request: `benchmarks.request_stages` runs `main` in a process.

The arguments of the process are a FILE and those of `headrace`. At its end it writes the CPU time of each stage to FILE
as JSON. A stage is a group of functions. The time of a function counts without that of the timed functions that it
calls, and without the time that the timers take themselves. A coroutine counts while it runs, and not while it waits.
The rest is the time of the process outside all stages. Nothing counts before the first WARM_UP requests have ended.

No timer can stand around a function that mypyc has compiled. So the server runs its Python sources here, and only the
shares of the stages are those of a server."""

import atexit
import functools
import inspect
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

COPIES = "copies between message or region and slot"
REST = "rest: event loop, sockets, gRPC's front"
WARM_UP = 64  # requests; then the times are read whenever as many have ended
CALIBRATION = 2000  # empty calls

_clock = time.thread_time_ns


class Timers:
    """The CPU time and the calls of each stage, and the calls of timed functions from inside it."""

    def __init__(self) -> None:
        self.ns = Counter[str]()
        self.calls = Counter[str]()
        self.inner_calls = Counter[str]()
        self._open: list[list[Any]] = [["", 0]]  # by depth: the stage, and the time of the functions that it called

    def clear(self) -> None:
        for counts in (self.ns, self.calls, self.inner_calls):
            counts.clear()

    def copy(self) -> "Timers":
        made = Timers()
        made.ns, made.calls, made.inner_calls = self.ns.copy(), self.calls.copy(), self.inner_calls.copy()
        return made

    def begin(self, stage: str) -> int:
        self._open.append([stage, 0])
        return _clock()

    def end(self, began: int) -> None:
        took = _clock() - began
        stage, inner = self._open.pop()
        outer = self._open[-1]
        outer[1] += took
        self.inner_calls[outer[0]] += 1
        self.ns[stage] += took - inner
        self.calls[stage] += 1

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a timer."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run(*values: Any, **options: Any) -> Any:
                return await _Steps(self, stage, function(*values, **options))

            return run

        @functools.wraps(function)
        def call(*values: Any, **options: Any) -> Any:
            began = self.begin(stage)
            try:
                return function(*values, **options)
            finally:
                self.end(began)

        return call

    def us(self, requests: int, process_ns: int) -> dict[str, float]:
        """Return the CPU time of each stage for a request (us), without the timers' own.

        `process_ns` is the time of the whole process."""
        within_ns, around_ns = _timer_ns()
        own = {
            stage: ns - self.calls[stage] * within_ns - self.inner_calls[stage] * around_ns
            for stage, ns in (self.ns | {"": 0}).items()
        }
        del own[""]  # what is outside all stages; only its calls count
        timers_ns = sum(self.calls.values()) * (within_ns + around_ns)
        own[REST] = process_ns - timers_ns - sum(own.values())
        return {stage: ns / requests / 1e3 for stage, ns in own.items()}


class _Steps:
    """A coroutine whose steps are timed."""

    def __init__(self, timers: Timers, stage: str, coroutine: Any) -> None:
        self._timers = timers
        self._stage = stage
        self._coroutine = coroutine

    def __await__(self) -> "_Steps":
        return self

    def __iter__(self) -> "_Steps":
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        began = self._timers.begin(self._stage)
        try:
            return self._coroutine.send(value)
        finally:
            self._timers.end(began)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()


def _timer_ns() -> tuple[float, float]:
    """Return what a timed call adds to its own stage, and to the stage that it is called from (ns)."""
    timers = Timers()
    empty = timers.timed("inner", lambda: None)

    def calls() -> None:
        for _ in range(CALIBRATION):
            empty()

    rounds = []
    for _ in range(5):
        timers.ns.clear()
        timers.timed("outer", calls)()
        rounds.append((timers.ns["inner"] / CALIBRATION, timers.ns["outer"] / CALIBRATION))
    return statistics.median(each[0] for each in rounds), statistics.median(each[1] for each in rounds)


def stages() -> Mapping[str, Mapping[Any, Sequence[str]]]:
    """Return the names of the timed functions of each stage, by the class or module that has them."""
    from headrace.host.live.dispatch import Dispatch
    from headrace.host.live.requests import Requests
    from headrace.host.live.runtime import Runtime
    from headrace.host.live.tasks.slots import SlotTasks
    from headrace.host.live.tasks.whole import WholeTasks
    from headrace.host.server.inference import Inferences
    from headrace.host.server.observe.dashboard import Dashboard
    from headrace.host.server.observe.metrics import Metrics
    from headrace.host.server.outputs import Outputs
    from headrace.host.server.protocol.shared_memory import Window
    from headrace.host.server.transport.grpc import tensor_calls
    from headrace.host.server.transport.grpc.native_server import NativeServer
    from headrace.host.server.transport.http import endpoints as http_endpoints
    from headrace.host.server.transport.http.connection import Connection
    from headrace.host.workers.channel import Channel

    return {
        "connection: bytes to calls and back": {
            Connection: ("buffer_updated", "get_buffer", "_answered", "_write", "_request_ended"),
            NativeServer: ("_on_events", "_answer"),
        },
        "protocol: descriptions, checks, answers": {
            http_endpoints.HttpApi: ("handle", "_infer"),
            http_endpoints: ("infer_request", "infer_response"),
            tensor_calls.TensorCalls: ("infer",),
            tensor_calls: ("received", "infer_request", "infer_response"),
        },
        "service: rows, admission": {Inferences: ("run", "_row")},
        COPIES: {SlotTasks: ("take",), Window: ("read_into", "write"), Outputs: ("_read",)},
        "runtime: requests, policy, tasks": {
            Runtime: ("answer", "_turn", "_readable"),
            Requests: ("admit", "add", "finish"),
            Dispatch: ("offer", "answered", "interrupt_running"),
            SlotTasks: ("result", "release"),
            WholeTasks: ("message", "ended"),
        },
        "messages to workers and their answers": {Channel: ("_send", "receive")},
        "statistics": {Metrics: ("answered", "executed"), Dashboard: ("answered", "executed")},
    }


class _Sources(MetaPathFinder):
    """Finds the Python source of each module of the server that is compiled."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path) if name.startswith("headrace.host.") else None
        if found is None or found.origin is None or not isinstance(found.loader, ExtensionFileLoader):
            return None
        source = Path(found.origin).with_name(f"{name.rpartition('.')[2]}.py")
        return spec_from_file_location(name, source) if source.exists() else None


def main() -> None:
    """Time the stages, and run Headrace's command."""
    file, sys.argv[1:] = Path(sys.argv[1]), sys.argv[2:]
    sys.meta_path.insert(0, _Sources())
    from headrace.host.live.requests import Requests

    timers = Timers()
    for stage, owners in stages().items():
        for owner, names in owners.items():
            for name in names:
                setattr(owner, name, timers.timed(stage, getattr(owner, name)))
    finished, began_ns = 0, 0
    found: list[tuple[Timers, int, int]] = []
    finish = Requests.finish

    def counted(*values: Any) -> None:
        nonlocal finished, began_ns
        finish(*values)
        finished += 1
        if finished == WARM_UP:
            timers.clear()
            began_ns = time.process_time_ns()
        elif finished % WARM_UP == 0:
            found[:] = [(timers.copy(), finished - WARM_UP, time.process_time_ns() - began_ns)]

    setattr(Requests, finish.__name__, counted)
    atexit.register(lambda: [file.write_text(json.dumps(read.us(*rest))) for read, *rest in found])
    from headrace.host.cli.main import main as command

    sys.argv[0] = "headrace"
    command()

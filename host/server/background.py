"""A server process from Python: started, ready and ended by a `with` statement.

    with serve(model="resnet50", policy="preba") as server:
        print(server.http)  # "127.0.0.1:41873"

The server is `headrace serve` in a process of its own. So it works in Jupyter and where an event loop runs, and a
network's code does not meet the caller's.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any, Self

from headrace.batching import HeadraceError, PolicySettings, UsageError
from headrace.batching.registry import entry_of
from headrace.batching.settings import option, settings_of

START_S = 300.0  # a first start builds the DPU and profiles the networks
STOP_S = 45.0  # for answering requests in flight, as `headrace serve --drain-s` has it, and the end of the workers
MAX_WORDS = 2000  # characters of the server's last words in an error


class ServerFailed(HeadraceError):
    """The server ended, or was not ready in time. The message has its last words."""


class Server:
    """A running server. `http`, `grpc` and `metrics` are addresses, HOST:PORT; `models` are the names for clients."""

    def __init__(self, process: "subprocess.Popen[str]", log: IO[str], ready: dict[str, Any]) -> None:
        self._process = process
        self._log = log
        self.models: tuple[str, ...] = tuple(ready["models"])
        self.http: str = ready["http"]
        self.grpc: str = ready["grpc"]
        self.metrics: str = ready["metrics"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Tell whether the process lives."""
        return self._process.poll() is None

    def log(self) -> str:
        """Return what the server has written on stderr."""
        return _read(self._log)

    def close(self) -> None:
        """End the server: it answers the requests in flight, for STOP_S at most, and is killed then."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


def serve(
    model: str | Sequence[str] = "mobilenet_v3_small",
    *,
    policy: str | PolicySettings | Sequence[str] = "preba",
    http: str = "127.0.0.1:0",
    grpc: str = "127.0.0.1:0",
    metrics: str = "127.0.0.1:0",
    start_s: float = START_S,
    **options: Any,
) -> Server:
    """Start a server of the Open Inference Protocol and wait until it is ready.

    Args:
        model: A network, or several: a torchvision name, module:function, FILE.pt2 or a step model; NAME=... names it.
        policy: A policy by name or its settings, for all models; or a name for each.
        http, grpc, metrics: Addresses; port 0 takes any that is free.
        start_s: Longest time until the server is ready (s).
        options: Options of `headrace serve` by their names: workers=2, slo_ms=50, preprocess="dpu", drop_late=True ...

    Returns the server; use it in a `with` statement, or call `close()`. Raises UsageError for options that the server
    refuses, and ServerFailed."""
    words = ["serve", "--json", f"--http={http}", f"--grpc={grpc}", f"--metrics={metrics}"]
    words += [f"--model={each}" for each in ([model] if isinstance(model, str) else model)]
    words += _of_policy(policy)
    if "max_batch" in options and any(word.startswith("--max-batch=") for word in words):
        raise UsageError("max_batch: the policy is given with its settings; leave it out")
    for name, value in options.items():
        if isinstance(value, bool):
            words += [option(name)] if value else []
        elif value is not None:
            many = isinstance(value, list | tuple)
            words += [f"{option(name)}={each}" for each in (value if many else [value])]
    log = tempfile.TemporaryFile(  # noqa: SIM115 the server closes it
        "w+", encoding="utf-8", errors="backslashreplace"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.host.cli.main", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        process_group=0,  # Ctrl-C is the caller's business, who ends the server by `close`
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    try:
        return Server(process, log, _ready(process, log, start_s))
    except BaseException:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        log.close()
        raise


def _of_policy(policy: str | PolicySettings | Sequence[str]) -> list[str]:
    if isinstance(policy, str):
        return [f"--policy={policy}"]
    if isinstance(policy, list | tuple):
        return [f"--policy={each}" for each in policy]
    if not isinstance(policy, PolicySettings) or isinstance(policy, type):
        raise UsageError(f"policy {policy!r}: give a name, or an object that has build(context)")
    cls = type(policy)
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        raise UsageError(
            f"policy {cls.__name__}: the server is another process, which cannot import a class of a script or a "
            f"notebook; put {cls.__name__} in a module"
        )
    words = [f"--policy={entry_of(policy).name}"]
    for each in settings_of(type(policy)):
        value = getattr(policy, each.name)
        if each.name == "max_batch":
            words.append(f"--max-batch={value}")  # the server's own limit is another one, and also bounds the profile
        elif value != each.default:
            words.append(f"--set={each.name}={value}")
    return words


def _ready(process: "subprocess.Popen[str]", log: IO[str], start_s: float) -> dict[str, Any]:
    """Return what the server prints when it is ready. Raises UsageError and ServerFailed."""
    assert process.stdout is not None
    until = time.monotonic() + start_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(max(0.0, until - time.monotonic())):
            raise ServerFailed(
                f"the server is not ready after {start_s:g} s; its last words: {_read(log)[-MAX_WORDS:]}"
            )
    line = process.stdout.readline()
    if line:
        found: dict[str, Any] = json.loads(line)
        return found
    status = process.wait()
    words = _read(log)[-MAX_WORDS:].strip()
    if status == 2:
        raise UsageError(words.removeprefix("headrace: "))
    raise ServerFailed(f"the server ended with status {status}: {words}")


def _read(log: IO[str]) -> str:
    log.flush()
    with open(f"/proc/self/fd/{log.fileno()}", encoding="utf-8", errors="backslashreplace") as file:
        return file.read()

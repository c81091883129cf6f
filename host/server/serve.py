"""The process of `headrace serve`: it starts workers, preprocessors, one service and its ports, and ends them."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from headrace.batching import UsageError
from headrace.host.dpu.preprocessor import Launch
from headrace.host.dpu.specs import MAX_MEGAPIXELS, Damaged
from headrace.host.live.machine.process_tuning import allow_descriptors, awake_cores, keep_freed_memory
from headrace.host.network.access import Access
from headrace.host.network.address import Address
from headrace.host.server.group import Preprocessors
from headrace.host.server.observe.access_log import AccessLog
from headrace.host.server.observe.trace import Trace
from headrace.host.server.observe.watch import Watcher
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.shared_memory import Regions
from headrace.host.server.repository import Repository
from headrace.host.server.service import Service
from headrace.host.server.settings import ModelSettings
from headrace.host.server.transport.grpc.fronts import GrpcFront, check_front, grpc_server
from headrace.host.server.transport.http.connection import HttpServer
from headrace.host.server.transport.http.endpoints import HttpApi, MetricsApi, refusal
from headrace.host.server.transport.tls import Tls

MORE_DESCRIPTORS = 512  # file descriptors for workers, memory, ports and libraries, in addition to connections
STOP_S = 5.0  # time limit for the last answers after draining, and for the workers to end


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Hold the options of a server.

    Args:
        container: builds or finds the DPU's .xclbin. It is called when the first model needs it.
        repository: models that clients may load while the server runs.
        access: the clients that it serves.
        keep_awake: keep the machine's cores from sleeping (`process_tuning.awake_cores`).
        max_megapixels: see `ImageSpec`; so are `damaged` and `orient`.
        resampler: see `AudioSpec`; None keeps each model's own.
        launch: see `Dpu`.
        grpc_front: what carries gRPC's bytes.
        access_log: a file, or `-` for stdout.
        otlp: the URL of an OpenTelemetry collector.

    Raises UsageError."""

    http: Address
    grpc: Address
    metrics: Address
    container: Callable[[], Path]
    repository: Repository | None = None
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    shared_memory: bool = False
    keep_awake: bool = False
    tls: Tls | None = None
    max_megapixels: int = MAX_MEGAPIXELS
    damaged: Damaged = Damaged.STRICT
    orient: bool = False
    resampler: str | None = None
    launch: Launch = Launch.SINGLE
    grpc_front: GrpcFront = GrpcFront.AUTO
    drain_s: float = 30.0
    access_log: str | None = None
    trace: Path | None = None
    otlp: str | None = None

    def __post_init__(self) -> None:
        check_front(self.grpc_front, self.tls)
        for option in ("http", "grpc", "metrics"):
            self.access.check(f"--{option}", getattr(self, option))


def serve(
    options: ServeOptions,
    models: Sequence[ModelSettings],
    on_stage: Callable[[str], None],
    on_ready: Callable[[Mapping[str, str]], None],
    end_now: Callable[[int], None],
) -> bool:
    """Serve until SIGTERM, SIGINT or SIGHUP, then answer the requests in flight.

    Args:
        on_stage: called with a text at each stage of the start.
        on_ready: called with the addresses of the ports, by name.
        end_now: ends the process with an exit status, at the second signal or if ending takes too long.

    Returns whether every admitted request was answered. Raises UsageError, and WorkerLost if no worker can be
    started."""
    allow_descriptors(2 * options.limits.connections + MORE_DESCRIPTORS)
    keep_freed_memory()
    for name in ("http", "grpc", "metrics"):  # a port in use is reported before loading, which may take half a minute
        address: Address = getattr(options, name)
        with _port_of(name, address):
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            socket.create_server((address.host, address.port), family=family).close()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(options, models, on_stage, on_ready, end_now))


async def _serve(
    options: ServeOptions,
    models: Sequence[ModelSettings],
    on_stage: Callable[[str], None],
    on_ready: Callable[[Mapping[str, str]], None],
    end_now: Callable[[int], None],
) -> bool:
    awake = awake_cores() if options.keep_awake else contextlib.nullcontext()
    with _watchers(options) as watchers, awake:
        async with (
            Preprocessors(
                options.container,
                options.max_megapixels,
                options.damaged,
                options.orient,
                options.launch,
                options.resampler,
            ) as preprocessors,
            Service(
                preprocessors,
                access=options.access,
                repository=options.repository,
                drain_s=options.drain_s,
                on_stage=on_stage,
                watchers=watchers,
                limits=options.limits,
            ) as service,
        ):
            await service.open(models)
            logs = [watcher for watcher in watchers if isinstance(watcher, AccessLog)]
            stop = _signals(options.drain_s, end_now, logs)
            async with _ports(options, service) as ports:
                on_ready(ports)
                await stop.wait()
                drained = await service.drain(options.drain_s)
                if not drained:  # answers the remaining requests with an error while the ports are still open
                    await service.close()
                return drained


@contextlib.contextmanager
def _watchers(options: ServeOptions) -> Iterator[list[Watcher]]:
    """Open the watchers that the options ask for. Raises UsageError."""
    with contextlib.ExitStack() as stack:
        watchers: list[Watcher] = []
        if options.access_log is not None:
            watchers.append(stack.enter_context(AccessLog(options.access_log)))
        if options.trace is not None:
            watchers.append(stack.enter_context(Trace(options.trace)))
        if options.otlp is not None:
            try:
                from headrace.host.server.observe.spans import Spans
            except ModuleNotFoundError as error:
                raise UsageError(f"--otlp needs the package {error.name}; install headrace[server,otel]") from None
            watchers.append(stack.enter_context(Spans.to(options.otlp)))
        yield watchers


def _signals(drain_s: float, end_now: Callable[[int], None], logs: Sequence[AccessLog]) -> asyncio.Event:
    """Return an event that the first SIGTERM, SIGINT or SIGHUP sets. SIGUSR1 opens the logs again."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.is_set():
            end_now(128 + number)
        stop.set()
        timer = threading.Timer(drain_s + 4 * STOP_S, end_now, (1,))
        timer.daemon = True
        timer.start()

    def on_reopen() -> None:
        for log in logs:
            log.reopen()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:  # nohup ignores SIGHUP
            loop.add_signal_handler(number, on_signal, number)
    loop.add_signal_handler(signal.SIGUSR1, on_reopen)
    return stop


@contextlib.asynccontextmanager
async def _ports(options: ServeOptions, service: Service) -> AsyncIterator[dict[str, str]]:
    """Open all ports and provide their addresses by name. Raises UsageError for a port that cannot be opened."""
    limits = options.limits
    regions = Regions(limits.body) if options.shared_memory else None
    async with contextlib.AsyncExitStack() as stack:
        ports, guard = {}, options.access.guard
        context = None if options.tls is None else options.tls.context
        http = HttpApi(service, limits, regions, guard)
        metrics = MetricsApi(service, guard)
        for name, server in (
            ("http", HttpServer(http.handle, refusal, limits, context, http.place)),
            ("metrics", HttpServer(metrics.handle, refusal, limits, context)),
        ):
            address: Address = getattr(options, name)
            with _port_of(name, address):
                host, port = await server.start(address.host, address.port)
            stack.push_async_callback(server.stop, STOP_S)
            ports[name] = str(Address(host, port))
        calls = grpc_server(options.grpc_front, service, limits, regions, options.tls)
        with _port_of("grpc", options.grpc):
            port = await calls.start(options.grpc.host, options.grpc.port)
        stack.push_async_callback(calls.stop, STOP_S)
        ports["grpc"] = str(Address(options.grpc.host, port))
        yield ports


@contextlib.contextmanager
def _port_of(name: str, address: Address) -> Iterator[None]:
    """Turn an error of opening the port into UsageError."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--{name} {address}: {reason}; give a free address of this machine") from None

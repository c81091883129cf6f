"""`headrace serve`: workers, preprocessors, one service and its ports, from the start to the end of the process."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from headrace.batching import UsageError
from headrace.host.dpu.preprocessor import Launch
from headrace.host.dpu.reference.image import MAX_MEGAPIXELS, Damaged
from headrace.host.live.machine.process_tuning import allow_descriptors, awake_cores, keep_freed_memory
from headrace.host.server.group import Preprocessors
from headrace.host.server.observe.access_log import AccessLog
from headrace.host.server.observe.trace import Trace
from headrace.host.server.observe.watch import Watcher
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.protocol.shared_memory import Regions
from headrace.host.server.repository import Repository
from headrace.host.server.service import Service
from headrace.host.server.settings import ModelSettings
from headrace.host.server.transport.grpc.endpoints import grpc_server
from headrace.host.server.transport.http.browsers import BrowserGuard
from headrace.host.server.transport.http.connection import HttpServer
from headrace.host.server.transport.http.endpoints import HttpApi, MetricsApi, refusal
from headrace.host.server.transport.tls import Tls

MORE_DESCRIPTORS = 512  # beside those of connections, by transport: workers, memory, ports, libraries
STOP_S = 5.0  # for what is on its way when all is drained, and for workers to end


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parsed(cls, option: str, text: str) -> "Address":
        """HOST:PORT. Raises UsageError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
            raise UsageError(
                f"{option} {text!r}: give HOST:PORT, such as 127.0.0.1:8000; port 0 takes any that is free"
            )
        return cls(host, int(port))

    def is_loopback(self) -> bool:
        """Whether only this machine reaches it. Raises UsageError for a name that nobody knows."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise UsageError(f"{self.host}: {error.strerror}; give an address of this machine") from None
        return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """`container` builds or finds the DPU's .xclbin; it is asked for when the first model needs it. Without `token`
    the server serves everybody who reaches it. An address beyond loopback then needs `insecure`. Without `token` and
    `insecure` a `BrowserGuard` keeps out pages of other sites, and `hosts` are its names. With `keep_awake` the
    machine's cores do not sleep while it serves (`quick.awake_cores`). With `repository` the models in it may be
    loaded while the server runs. `max_megapixels`, `damaged` and `orient` are as in `ImageSpec`, `launch` as in `Dpu`,
    `resampler` as in `AudioSpec`; None leaves each model its own.
    `access_log` is a file or `-`, `otlp` the URL of an OpenTelemetry collector. Raises UsageError."""

    http: Address
    grpc: Address
    metrics: Address
    container: Callable[[], Path]
    repository: Repository | None = None
    token: str | None = None
    insecure: bool = False
    hosts: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    shared_memory: bool = False
    keep_awake: bool = False
    tls: Tls | None = None
    max_megapixels: int = MAX_MEGAPIXELS
    damaged: Damaged = Damaged.STRICT
    orient: bool = False
    resampler: str | None = None
    launch: Launch = Launch.SINGLE
    drain_s: float = 30.0
    access_log: str | None = None
    trace: Path | None = None
    otlp: str | None = None

    @property
    def guard(self) -> BrowserGuard | None:
        """The guard of the HTTP ports, or None where any page may send requests."""
        return None if self.token is not None or self.insecure else BrowserGuard(self.hosts)

    def __post_init__(self) -> None:
        BrowserGuard(self.hosts)  # which checks the names, also where no guard is needed
        for option in ("http", "grpc", "metrics"):
            address: Address = getattr(self, option)
            if self.token is None and not self.insecure and not address.is_loopback():
                raise UsageError(
                    f"--{option} {address} is reached from other machines: give --token-file FILE, or --insecure to "
                    "serve everybody"
                )


def serve(
    options: ServeOptions,
    models: Sequence[ModelSettings],
    on_stage: Callable[[str], None],
    on_ready: Callable[[Mapping[str, str]], None],
    end_now: Callable[[int], None],
) -> bool:
    """Serve until SIGTERM, SIGINT or SIGHUP, then answer what is here. `on_ready` is told where it listens, by port;
    `end_now` ends the process with an exit status, at the second signal, or where ending takes too long. Returns
    whether every request that was let in has been answered. Raises UsageError, and WorkerLost if no worker can be
    started."""
    allow_descriptors(2 * options.limits.connections + MORE_DESCRIPTORS)
    keep_freed_memory()
    for name in ("http", "grpc", "metrics"):  # before work that takes half a minute
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
                token=options.token,
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
                if not drained:  # those who wait are told so while the ports are still open
                    await service.close()
                return drained


@contextlib.contextmanager
def _watchers(options: ServeOptions) -> Iterator[list[Watcher]]:
    """Those that options ask for. Raises UsageError."""
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
                raise UsageError(f"--otlp needs {error.name}; install headrace[server,otel]") from None
            watchers.append(stack.enter_context(Spans.to(options.otlp)))
        yield watchers


def _signals(drain_s: float, end_now: Callable[[int], None], logs: Sequence[AccessLog]) -> asyncio.Event:
    """Return an event that the first SIGTERM, SIGINT or SIGHUP sets. SIGUSR1 opens the logs anew."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def told(number: int) -> None:
        if stop.is_set():
            end_now(128 + number)
        stop.set()
        bound = threading.Timer(drain_s + 4 * STOP_S, end_now, (1,))
        bound.daemon = True
        bound.start()

    def reopen() -> None:
        for log in logs:
            log.reopen()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:  # nohup's word stands
            loop.add_signal_handler(number, told, number)
    loop.add_signal_handler(signal.SIGUSR1, reopen)
    return stop


@contextlib.asynccontextmanager
async def _ports(options: ServeOptions, service: Service) -> AsyncIterator[dict[str, str]]:
    """All ports open; their addresses by name. Raises UsageError for one that cannot be had."""
    limits = options.limits
    regions = Regions(limits.body) if options.shared_memory else None
    async with contextlib.AsyncExitStack() as stack:
        ports, guard = {}, options.guard
        context = None if options.tls is None else options.tls.context
        for name, api in (("http", HttpApi(service, limits, regions, guard)), ("metrics", MetricsApi(service, guard))):
            server = HttpServer(api.handle, refusal, limits, context)
            address: Address = getattr(options, name)
            with _port_of(name, address):
                host, port = await server.start(address.host, address.port)
            stack.push_async_callback(server.stop, STOP_S)
            ports[name] = str(Address(host, port))
        calls = grpc_server(service, limits, regions, options.tls)
        with _port_of("grpc", options.grpc):
            port = await calls.start(options.grpc.host, options.grpc.port)
        stack.push_async_callback(calls.stop, STOP_S)
        ports["grpc"] = str(Address(options.grpc.host, port))
        yield ports


@contextlib.contextmanager
def _port_of(name: str, address: Address) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--{name} {address}: {reason}; give an address that is free") from None

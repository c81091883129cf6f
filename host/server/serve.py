"""`headrace serve`: workers, preprocessors, one service and its ports, from the start to the end of the process."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvloop

from headrace.batching import Profile, UsageError, make_policy
from headrace.batching.catalog import CELL_POLICIES
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.image import ImageSpec
from headrace.host.dpu.preprocessor import CpuPreprocessor, Preprocessor
from headrace.host.live.hardware import Hardware, Network, hardware_of, schedules_nodes
from headrace.host.live.quick import keep_freed_memory
from headrace.host.live.tables import tables_beside
from headrace.host.server.http import HttpApi, MetricsApi, refusal
from headrace.host.server.http1 import HttpServer, Limits
from headrace.host.server.rpc import GrpcServer
from headrace.host.server.service import ServedModel, Service
from headrace.host.server.shared_memory import Regions

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
    """`profiles` are found by their models' names or sources; what has none is measured. With `xclbin` photos go
    through its DPU. `workers` of None are as many as there are devices. Without `token` everybody who reaches the
    server is served, so that beyond loopback `insecure` must say so. Raises UsageError."""

    policy: str
    http: Address
    grpc: Address
    metrics: Address
    sla_s: float
    max_queue: int
    profiles: Sequence[Profile] = ()
    xclbin: Path | None = None
    workers: int | None = None
    npus: int = 0
    whole: bool = False
    window_s: float = 0.005
    max_batch: int = 32
    drop_late: bool = False
    token: str | None = None
    insecure: bool = False
    limits: Limits = field(default_factory=Limits)
    shared_memory: bool = False
    drain_s: float = 30.0

    def __post_init__(self) -> None:
        if self.policy in CELL_POLICIES:
            raise UsageError(f"--policy {self.policy}: it serves networks of cells; choose another")
        for option in ("http", "grpc", "metrics"):
            address: Address = getattr(self, option)
            if self.token is None and not self.insecure and not address.is_loopback():
                raise UsageError(
                    f"--{option} {address} is reached from other machines: give --token-file FILE, or --insecure to "
                    "serve everybody"
                )


def serve(
    options: ServeOptions,
    networks: Sequence[Network],
    on_stage: Callable[[str], None],
    on_ready: Callable[[Mapping[str, str]], None],
    end_now: Callable[[int], None],
) -> bool:
    """Serve until SIGTERM or SIGINT, then answer what is here. `on_ready` is told where it listens, by port;
    `end_now` ends the process with an exit status, at the second signal, or where ending takes too long. Returns
    whether every request that was let in has been answered. Raises UsageError, and WorkerLost if no worker can be
    started."""
    keep_freed_memory()
    for name in ("http", "grpc", "metrics"):  # before work that takes half a minute
        address: Address = getattr(options, name)
        with _port_of(name, address):
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            socket.create_server((address.host, address.port), family=family).close()
    hardware = hardware_of(
        networks, workers=options.workers, npus=options.npus,
        by_node=schedules_nodes([options.policy], options.profiles), whole=options.whole,
    )  # fmt: skip
    profiles = _profiles(options, networks, hardware, on_stage)
    on_stage(f"starting {hardware.count} {hardware.kind}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(options, networks, hardware, profiles, on_ready, end_now))


def _profiles(
    options: ServeOptions, networks: Sequence[Network], hardware: Hardware, on_stage: Callable[[str], None]
) -> dict[str, Profile]:
    given = {profile.model: profile for profile in options.profiles}
    found = {}
    for network in networks:
        profile = given.pop(network.name, None) or given.pop(network.source, None)
        if profile is None:
            on_stage(f"profile of {network.name} on {hardware.count} {hardware.kind}")
            profile = asyncio.run(hardware.profile(network, options.max_batch))
        found[network.name] = replace(profile, model=network.name)
    if given:
        raise UsageError(f"--profile: it is of {next(iter(given))!r}, and no model is; leave it out")
    return found


async def _serve(
    options: ServeOptions,
    networks: Sequence[Network],
    hardware: Hardware,
    profiles: Mapping[str, Profile],
    on_ready: Callable[[Mapping[str, str]], None],
    end_now: Callable[[int], None],
) -> bool:
    stop = _signals(options.drain_s, end_now)
    times = {name: hardware.times(profile) for name, profile in profiles.items()}
    policy = make_policy(
        options.policy, times, workers=hardware.count, window_s=options.window_s, max_batch=options.max_batch,
        profiles=profiles, tables={},
    )  # fmt: skip
    largest = {name: policy.largest_batch(name) for name in profiles}
    tasks, pool = hardware.serving(largest, options.max_queue)
    with contextlib.closing(tasks):
        async with _preprocessors(options, networks) as preprocessors, pool:
            models = [
                ServedModel(
                    network.name, network.loaded.inputs, network.loaded.outputs, options.sla_s,
                    network.loaded.categories, preprocessors.get(network.loaded.image_spec),
                )
                for network in networks
            ]  # fmt: skip
            async with (
                Service(
                    models, policy, pool, tasks, max_queue=options.max_queue, drop_late=options.drop_late,
                    token=options.token,
                ) as service,
                tables_beside(policy, times, profiles, options.max_batch, hardware.count),
                _ports(options, service) as ports,
            ):  # fmt: skip
                on_ready(ports)
                await stop.wait()
                drained = await service.drain(options.drain_s)
                if not drained:  # those who wait are told so while the ports are still open
                    await service.runtime.close()
                return drained


def _signals(drain_s: float, end_now: Callable[[int], None]) -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def told(number: int) -> None:
        if stop.is_set():
            end_now(128 + number)
        stop.set()
        bound = threading.Timer(drain_s + 4 * STOP_S, end_now, (1,))
        bound.daemon = True
        bound.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number)
    return stop


@contextlib.asynccontextmanager
async def _preprocessors(
    options: ServeOptions, networks: Sequence[Network]
) -> AsyncIterator[dict[ImageSpec | None, Preprocessor]]:
    """One for each kind of tensor; the DPU's are all of the same CUs."""
    async with contextlib.AsyncExitStack() as stack:
        found: dict[ImageSpec | None, Preprocessor] = {}
        for spec in {network.loaded.image_spec for network in networks} - {None}:
            made = CpuPreprocessor(spec) if options.xclbin is None else Dpu(options.xclbin, spec)
            found[spec] = await stack.enter_async_context(made)
        yield found


@contextlib.asynccontextmanager
async def _ports(options: ServeOptions, service: Service) -> AsyncIterator[dict[str, str]]:
    """All ports open; their addresses by name. Raises UsageError for one that cannot be had."""
    limits = options.limits
    regions = Regions(limits.body) if options.shared_memory else None
    async with contextlib.AsyncExitStack() as stack:
        ports = {}
        for name, handler in (("http", HttpApi(service, regions).handle), ("metrics", MetricsApi(service).handle)):
            server = HttpServer(handler, refusal, limits)
            address: Address = getattr(options, name)
            with _port_of(name, address):
                host, port = await server.start(address.host, address.port)
            stack.push_async_callback(server.stop, STOP_S)
            ports[name] = str(Address(host, port))
        calls = GrpcServer(service, limits, regions)
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

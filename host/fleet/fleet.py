"""`headrace serve --ray`: replicas on the nodes of a Ray cluster behind HAProxy, from their start to their end.

One loop manages everything. Each replica's supervisor has a pending call that returns when its state changes. `_turn`
takes in these results. A method that waits for something repeats `_turn`, so the loop never stands still."""

import contextlib
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from headrace.batching import HeadraceError, UsageError
from headrace.host.fleet import haproxy
from headrace.host.fleet.control import Control, Update, UpdateRequest
from headrace.host.fleet.haproxy import Place, Proxy, ProxySettings
from headrace.host.fleet.resources import actor_options, check_total
from headrace.host.fleet.statistics import QUERIED_S, Statistics
from headrace.host.fleet.supervisor import END_S, Phase, State, Supervisor, doubled_s
from headrace.host.network.address import Address
from headrace.host.network.browsers import BrowserGuard
from headrace.host.server.protocol.limits import Limits
from headrace.sim.sweeps.cluster import cluster, ray  # raises an error with instructions if Ray is not installed

TURN_S: Final = 0.2
PLACE_S: Final = 60.0  # time limit for finding a node with room for a replica, and for loading its supervisor
ROOM_S: Final = 15.0  # time that an update waits for room before it stops an old replica
READY_S: Final = 900.0  # time limit until a replica is ready; it may measure profiles first
STARTS: Final = 3  # a replica has failed after so many starts of its server or supervisor without being ready
# Pause before a lost supervisor is called again. It doubles each time in a row, up to MAX_LOST_S.
LOST_S: Final = 0.5
MAX_LOST_S: Final = 30.0

OnReady = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Hold the options of a fleet.

    Args:
        address: address of the Ray cluster.
        arguments: arguments of each replica's `headrace serve`, without its ports. Replicas run in `folder`.
        front: those settings among them that the front has, too. An update cannot change them.
        again: largest request, in bytes, that is sent again.
        guard: refuses requests of other sites' pages for the statistics.
        certificate: a PEM file, like `key`; give both or none."""

    address: str
    replicas: int
    resources: Mapping[str, float]
    http: Address
    grpc: Address
    metrics: Address
    arguments: Sequence[str]
    folder: str
    front: Mapping[str, str | None]
    again: int
    drain_s: float
    limits: Limits
    token: str | None = None
    guard: BrowserGuard | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(slots=True, eq=False)
class Replica:
    """Hold the state of one replica.

    `slot` is its number. `call` is the pending call of its supervisor."""

    slot: int
    arguments: Sequence[str]
    folder: str
    actor: Any
    call: Any = None
    state: State | None = None  # None until it has a node, and while its supervisor is lost
    ask_at: float = 0.0  # time of the next call
    lost: int = 0  # number of failed calls in a row
    why: str = ""  # Ray's error of the last failed call
    retired: bool = False

    @property
    def ready(self) -> bool:
        """Return whether its server is ready."""
        return self.state is not None and self.state.phase is Phase.READY

    @property
    def failed(self) -> str | None:
        """Return the reason why the replica will never be ready, or None."""
        state = self.state
        if state is None:
            if self.lost < STARTS:
                return None
            return f"replica {self.slot} cannot start: {self.why}; install the same Headrace there, at the same path"
        if state.phase is not Phase.REFUSED and state.early_ends < STARTS:
            return None
        return f"replica {self.slot} on {state.host} ends before it is ready: {state.last_line}"


@dataclass(slots=True)
class _Signals:
    """Record which signals the process has received."""

    end: bool = False
    update: bool = False


class _Ended(Exception):
    """The process received the signal to end. It is raised in the middle of any operation."""


def serve_fleet(
    options: FleetOptions, tell: Callable[[str], None], on_ready: OnReady, end_now: Callable[[int], None]
) -> bool:
    """Serve until SIGTERM or SIGINT, then answer the requests in flight.

    SIGHUP, or a request to `Control`, replaces the replicas one after another.

    Args:
        tell: called with each line of progress.
        on_ready: called with the ports and replicas when all replicas are ready.
        end_now: ends the process with an exit status at a second signal.

    Returns whether all admitted requests were answered. Raises UsageError and HeadraceError."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-fleet-")))
        listening = _listening(options)
        for port in listening.values():
            stack.callback(port.close)
        statistics = stack.enter_context(
            Statistics(folder, options.token, options.certificate is not None, options.guard)
        )
        proxy = Proxy(_proxy_settings(options, folder, statistics), listening, folder)
        stack.enter_context(cluster(options.address))
        signals = stack.enter_context(_signals(end_now))
        http = Address(options.http.host, listening["http"].getsockname()[1])
        control = stack.enter_context(Control(http))
        check_total(options.resources, options.replicas, ray.cluster_resources())
        fleet = Fleet(options, proxy, statistics, control, signals, tell)
        try:
            proxy.start()
            fleet.start()
            ports = {name: _address(port) for name, port in listening.items()}
            on_ready({**ports, "replicas": fleet.described()})
            fleet.serve()
        except _Ended:
            pass
        finally:
            drained = proxy.stop()
            fleet.stop()
        return drained


class Fleet:
    """Manage the replicas of a fleet."""

    def __init__(
        self,
        options: FleetOptions,
        proxy: Proxy,
        statistics: Statistics,
        control: Control,
        signals: _Signals,
        tell: Callable[[str], None],
    ) -> None:
        self._options = options
        self._proxy = proxy
        self._statistics = statistics
        self._control = control
        self._signals = signals
        self._report = tell
        self._arguments: tuple[Sequence[str], str] = (options.arguments, options.folder)
        self._supervisor = ray.remote(Supervisor)
        self._replicas: list[Replica] = []  # the serving replicas, and during an update a new or retired one
        self._next_update: UpdateRequest | None = None
        self._updating = False
        self._client: UpdateRequest | None = None  # the client of the update in progress

    def start(self) -> None:
        """Start all replicas and wait until they are ready. Raises UsageError and HeadraceError if one fails."""
        count = self._options.replicas
        for _ in range(count):
            self._add(*self._arguments)
        began = time.monotonic()
        self._until(lambda: all(r.state for r in self._replicas) or self._failed() is not None, PLACE_S)
        self._check_failed()
        if placed := [r for r in self._replicas if r.state is not None]:
            self._tell(f"{len(placed)} of {count} replicas placed")
        if len(placed) < count:
            needed = ",".join(f"{name}={amount:g}" for name, amount in self._options.resources.items())
            raise UsageError(
                f"--replicas {count}: {count - len(placed)} found no node within {PLACE_S:g} s; each needs {needed} "
                "on one node, which other programs may use; see `ray status`"
            )
        self._until(
            lambda: all(r.ready for r in self._replicas) or self._failed() is not None,
            READY_S - (time.monotonic() - began),
        )
        self._check_failed()
        if late := [r.slot for r in self._replicas if not r.ready]:
            raise HeadraceError(f"replica {late[0]} is not ready after {READY_S:g} s; see its node's load")

    def serve(self) -> None:
        """Serve and update until _Ended is raised."""
        while True:
            self._turn()
            if self._signals.update or self._next_update is not None:
                self._updating, self._client, self._next_update = True, self._next_update, None
                self._signals.update = False
                error: str | None = "the fleet ended in the middle of the update"
                try:
                    error = self._update(None if self._client is None else self._client.update)
                finally:
                    if error is not None:
                        self._report(f"update: {error}")
                    if self._client is not None:
                        self._client.end(error)
                    self._updating, self._client = False, None

    def described(self) -> list[dict[str, Any]]:
        """Return the number, node, process id and ports of each ready replica."""
        entries = []
        for replica in sorted(self._replicas, key=lambda r: r.slot):
            if replica.state is not None and replica.ready:
                state = replica.state
                entries.append({"replica": replica.slot, "node": state.host, "pid": state.pid, **state.ports})
        return entries

    def _failed(self) -> Replica | None:
        return next((replica for replica in self._replicas if replica.failed is not None), None)

    def _check_failed(self) -> None:
        """Raise UsageError if a replica's command line is wrong, and HeadraceError if a replica failed otherwise."""
        if (replica := self._failed()) is not None:
            refused = replica.state is not None and replica.state.phase is Phase.REFUSED
            raise (UsageError if refused else HeadraceError)(replica.failed)

    def stop(self) -> None:
        """Stop all replicas at the same time, and kill those that do not end. They get no more requests by now."""
        calls = [replica.actor.stop.remote() for replica in self._replicas if replica.state is not None]
        if calls:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.wait(calls, num_returns=len(calls), timeout=self._options.drain_s + END_S)
        for replica in self._replicas:
            ray.kill(replica.actor)

    # ---- one turn ----

    def _turn(self) -> None:
        """Take in the events since the last turn, waiting at most TURN_S. Raises _Ended after the signal to end."""
        now = time.monotonic()
        for replica in self._replicas:
            if replica.call is None and now >= replica.ask_at:
                state = replica.state
                run, number = ("", 0) if state is None else (state.run, state.number)
                replica.call = replica.actor.watch.remote(run, number)
        calls = {replica.call: replica for replica in self._replicas if replica.call is not None}
        if calls:
            done, _ = ray.wait(list(calls), timeout=TURN_S)
        else:
            done = []
            time.sleep(TURN_S)
        for call in done:
            replica = calls[call]
            replica.call = None
            try:
                self._take(replica, ray.get(call))
            except ray.exceptions.RayError as error:
                self._lost(replica, error)
        self._statistics.replicas(
            {(r.state.run, r.state.number): r.state.ports["http"] for r in self._replicas if r.state and r.ready}
        )
        self._proxy.maintain()
        if (request := self._control.next_request()) is not None:
            self._accept(request)
        if self._signals.end:
            raise _Ended

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Turn until the condition is true. Returns False if it is not true after `timeout_s`."""
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                return False
            self._turn()
        return True

    def _take(self, replica: Replica, state: State) -> None:
        former, replica.state, replica.lost = replica.state, state, 0
        if former is not None and (former.run, former.number) == (state.run, state.number):
            return
        where = f"replica {replica.slot} on {state.host}"
        if former is None or former.run != state.run:
            self._proxy.remove(replica.slot)
        match state.phase:
            case Phase.READY:
                self._proxy.remove(replica.slot)  # its former server, in case this process did not see its end
                if not replica.retired:
                    self._proxy.put(replica.slot, Place(state.ports["http"], state.ports["grpc"]))
                self._tell(
                    f"{where}: ready, HTTP {state.ports['http']}, gRPC {state.ports['grpc']}, "
                    f"metrics {state.ports['metrics']}"
                )
            case Phase.STARTING:
                self._tell(f"{where}: starting")
            case Phase.ENDED:
                self._proxy.remove(replica.slot)
                self._tell(f"{where}: ended, and is started again: {state.last_line}")
            case Phase.REFUSED:
                self._proxy.remove(replica.slot)
                self._tell(f"{where}: {state.last_line}")
            case Phase.STOPPED:
                self._proxy.remove(replica.slot)

    def _lost(self, replica: Replica, error: Exception) -> None:
        """Handle the loss of a supervisor's process or node.

        Ray starts the supervisor again where there is room. If Ray has given up, or the supervisor raises an error,
        this method creates another one."""
        if replica.state is not None:
            self._tell(f"replica {replica.slot} on {replica.state.host}: lost with its node or its supervisor")
        self._proxy.remove(replica.slot)
        replica.state = None
        replica.why = str(error).strip().splitlines()[-1].strip()
        replica.ask_at = time.monotonic() + doubled_s(LOST_S, replica.lost, MAX_LOST_S)
        replica.lost += 1
        gone = isinstance(error, ray.exceptions.ActorDiedError)
        if not replica.retired and (gone or not isinstance(error, ray.exceptions.RayActorError)):
            if replica.failed is not None:
                self._tell(replica.failed)
            ray.kill(replica.actor)
            replica.actor = self._placed(replica.arguments, replica.folder)

    # ---- updates ----

    def _accept(self, request: UpdateRequest) -> None:
        """Accept a request for an update, or end it with an error."""
        changed = [name for name, value in request.update.front.items() if self._options.front.get(name) != value]
        if self._next_update is not None or self._updating:
            request.end("another update is in progress; wait for its end")
        elif changed:
            request.end(f"{changed[0]} differs from the fleet's, and an update cannot change it; give the same value")
        else:
            self._next_update = request

    def _update(self, update: Update | None) -> str | None:
        """Replace all replicas one after another. A new replica starts before the old one stops if a node has room for
        both.

        A replica without a node is dropped first, and added again with the new arguments at the end. Returns the reason
        if the update ended early; the remaining replicas are then unchanged."""
        arguments = self._arguments
        if update is not None and update.arguments is not None:
            arguments = (update.arguments, update.folder)
        self._until(lambda: all(r.ready or r.failed for r in self._replicas), PLACE_S)
        unplaced = [replica for replica in self._replicas if replica.state is None]
        for replica in unplaced:
            self._drop(replica)
        olds = sorted(self._replicas, key=lambda r: (r.ready, r.slot))
        error = None if olds else "no replica has a node; see `ray status`"
        done = 0
        for old in olds:
            if (error := self._replace(old, *arguments)) is not None:
                break
            done += 1
        if error is None:
            self._arguments = arguments
        for _ in unplaced:
            self._add(*self._arguments)
        if error is not None:
            return f"{error}; {done} of {len(olds)} replicas are new, the others are unchanged" if done else error
        self._tell(f"update: done, but {len(unplaced)} replicas have no node" if unplaced else "update: done")
        return None

    def _replace(self, old: Replica, arguments: Sequence[str], folder: str) -> str | None:
        """Replace one replica. Returns the reason if the new one fails.

        After a failure a replica with the old arguments serves, or is being started."""
        if not old.ready:  # it serves no request
            self._retire(old)
        new = self._add(arguments, folder)
        if not self._until(lambda: new.state is not None or new.failed is not None, ROOM_S) and not old.retired:
            if not any(other.ready for other in self._replicas if other is not old):
                self._drop(new)
                return (
                    f"no node has room for another replica within {ROOM_S:g} s, and no other replica serves; make room "
                    "for one, or start nodes"
                )
            self._tell(f"no node has room for another replica, so replica {old.slot} ends first")
            self._retire(old)
        if self._until(lambda: new.state is not None or new.failed is not None, PLACE_S):
            self._until(lambda: new.ready or new.failed is not None, READY_S)
        if new.ready:
            self._retire(old)
            return None
        error = new.failed or f"replica {new.slot} is not ready in time; see `ray status` and the load of its node"
        self._drop(new)
        if old.retired:
            self._add(old.arguments, old.folder)
        return error

    def _add(self, arguments: Sequence[str], folder: str) -> Replica:
        used = {replica.slot for replica in self._replicas}
        slot = next(slot for slot in range(len(used) + 1) if slot not in used)
        replica = Replica(slot, arguments, folder, self._placed(arguments, folder))
        self._replicas.append(replica)
        return replica

    def _placed(self, arguments: Sequence[str], folder: str) -> Any:
        return self._supervisor.options(
            **actor_options(self._options.resources),
            scheduling_strategy="SPREAD",
            max_restarts=-1,
            max_concurrency=4,
        ).remote(arguments, folder, self._options.drain_s)

    def _retire(self, replica: Replica) -> None:
        """Stop a replica after its requests in flight. Requests that remain after drain_s go to other replicas."""
        if replica.retired:
            return
        replica.retired = True
        self._proxy.drain(replica.slot)
        self._until(lambda: self._proxy.in_flight(replica.slot) == 0, self._options.drain_s)
        self._proxy.remove(replica.slot)
        query = self._statistics.query()  # so that the replica's last counts are not lost
        self._until(query.done, QUERIED_S)
        if replica.state is not None:
            stopping = replica.actor.stop.remote()
            self._until(lambda: bool(ray.wait([stopping], timeout=0)[0]), self._options.drain_s + END_S)
        self._tell(f"replica {replica.slot}: stopped")
        self._drop(replica)

    def _drop(self, replica: Replica) -> None:
        self._proxy.remove(replica.slot)
        self._replicas.remove(replica)
        ray.kill(replica.actor)

    def _tell(self, text: str) -> None:
        self._report(text)
        if self._client is not None:
            self._client.tell(text)


def _listening(options: FleetOptions) -> dict[str, socket.socket]:
    """Open the ports and return them by name. Raises UsageError."""
    ports: dict[str, socket.socket] = {}
    for name in haproxy.NAMES:
        address: Address = getattr(options, name)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            ports[name] = socket.create_server((address.host, address.port), family=family, backlog=1024)
        except OSError as error:
            for port in ports.values():
                port.close()
            raise UsageError(f"--{name} {address}: {error.strerror}; give a free address of this machine") from None
    return ports


def _address(port: socket.socket) -> str:
    host, number, *_ = port.getsockname()
    return str(Address(host, number))


def _proxy_settings(options: FleetOptions, folder: Path, statistics: Statistics) -> ProxySettings:
    pair = None
    if options.certificate is not None and options.key is not None:
        pair = folder / "front.pem"
        with open(os.open(pair, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(options.certificate.read_bytes() + b"\n" + options.key.read_bytes())
    return ProxySettings(
        replicas=options.replicas + 1,
        again=options.again,
        client_s=options.limits.client_s,
        head=options.limits.head,
        connections=options.limits.connections,
        drain_s=options.drain_s,
        statistics=statistics.sockets,
        token=options.token,
        pair=pair,
    )


@contextlib.contextmanager
def _signals(end_now: Callable[[int], None]) -> Iterator[_Signals]:
    """Handle the signals of this process inside this context. Python's own time limit after Ctrl-C is suspended
    meanwhile."""
    received = _Signals()

    def on_end(number: int, _: FrameType | None) -> None:
        if received.end:
            end_now(128 + number)
        received.end = True

    def on_update(number: int, _: FrameType | None) -> None:
        received.update = True

    wakeup = signal.set_wakeup_fd(-1)
    before = {
        number: signal.signal(number, handler)
        for number, handler in ((signal.SIGTERM, on_end), (signal.SIGINT, on_end), (signal.SIGHUP, on_update))
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)

"""`headrace serve --ray`: replicas on the nodes of a Ray cluster behind HAProxy, from their start to their end.

One loop looks after all. Every replica's supervisor has a call of ours that is answered when its state changes; what
came is taken in `_turn`, and whatever waits does so by turning, so that nothing stands still meanwhile."""

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
from headrace.host.fleet.control import Control, RequestOptions, Update
from headrace.host.fleet.haproxy import Place, Proxy, ProxySettings
from headrace.host.fleet.resources import actor_options, check_total
from headrace.host.fleet.statistics import LOOKED_S, Statistics
from headrace.host.fleet.supervisor import END_S, Phase, State, Supervisor, doubled_s
from headrace.host.server.protocol.limits import Limits
from headrace.host.server.serve import Address
from headrace.host.server.transport.http.browsers import BrowserGuard
from headrace.sim.sweeps.cluster import cluster, ray  # which says what is missing where there is no Ray

TURN_S: Final = 0.2
PLACE_S: Final = 60.0  # for a node to have room for a replica, and to load its supervisor;
ROOM_S: Final = 15.0  # at an update, before one is ended to make room
READY_S: Final = 900.0  # for a replica to be ready: profiles may be measured before
STARTS: Final = 3  # lives of a server, or of its supervisor, that may end before it was ever ready: it never will be
LOST_S: Final = 0.5  # before a supervisor that is not there is asked again; twice that each time in a row,
MAX_LOST_S: Final = 30.0  # up to this

OnReady = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """`arguments` are those of every replica's `headrace serve` but its ports, run in `folder`; `front` are the
    settings among them that the front has, too, which an update cannot change. `again` is the largest request that is
    sent again (bytes). `guard` keeps pages of other sites from the statistics. `certificate` and `key` are PEM files,
    both or none."""

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
    """`slot` is its number, `call` what its supervisor has not answered yet."""

    slot: int
    arguments: Sequence[str]
    folder: str
    actor: Any
    call: Any = None
    state: State | None = None  # None until it has a place, and while it is lost
    ask_at: float = 0.0
    lost: int = 0  # how often in a row its supervisor was not there,
    why: str = ""  # and what Ray said of it
    retired: bool = False

    @property
    def ready(self) -> bool:
        return self.state is not None and self.state.phase is Phase.READY

    @property
    def failed(self) -> str | None:
        """Why it will never be ready."""
        state = self.state
        if state is None:
            if self.lost < STARTS:
                return None
            return (
                f"replica {self.slot} does not come to be: {self.why}; see whether its node has the same Headrace, "
                "in the same place"
            )
        if state.phase is not Phase.REFUSED and state.ended < STARTS:
            return None
        return f"replica {self.slot} on {state.host} ends before it is ready: {state.said}"


@dataclass(slots=True)
class _Signals:
    """This records which signals the process has received."""

    end: bool = False
    update: bool = False


class _Ended(Exception):
    """The end was asked for in the middle of something."""


def serve_fleet(
    options: FleetOptions, tell: Callable[[str], None], on_ready: OnReady, end_now: Callable[[int], None]
) -> bool:
    """Serve until SIGTERM or SIGINT, then answer what is here; SIGHUP, or `Control`, starts the replicas anew, one
    after the other. `on_ready` is told the ports and replicas once all are ready; `end_now` ends the process at a
    second signal. Returns whether all that was let in has been answered. Raises UsageError and HeadraceError."""
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
    """The replicas and what becomes of them."""

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
        self._say = tell
        self._arguments: tuple[Sequence[str], str] = (options.arguments, options.folder)
        self._supervisor = ray.remote(Supervisor)
        self._replicas: list[Replica] = []  # which are to serve, and one that is to be added or has retired
        self._asked: RequestOptions | None = None
        self._updating = False
        self._told: RequestOptions | None = None  # who asked for the update that is under way

    def start(self) -> None:
        """Returns when all replicas are ready. Raises UsageError and HeadraceError if one does not come to be."""
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
                "of one node, which others may be using: see `ray status`"
            )
        self._until(
            lambda: all(r.ready for r in self._replicas) or self._failed() is not None,
            READY_S - (time.monotonic() - began),
        )
        self._check_failed()
        if late := [r.slot for r in self._replicas if not r.ready]:
            raise HeadraceError(f"replica {late[0]} is not ready after {READY_S:g} s; see its node's load")

    def serve(self) -> None:
        """Until the end is asked for, which is raised."""
        while True:
            self._turn()
            if self._signals.update or self._asked is not None:
                self._updating, self._told, self._asked = True, self._asked, None
                self._signals.update = False
                error: str | None = "the fleet ended in the middle of the update"
                try:
                    error = self._update(None if self._told is None else self._told.update)
                finally:
                    if error is not None:
                        self._say(f"update: {error}")
                    if self._told is not None:
                        self._told.end(error)
                    self._updating, self._told = False, None

    def described(self) -> list[dict[str, Any]]:
        """Return the number, node, process id and ports of each replica that is ready."""
        found = []
        for replica in sorted(self._replicas, key=lambda r: r.slot):
            if replica.state is not None and replica.ready:
                state = replica.state
                found.append({"replica": replica.slot, "node": state.host, "pid": state.pid, **state.ports})
        return found

    def _failed(self) -> Replica | None:
        return next((replica for replica in self._replicas if replica.failed is not None), None)

    def _check_failed(self) -> None:
        """Raises UsageError if a replica's command line cannot be served, and HeadraceError if one fails else."""
        if (replica := self._failed()) is not None:
            refused = replica.state is not None and replica.state.phase is Phase.REFUSED
            raise (UsageError if refused else HeadraceError)(replica.failed)

    def stop(self) -> None:
        """All at once; those that do not end by themselves are killed. Nothing goes to them any more."""
        calls = [replica.actor.stop.remote() for replica in self._replicas if replica.state is not None]
        if calls:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.wait(calls, num_returns=len(calls), timeout=self._options.drain_s + END_S)
        for replica in self._replicas:
            ray.kill(replica.actor)

    # ---- one turn ----

    def _turn(self) -> None:
        """Take in what has happened since the last turn, and wait TURN_S at most. Raises _Ended when the end is asked
        for."""
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
        self._proxy.look()
        if (asked := self._control.asked()) is not None:
            self._answer(asked)
        if self._signals.end:
            raise _Ended

    def _until(self, condition: Callable[[], bool], bound_s: float) -> bool:
        """Whether it came true in time."""
        end = time.monotonic() + bound_s
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
            self._proxy.out(replica.slot)
        match state.phase:
            case Phase.READY:
                self._proxy.out(replica.slot)  # where it was before, if its end was not seen
                if not replica.retired:
                    self._proxy.put(replica.slot, Place(state.ports["http"], state.ports["grpc"]))
                self._tell(
                    f"{where}: ready, HTTP {state.ports['http']}, gRPC {state.ports['grpc']}, "
                    f"metrics {state.ports['metrics']}"
                )
            case Phase.STARTING:
                self._tell(f"{where}: starting")
            case Phase.ENDED:
                self._proxy.out(replica.slot)
                self._tell(f"{where}: ended, and is started again: {state.said}")
            case Phase.REFUSED:
                self._proxy.out(replica.slot)
                self._tell(f"{where}: {state.said}")
            case Phase.STOPPED:
                self._proxy.out(replica.slot)

    def _lost(self, replica: Replica, error: Exception) -> None:
        """Its supervisor's process or node. Ray starts it again, where there is room; one that Ray has given up, or
        that answers with an error, is asked for anew."""
        if replica.state is not None:
            self._tell(f"replica {replica.slot} on {replica.state.host}: lost with its node or its supervisor")
        self._proxy.out(replica.slot)
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

    def _answer(self, asked: RequestOptions) -> None:
        changed = [name for name, value in asked.update.front.items() if self._options.front.get(name) != value]
        if self._asked is not None or self._updating:
            asked.end("an update is under way; wait for its end")
        elif changed:
            asked.end(f"{changed[0]} is not as the fleet has it, and an update cannot change that: give the same")
        else:
            self._asked = asked

    def _update(self, update: Update | None) -> str | None:
        """Starts all replicas anew, one after the other: the new one first, where there is room beside the old one.
        What had no place before has none to wait for, and comes with the new arguments when there is one. Returns why
        the update ended early, with the others as they were."""
        arguments = self._arguments
        if update is not None and update.arguments is not None:
            arguments = (update.arguments, update.folder)
        self._until(lambda: all(r.ready or r.failed for r in self._replicas), PLACE_S)
        placeless = [replica for replica in self._replicas if replica.state is None]
        for replica in placeless:
            self._drop(replica)
        olds = sorted(self._replicas, key=lambda r: (r.ready, r.slot))
        error = None if olds else "no replica has a place: see `ray status`"
        done = 0
        for old in olds:
            if (error := self._replace(old, *arguments)) is not None:
                break
            done += 1
        if error is None:
            self._arguments = arguments
        for _ in placeless:
            self._add(*self._arguments)
        if error is not None:
            return f"{error}; {done} of {len(olds)} replicas are new, the others as they were" if done else error
        self._tell(f"update: done, but {len(placeless)} have no place" if placeless else "update: done")
        return None

    def _replace(self, old: Replica, arguments: Sequence[str], folder: str) -> str | None:
        """Returns why the new one does not come to be; then one as the old one was serves, or is about to."""
        if not old.ready:  # nobody is served by it
            self._retire(old)
        new = self._add(arguments, folder)
        if not self._until(lambda: new.state is not None or new.failed is not None, ROOM_S) and not old.retired:
            if not any(other.ready for other in self._replicas if other is not old):
                self._drop(new)
                return f"no node has room for another replica within {ROOM_S:g} s, and without the one nobody serves"
            self._tell(f"no node has room for another replica: replica {old.slot} ends first")
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
        """Ends it behind its requests in flight; what is still there after drain_s goes to others."""
        if replica.retired:
            return
        replica.retired = True
        self._proxy.drain(replica.slot)
        self._until(lambda: self._proxy.in_flight(replica.slot) == 0, self._options.drain_s)
        self._proxy.out(replica.slot)
        counted = self._statistics.look()
        self._until(counted.done, LOOKED_S)
        if replica.state is not None:
            stopping = replica.actor.stop.remote()
            self._until(lambda: bool(ray.wait([stopping], timeout=0)[0]), self._options.drain_s + END_S)
        self._tell(f"replica {replica.slot}: stopped")
        self._drop(replica)

    def _drop(self, replica: Replica) -> None:
        self._proxy.out(replica.slot)
        self._replicas.remove(replica)
        ray.kill(replica.actor)

    def _tell(self, text: str) -> None:
        self._say(text)
        if self._told is not None:
            self._told.tell(text)


def _listening(options: FleetOptions) -> dict[str, socket.socket]:
    """The ports by name, open from now on. Raises UsageError."""
    found: dict[str, socket.socket] = {}
    for name in haproxy.NAMES:
        address: Address = getattr(options, name)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            found[name] = socket.create_server((address.host, address.port), family=family, backlog=1024)
        except OSError as error:
            for port in found.values():
                port.close()
            raise UsageError(f"--{name} {address}: {error.strerror}; give an address that is free") from None
    return found


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
    """Handlers of this process's, while it serves; Python's own bound on Ctrl-C waits meanwhile."""
    found = _Signals()

    def end(number: int, _: FrameType | None) -> None:
        if found.end:
            end_now(128 + number)
        found.end = True

    def update(number: int, _: FrameType | None) -> None:
        found.update = True

    wakeup = signal.set_wakeup_fd(-1)
    before = {
        number: signal.signal(number, handler)
        for number, handler in ((signal.SIGTERM, end), (signal.SIGINT, end), (signal.SIGHUP, update))
    }
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)

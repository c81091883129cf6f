"""HAProxy in front of the replicas: its configuration, its process, and what it is told while it runs.

The configuration has twice as many servers as there may be replicas. A replica that comes gets the one that has been
free for longest, and what is still in flight at the one before it there is taken from it. It is written whole whenever
a replica comes or goes, so that HAProxy can be started with it at any time; the one that runs is told of the change
over its socket. A reload would make a new process, whose predecessor closes idle connections, on which a client may
just be sending, or keeps them, and with them servers that are gone.

The ports are opened here and inherited, so that their numbers are known, and connections wait while HAProxy starts
anew.

A request that fits into a buffer is sent again when its replica is lost, for an inference may run twice: connections
that fail or end without an answer, and 503, which says that another replica may have room. Where all are full, that is
RETRIES times more, however many replicas there are. Answers of 500 and 504 are answers. A stream of gRPC is never
whole, and not sent again. Where there is a token, what comes without it is not kept.

What is in flight at a server that is down, as one that hangs, is taken from it (`shutdown sessions`) and sent again,
but not at once, as HAProxy's own on-marked-down would: a request that is just being connected would be lost by that.
"""

import contextlib
import csv
import logging
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.batching import HeadraceError, UsageError
from headrace.host.fleet.die_with_parent import bound
from headrace.host.server.protocol.limits import BYTES_PER_S, IDLE_S
from headrace.host.server.transport.grpc.endpoints import SERVICE

START_S: Final = 10.0  # for HAProxy to answer on its socket
ASK_S: Final = 2.0  # for an answer there
AUDIO_S: Final = 5.0  # if it ends sooner than that, it would again
STOP_S: Final = 5.0
# A node's replicas are lost together, seven on the slices of a GPU, and each costs a try before it is known to be down.
RETRIES: Final = 9
CONNECT_S: Final = 1
DOWN_S: Final = CONNECT_S + 2  # for connections being made to a server when it went down; HAProxy counts whole seconds
LOOK_S: Final = 1.0  # between looks for such servers
STALE: Final = 3  # times that HAProxy does not take what it is told, before it is started anew
ANSWER_S: Final = 600  # the longest that an answer may take; a replica that hangs is found by its checks
STREAM_S: Final = 3600  # the longest that a stream of gRPC may be without an answer, which nobody may want
ROOM: Final = 64 << 10  # of a buffer, for a request's head and what HAProxy writes to it
LOST: Final = {
    502: "the replica was lost; try again",
    503: "no replica is ready; try again",
    504: "the replica did not answer in time",
}
NAMES: Final = ("http", "grpc", "metrics")  # of the ports
PAGE: Final = "{ path / /status } or { path_beg /photo/ }"
STATISTICS: Final = "^/v2/models/([^/]+/(versions/[^/]+/)?)?stats/?$"
TRANSPORT_OF: Final = {"http": "http", "page": "http", "grpc": "grpc"}  # of the backends that have the replicas

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """`replicas` is how many there may be at a time, `again` the largest request (bytes) that is sent again;
    `client_s`, `head` and `connections` are as in a server's limits, `drain_s` bounds the end. `statistics` are the
    sockets of `Statistics`, by transport. `token` guards these and the metrics; of all else the replicas ask for it.
    With `pair`, a PEM file of certificates and key, all is TLS."""

    replicas: int
    again: int
    client_s: float
    head: int
    connections: int
    drain_s: float
    statistics: Mapping[str, Path]
    token: str | None = None
    pair: Path | None = None

    @property
    def servers(self) -> int:
        return 2 * self.replicas


@dataclass(frozen=True, slots=True)
class Place:
    """Where a replica listens: HOST:PORT each."""

    http: str
    grpc: str


NOWHERE: Final = Place("127.0.0.1:1", "127.0.0.1:1")  # of a server that no replica has


def configuration(settings: ProxySettings, fds: Mapping[str, int], control: Path, places: Mapping[int, Place]) -> str:
    """HAProxy's, with the inherited ports `fds` by name and its socket `control`."""
    pair = settings.pair
    shown = "" if pair is None else f" ssl crt {_quoted(str(pair))}"
    # The replicas show the front's certificate, which is not made out to their addresses, and whose authority the front
    # need not know; their addresses come from the cluster.
    secure = "" if pair is None else " ssl verify none"
    buffer = settings.again + ROOM + settings.head
    body_s = round(settings.client_s + settings.again / BYTES_PER_S)
    token = settings.token
    known = None if token is None else f"{{ req.fhdr(authorization) -m str {_quoted(f'Bearer {token}')} }}"
    streams = f"{{ path /{SERVICE}/ModelStreamInfer }}"
    passes = f" {known}" if known else ""  # who has no token is told so by a replica
    lines = [
        "# Written by headrace serve --ray whenever a replica comes or goes.",
        "global",
        f"    stats socket {_quoted(str(control))} mode 600 level admin",
        f"    tune.bufsize {buffer}",
        f"    tune.h2.initial-window-size {buffer}",
        "defaults",
        "    mode http",
        "    balance leastconn",
        f"    timeout connect {CONNECT_S}s",
        "    timeout check 3s",
        f"    timeout client {IDLE_S:g}s",
        f"    timeout http-keep-alive {IDLE_S:g}s",
        f"    timeout http-request {max(1, round(settings.client_s))}s",
        f"    timeout server {ANSWER_S}s",
        f"    retries {RETRIES}",
        "    retry-on conn-failure empty-response junk-response 503",
        "    option redispatch 1",
        "    http-reuse always",
        "frontend http",
        *(
            f'    http-error status {status} content-type application/json string \'{{"error":"{words}"}}\' '
            "hdr retry-after 1"
            for status, words in LOST.items()
        ),
        f"    bind fd@{fds['http']}{shown}{' alpn http/1.1' if pair else ''}",
        f"    maxconn {settings.connections * settings.replicas}",
        *([f"    http-request disable-l7-retry unless {known}"] if known else []),
        f"    http-request wait-for-body time {body_s}s{f' if {known}' if known else ''}",
        f"    use_backend statistics-http if {{ path_reg {_quoted(STATISTICS)} }} {{ method GET }}{passes}",
        f"    use_backend page if {PAGE}",
        "    default_backend http",
        "frontend grpc",
        f"    bind fd@{fds['grpc']}{f'{shown} alpn h2' if pair else ''} proto h2",
        *(
            f"    http-error status {status} hdr grpc-status 14 hdr grpc-message '{words}'"
            for status, words in LOST.items()
        ),
        f"    maxconn {settings.connections * settings.replicas}",
        *([f"    http-request disable-l7-retry unless {known}"] if known else []),
        f"    http-request wait-for-body time {body_s}s if !{streams}{passes}",
        f"    use_backend statistics-grpc if {{ path /{SERVICE}/ModelStatistics }}{passes}",
        "    default_backend grpc",
        "frontend metrics",
        f"    bind fd@{fds['metrics']}{f'{shown} alpn http/1.1' if pair else ''}",
    ]
    if known is not None:
        lines.append(f"    http-request return status 401 unless {known}")
    lines += [
        "    http-request use-service prometheus-exporter if { path /metrics }",
        "    http-request return status 404",
    ]
    # Each of the two sees for itself that a server is lost, by the first connection that fails.
    checked = (
        "check inter 1s downinter 500ms fall 3 rise 1 observe layer4 error-limit 1 on-error mark-down"
        f"{' check-ssl check-alpn http/1.1' if pair else ''}{secure}"
    )
    asked = [
        "    option httpchk",
        "    http-check send meth GET uri /v2/health/ready ver HTTP/1.1 hdr host localhost",
        "    http-check expect status 200",
    ]
    h1, h2 = (" alpn http/1.1", " alpn h2") if pair else ("", "")
    lines += ["backend http", *asked, f"    default-server {checked}{h1}"]
    lines += _servers(settings, places, "http")
    lines += ["backend grpc", *asked, f"    default-server {checked} proto h2{h2}"]
    # A connection that several streams use may break while it takes a request in: HAProxy 2.6 goes on elsewhere with
    # what is left of that, and waits for an answer. So each has one of its own (scripts/soak_front.py).
    lines += ["    http-reuse never", f"    http-request set-timeout server {STREAM_S}s if {streams}"]
    lines += _servers(settings, places, "grpc")
    # The page is one replica's: who looks at it sees the same one, while that serves.
    lines += ["backend page", "    balance source", "    hash-type consistent"]
    lines += [f"    default-server{secure}{h1}"] if pair else []
    lines += _servers(settings, places, "page")
    for name, path in settings.statistics.items():
        lines += [
            f"backend statistics-{name}",
            "    retries 0",
            f"    server fleet {_quoted(f'unix@{path}')}{' proto h2' if name == 'grpc' else ''}",
        ]
    return "\n".join(lines) + "\n"


def _servers(settings: ProxySettings, places: Mapping[int, Place], backend: str) -> Iterator[str]:
    for number in range(settings.servers):
        place = places.get(number, NOWHERE)
        options = [] if number in places or backend == "page" else ["disabled"]
        if backend == "page":
            options.append(f"track http/s{number}")
        if backend == "grpc":  # asked over HTTP, as the others
            options += ["port", _host_port(place.http)[1], "check-proto h1"]
        yield " ".join(["    server", f"s{number}", getattr(place, TRANSPORT_OF[backend]), *options])


def _host_port(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def _quoted(text: str) -> str:
    """As one word of a configuration."""
    return "'" + text.replace("'", "'\\''") + "'"


class Proxy:
    """HAProxy's process and files, which lie in `folder`, one of its own. Close it. Raises UsageError where there is
    none."""

    def __init__(self, settings: ProxySettings, listening: Mapping[str, socket.socket], folder: Path) -> None:
        program = shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
        if program is None:
            raise UsageError("--ray needs HAProxy in front of the replicas: apt-get install haproxy")
        self._program = program
        self._settings = settings
        self._listening = dict(listening)
        self._file = folder / "haproxy.cfg"
        self._control = folder / "haproxy.sock"
        self._places: dict[int, Place] = {}  # of the servers that requests may go to
        self._server_of: dict[int, int] = {}  # by replica
        self._free = deque(range(settings.servers))  # in the order in which they became so
        self._looked = 0.0
        self._stale = 0  # how often in a row it has not taken what it was told
        self._process: subprocess.Popen[str] | None = None
        self._began = 0.0
        self._said: deque[str] = deque(maxlen=20)

    def start(self) -> None:
        """Raises HeadraceError with what HAProxy says if it does not run."""
        self._write()
        self._stale = 0
        self._began = time.monotonic()
        self._process = process = subprocess.Popen(
            bound([self._program, "-db", "-f", str(self._file)]),
            text=True,
            errors="replace",
            pass_fds=[port.fileno() for port in self._listening.values()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        while process.poll() is None:
            with contextlib.suppress(OSError):
                self._ask("show version")
                return
            if time.monotonic() > self._began + START_S:
                process.kill()
            time.sleep(0.02)
        raise HeadraceError(f"HAProxy does not run: {self._reason()}")

    def look(self) -> None:
        """Starts it again if it has ended, and tells it again what it has not taken; where it takes nothing, it is
        started anew with the file, which has it all. Raises HeadraceError if it ended as soon as it had begun."""
        if self._process is None:
            return
        if (status := self._process.poll()) is not None:
            if time.monotonic() < self._began + AUDIO_S:
                raise HeadraceError(f"HAProxy ended with status {status}: {self._reason()}")
            _log.warning("HAProxy ended with status %d and is started again", status)
            self.start()
        elif self._stale >= STALE:
            _log.warning("HAProxy does not take what it is told, and is started anew")
            self._process.kill()
            self._process.wait()
            self.start()
        elif self._stale:
            for number in range(self._settings.servers):
                if not self._tell_of(number):
                    break
            else:
                self._stale = 0
        elif time.monotonic() > self._looked + LOOK_S:
            self._looked = time.monotonic()
            self._take_from_those_down()

    def _take_from_those_down(self) -> None:
        """What is in flight at servers that have been down, or out, for long enough is sent to others."""
        for row in self._servers() or ():
            down = row["status"].startswith(("DOWN", "MAINT")) and int(row["lastchg"] or 0) >= DOWN_S
            if down and row["scur"] != "0":
                self._tell(f"shutdown sessions server {row['pxname']}/{row['svname']}")

    def put(self, replica: int, place: Place) -> None:
        """Requests may go to this replica."""
        self.out(replica)
        self._server_of[replica] = number = self._free.popleft()
        self._places[number] = place
        self._write()
        if self._tell(*(f"shutdown sessions server {backend}/s{number}" for backend in TRANSPORT_OF)):
            self._tell_of(number)  # else `look` does

    def drain(self, replica: int) -> None:
        """No new requests go to this replica. If HAProxy is started anew meanwhile, nothing is in flight there."""
        if (number := self._server_of.get(replica)) is not None and self._places.pop(number, None) is not None:
            self._write()
            self._tell(*_set(number, "state drain"))

    def out(self, replica: int) -> None:
        """What is still in flight there is sent to another, as far as it can be, some seconds later."""
        if (number := self._server_of.pop(replica, None)) is not None:
            self._free.append(number)
            if self._places.pop(number, None) is not None:
                self._write()
            self._tell_of(number)

    def _tell_of(self, number: int) -> bool:
        """How this server is to be; whether it was taken."""
        place = self._places.get(number)
        if place is None:
            return self._tell(*_set(number, "state maint"))
        where = []
        for backend, transport in TRANSPORT_OF.items():
            host, port = _host_port(getattr(place, transport))
            where.append(f"set server {backend}/s{number} addr {host} port {port}")
        check = f"set server grpc/s{number} check-port {_host_port(place.http)[1]}"
        return self._tell(*where, check, *_set(number, "state ready"), *_set(number, "health up"))

    def in_flight(self, replica: int) -> int | None:
        """Requests and streams at this replica; None if HAProxy does not say."""
        if (number := self._server_of.get(replica)) is None:
            return 0
        if (found := self._servers()) is None:
            return None
        return sum(int(row["scur"]) for row in found if row["svname"] == f"s{number}")

    def _servers(self) -> list[dict[str, str]] | None:
        """Of each backend what HAProxy's statistics say; None if it does not say."""
        try:
            return list(csv.DictReader(self._ask("show stat -1 4 -1").lstrip("# ").splitlines()))
        except OSError:
            return None

    def stop(self) -> bool:
        """Takes no more connections and ends when all requests are answered; whether they were, within drain_s."""
        for port in self._listening.values():
            port.close()
        process, self._process = self._process, None
        if process is None:
            return True
        process.send_signal(signal.SIGUSR1)
        drained = _ended(process, self._settings.drain_s)
        process.terminate()
        if not _ended(process, STOP_S):
            process.kill()
            process.wait()
        return drained

    def _write(self) -> None:
        fds = {name: port.fileno() for name, port in self._listening.items()}
        new = self._file.with_suffix(".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # it may hold the token
            file.write(configuration(self._settings, fds, self._control, self._places))
        new.rename(self._file)

    def _tell(self, *commands: str) -> bool:
        """Whether all were taken; else `look` tells HAProxy again."""
        try:
            for command in commands:
                if (answer := self._ask(command).strip()) and " addr " not in command:  # which tells of each change
                    _log.warning("HAProxy: %s: %s", command, answer)
        except OSError as error:
            self._stale += 1
            _log.warning("HAProxy does not take %r: %s", command, error)
            return False
        return True

    def _ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(ASK_S)
            asking.connect(str(self._control))
            asking.sendall(command.encode() + b"\n")
            found = b""
            while piece := asking.recv(1 << 16):
                found += piece
            return found.decode()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self._said.append(line.strip())
                _log.debug("%s", line.strip())

    def _reason(self) -> str:
        time.sleep(0.1)  # until it is read
        alerts = [line for line in self._said if "ALERT" in line] or list(self._said)
        return alerts[0] if alerts else "it said nothing"


def _set(number: int, what: str) -> list[str]:
    """Of a server, in the backends that ask for themselves how it is."""
    return [f"set server {backend}/s{number} {what}" for backend in ("http", "grpc")]


def _ended(process: "subprocess.Popen[str]", bound_s: float) -> bool:
    try:
        process.wait(bound_s)
    except subprocess.TimeoutExpired:
        return False
    return True

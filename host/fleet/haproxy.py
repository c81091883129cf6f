"""HAProxy in front of the replicas: its configuration, its process, and the commands that it gets while it runs.

The configuration has twice as many servers as there may be replicas. A new replica gets the server that has been free
longest. Requests still in flight at the server's former replica are then taken away from it.

The configuration file is written whenever a replica comes or goes, so HAProxy can start with it at any time. The
running HAProxy learns of the change over its socket. A reload would instead start a new process. The old process would
either close idle connections, on which a client may just be sending, or keep them, together with servers that are gone.

This process opens the ports and HAProxy inherits them. So their numbers are known, and connections wait while HAProxy
restarts.

HAProxy sends a request that fits into a buffer again when its replica is lost, because an inference may run twice. It
does so for connections that fail or end without an answer, and for 503, after which another replica may have room. If
all replicas are full, it tries RETRIES more times, however many replicas there are. Answers of 500 and 504 are final. A
gRPC stream is never complete in a buffer, so it is not sent again. With a token, requests without it are not kept for a
retry.

HAProxy resets a gRPC call that is still arriving when its replica answers, and some clients then lose the answer. A
replica refuses a call without the token at once. So HAProxy sends on such a call, unless it is a stream, when it has
arrived or fills a buffer. It answers 408 if neither happens within UNKNOWN_S.

Requests in flight at a server that is down, or that hangs, are also taken away (`shutdown sessions`) and sent again.
HAProxy's own on-marked-down would do so at once, and would lose requests whose connection is just being made. So this
module does it some seconds later."""

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
from headrace.host.fleet.die_with_parent import die_with_parent
from headrace.host.server.protocol.limits import BYTES_PER_S, IDLE_S
from headrace.host.server.transport.grpc.endpoints import SERVICE

START_S: Final = 10.0  # time limit for HAProxy to answer on its socket after its start
ASK_S: Final = 2.0  # time limit for an answer on the socket
HEALTHY_S: Final = 5.0  # HAProxy is not restarted if it ends within this time
STOP_S: Final = 5.0
# The replicas of a node are lost together, up to seven on the slices of a GPU. Each costs one try until it is known to
# be down.
RETRIES: Final = 9
CONNECT_S: Final = 1
# Time after which no connection to a server that went down is still being made. HAProxy counts whole seconds.
DOWN_S: Final = CONNECT_S + 2
CHECK_S: Final = 1.0  # time between two checks for such servers
STALE: Final = 3  # HAProxy is restarted after so many failed commands in a row
UNKNOWN_S: Final = 1  # time limit for a gRPC call without the token to arrive; until then it holds a buffer
ANSWER_S: Final = 600  # time limit for an answer; health checks detect a replica that hangs
STREAM_S: Final = 3600  # time limit for a gRPC stream without an answer; the client may have sent no request
ROOM: Final = 64 << 10  # bytes of a buffer for a request's head and for what HAProxy adds to it
LOST: Final = {
    502: "the replica was lost; try again",
    503: "no replica is ready; try again",
    504: "the replica did not answer in time",
}
NAMES: Final = ("http", "grpc", "metrics")  # names of the ports
PAGE: Final = "{ path / /status } or { path_beg /photo/ }"
STATISTICS: Final = "^/v2/models/([^/]+/(versions/[^/]+/)?)?stats/?$"
TRANSPORT_OF: Final = {"http": "http", "page": "http", "grpc": "grpc"}  # transport of each backend of replicas

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Hold the settings of the front.

    Args:
        replicas: largest number of replicas at a time.
        again: largest request, in bytes, that is sent again.
        client_s: as in a server's limits; so are `head` and `connections`.
        drain_s: time limit for the end.
        statistics: sockets of `Statistics`, by transport.
        token: guards the statistics and the metrics. The replicas check it for all other requests.
        pair: a PEM file with certificates and key. With it every connection uses TLS."""

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
        """Return the number of servers in the configuration."""
        return 2 * self.replicas


@dataclass(frozen=True, slots=True)
class Place:
    """Hold the addresses of a replica, HOST:PORT each."""

    http: str
    grpc: str


NOWHERE: Final = Place("127.0.0.1:1", "127.0.0.1:1")  # addresses of a server without a replica


def configuration(settings: ProxySettings, fds: Mapping[str, int], control: Path, places: Mapping[int, Place]) -> str:
    """Return the text of HAProxy's configuration.

    Args:
        fds: descriptors of the inherited ports, by name.
        control: path of HAProxy's socket.
        places: addresses of the replicas, by number of their server."""
    pair = settings.pair
    shown = "" if pair is None else f" ssl crt {_quoted(str(pair))}"
    # The replicas have the front's certificate. It does not name their addresses, and the front may not know its
    # authority. The addresses come from the cluster, so the front trusts them without a check.
    secure = "" if pair is None else " ssl verify none"
    buffer = settings.again + ROOM + settings.head
    body_s = round(settings.client_s + settings.again / BYTES_PER_S)
    token = settings.token
    known = None if token is None else f"{{ req.fhdr(authorization) -m str {_quoted(f'Bearer {token}')} }}"
    streams = f"{{ path /{SERVICE}/ModelStreamInfer }}"
    passes = f" {known}" if known else ""  # a replica answers requests without the token
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
        *([f"    http-request wait-for-body time {UNKNOWN_S}s if !{streams} !{known}"] if known else []),
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
    # Each of the two backends detects a lost server by itself, at the first connection that fails.
    checked = (
        "check inter 1s downinter 500ms fall 3 rise 1 observe layer4 error-limit 1 on-error mark-down"
        f"{' check-ssl check-alpn http/1.1' if pair else ''}{secure}"
    )
    health_check = [
        "    option httpchk",
        "    http-check send meth GET uri /v2/health/ready ver HTTP/1.1 hdr host localhost",
        "    http-check expect status 200",
    ]
    h1, h2 = (" alpn http/1.1", " alpn h2") if pair else ("", "")
    lines += ["backend http", *health_check, f"    default-server {checked}{h1}"]
    lines += _servers(settings, places, "http")
    lines += ["backend grpc", *health_check, f"    default-server {checked} proto h2{h2}"]
    # A connection that several streams share may break while it receives a request. HAProxy 2.6 then sends the rest of
    # that request to another server, and waits for an answer. So each stream has its own connection
    # (scripts/soak_front.py).
    lines += ["    http-reuse never", f"    http-request set-timeout server {STREAM_S}s if {streams}"]
    lines += _servers(settings, places, "grpc")
    # The page shows one replica. A client sees the same replica as long as it serves.
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
        if backend == "grpc":  # its health check uses HTTP, like that of the other backends
            options += ["port", _host_port(place.http)[1], "check-proto h1"]
        yield " ".join(["    server", f"s{number}", getattr(place, TRANSPORT_OF[backend]), *options])


def _host_port(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def _quoted(text: str) -> str:
    """Return the text as one word of a configuration."""
    return "'" + text.replace("'", "'\\''") + "'"


class Proxy:
    """Run HAProxy. Its files lie in `folder`, which belongs to it alone. End it with `stop`.

    Raises UsageError if HAProxy is not installed."""

    def __init__(self, settings: ProxySettings, listening: Mapping[str, socket.socket], folder: Path) -> None:
        program = shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
        if program is None:
            raise UsageError("--ray needs HAProxy in front of the replicas; install it with `apt-get install haproxy`")
        self._program = program
        self._settings = settings
        self._listening = dict(listening)
        self._file = folder / "haproxy.cfg"
        self._control = folder / "haproxy.sock"
        self._places: dict[int, Place] = {}  # addresses of the servers that may get requests
        self._server_of: dict[int, int] = {}  # number of the server, by replica
        self._free = deque(range(settings.servers))  # servers without a replica, the longest free first
        self._checked = 0.0
        self._stale = 0  # number of failed commands in a row
        self._process: subprocess.Popen[str] | None = None
        self._began = 0.0
        self._messages: deque[str] = deque(maxlen=20)

    def start(self) -> None:
        """Start HAProxy. Raises HeadraceError with HAProxy's message if it does not run."""
        self._write()
        self._stale = 0
        self._began = time.monotonic()
        self._process = process = subprocess.Popen(
            die_with_parent([self._program, "-db", "-f", str(self._file)]),
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

    def maintain(self) -> None:
        """Restart HAProxy if it ended, and repeat commands that failed.

        After STALE failed commands HAProxy is restarted with the file, which has the complete configuration. Raises
        HeadraceError if HAProxy ended right after its start."""
        if self._process is None:
            return
        if (status := self._process.poll()) is not None:
            if time.monotonic() < self._began + HEALTHY_S:
                raise HeadraceError(f"HAProxy ended with status {status}: {self._reason()}")
            _log.warning("HAProxy ended with status %d and is restarted", status)
            self.start()
        elif self._stale >= STALE:
            _log.warning("HAProxy did not accept %d commands and is restarted", self._stale)
            self._process.kill()
            self._process.wait()
            self.start()
        elif self._stale:
            for number in range(self._settings.servers):
                if not self._configure(number):
                    break
            else:
                self._stale = 0
        elif time.monotonic() > self._checked + CHECK_S:
            self._checked = time.monotonic()
            self._clear_down_servers()

    def _clear_down_servers(self) -> None:
        """Take away the requests in flight at servers that have been down, or in maintenance, for DOWN_S."""
        for row in self._servers() or ():
            down = row["status"].startswith(("DOWN", "MAINT")) and int(row["lastchg"] or 0) >= DOWN_S
            if down and row["scur"] != "0":
                self._tell(f"shutdown sessions server {row['pxname']}/{row['svname']}")

    def put(self, replica: int, place: Place) -> None:
        """Allow requests to this replica."""
        self.remove(replica)
        self._server_of[replica] = number = self._free.popleft()
        self._places[number] = place
        self._write()
        if self._tell(*(f"shutdown sessions server {backend}/s{number}" for backend in TRANSPORT_OF)):
            self._configure(number)  # after a failed command `maintain` does this

    def drain(self, replica: int) -> None:
        """Send no new requests to this replica. If HAProxy restarts meanwhile, the requests in flight there are
        lost."""
        if (number := self._server_of.get(replica)) is not None and self._places.pop(number, None) is not None:
            self._write()
            self._tell(*_set(number, "state drain"))

    def remove(self, replica: int) -> None:
        """Remove this replica. Requests in flight there go to other replicas some seconds later, if they can be sent
        again."""
        if (number := self._server_of.pop(replica, None)) is not None:
            self._free.append(number)
            if self._places.pop(number, None) is not None:
                self._write()
            self._configure(number)

    def _configure(self, number: int) -> bool:
        """Bring the running HAProxy's state of this server up to date. Returns whether HAProxy accepted it."""
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
        """Return the number of requests and streams at this replica, or None if HAProxy does not answer."""
        if (number := self._server_of.get(replica)) is None:
            return 0
        if (rows := self._servers()) is None:
            return None
        return sum(int(row["scur"]) for row in rows if row["svname"] == f"s{number}")

    def _servers(self) -> list[dict[str, str]] | None:
        """Return HAProxy's statistics of each server in each backend, or None if HAProxy does not answer."""
        try:
            return list(csv.DictReader(self._ask("show stat -1 4 -1").lstrip("# ").splitlines()))
        except OSError:
            return None

    def stop(self) -> bool:
        """Accept no more connections, and end HAProxy when all requests are answered.

        Returns whether all requests were answered within drain_s."""
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
        with open(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
        ) as file:  # the file may contain the token
            file.write(configuration(self._settings, fds, self._control, self._places))
        new.rename(self._file)

    def _tell(self, *commands: str) -> bool:
        """Send commands to HAProxy. Returns whether it accepted them all; if not, `maintain` repeats them."""
        try:
            for command in commands:
                if (
                    answer := self._ask(command).strip()
                ) and " addr " not in command:  # HAProxy answers such a command with the change
                    _log.warning("HAProxy: %s: %s", command, answer)
        except OSError as error:
            self._stale += 1
            _log.warning("HAProxy did not accept the command %r: %s", command, error)
            return False
        return True

    def _ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(ASK_S)
            asking.connect(str(self._control))
            asking.sendall(command.encode() + b"\n")
            answer = b""
            while piece := asking.recv(1 << 16):
                answer += piece
            return answer.decode()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self._messages.append(line.strip())
                _log.debug("%s", line.strip())

    def _reason(self) -> str:
        time.sleep(0.1)  # the thread needs a moment to read the message
        alerts = [line for line in self._messages if "ALERT" in line] or list(self._messages)
        return alerts[0] if alerts else "it wrote no message"


def _set(number: int, what: str) -> list[str]:
    """Return commands that set a state of a server in the backends with health checks of their own."""
    return [f"set server {backend}/s{number} {what}" for backend in ("http", "grpc")]


def _ended(process: "subprocess.Popen[str]", timeout_s: float) -> bool:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True

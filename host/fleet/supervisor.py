"""The supervisor of a replica: a Ray actor on the replica's node that keeps one `headrace serve` running there.

Requests do not pass through this process. Ray places the actor and starts it elsewhere when its node or its process is
lost. The server's process is killed together with the actor's."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from headrace.host.fleet.die_with_parent import die_with_parent

# Pause before an ended server is started again. It doubles with each early end in a row, up to MAX_DELAY_S.
DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 30.0
HEALTHY_S: Final = 30.0  # a server that was ready for longer did not end early
WATCH_S: Final = 2.0  # time limit for an answer of `watch`
END_S: Final = 30.0  # time that a server has to end after its drain_s; its own limit is a little shorter
USAGE = 2  # exit status of a server whose command line is wrong
MAX_LAST_LINE = 2000  # characters of the server's last line that are kept


class Phase(StrEnum):
    """Name the phases of a replica's server."""

    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"  # it is started again after a pause
    REFUSED = "refused"  # its command line is wrong, so it is not started again
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class State:
    """Describe a replica's server.

    Args:
        run: identifies this life of the supervisor.
        number: number of this state in that life.
        ports: addresses HOST:PORT by name.
        early_ends: early ends of the server in a row.
        last_line: the last line that the server wrote to stderr."""

    run: str
    host: str
    number: int = 0
    phase: Phase = Phase.STARTING
    ports: Mapping[str, str] = field(default_factory=dict)
    pid: int = 0
    status: int = 0
    early_ends: int = 0
    last_line: str = ""


@dataclass(slots=True)
class Restarts:
    """Decide whether a server that ended is started again, and after which pause. It reads no clock.

    `early` counts the early ends in a row. `served` says whether the server was ever ready."""

    early: int = 0
    served: bool = False

    def pause_s(self, status: int, ready_s: float | None) -> float | None:
        """Return the pause before the next start in seconds, or None if the server is not started again.

        Args:
            status: exit status of the server.
            ready_s: seconds for which the server was ready; None if it never was."""
        self.served = self.served or ready_s is not None
        self.early = 0 if ready_s is not None and ready_s > HEALTHY_S else self.early + 1
        if status == USAGE and not self.served:
            return None
        return doubled_s(DELAY_S, max(0, self.early - 1), MAX_DELAY_S)


def doubled_s(first_s: float, times: int, max_s: float) -> float:
    """Return `first_s` doubled `times` times, but at most `max_s`.

    `times` may be any number, also one for which 2**times is too large for a float."""
    return min(first_s * 2 ** min(times, 64), max_s)


class Supervisor:
    """Keep one server running on this node.

    Args:
        arguments: arguments of `headrace serve` without its ports; the server takes free ports of the node. Paths in
            them are paths on the node.
        folder: working directory of the server.
        drain_s: time limit for the requests in flight when the server stops.
        host: address of the node; Ray's by default."""

    def __init__(self, arguments: Sequence[str], folder: str, drain_s: float, host: str | None = None) -> None:
        if host is None:
            from ray.util import get_node_ip_address

            host = get_node_ip_address()
        self._arguments = tuple(arguments)
        self._folder = folder
        self._drain_s = drain_s
        self._state = State(secrets.token_hex(8), host)
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        # The server's process is killed when this thread ends, and the thread ends only with the actor's process.
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def watch(self, run: str, number: int) -> State:
        """Return the state as soon as it differs from the one that the caller knows, or after WATCH_S."""
        with self._changed:
            self._changed.wait_for(lambda: (self._state.run, self._state.number) != (run, number), WATCH_S)
            return self._state

    def stop(self) -> None:
        """Stop the server after its requests in flight, and do not start it again."""
        self._ending.set()
        with self._changed:
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.terminate()
        self._keeper.join(self._drain_s + END_S)
        with self._changed:
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
        self._keeper.join(END_S)

    def _tell(self, **changes: object) -> None:
        with self._changed:
            self._state = replace(self._state, number=self._state.number + 1, **changes)
            self._changed.notify_all()

    def _keep(self) -> None:
        restarts = Restarts()
        while not self._ending.is_set():
            status, last_line, ready_s = self._serve()
            if self._ending.is_set():
                break
            pause_s = restarts.pause_s(status, ready_s)
            phase = Phase.REFUSED if pause_s is None else Phase.ENDED
            self._tell(phase=phase, status=status, last_line=last_line, early_ends=restarts.early, ports={})
            if pause_s is None:
                return
            self._ending.wait(pause_s)
            if not self._ending.is_set():
                self._tell(phase=Phase.STARTING)
        self._tell(phase=Phase.STOPPED, ports={})

    def _serve(self) -> tuple[int, str, float | None]:
        """Run the server until it ends.

        Returns its exit status, its last line, and the seconds for which it was ready, None if it never was."""
        command = [sys.executable, "-c", "from headrace.host.cli.main import main; main()", "serve"]
        host = f"[{self._state.host}]" if ":" in self._state.host else self._state.host
        ports = [f"--{name}={host}:0" for name in ("http", "grpc", "metrics")]
        try:
            with self._changed:
                if self._ending.is_set():
                    return 0, "", None
                self._process = process = subprocess.Popen(
                    die_with_parent([*command, *self._arguments, *ports, "--json"]),
                    cwd=self._folder,
                    text=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    errors="replace",
                )
        except OSError as error:
            return USAGE, f"{self._folder}: {error.strerror}; start the fleet in a folder that every node has", None
        last: deque[str] = deque(maxlen=1)
        ready_at: deque[float] = deque(maxlen=1)
        readers = [
            threading.Thread(target=self._read_ports, args=(process, ready_at), daemon=True),
            threading.Thread(target=_read_lines, args=(process, last), daemon=True),
        ]
        for reader in readers:
            reader.start()
        status, ended_at = process.wait(), time.monotonic()
        for reader in readers:  # workers that have not ended yet may keep the pipes open
            reader.join(1.0)
        ready_s = ended_at - ready_at[0] if ready_at else None
        if status < 0:
            return status, f"it was ended by {signal.Signals(-status).name}", ready_s
        return status, (last[0] if last else "it wrote no message")[:MAX_LAST_LINE], ready_s

    def _read_ports(self, process: "subprocess.Popen[str]", ready_at: deque[float]) -> None:
        assert process.stdout is not None
        with process.stdout:
            if line := process.stdout.readline():
                addresses = json.loads(line)
                ports = {name: addresses[name] for name in ("http", "grpc", "metrics")}
                ready_at.append(time.monotonic())
                self._tell(phase=Phase.READY, ports=ports, pid=process.pid)
            for _ in process.stdout:
                pass


def _read_lines(process: "subprocess.Popen[str]", last: deque[str]) -> None:
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            if line.strip():
                last.append(line.strip().removeprefix("headrace: "))
            with contextlib.suppress(OSError, ValueError):
                os.write(2, line.encode())  # stderr goes to Ray's log of the actor

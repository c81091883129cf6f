"""A replica's supervisor: an actor of Ray on the replica's node, which keeps one `headrace serve` running there.

No request comes by here. Ray places the actor and, when its node or its process is lost, starts it elsewhere; the
server's process is killed with the actor's."""

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

from headrace.host.fleet.die_with_parent import bound

DELAY_S: Final = 0.5  # before a server that ended is started again; twice that each time that it ended early,
MAX_DELAY_S: Final = 30.0  # up to this
AUDIO_S: Final = 30.0  # a server that was ready for so long did not end early
WATCH_S: Final = 2.0  # an answer to `watch` takes no longer
END_S: Final = 30.0  # beyond its drain_s the server has this to end; it bounds its own end a little below
USAGE = 2  # exit status of a command line that cannot be served
SAID = 2000  # characters of the last line that it said


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"  # to be started again
    REFUSED = "refused"  # its command line was wrong from the first; not started again
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class State:
    """`run` is the supervisor's own life, `number` counts its states. `ports` are HOST:PORT by name, `ended` how often
    its server has ended early in a row, `said` the last line that it said on stderr."""

    run: str
    host: str
    number: int = 0
    phase: Phase = Phase.STARTING
    ports: Mapping[str, str] = field(default_factory=dict)
    pid: int = 0
    status: int = 0
    ended: int = 0
    said: str = ""


@dataclass(slots=True)
class Restarts:
    """Decides whether a server that has ended is started again, and after which pause. It reads no clock.

    `early` counts the lives in a row that ended early, `served` is whether one was ever ready."""

    early: int = 0
    served: bool = False

    def pause_s(self, status: int, ready_s: float | None) -> float | None:
        """Return the pause before the next start in seconds, or None if there is none.

        Args:
            status: exit status of the life that has ended.
            ready_s: how long the server was ready in it; None if it never was."""
        self.served = self.served or ready_s is not None
        self.early = 0 if ready_s is not None and ready_s > AUDIO_S else self.early + 1
        if status == USAGE and not self.served:
            return None
        return doubled_s(DELAY_S, max(0, self.early - 1), MAX_DELAY_S)


def doubled_s(first_s: float, times: int, max_s: float) -> float:
    """Return `first_s` seconds doubled `times` times, and at most `most_s`.

    Any number of times is allowed, also one for which 2**times is too large for a float."""
    return min(first_s * 2 ** min(times, 64), max_s)


class Supervisor:
    """`arguments` are those of `headrace serve` but its ports, for which it takes free ones of its node; paths in them
    are the node's own. `host` is the node's address, Ray's by default."""

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
        # The server's process is bound to this thread, which ends with it alone.
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def watch(self, run: str, number: int) -> State:
        """The state, when it is no more the one that the caller knows, or after WATCH_S."""
        with self._changed:
            self._changed.wait_for(lambda: (self._state.run, self._state.number) != (run, number), WATCH_S)
            return self._state

    def stop(self) -> None:
        """Ends the server behind its requests in flight, and does not start it again."""
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
            status, said, ready_s = self._serve()
            if self._ending.is_set():
                break
            pause_s = restarts.pause_s(status, ready_s)
            phase = Phase.REFUSED if pause_s is None else Phase.ENDED
            self._tell(phase=phase, status=status, said=said, ended=restarts.early, ports={})
            if pause_s is None:
                return
            self._ending.wait(pause_s)
            if not self._ending.is_set():
                self._tell(phase=Phase.STARTING)
        self._tell(phase=Phase.STOPPED, ports={})

    def _serve(self) -> tuple[int, str, float | None]:
        """Run one life of the server. Return its exit status, the last line that it said, and for how many seconds it
        was ready, None if it never was."""
        command = [sys.executable, "-c", "from headrace.host.cli.main import main; main()", "serve"]
        host = f"[{self._state.host}]" if ":" in self._state.host else self._state.host
        ports = [f"--{name}={host}:0" for name in ("http", "grpc", "metrics")]
        try:
            with self._changed:
                if self._ending.is_set():
                    return 0, "", None
                self._process = process = subprocess.Popen(
                    bound([*command, *self._arguments, *ports, "--json"]),
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
        for reader in readers:  # workers that still end may hold the pipes
            reader.join(1.0)
        ready_s = ended_at - ready_at[0] if ready_at else None
        if status < 0:
            return status, f"it was ended by {signal.Signals(-status).name}", ready_s
        return status, (last[0] if last else "it said nothing")[:SAID], ready_s

    def _read_ports(self, process: "subprocess.Popen[str]", ready_at: deque[float]) -> None:
        assert process.stdout is not None
        with process.stdout:
            if line := process.stdout.readline():
                found = json.loads(line)
                ports = {name: found[name] for name in ("http", "grpc", "metrics")}
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
                os.write(2, line.encode())  # into Ray's log of the actor

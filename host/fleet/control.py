"""The connection between `headrace serve --update` and a fleet of this machine: a Unix socket, named after the fleet's
HTTP address."""

import contextlib
import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from headrace.batching import HeadraceError, UsageError
from headrace.host.network.address import Address

READ_S: Final = 2.0  # time limit for receiving and for sending a message
SILENCE_S: Final = 1800.0  # a fleet reports progress of an update more often than this
MAX_MESSAGE: Final = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Update:
    """Describe an update.

    `arguments` and `folder` are the new ones of the replicas; `arguments` of None keeps the present ones. `front` has
    the settings that belong to the whole fleet, which an update cannot change. With new arguments it has all of them,
    otherwise those that the user gave."""

    arguments: tuple[str, ...] | None
    folder: str
    front: Mapping[str, str | None]


class UpdateRequest:
    """A client that waits for the end of an update. The update continues if the client leaves."""

    def __init__(self, update: Update, connection: socket.socket) -> None:
        self.update = update
        self._connection = connection

    def tell(self, text: str) -> None:
        """Send a line of progress to the client."""
        self._send({"told": text})

    def end(self, error: str | None) -> None:
        """Send the end of the update, with its error or None, and close the connection."""
        self._send({"ended": error})
        self._connection.close()

    def _send(self, message: object) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")


class Control:
    """Accept requests for updates, for the fleet with the HTTP address `http`. Use it as a context manager."""

    def __init__(self, http: Address) -> None:
        self._path = _path(http)
        self._inode = 0  # inode of the socket file

    def __enter__(self) -> "Control":
        self._listening = socket.socket(socket.AF_UNIX)
        self._path.unlink(missing_ok=True)  # only the fleet that has the port may use this path
        try:
            self._listening.bind(str(self._path))
        except OSError as error:
            self._listening.close()
            raise UsageError(f"{self._path}: {error}; set XDG_RUNTIME_DIR to a folder with a short name") from None
        self._path.chmod(0o600)
        self._inode = self._path.stat().st_ino
        self._listening.listen()
        self._listening.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:  # another fleet may have taken the port and the path since
                self._path.unlink()

    def next_request(self) -> UpdateRequest | None:
        """Return the next request for an update, or None if there is none."""
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return None
        connection.settimeout(READ_S)
        try:
            update = _read(json.loads(_line(connection)))
        except (OSError, ValueError, LookupError, TypeError):
            connection.close()
            return None
        return UpdateRequest(update, connection)


def ask(http: Address, update: Update, tell: Callable[[str], None]) -> None:
    """Ask the fleet with that HTTP address for an update, and wait for its end.

    `tell` receives the lines of progress. Raises UsageError if no such fleet runs, and HeadraceError with the reason if
    the update fails."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SILENCE_S)
        try:
            connection.connect(str(_path(http)))
        except OSError:
            raise UsageError(
                f"--update: no fleet serves HTTP on {http} here; give the --http HOST:PORT of the fleet, and run this "
                "on its machine as the user who started it"
            ) from None
        try:
            connection.sendall(json.dumps(asdict(update)).encode() + b"\n")
            while line := _line(connection):
                message = json.loads(line)
                if "told" in message:
                    tell(message["told"])
                elif message["ended"] is None:
                    return
                else:
                    raise HeadraceError(message["ended"])
        except OSError as error:
            raise HeadraceError(f"--update: the fleet does not answer: {error}") from None
    raise HeadraceError("--update: the fleet ended before the update did")


def _read(message: Mapping[str, Any]) -> Update:
    """Return the update in a message. Raises ValueError, LookupError or TypeError if the message is no update."""
    arguments, folder, front = message["arguments"], message["folder"], message["front"]
    settings = [value for value in dict(front).values() if value is not None]
    if not all(isinstance(text, str) for text in (folder, *front, *settings, *(arguments or ()))):
        raise ValueError("the values of an update must be strings")
    return Update(None if arguments is None else tuple(arguments), folder, front)


def _line(connection: socket.socket) -> bytes:
    """Return the next line with its end, or nothing at the end of the connection.

    It reads one byte at a time, because messages are few and short."""
    line = b""
    while not line.endswith(b"\n"):
        if len(line) > MAX_MESSAGE or not (piece := connection.recv(1)):
            return b""
        line += piece
    return line


def _path(http: Address) -> Path:
    """Return the path of the socket, in a folder that belongs to this user. Raises UsageError if another user may write
    there."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base, f"headrace-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UsageError(f"{folder}: another user may write there; remove it, or set XDG_RUNTIME_DIR")
    return folder / f"fleet-{http}.sock"

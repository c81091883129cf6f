"""How `headrace serve --update` reaches a fleet of this machine: by a Unix socket, named by its HTTP address."""

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
from headrace.host.server.serve import Address

READ_S: Final = 2.0  # for a message to be here, and to be taken
SILENCE_S: Final = 1800.0  # a fleet at an update says something sooner
LONGEST: Final = 1 << 20  # bytes of a message


@dataclass(frozen=True, slots=True)
class Update:
    """`arguments` and `folder` are the replicas' new ones, None for those that they have; `front` has settings that are
    the whole fleet's, and must be as they are: all of them beside new arguments, else those that were given."""

    arguments: tuple[str, ...] | None
    folder: str
    front: Mapping[str, str | None]


class RequestOptions:
    """Somebody who waits for the end of an update. It goes on without them."""

    def __init__(self, update: Update, connection: socket.socket) -> None:
        self.update = update
        self._connection = connection

    def tell(self, text: str) -> None:
        self._send({"told": text})

    def end(self, error: str | None) -> None:
        self._send({"ended": error})
        self._connection.close()

    def _send(self, message: object) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")


class Control:
    """The fleet's side, whose HTTP port is `http`. Use as a context manager."""

    def __init__(self, http: Address) -> None:
        self._path = _path(http)
        self._made = 0  # its inode

    def __enter__(self) -> "Control":
        self._listening = socket.socket(socket.AF_UNIX)
        self._path.unlink(missing_ok=True)  # who has the port has this
        try:
            self._listening.bind(str(self._path))
        except OSError as error:
            self._listening.close()
            raise UsageError(f"{self._path}: {error}; set XDG_RUNTIME_DIR to a folder with a short name") from None
        self._path.chmod(0o600)
        self._made = self._path.stat().st_ino
        self._listening.listen()
        self._listening.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._made:  # not another fleet's, which has the port since
                self._path.unlink()

    def asked(self) -> RequestOptions | None:
        """Who has asked since, if anybody has."""
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
        return RequestOptions(update, connection)


def ask(http: Address, update: Update, tell: Callable[[str], None]) -> None:
    """Asks the fleet with that HTTP port for an update and waits for its end. Raises UsageError if nobody is there, and
    HeadraceError with the reason if it was not done."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SILENCE_S)
        try:
            connection.connect(str(_path(http)))
        except OSError:
            raise UsageError(
                f"--update: no fleet serves HTTP on {http} here; give the --http HOST:PORT that it has, on the machine "
                "and as the user that started it"
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
    """Raises ValueError, LookupError or TypeError for what is none."""
    arguments, folder, front = message["arguments"], message["folder"], message["front"]
    settings = [value for value in dict(front).values() if value is not None]
    if not all(isinstance(text, str) for text in (folder, *front, *settings, *(arguments or ()))):
        raise ValueError("an update is of texts")
    return Update(None if arguments is None else tuple(arguments), folder, front)


def _line(connection: socket.socket) -> bytes:
    """With its end; nothing at the end of the connection. A byte at a time: messages are few and short."""
    found = b""
    while not found.endswith(b"\n"):
        if len(found) > LONGEST or not (piece := connection.recv(1)):
            return b""
        found += piece
    return found


def _path(http: Address) -> Path:
    """In a folder that is this user's own. Raises UsageError if it is another's."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base, f"headrace-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise UsageError(f"{folder}: another user may write there; remove it, or set XDG_RUNTIME_DIR")
    return folder / f"fleet-{http}.sock"

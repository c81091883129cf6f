"""The runtime's end of the socket to a worker, and what can be lost on it."""

import contextlib
import socket

from headrace.batching import HeadraceError
from headrace.host.workers.messages import HEADER, MAX_MESSAGE


class WorkerLost(HeadraceError):
    """The worker died, could not be started, or did not answer in time and was killed."""


class Channel:
    """Keeps messages apart and never blocks; `theirs` is the worker's end."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.setblocking(False)

    def send(self, kind: int, number: int, message: bytes = b"") -> None:
        """If the worker has died the message is lost, as `receive` will tell."""
        with contextlib.suppress(ConnectionError):
            self.ours.send(HEADER.pack(kind, number) + message)

    def receive(self, worker: str) -> bytes | None:
        """The next message, at least as long as ANSWER; None if there is none yet. Raises WorkerLost, of `worker`."""
        try:
            message = self.ours.recv(MAX_MESSAGE)
        except BlockingIOError:
            return None
        except ConnectionError:
            message = b""
        if not message:
            raise WorkerLost(f"worker {worker} died")
        return message

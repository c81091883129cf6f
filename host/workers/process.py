"""The parent's side of a worker process: start, messages, loss, end. Every wait is bounded."""

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from headrace.batching import HeadraceError
from headrace.host.memory.files import SharedFile
from headrace.host.workers.channel import Channel, WorkerLost
from headrace.host.workers.devices import WorkerDevice
from headrace.host.workers.fork_server.client import ENVIRONMENT, SHARED, ForkedProcess, ForkServer, last_lines
from headrace.host.workers.fork_server.protocol import FIRST_FD
from headrace.host.workers.messages import ANSWER, FAILED, MAX_MESSAGE, STARTING
from headrace.host.workers.networks.program import Program

START_TIMEOUT_S = 180.0  # a cold import of torch on a busy machine, and the warm-up runs
SLOW_START_S = 15.0  # after this time the log says what the start does
STOP_TIMEOUT_S = 3.0
LAST_BYTES = 1 << 14  # of a worker's stderr, whose last lines go into errors

_log = logging.getLogger(__name__)


class ModelError(HeadraceError):
    """The network raised an exception. The worker goes on."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """When a task began, had its inputs together and ended (`time.monotonic()` seconds), and its answer."""

    began: float
    gathered: float
    ended: float
    answer: bytes


class WorkerProcess:
    """One process on one device, a fork of `server`. It can be started again after it has ended."""

    def __init__(self, device: WorkerDevice, program: Program, server: ForkServer = SHARED) -> None:
        self.device = device
        self._program = program
        self._server = server
        self._process: ForkedProcess | None = None
        self._channel: Channel | None = None
        self._errors: asyncio.Task[str] | None = None  # ends with the last lines of the process's stderr

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is a message, or -1 if the process does not run."""
        return self._channel.ours.fileno() if self._channel is not None else -1

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the process and wait until it has warmed up.

        Raises:
            WorkerLost: The text holds the end of its stderr, or says what the system refused: descriptors, memory,
                processes.
        """
        await self.stop()
        try:
            self._channel = channel = Channel()
        except OSError as error:
            raise WorkerLost(f"worker {self.name} cannot be started: {error}") from error
        threads = str(self.device.threads)
        env = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **self.device.env}
        # The numbers that the file descriptors have in the worker.
        its_channel, its_interrupted, memory_fd = range(FIRST_FD, FIRST_FD + 3)
        settings = asdict(self._program.settings) | {
            "memory_fd": memory_fd,
            "device": self.device.device,
            "threads": int(threads),
        }
        arguments = [str(its_channel), str(its_interrupted), json.dumps(settings)]
        fds = (channel.theirs.fileno(), channel.interrupted_fd, self._program.memory_fd)
        at = ["importing"]
        slow = asyncio.get_running_loop().call_later(SLOW_START_S, self._tell_slow, at)
        try:
            async with asyncio.timeout(timeout_s):
                with channel.theirs:
                    self._process = await self._server.fork(
                        self._program.main, arguments, fds, env, self._program.preload
                    )
                self._errors = asyncio.create_task(_last_lines(self._process.stderr))
                await self._ready(channel.ours, at)
        except OSError as error:  # TimeoutError is one
            reason = f"did not start within {timeout_s} s" if isinstance(error, TimeoutError) else "died while starting"
            if not isinstance(error, (TimeoutError, ConnectionError)):
                reason = f"cannot be started: {error}"
            of_server = str(error) if self._process is None else ""  # a forked worker has its own stderr
            stderr = await self.stop()
            raise WorkerLost(f"worker {self.name} {reason} ({at[0]}): {of_server or stderr}") from error
        except BaseException:
            await self.stop()
            raise
        finally:
            slow.cancel()

    async def _ready(self, channel: socket.socket, at: list[str]) -> None:
        """Wait until the process is ready. `at` gets the text of what it does."""
        loop = asyncio.get_running_loop()
        while message := await loop.sock_recv(channel, MAX_MESSAGE):
            if ANSWER.unpack_from(message)[0] != STARTING:
                return
            at[0] = message[ANSWER.size :].decode()
        raise ConnectionError

    def _tell_slow(self, at: list[str]) -> None:
        _log.warning("worker %s is still starting after %g s: %s", self.name, SLOW_START_S, at[0])

    def send(self, number: int, message: bytes, files: Sequence[SharedFile] = ()) -> None:
        assert self._channel is not None
        self._channel.send(number, message, files)

    def interrupt(self, number: int) -> None:
        assert self._channel is not None
        self._channel.interrupt(number)

    def receive(self) -> bytes | None:
        assert self._channel is not None
        return self._channel.receive(f"{self.name} (process {self.pid})")

    async def run(self, message: bytes, timeout_s: float) -> RunTimes:
        """Run one task and wait for it, on a worker that no runtime uses.

        Raises ModelError, or WorkerLost; the process is dead after WorkerLost."""
        channel = self._channel
        if channel is None:
            raise WorkerLost(f"worker {self.name} is not running")
        self.send(0, message)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await asyncio.get_running_loop().sock_recv(channel.ours, MAX_MESSAGE)
        except TimeoutError as error:
            await self.stop()
            raise WorkerLost(f"worker {self.name} did not answer within {timeout_s} s and was killed") from error
        except ConnectionError:
            answer = b""
        if not answer:
            pid = self.pid
            raise WorkerLost(f"worker {self.name} (process {pid}) died: {await self.stop()}")
        kind, _, began, gathered, ended = ANSWER.unpack_from(answer)
        if kind == FAILED:
            raise ModelError(f"the network failed on worker {self.name}: {answer[ANSWER.size :].decode()}")
        return RunTimes(began, gathered, ended, answer[ANSWER.size :])

    async def stop(self) -> str:
        """End the process in bounded time. It holds nothing that a gentle end would save.

        Returns the last lines of its stderr."""
        process, channel, errors = self._process, self._channel, self._errors
        self._process = self._channel = self._errors = None
        if channel is not None:
            channel.close()
        if process is not None:
            process.kill()
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STOP_TIMEOUT_S):
                        await process.wait()
            finally:
                process.close()
        try:
            return (errors and await asyncio.wait_for(errors, STOP_TIMEOUT_S)) or "it said nothing"
        except TimeoutError:
            return "its error output did not end"
        finally:
            if process is not None:
                process.close_stderr()


async def _last_lines(stream: asyncio.StreamReader) -> str:
    """Return the last lines when the stream has ended. A chunk may end within a line, or before its end of line."""
    stderr = b""
    while chunk := await stream.read(1 << 16):
        stderr = (stderr + chunk)[-LAST_BYTES:]
    return last_lines(stderr.decode(errors="replace"))


def processes(program: Program, devices: Sequence[WorkerDevice]) -> list[WorkerProcess]:
    return [WorkerProcess(device, program) for device in devices]

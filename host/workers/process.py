"""The parent's side of the worker processes: start, one task at a time, loss, restart, end. Every wait is bounded."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any

from headrace.batching import HeadraceError, Task, UsageError
from headrace.host.memory.slots import TensorArena
from headrace.host.workers.whole import Settings

START_TIMEOUT_S = 180.0  # a cold import of torch on a busy machine, and the warm-up runs
STOP_TIMEOUT_S = 3.0
RESTARTS = 5  # in a row; with doubling pauses from RESTART_PAUSE_S
RESTART_PAUSE_S = 0.1
MAX_LINE = 1 << 20

# glibc gives blocks above 128 KiB back to the kernel when they are freed and faults them in again, page by page, at the
# next request. Kept, activations of a few MiB cost nothing: batches ran up to 1.5 times as fast in our measurements.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class WorkerLost(HeadraceError):
    """The worker's process died, could not be started, or did not answer in time and was killed."""


class ModelError(HeadraceError):
    """The network raised an exception; the worker lives on."""


@dataclass(frozen=True, slots=True)
class WorkerDevice:
    """Where a worker runs: a torch device as the worker sees it, and the environment that makes it see just that."""

    name: str
    device: str = "cpu"
    threads: int = 1
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunTimes:
    gather_s: float
    execute_s: float


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def worker_devices(count: int | None = None, nvml: ModuleType | None = None) -> list[WorkerDevice]:
    """One worker a MIG device where there are any, else one a GPU, else `count` on the CPU (one a core by default).

    CPU workers share the cores out between them, so that they do not fight over them. With `count`, the first `count`
    devices; raises UsageError if there are fewer. `nvml` is nvidia-ml-py's module, imported if None."""
    gpus = gpu_devices(nvml)
    if gpus:
        if count is not None and count > len(gpus):
            raise UsageError(f"{count} workers asked for, but this machine has {len(gpus)} GPU slices")
        return gpus[:count]
    cores = usable_cores()
    count = cores if count is None else count
    return [WorkerDevice(f"cpu {number}", threads=max(1, cores // count)) for number in range(count)]


def gpu_devices(nvml: ModuleType | None = None) -> list[WorkerDevice]:
    """MIG devices by UUID, or whole GPUs that have none. Empty without nvidia-ml-py or without a driver."""
    if nvml is None:
        try:
            import pynvml as nvml
        except ImportError:
            return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    found = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            uuids = _mig_uuids(nvml, gpu) or [_text(nvml.nvmlDeviceGetUUID(gpu))]
            found += [WorkerDevice(uuid, "cuda", 1, {"CUDA_VISIBLE_DEVICES": uuid}) for uuid in uuids]
    finally:
        nvml.nvmlShutdown()
    return found


def _mig_uuids(nvml: ModuleType, gpu: Any) -> list[str]:
    try:
        enabled, _ = nvml.nvmlDeviceGetMigMode(gpu)
    except nvml.NVMLError:  # a GPU without MIG
        return []
    uuids = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) if enabled else 0):
        with contextlib.suppress(nvml.NVMLError):  # instance numbers have gaps
            uuids.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))))
    return uuids


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


class WorkerProcess:
    """One process that runs `python -m main FD SETTINGS` and answers messages in the order in which they were sent.

    `settings` is a dataclass of what JSON can hold; `memory_fd` is the shared memory that the process inherits."""

    def __init__(self, device: WorkerDevice, main: str, settings: Any, memory_fd: int) -> None:
        self.device = device
        self._main = main
        self._settings = settings
        self._memory_fd = memory_fd
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._errors: asyncio.Task[str] | None = None  # ends with the last lines of the process's stderr

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the process and wait until it has warmed up. Raises WorkerLost with the end of its stderr."""
        ours, theirs = socket.socketpair()
        threads = str(self.device.threads)
        env = {**os.environ, **MALLOC, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **self.device.env}
        settings = json.dumps(asdict(self._settings))
        command = [sys.executable, "-m", self._main, str(theirs.fileno()), settings]
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *command, env=env, pass_fds=(theirs.fileno(), self._memory_fd),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_LINE)
        self._errors = asyncio.create_task(_last_lines(self._process.stderr))
        try:
            async with asyncio.timeout(timeout_s):
                await self._answer()
        except (TimeoutError, WorkerLost) as error:
            reason = "did not start in time" if isinstance(error, TimeoutError) else "died while starting"
            raise WorkerLost(f"worker {self.device.name} {reason}: {await self._last_words()}") from error
        except BaseException:
            await self.stop()
            raise

    def send(self, message: dict[str, Any]) -> None:
        """Send a task. If the process is not running the message is lost, as `receive` will tell."""
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next answer. Raises ModelError, or WorkerLost with the process then dead."""
        if self._reader is None:
            raise WorkerLost(f"worker {self.device.name} is not running")
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._answer()
        except TimeoutError as error:
            await self.stop()
            raise WorkerLost(f"worker {self.device.name} did not answer within {timeout_s} s and was killed") from error
        except WorkerLost as error:
            raise WorkerLost(f"{error}: {await self._last_words()}") from error
        except BaseException:
            await self.stop()  # a task was left half done: what the process would answer next is not for the next task
            raise
        if "error" in answer:
            raise ModelError(f"the network failed on worker {self.device.name}: {answer['error']}")
        return answer

    async def _answer(self) -> dict[str, Any]:
        assert self._reader is not None
        try:
            answer: dict[str, Any] = json.loads(await self._reader.readline())
        except (ConnectionError, ValueError) as error:  # an empty or broken line is no JSON
            raise WorkerLost(f"worker {self.device.name} (process {self.pid}) died") from error
        return answer

    async def _last_words(self) -> str:
        """End the process and return the last lines of its stderr."""
        await self.stop()
        assert self._errors is not None
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._errors, STOP_TIMEOUT_S) or "it said nothing"
        return "its error output did not end"

    async def restart(self) -> None:
        """Start it again, up to RESTARTS times with growing pauses. Raises WorkerLost when none succeeds."""
        for attempt in range(RESTARTS):
            await self.stop()
            await asyncio.sleep(RESTART_PAUSE_S * 2**attempt)
            try:
                await self.start()
                return
            except WorkerLost as error:
                last = error
        raise last

    async def stop(self) -> None:
        """End the process, in bounded time; it holds nothing that a gentle end would save."""
        process, writer = self._process, self._writer
        self._process = self._reader = self._writer = None
        if writer is not None:
            writer.close()
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()


class Worker(WorkerProcess):
    """A process that runs whole networks. One task at a time: `run` must not be called before it has returned."""

    def __init__(
        self, device: WorkerDevice, model: str, weights: str | None, arena: TensorArena, max_batch: int
    ) -> None:
        settings = Settings(model, weights, device.device, device.threads, max_batch, arena.fd, arena.layout)
        super().__init__(device, "headrace.host.workers.whole", settings, arena.fd)

    async def run(self, task_id: int, slots: Sequence[int], timeout_s: float) -> RunTimes:
        """Run one batch on the tensors in `slots`. Raises ModelError, or WorkerLost with the process then dead."""
        self.send({"task": task_id, "slots": list(slots)})
        answer = await self.receive(timeout_s)
        return RunTimes(answer["gather_s"], answer["execute_s"])

    async def execute(self, task: Task, slots: Sequence[int], timeout_s: float) -> tuple[Task, RunTimes]:
        """Run a task of the whole network on the tensors in `slots`: `run` in the form that the runtime calls."""
        return task, await self.run(task.id, slots, timeout_s)

    def interrupt(self) -> None:
        """A network that runs as one piece has no boundary to end at before its last."""


async def _last_lines(stream: asyncio.StreamReader | None, keep: int = 5) -> str:
    lines: list[str] = []
    while stream is not None and (chunk := await stream.read(1 << 16)):
        lines = (lines + chunk.decode(errors="replace").splitlines())[-keep:]
    return " | ".join(lines)


async def start_all(workers: Sequence[WorkerProcess]) -> None:
    """Start them, all at once. If one cannot be started, ends them all and raises its error."""
    started = await asyncio.gather(*(worker.start() for worker in workers), return_exceptions=True)
    errors = [error for error in started if isinstance(error, BaseException)]
    if errors:
        await stop_all(workers)
        raise errors[0]


async def stop_all(workers: Sequence[WorkerProcess]) -> None:
    await asyncio.gather(*(worker.stop() for worker in workers))


class WorkerPool:
    """Starts one worker a device, all at once, and ends them all. Use as an async context manager."""

    def __init__(
        self, model: str, weights: str | None, devices: Sequence[WorkerDevice], arena: TensorArena, *, max_batch: int
    ) -> None:
        self.workers = tuple(Worker(device, model, weights, arena, max_batch) for device in devices)

    async def __aenter__(self) -> "WorkerPool":
        await start_all(self.workers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await stop_all(self.workers)

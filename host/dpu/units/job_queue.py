"""Drive an image CU that takes its jobs from a ring in device memory. One start serves as many images as come.

hls/image_cu/image_cu.hpp defines the ring. Several callers have jobs in the ring at the same time. Each caller has a
lane of its own with room for a file and a tensor. So the CU finds the next job when it is done with one. The run of the
CU ends by itself when no job came for a while, and the next job starts it again. Jobs that the CU did not take stay
where they are.
"""

import contextlib
import struct
import threading
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.host.dpu.specs import ImageStage
from headrace.host.dpu.units.cu import RESULT_WORDS, Cu, CuLost, as_int
from headrace.host.dpu.units.image_cu import (
    FIRST_WORKSPACE,
    KNOWN,
    PROGRAM,
    WORKSPACE,
    CuResult,
    NoRoom,
    known_image,
    output_bytes,
    result,
    wants_workspace,
    workspace_bytes,
)
from headrace.host.dpu.units.jobs import NO_NAME, Job, Jobs
from headrace.host.dpu.units.status import Status

LANES = 4  # jobs of a CU at a time: one runs, one is fetched ahead, and the host works on the others
ENTRIES = 8  # a power of two, at least LANES
DESCRIPTOR = struct.Struct("<16I")
NUMBERED = 48  # bytes of a descriptor before the word with its number
LAST = 15  # index of the word with the number
JOB, STOP = 0, 1
SLICE_S = 0.0005  # pause between two looks at the records


class JobSlot:
    """A place in the queue of a CU, for one caller at a time."""

    def __init__(self, queue: "JobQueue", number: int) -> None:
        self.name = f"{queue.name}.{number}"
        self._queue = queue
        self._number = number

    def run(self, jpeg: bytes, stage: ImageStage, timeout_s: float) -> CuResult:
        """Run a job, and block until it is done.

        Raises UnsupportedInput if no CU does the job. Raises CuLost if the CU has finished none of its jobs for
        `timeout_s`, ended in an error state, or a transfer failed. The CU is then lost to all lanes."""
        return self._queue.run(self._number - 1, jpeg, stage, timeout_s)


class JobQueue(Cu):
    """The queue of one CU. `polls` is how often the CU looks at an empty ring before its run ends."""

    kernel_name = "image_cu"
    result_argument = 5
    records = ENTRIES + 1  # the last record is for the run itself

    def __init__(
        self,
        api: ModuleType,
        device: Any,
        context: Any,
        name: str,
        closing: threading.Event,
        jobs: Jobs,
        polls: int,
    ) -> None:
        super().__init__(api, device, context, name, closing)
        self._jobs = jobs
        self._polls = polls
        self._tables = self._buffer(3 * 256 * 4, argument=4)
        self._send(self._tables, jobs.tables)
        self._ring = self._buffer(ENTRIES * DESCRIPTOR.size, argument=15)
        for buffer in (self._ring, self._result):  # cleared, as old content could look like a job or a record
            self._send(buffer, bytes(buffer.size()))
        self._lock = threading.RLock()  # guards all attributes below
        self._workspace_room = FIRST_WORKSPACE
        self._allocate(jpeg=1 << 20, tensor=jobs.tensor_bytes, program=1 << 16)
        self._workspace = self._buffer(self._workspace_room, argument=WORKSPACE)  # the CU does one job at a time
        self._run: Any = None
        self._number = 1  # number of the next job; the CU has its low 32 bits
        self._undone = 1  # number of the first job without a record
        self._records: dict[int, list[int]] = {}  # by number, until the lane takes its record
        self._limits: dict[int, float] = {}  # seconds, by number, of the jobs that are not done
        self._since_moved = self._stopwatch()  # time since the CU last finished a job
        self._lost = ""
        self._stopped = False

    def lanes(self) -> Sequence[JobSlot]:
        return [JobSlot(self, number + 1) for number in range(LANES)]

    def stop(self) -> None:
        with self._lock:
            if self._run is None or self._lost or self._number - self._undone >= ENTRIES:
                return  # the run ends when it finds no more jobs
            with contextlib.suppress(RuntimeError):  # no caller waits for it any more
                self._write(self._number, [0] * 11 + [STOP])
                self._stopped = True

    def close(self, deadline: float) -> None:
        with self._lock, contextlib.suppress(CuLost, RuntimeError):
            while self._stopped and not self._ended() and time.monotonic() < deadline:
                time.sleep(SLICE_S)
            self._lost = f"{self.name} was closed"

    def run(self, lane: int, jpeg: bytes, stage: ImageStage, timeout_s: float) -> CuResult:
        return self._do(lane, jpeg, self._jobs.job(jpeg, stage), timeout_s)

    def _do(self, lane: int, jpeg: bytes, job: Job, timeout_s: float) -> CuResult:
        try:
            try:
                self._grow(
                    timeout_s,
                    jpeg=len(jpeg),
                    program=job.program.nbytes,
                    tensor=job.tensor_bytes,
                    workspace=job.workspace_bytes,
                )
                words, tensor = self._once(lane, jpeg, job, timeout_s)
                if wants_workspace(words):
                    self._grow(timeout_s, workspace=workspace_bytes(words, self._jobs.max_megapixels))
                    words, tensor = self._once(lane, jpeg, job, timeout_s)
            except NoRoom:
                return CuResult(Status.TOO_LARGE, {}, 0, None, job.orientation)
            if words[0] == Status.BUFFER_TOO_SMALL:
                self._grow(timeout_s, tensor=output_bytes(words))
                words, tensor = self._once(lane, jpeg, job, timeout_s)
            output: NDArray[np.uint8] = np.empty(0, np.uint8)
            if words[0] == Status.OK:
                size, offset = output_bytes(words), lane * (tensor.size() // LANES)
                tensor.sync(self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE, size, offset)
                output = np.frombuffer(tensor.map(), np.uint8, size, offset)
            return result(words, output, job, None)
        except (RuntimeError, ValueError, CuLost) as error:
            with self._lock:
                self._lost = self._lost or str(error)
            raise error if isinstance(error, CuLost) else CuLost(f"{self.name}: {error}") from error

    def probe(self, timeout_s: float) -> bool:
        jpeg, pixels = known_image()
        return np.array_equal(self._do(0, jpeg, KNOWN, timeout_s).tensors[NO_NAME], pixels)

    # ---- Jobs ----

    def _once(self, lane: int, jpeg: bytes, job: Job, timeout_s: float) -> tuple[list[int], Any]:
        """Run one job, and return its record and the buffer with its tensor."""
        to_device = self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
        with self._lock:
            tensor, at = self._tensor, lane * self._jpeg_room
            self._jpeg.write(jpeg, at)
            self._jpeg.sync(to_device, len(jpeg), at)
            program_at = lane * self._program_room
            if job.program.nbytes:
                self._programs.write(job.program, program_at)
                self._programs.sync(to_device, job.program.nbytes, program_at)
            if self._number == self._undone:
                self._since_moved = self._stopwatch()
            number = self._number
            self._limits[number] = timeout_s
            self._write(
                number,
                [
                    at,
                    len(jpeg),
                    lane * self._tensor_room,
                    self._tensor_room,
                    *job.registers,
                    JOB,
                    program_at,
                    job.program.nbytes,
                ],
            )
            self._number += 1
        while True:
            with self._lock:
                self._look()
                if number in self._records:
                    return self._records.pop(number), tensor
            time.sleep(SLICE_S)

    def _write(self, number: int, words: Sequence[int]) -> None:
        """Write a job into its slot of the ring, its number last.

        The slot is free, because there are fewer lanes than slots."""
        at = number % ENTRIES * DESCRIPTOR.size
        zeros = [0] * (LAST - len(words))
        self._ring.write(DESCRIPTOR.pack(*(word & 0xFFFFFFFF for word in (*words, *zeros, number))), at)
        for begin, size in ((0, NUMBERED), (NUMBERED, DESCRIPTOR.size - NUMBERED)):
            self._ring.sync(self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, size, at + begin)

    def _look(self) -> None:
        """Take the records that are there, and start the CU if there are jobs that it did not take.

        The first job that is not done may take as long as its limit. Raises CuLost."""
        if self._lost:
            raise CuLost(self._lost)
        ended = self._ended()  # asked first, so that the records below hold all that the run did
        done = self._undone
        records = self._fetch_records()
        while done != self._number and records[done % ENTRIES, -1] == done & 0xFFFFFFFF:
            done += 1
        if done != self._undone:
            records = self._fetch_records()  # fetched again: a record whose last word was there is complete now
            self._records |= {number: records[number % ENTRIES].tolist() for number in range(self._undone, done)}
            for number in range(self._undone, done):
                del self._limits[number]
            self._undone = done
            self._since_moved = self._stopwatch()
        if self._undone == self._number:
            return
        if ended:
            self._start_run()
        elif self._closing.is_set():
            raise CuLost(f"{self.name} was given up, as the driver was closed")
        elif self._since_moved.exceeds(limit_s := self._limits[self._undone]):
            raise CuLost(f"{self.name} did not answer within {limit_s:.4g} s")

    def _fetch_records(self) -> NDArray[np.uint32]:
        records = np.frombuffer(self._fetch(self._result, self.records * RESULT_WORDS * 4), "<u4")
        return records.reshape(-1, RESULT_WORDS)

    # ---- The CU's run ----

    def _start_run(self) -> None:
        self._run = self._begin(
            self._jpeg,
            self._jpeg.size(),
            self._tensor,
            self._tensor.size(),
            self._tables,
            self._result,
            0,
            0,
            0,
            0,
            0,
            0,
            0,  # each job brings these values itself
            self._workspace,
            self._workspace.size(),
            self._ring,
            ENTRIES,
            as_int(self._undone & 0xFFFFFFFF),
            self._polls,
            self._programs,
            self._programs.size(),
        )

    def _ended(self) -> bool:
        """Return whether no run is under way. Raises CuLost if the last run failed."""
        if self._run is None:
            return True
        state, states = self._run.state(), self._api.ert_cmd_state
        if state in self.failed_states():
            self._raise_failed(self._run, state)
        if state != states.ERT_CMD_STATE_COMPLETED:
            return False
        self._run = None
        status = int(self._fetch_records()[ENTRIES, 0])
        if status != Status.OK:
            raise CuLost(f"{self.name}: its run ended in {Status(status).name}")
        return True

    def _grow(self, timeout_s: float, *, jpeg: int = 0, tensor: int = 0, workspace: int = 0, program: int = 0) -> None:
        """Make buffers larger, to so many bytes.

        A run takes its buffers at its start, so a run that is under way is ended first."""
        with self._lock:
            wanted = (jpeg, tensor, workspace, program)
            rooms = (self._jpeg_room, self._tensor_room, self._workspace_room, self._program_room)
            if all(size <= room for size, room in zip(wanted, rooms, strict=True)):
                return  # another lane's job was as large
            while self._undone != self._number:
                self._look()
                time.sleep(SLICE_S)
            if not self._ended():
                self._write(self._number, [0] * 11 + [STOP])
                stopwatch = self._stopwatch()
                while not self._ended():
                    if stopwatch.exceeds(timeout_s):
                        raise CuLost(f"{self.name} did not stop within {timeout_s} s")
                    time.sleep(SLICE_S)
                # A run that found no job just before does not take the stop, and its place is the next job's.
                taken = int(self._fetch_records()[ENTRIES, 2]) == (self._number + 1) & 0xFFFFFFFF
                self._number = self._undone = self._number + taken
            try:
                if workspace > self._workspace_room:
                    self._workspace = self._buffer(_pages(workspace), argument=WORKSPACE)
                    self._workspace_room = _pages(workspace)
                self._allocate(
                    jpeg=max(jpeg, self._jpeg_room),
                    tensor=max(tensor, self._tensor_room),
                    program=max(program, self._program_room),
                )
            except (RuntimeError, MemoryError) as error:  # XRT raises them if a bank is full
                raise NoRoom from error

    def _allocate(self, *, jpeg: int, tensor: int, program: int) -> None:
        """Make the buffers that each lane has a part of, with so many bytes for each lane."""
        rooms = _pages(jpeg), _pages(tensor), _pages(program)
        arguments = (0, 2, PROGRAM)
        made = [self._buffer(LANES * room, argument=number) for room, number in zip(rooms, arguments, strict=True)]
        self._jpeg, self._tensor, self._programs = made
        self._jpeg_room, self._tensor_room, self._program_room = rooms


def _pages(size: int) -> int:
    return (size + 4095) & ~4095

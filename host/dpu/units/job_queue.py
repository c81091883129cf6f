"""An image CU that takes its jobs from a ring in device memory: one start for as many photos as come.

hls/image_cu/image_cu.hpp defines the ring. Several callers have jobs there at the same time, each in a lane of its own
with room for a file and a tensor, so that the CU finds the next job when it is done with one. The CU's run ends by
itself when no job came for a while, and is started again with the next one; jobs that it did not take stay where they
are.
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

from headrace.host.dpu.reference.orientation import orientation
from headrace.host.dpu.specs import IMAGE_FORMATS, ImageSpec, ImageStage
from headrace.host.dpu.units.cu import RESULT_WORDS, Cu, CuLost, as_int
from headrace.host.dpu.units.image_cu import (
    CENTRED,
    FIRST_WORKSPACE,
    WORKSPACE,
    CuResult,
    NoRoom,
    known_image,
    output_bytes,
    result,
    table_words,
    wants_workspace,
    workspace_bytes,
)
from headrace.host.dpu.units.status import Status

LANES = 4  # jobs of a CU at a time: one runs, one is fetched ahead, and the host is busy with the others
ENTRIES = 8  # a power of two, at least LANES
DESCRIPTOR = struct.Struct("<16I")
NUMBERED = 48  # bytes of a descriptor in front of the word that has its number
JOB, STOP = 0, 1
SLICE_S = 0.0005  # between two looks at the records


class JobSlot:
    """A place in the queue of a CU, for one caller at a time."""

    def __init__(self, queue: "JobQueue", number: int) -> None:
        self.name = f"{queue.name}.{number}"
        self._queue = queue
        self._number = number

    def run(self, jpeg: bytes, stage: ImageStage, timeout_s: float) -> CuResult:
        """Blocks until the job is done. Raises CuLost if the CU has done none of its jobs for `timeout_s`, on an error
        state or a failing transfer; then the CU is lost to all lanes."""
        return self._queue.run(self._number - 1, jpeg, stage, timeout_s)


class JobQueue(Cu):
    """`polls`: looks at an empty ring after which the CU's run ends."""

    kernel_name = "image_cu"
    result_argument = 5
    records = ENTRIES + 1  # the last one is the run's own

    def __init__(
        self,
        api: ModuleType,
        device: Any,
        context: Any,
        name: str,
        closing: threading.Event,
        spec: ImageSpec,
        polls: int,
    ) -> None:
        super().__init__(api, device, context, name, closing)
        self._spec = spec
        self._polls = polls
        self._tables = self._buffer(3 * 256 * 4, argument=4)
        self._send(self._tables, table_words(spec))
        self._ring = self._buffer(ENTRIES * DESCRIPTOR.size, argument=15)
        for buffer in (self._ring, self._result):  # what lies there from before could be taken for a job or a record
            self._send(buffer, bytes(buffer.size()))
        self._lock = threading.RLock()  # of all below
        self._jpeg_room = 1 << 20  # of a lane
        self._workspace_room = FIRST_WORKSPACE
        self._tensor_room = _pages(int(np.prod(spec.tensor_shape)) * np.dtype(spec.dtype).itemsize)
        self._allocate()
        self._workspace = self._buffer(self._workspace_room, argument=WORKSPACE)  # the CU does one job at a time
        self._run: Any = None
        self._number = 1  # of the next job; the CU has its low 32 bits
        self._undone = 1  # the first job whose record was not seen yet
        self._records: dict[int, list[int]] = {}  # by number, until its lane takes it
        self._limits: dict[int, float] = {}  # of the jobs that are not done, in seconds
        self._since_moved = self._stopwatch()  # since the CU last did what was asked
        self._lost = ""
        self._stopped = False

    def lanes(self) -> Sequence[JobSlot]:
        return [JobSlot(self, number + 1) for number in range(LANES)]

    def stop(self) -> None:
        with self._lock:
            if self._run is None or self._lost or self._number - self._undone >= ENTRIES:
                return  # it ends when it finds no more jobs
            with contextlib.suppress(RuntimeError):  # nobody waits for it any more
                self._write(self._number, [0] * 11 + [STOP])
                self._stopped = True

    def close(self, deadline: float) -> None:
        with self._lock, contextlib.suppress(CuLost, RuntimeError):
            while self._stopped and not self._ended() and time.monotonic() < deadline:
                time.sleep(SLICE_S)
            self._lost = f"{self.name} was closed"

    def run(self, lane: int, jpeg: bytes, stage: ImageStage, timeout_s: float) -> CuResult:
        found = orientation(jpeg)
        spec = self._spec.as_stored(found)
        try:
            if len(jpeg) > self._jpeg_room:
                self._grow(timeout_s, jpeg=len(jpeg))
            words, tensor = self._once(lane, jpeg, spec, stage, timeout_s)
            if wants_workspace(words):
                try:
                    self._grow(timeout_s, workspace=workspace_bytes(words, self._spec))
                except NoRoom:
                    return CuResult(Status.TOO_LARGE, np.empty(0, np.uint8), 0, None, found)
                words, tensor = self._once(lane, jpeg, spec, stage, timeout_s)
            if words[0] == Status.BUFFER_TOO_SMALL:
                self._grow(timeout_s, tensor=output_bytes(words))
                words, tensor = self._once(lane, jpeg, spec, stage, timeout_s)
            output: NDArray[np.uint8] = np.empty(0, np.uint8)
            if words[0] == Status.OK:
                size, offset = output_bytes(words), lane * (tensor.size() // LANES)
                tensor.sync(self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE, size, offset)
                output = np.frombuffer(tensor.map(), np.uint8, size, offset)
            return result(words, output, self._spec, stage, found, None)
        except (RuntimeError, ValueError, CuLost) as error:
            with self._lock:
                self._lost = self._lost or str(error)
            raise error if isinstance(error, CuLost) else CuLost(f"{self.name}: {error}") from error

    def probe(self, timeout_s: float) -> bool:
        jpeg, pixels = known_image()
        return np.array_equal(self.run(0, jpeg, ImageStage.DECODE, timeout_s).output, pixels)

    # ---- Jobs ----

    def _once(
        self, lane: int, jpeg: bytes, spec: ImageSpec, stage: ImageStage, timeout_s: float
    ) -> tuple[list[int], Any]:
        """A job's record, and the buffer that has its tensor."""
        to_device = self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE
        with self._lock:
            tensor, at = self._tensor, lane * self._jpeg_room
            self._jpeg.write(jpeg, at)
            self._jpeg.sync(to_device, len(jpeg), at)
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
                    int(stage),
                    IMAGE_FORMATS.index(spec.dtype),
                    spec.resize_short,
                    spec.crop_width,
                    spec.crop_height,
                    CENTRED if spec.crop_x is None else spec.crop_x,
                    CENTRED if spec.crop_y is None else spec.crop_y,
                    JOB,
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
        """The job into its slot, which is free: fewer lanes than slots have jobs. Its number goes last."""
        at = number % ENTRIES * DESCRIPTOR.size
        last = [0, 0, 0, number]
        self._ring.write(DESCRIPTOR.pack(*(word & 0xFFFFFFFF for word in (*words, *last))), at)
        for begin, size in ((0, NUMBERED), (NUMBERED, DESCRIPTOR.size - NUMBERED)):
            self._ring.sync(self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, size, at + begin)

    def _look(self) -> None:
        """Take the records that are there, and start the CU if there are jobs that it did not take. The first that
        is not done may take as long as its limit."""
        if self._lost:
            raise CuLost(self._lost)
        ended = self._ended()  # before the records are looked at: what it did is among them
        done = self._undone
        records = self._fetch_records()
        while done != self._number and records[done % ENTRIES, -1] == done & 0xFFFFFFFF:
            done += 1
        if done != self._undone:
            records = self._fetch_records()  # the last word of a record comes last: now all of it is there
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
            0,  # what the jobs bring
            self._workspace,
            self._workspace.size(),
            self._ring,
            ENTRIES,
            as_int(self._undone & 0xFFFFFFFF),
            self._polls,
        )

    def _ended(self) -> bool:
        """Whether no run is under way. Raises CuLost if it ended otherwise than in order."""
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

    def _grow(self, timeout_s: float, *, jpeg: int = 0, tensor: int = 0, workspace: int = 0) -> None:
        """Larger buffers, in bytes, which a run takes at its start: the one under way is ended first."""
        with self._lock:
            if jpeg <= self._jpeg_room and tensor <= self._tensor_room and workspace <= self._workspace_room:
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
            self._jpeg_room = max(self._jpeg_room, _pages(jpeg))
            self._tensor_room = max(self._tensor_room, _pages(tensor))
            if workspace > self._workspace_room:
                try:
                    self._workspace = self._buffer(_pages(workspace), argument=WORKSPACE)
                except (RuntimeError, MemoryError) as error:  # XRT's, for a bank that is full
                    raise NoRoom from error
                self._workspace_room = _pages(workspace)
            else:
                self._allocate()

    def _allocate(self) -> None:
        self._jpeg = self._buffer(LANES * self._jpeg_room, argument=0)
        self._tensor = self._buffer(LANES * self._tensor_room, argument=2)


def _pages(size: int) -> int:
    return (size + 4095) & ~4095

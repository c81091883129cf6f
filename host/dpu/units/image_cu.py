"""Drive an image CU with one start for each image."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from headrace.host.dpu.specs import ImageStage, Orientation
from headrace.host.dpu.units.cu import Cu, CuLost
from headrace.host.dpu.units.jobs import COEFFICIENT_BYTES, NO_NAME, Job, Jobs, Registers
from headrace.host.dpu.units.status import Status

WORKSPACE = 13  # indices of arguments
PROGRAM = 19
FIRST_WORKSPACE = COEFFICIENT_BYTES << 20  # room for the coefficients of a megapixel; it grows with the files


class NoRoom(Exception):
    """The file is too large for a workspace."""


@dataclass(frozen=True, slots=True)
class CuResult:
    """The result of an image CU.

    Args:
        status: Status of the run.
        tensors: The tensors by name, none if the status is not OK. That of an ImageSpec has no name.
        source_pixels: Pixels of the source image.
        counters: Clocks of the run, from devices that count them.
        orientation: Orientation of the file. The tensor is turned by it if the spec says so.
    """

    status: Status
    tensors: Mapping[str, NDArray[Any]]
    source_pixels: int
    counters: Mapping[str, int] | None
    orientation: Orientation


class ImageCu(Cu):
    """One image CU with its own buffers."""

    kernel_name = "image_cu"
    result_argument = 5

    def __init__(
        self, api: ModuleType, device: Any, context: Any, name: str, closing: threading.Event, jobs: Jobs
    ) -> None:
        super().__init__(api, device, context, name, closing)
        self._jobs = jobs
        self._jpeg = self._buffer(1 << 20, argument=0)
        self._tensor = self._buffer(jobs.tensor_bytes, argument=2)
        self._tables = self._buffer(jobs.tables.nbytes, argument=4)
        self._workspace = self._buffer(FIRST_WORKSPACE, argument=WORKSPACE)
        self._program = self._buffer(1 << 16, argument=PROGRAM)
        self._send(self._tables, jobs.tables)

    def run(self, jpeg: bytes, stage: ImageStage, timeout_s: float) -> CuResult:
        """Run the CU on one JPEG file.

        It blocks for at most about `timeout_s` for each start of the CU, of which there are at most three. A file of
        several scans is too large if its coefficients need more room than those of `max_megapixels`.

        Raises UnsupportedInput if no CU does the job, and CuLost if the CU hung or ended in an error state, or a
        transfer failed."""
        return self._do(jpeg, self._jobs.job(jpeg, stage), timeout_s)

    def _do(self, jpeg: bytes, job: Job, timeout_s: float) -> CuResult:
        try:
            try:
                self._jpeg = self._grown(self._jpeg, len(jpeg), argument=0)
                self._tensor = self._grown(self._tensor, job.tensor_bytes, argument=2)
                self._workspace = self._grown(self._workspace, job.workspace_bytes, argument=WORKSPACE)
                self._program = self._grown(self._program, job.program.nbytes, argument=PROGRAM)
            except (RuntimeError, MemoryError):  # XRT raises them if a bank is full
                return CuResult(Status.TOO_LARGE, {}, 0, None, job.orientation)
            self._send(self._jpeg, jpeg)
            if job.program.nbytes:
                self._send(self._program, job.program)
            words = self._once(len(jpeg), job, timeout_s)
            if wants_workspace(words):
                try:
                    needed = workspace_bytes(words, self._jobs.max_megapixels)
                    self._workspace = self._buffer(needed, argument=WORKSPACE)
                except (NoRoom, RuntimeError, MemoryError):  # XRT raises the latter two if a bank is full
                    return CuResult(Status.TOO_LARGE, {}, 0, self.counters, job.orientation)
                words = self._once(len(jpeg), job, timeout_s)
            if words[0] == Status.BUFFER_TOO_SMALL:
                self._tensor = self._buffer(output_bytes(words), argument=2)
                words = self._once(len(jpeg), job, timeout_s)
            output: NDArray[np.uint8] = np.empty(0, np.uint8)
            if words[0] == Status.OK:
                output = self._fetch(self._tensor, output_bytes(words))
            return result(words, output, job, self.counters)
        except (RuntimeError, ValueError) as error:  # RuntimeError is from XRT, ValueError from an invalid record
            raise CuLost(f"{self.name}: {error}") from error

    def probe(self, timeout_s: float) -> bool:
        """Return whether the CU decodes a known image right."""
        jpeg, pixels = known_image()
        return np.array_equal(self._do(jpeg, KNOWN, timeout_s).tensors[NO_NAME], pixels)

    def _grown(self, buffer: Any, needed: int, *, argument: int) -> Any:
        """Return the buffer of an argument, or a larger one if it is too small."""
        return self._buffer(needed, argument=argument) if needed > buffer.size() else buffer

    def _once(self, jpeg_bytes: int, job: Job, timeout_s: float) -> list[int]:
        """Start the CU once and return its record: status, out_width, out_height, src_width, src_height, output bytes
        (low, high), 0."""
        return self._start(
            timeout_s,
            self._jpeg,
            jpeg_bytes,
            self._tensor,
            self._tensor.size(),
            self._tables,
            self._result,
            *job.registers,
            self._workspace,
            self._workspace.size(),
            self._tables,  # stands in for the ring, which has no entries for a single request
            *(0, 0, 0),
            self._program,
            job.program.nbytes,
        )


@cache
def known_image() -> tuple[bytes, NDArray[np.uint8]]:
    """Return a small JPEG file and the pixels that it decodes to."""
    rows, columns = np.mgrid[0:32, 0:32]
    drawn = np.stack([rows * 8, columns * 8, (rows ^ columns) * 8], axis=-1).astype(np.uint8)
    jpeg = cv2.imencode(".jpg", drawn)[1]
    return jpeg.tobytes(), cv2.cvtColor(cv2.imdecode(jpeg, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB).astype(np.uint8)


def output_bytes(words: list[int]) -> int:
    """Return the number of output bytes in a record."""
    return words[5] | words[6] << 32


def wants_workspace(words: list[int]) -> bool:
    """Return whether a record asks for a larger workspace. It then holds the bytes that the CU needs, and there is no
    image."""
    return words[0] == Status.BUFFER_TOO_SMALL and words[1] == 0


def workspace_bytes(words: list[int], max_megapixels: int) -> int:
    """Return the workspace bytes that such a record asks for.

    Raises NoRoom if they are for an image larger than the CPU would take."""
    if output_bytes(words) > COEFFICIENT_BYTES * 10**6 * max_megapixels:
        raise NoRoom
    return output_bytes(words)


def result(words: list[int], output: NDArray[np.uint8], job: Job, counters: Mapping[str, int] | None) -> CuResult:
    """Return the result for a record and, if its status is OK, the output bytes, which are copied.

    Raises ValueError for an invalid record."""
    status, width, height, pixels = Status(words[0]), words[1], words[2], words[3] * words[4]
    tensors = job.finish(output, width, height) if status == Status.OK else {}
    return CuResult(status, tensors, pixels, counters, job.orientation)


def _pixels(output: NDArray[np.uint8], width: int, height: int) -> Mapping[str, NDArray[Any]]:
    return {NO_NAME: output.reshape(height, width, 3).copy()}


KNOWN = Job(Registers(int(ImageStage.DECODE), 0), Orientation.NONE, _pixels)  # the job of a probe

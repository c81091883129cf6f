"""The seam from a request's bytes to its tensor: what every preprocessor gives, and the one on the CPU."""

import asyncio
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import cv2
from numpy.typing import NDArray

from headrace.batching import HeadraceError
from headrace.host.dpu import image
from headrace.host.dpu.image import ImageSpec, Stage
from headrace.host.dpu.units import Units, UnitState


class PreprocessorUnavailable(HeadraceError):
    """It was closed, or nothing that could do the work is left in service."""


class Fallback(Enum):
    """What happens to an input that the DPU cannot take."""

    CPU = "cpu"
    RAISE = "raise"


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """`tensor` with where it was made (a CU instance's name, or "cpu") and when (`time.monotonic()` seconds).

    `dpu_status` is the name of the CU's status code, also when the CPU then did the work; None if no CU was asked.
    `source_pixels` and `counters` come from the CU: pixels of the photo, and, from devices that are clocked and tell,
    the clocks that the request took (`cycles`) and what they were spent on."""

    tensor: NDArray[Any]
    unit: str
    started: float
    finished: float
    dpu_status: str | None = None
    source_pixels: int | None = None
    counters: Mapping[str, int] | None = None


class Preprocessor(Protocol):
    spec: ImageSpec

    async def process(self, data: bytes, /) -> Preprocessed:
        """Raises CorruptInput or UsageError of an input that it cannot take, and PreprocessorUnavailable."""
        ...

    def states(self) -> list[UnitState]:
        """Of every unit that does the work."""
        ...


class CpuPreprocessor:
    """OpenCV in threads of its own, which release the interpreter's lock. Use as an async context manager, from one
    event loop.

    Requests wait for a thread in the order in which they came, and one whose caller gives up while it waits is never
    worked on."""

    def __init__(self, spec: ImageSpec | None = None, threads: int | None = None) -> None:
        """`threads`: one less than there are usable cores, as the event loop needs one, but at least 1."""
        self.spec = spec or ImageSpec()
        self.threads = max(1, len(os.sched_getaffinity(0)) - 1) if threads is None else threads
        cv2.setNumThreads(1)  # requests are what runs in parallel; OpenCV's threads within one only get in the way
        self._threads = ThreadPoolExecutor(self.threads, thread_name_prefix="cpu-preprocessor")
        self._slots = Units(range(self.threads), "cpu thread {}".format)

    async def __aenter__(self) -> "CpuPreprocessor":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def states(self) -> list[UnitState]:
        return self._slots.states()

    def close(self) -> None:
        """What a thread works on is finished, what waits is refused, as is all that comes later."""
        self._slots.refuse(lambda: PreprocessorUnavailable("the CPU preprocessor was closed"))
        self._threads.shutdown()

    async def preprocess(self, jpeg: bytes) -> NDArray[Any]:
        """JPEG bytes to the model's input tensor, CHW in `spec.dtype`. Raises as `process` does."""
        return (await self.process(jpeg)).tensor

    async def process(self, jpeg: bytes, stage: Stage = Stage.NORMALIZE) -> Preprocessed:
        """Run the stages up to `stage`: HWC uint8 RGB up to the crop, CHW `spec.dtype` after normalize.

        Raises CorruptInput, UsageError, and PreprocessorUnavailable once it is closed."""

        def timed() -> Preprocessed:
            started = time.monotonic()
            return Preprocessed(image.preprocess(jpeg, self.spec, stage), "cpu", started, time.monotonic())

        slot = await self._slots.acquire()
        run = asyncio.get_running_loop().run_in_executor(self._threads, timed)
        run.add_done_callback(lambda _: self._slots.release(slot))  # a caller that gives up does not free the thread
        return await asyncio.shield(run)

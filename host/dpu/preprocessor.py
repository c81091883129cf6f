"""The interface from a request's bytes to its tensor, and the preprocessor on the CPU.

A preprocessor is made for a spec, whose type names the kind of work: an image or audio of Headrace's own stages, or an
image by a processor of Hugging Face. The kinds do not depend on each other or on threads. Each of the first two is a
module in reference/ with its stages and a function `preprocess(data, spec, stage)`.
"""

import asyncio
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import cv2
from numpy.typing import NDArray

from headrace.batching import HeadraceError
from headrace.host.dpu.fair_pool import UnitState
from headrace.host.dpu.processors import ProcessorSpec
from headrace.host.dpu.reference import audio, image, processor
from headrace.host.dpu.specs import (
    MAX_MEGAPIXELS,
    AudioSpec,
    AudioStage,
    Damaged,
    ImageSpec,
    ImageStage,
    Orientation,
)

AnySpec = ImageSpec | AudioSpec | ProcessorSpec
Spec = TypeVar("Spec", bound=AnySpec)
SpecOf = TypeVar("SpecOf", bound=AnySpec, covariant=True)
CLOSED = "the CPU preprocessor was closed"
PIXEL_VALUES = "pixel_values"  # the tensor that every processor of Hugging Face makes


class Made(NamedTuple):
    """A tensor, the fault of a damaged file that was taken nonetheless, the orientation of an image, and the tensors of
    an image processor or a feature extractor by name."""

    tensor: NDArray[Any]
    damage: str | None = None
    orientation: Orientation | None = None
    tensors: Mapping[str, NDArray[Any]] = {}


ON_CPU: Mapping[type, Callable[..., Made]] = {
    ImageSpec: lambda *arguments: Made(*image.process(*arguments)),
    AudioSpec: lambda *arguments: _of_audio(*audio.process(*arguments)),
}


def _of_audio(tensor: NDArray[Any], tensors: Mapping[str, NDArray[Any]]) -> Made:
    return Made(tensor, tensors=tensors)


class PreprocessorUnavailable(HeadraceError):
    """The preprocessor was closed, or no unit that could do the work is left in service."""


class Fallback(Enum):
    """The rule for an input that the DPU cannot take: it goes to the CPU, or the driver raises UnsupportedInput."""

    CPU = "cpu"
    RAISE = "raise"


class Launch(Enum):
    """How a CU gets its work: one start for each request, or one start for as many requests as come (image CUs)."""

    SINGLE = "single"
    QUEUE = "queue"


class CuRun(NamedTuple):
    """One run of a CU for a request: the CU's name, and when the run began and ended (`time.monotonic()` seconds)."""

    unit: str
    started: float
    finished: float


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """A tensor, and where and when it was made.

    Args:
        tensor: The model's input.
        unit: Names of the CU instances, or "cpu".
        started, finished: `time.monotonic()` seconds.
        dpu_status: Name of the CU's status code, also when the CPU then did the work. None if no CU answered.
        source_pixels: Pixels of the source image. It comes from the CU.
        counters: Clocks that the request took (`cycles`) and what they were spent on, from devices that are clocked.
        runs: Runs of the CUs, in their order.
        source_samples: Samples of each channel of the source audio. It comes from the CU.
        damage: Fault of a damaged image from which the CPU still made the tensor, so that some pixels may be invented.
            Either the spec lets damaged images pass, or a CU found damage that the CPU path does not confirm.
        orientation: Orientation in the image's Exif. With `orient` in the spec the tensor is turned by it; otherwise
            the tensor is as the image is stored.
        out_of_service: Reason why no CU answered, where the CPU did the work in place of a DPU.
        refused: Reason why no CU was asked, where the CPU did the work in place of a DPU.
        tensors: All tensors of a ProcessorSpec, or of an AudioSpec with names, by the names of transformers. `tensor`
            is then `pixel_values`, or the features.
    """

    tensor: NDArray[Any]
    unit: str
    started: float
    finished: float
    dpu_status: str | None = None
    source_pixels: int | None = None
    counters: Mapping[str, int] | None = None
    runs: tuple[CuRun, ...] = ()
    source_samples: int | None = None
    damage: str | None = None
    orientation: Orientation | None = None
    out_of_service: str | None = None
    refused: str | None = None
    tensors: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Preprocessor(Protocol[SpecOf]):
    @property
    def spec(self) -> SpecOf: ...

    @property
    def damaged(self) -> int:
        """The number of damaged images that were taken so far."""
        ...

    async def process(self, data: bytes, /) -> Preprocessed:
        """Preprocess one file. Raises CorruptInput or UsageError for an input that it cannot take, and
        PreprocessorUnavailable."""
        ...

    def states(self) -> list[UnitState]:
        """Return the state of every unit that does the work."""
        ...


class CpuPreprocessor(Generic[Spec]):
    """The CPU path: OpenCV, Pillow, numpy and scipy, in threads of its own. They release the interpreter's lock.

    Use it as an async context manager, from one event loop. Threads take the requests in the order in which they came,
    without a detour through the event loop. A request whose caller gives up while it waits never runs."""

    def __init__(
        self,
        spec: Spec,
        threads: int | None = None,
        *,
        max_megapixels: int = MAX_MEGAPIXELS,
        damaged: Damaged = Damaged.STRICT,
    ) -> None:
        """Start the threads.

        Args:
            threads: None means as many as there are usable cores.
            max_megapixels, damaged: The rules for files, as in `ImageSpec`, for a ProcessorSpec. An ImageSpec has its
                own."""
        self.spec = spec
        self.damaged = 0  # damaged images that were taken
        self._preprocess = (
            _by_processor(max_megapixels, damaged) if isinstance(spec, ProcessorSpec) else ON_CPU[type(spec)]
        )
        self.threads = len(os.sched_getaffinity(0)) if threads is None else threads
        cv2.setNumThreads(
            1
        )  # requests run in parallel; threads of OpenCV within a request would only compete with them
        self._units = [_Thread(f"cpu thread {number}") for number in range(self.threads)]
        own, unused = threading.local(), iter(self._units)
        self._own = own  # a thread's `unit`

        # It does not refer to `self`: so the threads end when the preprocessor is dropped, even if nobody closes it.
        def begin() -> None:
            own.unit = next(unused)

        self._threads = ThreadPoolExecutor(self.threads, thread_name_prefix="cpu-preprocessor", initializer=begin)
        self._closed = False

    async def __aenter__(self) -> "CpuPreprocessor":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def states(self) -> list[UnitState]:
        return [unit.state(time.monotonic()) for unit in self._units]

    def close(self) -> None:
        """Refuse waiting and later requests, and wait until the threads have finished what they work on."""
        self._closed = True
        self._threads.shutdown(cancel_futures=True)

    async def preprocess(self, data: bytes) -> NDArray[Any]:
        """Return the model's input tensor for the bytes of a file, in `spec.dtype`. Raises the errors of `process`."""
        return (await self.process(data)).tensor

    async def process(self, data: bytes, stage: ImageStage | AudioStage | None = None) -> Preprocessed:
        """Run the stages up to `stage`, or all stages if it is None. The tensor is what the kind's `preprocess`
        returns. A ProcessorSpec has no stages.

        Raises CorruptInput and UsageError, and PreprocessorUnavailable once the preprocessor is closed."""

        def timed() -> Preprocessed:
            with self._own.unit as started:
                stages = () if stage is None else (stage,)
                tensor, damage, turn, tensors = self._preprocess(data, self.spec, *stages)
                ended = time.monotonic()
            return Preprocessed(tensor, "cpu", started, ended, damage=damage, orientation=turn, tensors=tensors)

        if self._closed:
            raise PreprocessorUnavailable(CLOSED)
        run = self._threads.submit(timed)
        try:
            done = await asyncio.wrap_future(run)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and run.cancelled() and task is not None and not task.cancelling():
                raise PreprocessorUnavailable(CLOSED) from None
            raise
        self.damaged += done.damage is not None
        return done


class _Thread:
    """The state of a thread. As a context manager it times the work on one file, and returns when that began."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Seconds of finished work, and when the work of now began. One attribute, as the event loop reads both at once.
        self._times: tuple[float, float | None] = 0.0, None

    def __enter__(self) -> float:
        since = time.monotonic()
        self._times = self._times[0], since
        return since

    def __exit__(self, *_: object) -> None:
        busy_s, since = self._times
        assert since is not None
        self._times = busy_s + time.monotonic() - since, None

    def state(self, now: float) -> UnitState:
        busy_s, since = self._times
        return UnitState(self.name, busy_s + (0.0 if since is None else max(0.0, now - since)), since is not None)


def _by_processor(max_megapixels: int, damaged: Damaged) -> Callable[..., Made]:
    """Return the function that makes the tensors of a file by a ProcessorSpec. It needs Pillow."""
    from headrace.host.dpu.reference import pillow_file

    warnings.filterwarnings("ignore", module=r"PIL\.")  # faults beside the pixels, such as in Exif data

    def process(data: bytes, spec: ProcessorSpec) -> Made:
        pixels, damage, orientation = pillow_file.read(data, max_megapixels, damaged, spec.on_white)
        tensors = processor.process(pixels, spec)
        return Made(tensors[PIXEL_VALUES], damage, orientation, tensors)

    return process

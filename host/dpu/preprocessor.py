"""The seam from a request's bytes to its tensor: what every preprocessor gives, and the one on the CPU.

A preprocessor is made for a spec, whose type tells the kind of input, image or audio. Kinds know nothing of each other
and nothing of threads: each is a module with a spec, its stages, and `preprocess(data, spec, stage)`.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import cv2
from numpy.typing import NDArray

from headrace.batching import HeadraceError
from headrace.host.dpu.fair_pool import FairPool, UnitState
from headrace.host.dpu.reference import audio, image
from headrace.host.dpu.specs import AudioSpec, AudioStage, ImageSpec, ImageStage, Orientation

Spec = TypeVar("Spec", bound=ImageSpec | AudioSpec)
SpecOf = TypeVar("SpecOf", bound=ImageSpec | AudioSpec, covariant=True)
# Each gives the tensor, what is wrong with a file that it was made of nonetheless, and a photo's orientation.
ON_CPU: Mapping[type, Callable[..., tuple[NDArray[Any], str | None, Orientation | None]]] = {
    ImageSpec: image.process,
    AudioSpec: lambda *arguments: (audio.preprocess(*arguments), None, None),
}


class PreprocessorUnavailable(HeadraceError):
    """It was closed, or nothing that could do the work is left in service."""


class Fallback(Enum):
    """What happens to an input that the DPU cannot take."""

    CPU = "cpu"
    RAISE = "raise"


class Launch(Enum):
    """How a CU is given its work: a start for each request, or one start for as many as come (image CUs)."""

    SINGLE = "single"
    QUEUE = "queue"


class CuRun(NamedTuple):
    """What a CU did for a request, and when (`time.monotonic()` seconds)."""

    unit: str
    started: float
    finished: float


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """`tensor` with where it was made (CU instances' names, or "cpu") and when (`time.monotonic()` seconds).

    `dpu_status` is the name of the CU's status code, also when the CPU then did the work; None if no CU answered.
    `out_of_service` is the reason why no CU answered, where a DPU was asked and the CPU did the work.
    `source_pixels`, of a photo, `source_samples`, of each channel of a sound, and `counters` come from the CUs; the
    latter, from devices that are clocked and tell, are the clocks that the request took (`cycles`) and what they were
    spent on. `runs` are those of the CUs, in their order. `damage` is what is wrong with a photo that the CPU made the
    tensor of nonetheless: some of its pixels may be invented. The spec lets damaged ones pass, or a CU found damage
    that the CPU path does not confirm. `orientation` is a photo's, by its Exif; the tensor is turned by it if the spec
    says `orient`, and else as the photo is stored."""

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


class Preprocessor(Protocol[SpecOf]):
    @property
    def spec(self) -> SpecOf: ...

    @property
    def damaged(self) -> int:
        """Photos so far that were taken although they are damaged."""
        ...

    async def process(self, data: bytes, /) -> Preprocessed:
        """Raises CorruptInput or UsageError of an input that it cannot take, and PreprocessorUnavailable."""
        ...

    def states(self) -> list[UnitState]:
        """Of every unit that does the work."""
        ...


class CpuPreprocessor(Generic[Spec]):
    """OpenCV, or numpy and scipy, in threads of its own, which release the interpreter's lock. Use as an async context
    manager, from one event loop.

    Requests wait for a thread in the order in which they came, and one whose caller gives up while it waits is never
    worked on."""

    def __init__(self, spec: Spec, threads: int | None = None) -> None:
        """`threads`: one less than there are usable cores, as the event loop needs one, but at least 1."""
        self.spec = spec
        self.damaged = 0  # photos that were taken although they are
        self._preprocess = ON_CPU[type(spec)]
        self.threads = max(1, len(os.sched_getaffinity(0)) - 1) if threads is None else threads
        cv2.setNumThreads(1)  # requests are what runs in parallel; OpenCV's threads within one only get in the way
        self._threads = ThreadPoolExecutor(self.threads, thread_name_prefix="cpu-preprocessor")
        self._slots = FairPool(range(self.threads), "cpu thread {}".format)

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

    async def preprocess(self, data: bytes) -> NDArray[Any]:
        """A file's bytes to the model's input tensor, in `spec.dtype`. Raises as `process` does."""
        return (await self.process(data)).tensor

    async def process(self, data: bytes, stage: ImageStage | AudioStage | None = None) -> Preprocessed:
        """Run the stages up to `stage`, which is one of the spec's kind, or all of them; the tensor is what that
        kind's `preprocess` returns.

        Raises CorruptInput, UsageError, and PreprocessorUnavailable once it is closed."""

        def timed() -> Preprocessed:
            started = time.monotonic()
            stages = () if stage is None else (stage,)
            tensor, damage, turn = self._preprocess(data, self.spec, *stages)
            return Preprocessed(tensor, "cpu", started, time.monotonic(), damage=damage, orientation=turn)

        slot = await self._slots.acquire()
        run = asyncio.get_running_loop().run_in_executor(self._threads, timed)

        def release(run: "asyncio.Future[Preprocessed]") -> None:  # a caller that gives up does not free the thread
            self._slots.release(slot)
            if not run.cancelled():
                run.exception()  # a caller that gave up hears of no error, and asyncio need not tell of one

        run.add_done_callback(release)
        done = await asyncio.shield(run)
        self.damaged += done.damage is not None
        return done

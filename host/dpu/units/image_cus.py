"""Run images on any of the image CUs, by a start for each image or from the CU's queue."""

from typing import Any

import numpy as np

from headrace.host.dpu.preprocessor import PIXEL_VALUES, Launch, Preprocessed
from headrace.host.dpu.processors import ProcessorSpec
from headrace.host.dpu.specs import ImageSpec, ImageStage
from headrace.host.dpu.units.image_cu import ImageCu
from headrace.host.dpu.units.job_queue import JobQueue
from headrace.host.dpu.units.jobs import NO_NAME, jobs_of
from headrace.host.dpu.units.pool import CuPool, OpenPool
from headrace.host.dpu.units.run_limits import image_clocks, processor_clocks
from headrace.host.dpu.units.status import Status


class ImageCus:
    """All image CUs. Each does at least `clocks_per_s` clocks in a second.

    `polls` is how often a CU looks for a job in its queue before its run ends."""

    kernels = (ImageCu.kernel_name,)

    def __init__(
        self,
        spec: ImageSpec | ProcessorSpec,
        open_pool: OpenPool,
        launch: Launch,
        polls: int,
        clocks_per_s: float,
        max_megapixels: int,
    ) -> None:
        self._spec = spec
        self._clocks_per_s = clocks_per_s
        self._pool: CuPool[Any]
        jobs = jobs_of(spec, max_megapixels)
        if launch is Launch.QUEUE:
            self._pool = open_pool(JobQueue, jobs, polls)
        else:
            self._pool = open_pool(ImageCu, jobs)
        self.pools = (self._pool,)

    async def process(self, data: bytes, stage: ImageStage | None, timeout_s: float) -> tuple[Preprocessed, Status]:
        """Run one file and return its result and status. A ProcessorSpec has no stages.

        `timeout_s` is added to the time that the image's size accounts for. Raises DpuUnavailable, and UnsupportedInput
        for what no CU does."""
        last = ImageStage.NORMALIZE if stage is None else stage
        processor = isinstance(self._spec, ProcessorSpec)
        clocks = processor_clocks(data, self._spec) if processor else image_clocks(data, self._spec, last)
        limit_s = timeout_s + clocks / self._clocks_per_s
        run, result = await self._pool.run(lambda cu: cu.run(data, last, limit_s))
        name = PIXEL_VALUES if processor else NO_NAME
        done = Preprocessed(
            result.tensors.get(name, np.empty(0, np.uint8)),
            run.unit,
            run.started,
            run.finished,
            result.status.name,
            result.source_pixels,
            result.counters,
            (run,),
            orientation=result.orientation,
            tensors=result.tensors if processor else {},
        )
        return done, result.status

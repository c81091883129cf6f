"""Run images on any of the image CUs, by a start for each image or from the CU's queue."""

from typing import Any

from headrace.host.dpu.preprocessor import Launch, Preprocessed
from headrace.host.dpu.specs import ImageSpec, ImageStage
from headrace.host.dpu.units.image_cu import ImageCu
from headrace.host.dpu.units.job_queue import JobQueue
from headrace.host.dpu.units.pool import CuPool, OpenPool
from headrace.host.dpu.units.run_limits import image_clocks
from headrace.host.dpu.units.status import Status


class ImageCus:
    """All image CUs. Each does at least `clocks_per_s` clocks in a second.

    `polls` is how often a CU looks for a job in its queue before its run ends."""

    kernels = (ImageCu.kernel_name,)

    def __init__(self, spec: ImageSpec, open_pool: OpenPool, launch: Launch, polls: int, clocks_per_s: float) -> None:
        self._spec = spec
        self._clocks_per_s = clocks_per_s
        self._pool: CuPool[Any]
        if launch is Launch.QUEUE:
            self._pool = open_pool(JobQueue, spec, polls)
        else:
            self._pool = open_pool(ImageCu, spec)
        self.pools = (self._pool,)

    async def process(self, data: bytes, stage: ImageStage | None, timeout_s: float) -> tuple[Preprocessed, Status]:
        """Run one file and return its result and status.

        `timeout_s` is added to the time that the image's size accounts for. Raises DpuUnavailable."""
        last = ImageStage.NORMALIZE if stage is None else stage
        limit_s = timeout_s + image_clocks(data, self._spec, last) / self._clocks_per_s
        run, result = await self._pool.run(lambda cu: cu.run(data, last, limit_s))
        done = Preprocessed(
            result.output,
            run.unit,
            run.started,
            run.finished,
            result.status.name,
            result.source_pixels,
            result.counters,
            (run,),
            orientation=result.orientation,
        )
        return done, result.status

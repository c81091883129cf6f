"""Image CUs: a photo is one run of one of them."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.host.dpu.cu import Cu, CuLost
from headrace.host.dpu.image import FORMATS, ImageSpec, Stage, upright
from headrace.host.dpu.orientation import Orientation, orientation
from headrace.host.dpu.pool import CuPool, OpenPool
from headrace.host.dpu.preprocessor import Preprocessed
from headrace.host.dpu.status import Status

CENTRED = -1  # crop offset register: 0xFFFFFFFF centres the window


@dataclass(frozen=True, slots=True)
class CuResult:
    """`output` has the bytes that the record tells of, as an array of `shape`, or nothing if the status is not OK.
    `orientation` is the file's, by which `output` is turned if the spec says so."""

    status: Status
    output: NDArray[Any]
    source_pixels: int
    counters: Mapping[str, int] | None
    orientation: Orientation


class ImageCu(Cu):
    """One image CU with its own buffers."""

    kernel_name = "image_cu"
    result_argument = 5

    def __init__(
        self, api: ModuleType, device: Any, context: Any, name: str, closing: threading.Event, spec: ImageSpec
    ) -> None:
        super().__init__(api, device, context, name, closing)
        self._spec = spec
        self._jpeg = self._buffer(1 << 20, argument=0)
        self._tensor = self._buffer(int(np.prod(spec.tensor_shape)) * np.dtype(spec.dtype).itemsize, argument=2)
        words = np.zeros((3, 256), np.uint32)  # the CU takes the low bits that the format needs
        table = spec.tables()
        words[:] = table.view(f"u{table.itemsize}")
        self._tables = self._buffer(words.nbytes, argument=4)
        self._send(self._tables, words.view(np.uint8).reshape(-1))

    def run(self, jpeg: bytes, stage: Stage, timeout_s: float) -> CuResult:
        """Blocks for at most about `timeout_s` for each start of the CU, of which there are at most two.

        Raises CuLost on a hang, an error state or a failing transfer."""
        try:
            if len(jpeg) > self._jpeg.size():
                self._jpeg = self._buffer(len(jpeg), argument=0)
            self._send(self._jpeg, jpeg)
            found = orientation(jpeg)
            turn = found if self._spec.orient else Orientation.NONE
            spec = self._spec.as_stored(turn)
            words = self._once(len(jpeg), spec, stage, timeout_s)
            if words[0] == Status.BUFFER_TOO_SMALL:
                self._tensor = self._buffer(_bytes(words), argument=2)
                words = self._once(len(jpeg), spec, stage, timeout_s)
            status, width, height, pixels = Status(words[0]), words[1], words[2], words[3] * words[4]
            if status != Status.OK:
                return CuResult(status, np.empty(0, np.uint8), pixels, self.counters, found)
            output = self._fetch(self._tensor)[: _bytes(words)]
        except (RuntimeError, ValueError) as error:  # what XRT raises whatever happened; a record that makes no sense
            raise CuLost(f"{self.name}: {error}") from error
        shape = (3, height, width) if stage == Stage.NORMALIZE else (height, width, 3)
        dtype = np.dtype(self._spec.dtype if stage == Stage.NORMALIZE else np.uint8)
        image = output.view(dtype).reshape(shape).copy()  # the buffer is the next request's
        return CuResult(status, upright(image, turn, stage), pixels, self.counters, found)

    def _once(self, jpeg_bytes: int, spec: ImageSpec, stage: Stage, timeout_s: float) -> list[int]:
        """The record: status, out_width, out_height, src_width, src_height, output bytes (low, high), 0."""
        return self._start(
            timeout_s,
            self._jpeg,
            jpeg_bytes,
            self._tensor,
            self._tensor.size(),
            self._tables,
            self._result,
            int(stage),
            FORMATS.index(spec.dtype),
            spec.resize_short,
            spec.crop_width,
            spec.crop_height,
            CENTRED if spec.crop_x is None else spec.crop_x,
            CENTRED if spec.crop_y is None else spec.crop_y,
        )


def _bytes(words: list[int]) -> int:
    return words[5] | words[6] << 32


class ImageCus:
    """All image CUs, any of which does a photo."""

    kernels = (ImageCu.kernel_name,)

    def __init__(self, spec: ImageSpec, open_pool: OpenPool) -> None:
        self._pool: CuPool[ImageCu] = open_pool(ImageCu, spec)
        self.pools = (self._pool,)

    async def process(self, data: bytes, stage: Stage | None, timeout_s: float) -> tuple[Preprocessed, Status]:
        """Raises DpuUnavailable."""
        last = Stage.NORMALIZE if stage is None else stage
        run, result = await self._pool.run(lambda cu: cu.run(data, last, timeout_s))
        done = Preprocessed(
            result.output, run.unit, run.started, run.finished, result.status.name, result.source_pixels,
            result.counters, (run,), orientation=result.orientation,
        )  # fmt: skip
        return done, result.status

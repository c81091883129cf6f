"""The DPU driver: a pool of image CUs behind XRT, one request a CU at a time.

Works alike on an emulated device and on a card, so it uses only what the real `pyxrt` has: its `wait` keeps the
interpreter lock, so runs are waited for in short slices; it cannot read registers, so the CU writes its `result`
record to memory; its scalars are C ints, so -1 stands for 0xFFFFFFFF.

A CU that does not answer in time is taken out of service and its request goes to another one. An input that the DPU
cannot take is preprocessed on the CPU instead and counted by reason, unless the driver was told to raise.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import CorruptInput, UnsupportedInput, UsageError
from headrace.bitstreams.xclbin import Mode, read_xclbin
from headrace.host import xrt
from headrace.host.dpu.image import FORMATS, ImageSpec, Stage
from headrace.host.dpu.preprocessor import CpuPreprocessor, Fallback, Preprocessed, PreprocessorUnavailable
from headrace.host.dpu.status import Status
from headrace.host.dpu.units import Units, UnitState

KERNEL = "image_cu"
RESULT_WORDS = 8  # status, out_width, out_height, src_width, src_height, output bytes (low, high), 0
CENTRED = -1  # crop offset register: 0xFFFFFFFF centres the window
WAIT_SLICE_MS = 1
TIMEOUT_S = 10.0
HW_EMU_TIMEOUT_S = 1800.0  # a clock takes microseconds there; the device itself ends runs that make no progress

_log = logging.getLogger(__name__)


class DpuUnavailable(PreprocessorUnavailable):
    """No CU is left in service, or the driver was closed."""


@dataclass(slots=True)
class DpuCounters:
    """`unsupported`: inputs that the DPU could not take, by status; `retried`: requests moved off a hung CU."""

    done: int = 0
    on_cpu: int = 0
    retried: int = 0
    unsupported: Counter[Status] = field(default_factory=Counter)


class _CuLost(Exception):
    """A CU hung or failed; the request itself may be fine."""


@dataclass(frozen=True, slots=True)
class _CuResult:
    """`output` has the bytes that the record tells of, as an array of `shape`, or nothing if the status is not OK."""

    status: Status
    output: NDArray[Any]
    source_pixels: int
    counters: Mapping[str, int] | None


class _Cu:
    """One compute unit with its own buffers, used by one thread at a time."""

    def __init__(
        self, api: ModuleType, device: Any, context: Any, name: str, spec: ImageSpec, closing: threading.Event
    ) -> None:
        self.name = name
        self._closing = closing  # set when the driver gives up waiting
        self._api = api
        self._device = device
        self._spec = spec
        self._kernel = api.kernel(context, f"{KERNEL}:{{{name}}}")
        self._jpeg = self._buffer(1 << 20, argument=0)
        self._tensor = self._buffer(int(np.prod(spec.tensor_shape)) * np.dtype(spec.dtype).itemsize, argument=2)
        self._result = self._buffer(RESULT_WORDS * 4, argument=5)
        words = np.zeros((3, 256), np.uint32)  # the CU takes the low bits that the format needs
        table = spec.tables()
        words[:] = table.view(f"u{table.itemsize}")
        self._tables = self._buffer(words.nbytes, argument=4)
        self._tables.write(words.view(np.uint8).reshape(-1), 0)
        self._tables.sync(api.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE)

    def _buffer(self, size: int, argument: int) -> Any:
        rounded = max(4096, (size + 4095) & ~4095)  # whole pages, as XRT allocates; so whole 16-byte words, too
        return self._api.bo(self._device, rounded, self._api.bo.flags.normal, self._kernel.group_id(argument))

    def run(self, jpeg: bytes, stage: Stage, timeout_s: float) -> _CuResult:
        """Blocks for at most about `timeout_s` for each start of the CU, of which there are at most two.

        Raises _CuLost on a hang, an error state or a failing transfer."""
        try:
            if len(jpeg) > self._jpeg.size():
                self._jpeg = self._buffer(len(jpeg), argument=0)
            self._jpeg.write(jpeg, 0)
            self._jpeg.sync(self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, self._jpeg.size(), 0)
            status, shape, size, pixels, counters = self._start(len(jpeg), stage, timeout_s)
            if status == Status.BUFFER_TOO_SMALL:
                self._tensor = self._buffer(size, argument=2)
                status, shape, size, pixels, counters = self._start(len(jpeg), stage, timeout_s)
            if status != Status.OK:
                return _CuResult(status, np.empty(0, np.uint8), pixels, counters)
            self._tensor.sync(self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE, self._tensor.size(), 0)
            output = np.frombuffer(self._tensor.map(), np.uint8, count=size)
        except (RuntimeError, ValueError) as error:  # what XRT raises whatever happened; a record that makes no sense
            raise _CuLost(f"{self.name}: {error}") from error
        dtype = np.dtype(self._spec.dtype if stage == Stage.NORMALIZE else np.uint8)
        # A copy: the buffer is the next request's.
        return _CuResult(status, output.view(dtype).reshape(shape).copy(), pixels, counters)

    def _start(
        self, jpeg_bytes: int, stage: Stage, timeout_s: float
    ) -> tuple[Status, tuple[int, ...], int, int, Mapping[str, int] | None]:
        """One run: status, shape and bytes of the output, pixels of the photo, and what was counted."""
        spec = self._spec
        run = self._kernel(
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
        deadline = time.monotonic() + timeout_s
        states = self._api.ert_cmd_state
        while True:
            state = run.wait(WAIT_SLICE_MS)
            if state == states.ERT_CMD_STATE_COMPLETED:
                break
            if state in (
                states.ERT_CMD_STATE_ERROR,
                states.ERT_CMD_STATE_ABORT,
                states.ERT_CMD_STATE_NORESPONSE,
                states.ERT_CMD_STATE_SKERROR,
                states.ERT_CMD_STATE_SKCRASHED,
            ):
                run.wait2(timedelta(seconds=1))  # raises with the reason, if there is one
                raise _CuLost(f"{self.name} ended in state {state.name}")
            if self._closing.is_set():
                raise _CuLost(f"{self.name} was given up, as the driver was closed")
            if time.monotonic() > deadline:
                raise _CuLost(f"{self.name} did not answer within {timeout_s} s")
        self._result.sync(self._api.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE)
        words = np.frombuffer(self._result.map(), "<u4", count=RESULT_WORDS).astype(int)
        width, height, size = words[1], words[2], words[5] | words[6] << 32
        shape = (3, height, width) if stage == Stage.NORMALIZE else (height, width, 3)
        # Emulated devices have more than pyxrt: they can tell the clocks that a run took.
        counters = run.get_hw_emu_stats() if hasattr(run, "get_hw_emu_stats") else None
        return Status(words[0]), shape, int(size), int(words[3] * words[4]), counters


class Dpu:
    """All image CUs of one `.xclbin`. Use as an async context manager, from one event loop."""

    def __init__(
        self,
        xclbin: Path,
        spec: ImageSpec | None = None,
        *,
        device: int = 0,
        timeout_s: float | None = None,
        fallback: Fallback = Fallback.CPU,
    ) -> None:
        """`timeout_s` bounds each start of a CU, of which a request makes at most two, and so the wait for a free CU;
        without it, TIMEOUT_S or, where every clock is emulated, HW_EMU_TIMEOUT_S.

        Raises UsageError for a file without image CUs, DpuUnavailable, and what `xrt.api_for` raises."""
        self.spec = spec or ImageSpec()
        self.counters = DpuCounters()
        self.fallback = fallback
        container = read_xclbin(xclbin)
        if timeout_s is None:
            timeout_s = HW_EMU_TIMEOUT_S if container.mode is Mode.HW_EMU else TIMEOUT_S
        self._timeout_s = timeout_s
        names = tuple(ip.instance for ip in container.ips if ip.kernel == KERNEL)  # pyxrt does not tell
        if not names:
            raise UsageError(f"{xclbin} has no {KERNEL} compute units; build one with `headrace build`")
        api = xrt.api_for(xclbin)
        self.cus = names
        self.out_of_service: dict[str, str] = {}  # CU name -> reason
        self._closing = threading.Event()
        try:
            card = api.device(device)
            context = api.hw_context(card, card.register_xclbin(api.xclbin(str(xclbin))))
            cus = (_Cu(api, card, context, name, self.spec, self._closing) for name in names)
            self._units = Units(cus, attrgetter("name"))
        except RuntimeError as error:  # what XRT raises, whatever happened
            raise DpuUnavailable(f"device {device} cannot be used with {xclbin}: {error}") from error
        self._threads = ThreadPoolExecutor(len(names), thread_name_prefix="dpu")
        self._cpu = CpuPreprocessor(self.spec)

    async def __aenter__(self) -> "Dpu":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the device; a run that still hangs ends with it. Calls that are not done are refused, whatever the
        fallback, as are all that come later."""
        self._closing.set()
        self._units.refuse(lambda: DpuUnavailable("the driver was closed"))
        self._threads.shutdown()  # at most a slice of waiting away
        self._cpu.close()

    def states(self) -> list[UnitState]:
        """Of the CUs, not of the CPU that does what they cannot take."""
        lost = self.out_of_service
        return [
            state._replace(busy=state.busy and state.name not in lost, lost=lost.get(state.name, ""))
            for state in self._units.states()
        ]

    async def preprocess(self, jpeg: bytes) -> NDArray[Any]:
        """JPEG bytes to the model's input tensor, CHW in `spec.dtype`. Raises as `process` does."""
        return (await self.process(jpeg)).tensor

    async def process(self, jpeg: bytes, stage: Stage = Stage.NORMALIZE) -> Preprocessed:
        """Run the stages up to `stage`: HWC uint8 RGB up to the crop, CHW `spec.dtype` after normalize.

        Raises CorruptInput or UsageError when the CPU path cannot take the input either; UnsupportedInput with
        `Fallback.RAISE`; DpuUnavailable with `Fallback.RAISE` when no CU is left; PreprocessorUnavailable, of which
        that is one, when the driver is closed."""
        try:
            done, status = await self._on_cu(jpeg, stage)
        except DpuUnavailable:
            if self.fallback is Fallback.RAISE or self._closing.is_set():
                raise
            return await self._on_cpu(jpeg, stage)
        if status == Status.OK:
            self.counters.done += 1
            return done
        self.counters.unsupported[status] += 1
        if self.fallback is Fallback.RAISE:
            raise UnsupportedInput(f"{status.name}: {status.reason}")
        try:
            return replace(await self._on_cpu(jpeg, stage), dpu_status=status.name)
        except CorruptInput as error:
            raise CorruptInput(f"{status.name}: {status.reason}; {error}") from error

    async def _on_cu(self, jpeg: bytes, stage: Stage) -> tuple[Preprocessed, Status]:
        loop = asyncio.get_running_loop()
        lost = False
        while True:
            cu = await self._units.acquire(again=lost)
            started = time.monotonic()
            run = loop.run_in_executor(self._threads, cu.run, jpeg, stage, self._timeout_s)
            run.add_done_callback(partial(self._release, cu))
            try:
                # A caller that gives up does not stop the CU, which is not free before its run has ended.
                result = await asyncio.shield(run)
            except _CuLost:
                lost = True
                self.counters.retried += not self._closing.is_set()
                continue
            done = Preprocessed(
                result.output, cu.name, started, time.monotonic(), result.status.name, result.source_pixels,
                result.counters,
            )  # fmt: skip
            return done, result.status

    def _release(self, cu: _Cu, run: "asyncio.Future[Any]") -> None:
        error = run.exception()
        if error is None:
            self._units.release(cu)
        elif not self._closing.is_set():
            self.out_of_service[cu.name] = reason = str(error)
            _log.warning("a CU goes out of service: %s", reason)  # not the exception: its frames hold the device
            if len(self.out_of_service) == len(self.cus):
                reasons = "; ".join(self.out_of_service.values())
                self._units.refuse(lambda: DpuUnavailable(f"no CU is in service ({reasons}); load the bitstream again"))

    async def _on_cpu(self, jpeg: bytes, stage: Stage) -> Preprocessed:
        self.counters.on_cpu += 1
        return await self._cpu.process(jpeg, stage)

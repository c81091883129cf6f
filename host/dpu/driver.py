"""The DPU driver: pools of CUs behind XRT, one request a CU at a time.

Works alike on an emulated device and on a card. What differs by the kind of input is in image_cu.py and audio_cu.py.

A CU that does not answer in time is taken out of service and its request goes to another one; it is probed and comes
back when it works again (pool.py). An input that the DPU
cannot take is preprocessed on the CPU instead and counted by reason, unless the driver was told to raise.
"""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic

from numpy.typing import NDArray

from headrace.batching import CorruptInput, UnsupportedInput, UsageError
from headrace.bitstreams.kernel import KernelSpec, kernels_of, parse_kernels, read_checked
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.xclbin import Mode
from headrace.host import xrt
from headrace.host.dpu.fair_pool import UnitState
from headrace.host.dpu.preprocessor import CpuPreprocessor, Fallback, Launch, Preprocessed, Spec
from headrace.host.dpu.reference import image_file
from headrace.host.dpu.specs import AudioSpec, AudioStage, ImageSpec, ImageStage
from headrace.host.dpu.units.audio_cu import AudioCus
from headrace.host.dpu.units.cu import Cu
from headrace.host.dpu.units.image_cus import ImageCus
from headrace.host.dpu.units.pool import AnyCu, CuPool, DpuUnavailable
from headrace.host.dpu.units.run_limits import clocks_per_s
from headrace.host.dpu.units.status import Status

__all__ = ["Dpu", "DpuCounters", "DpuUnavailable"]

TIMEOUT_S = 10.0
PROBE_AFTER_S = 10.0
CLOSING_S = 2.0  # for the runs of all CUs to end
HW_EMU_TIMEOUT_S = 1800.0  # a clock takes microseconds there; the device itself ends runs that make no progress
# Looks at an empty queue before a CU's run from it ends. On a card each takes some 200 clocks: 40 ms; as software 70
# us: 0.3 s. Where every clock is emulated, looking costs the host as much as work does.
POLLS = {Mode.HW_EMU: 500, Mode.SW_EMU: 5000}
CARD_POLLS = 60_000
CUS: Mapping[type, type[ImageCus | AudioCus]] = {ImageSpec: ImageCus, AudioSpec: AudioCus}


@dataclass(slots=True)
class DpuCounters:
    """`unsupported`: inputs that the DPU could not take, by status; `retried`: runs moved off a hung CU."""

    done: int = 0
    on_cpu: int = 0
    retried: int = 0
    unsupported: Counter[Status] = field(default_factory=Counter)


class Dpu(Generic[Spec]):
    """All CUs of one `.xclbin` that the spec's kind of input needs. Use as an async context manager, from one event
    loop."""

    def __init__(
        self,
        xclbin: Path,
        spec: Spec,
        *,
        device: int = 0,
        timeout_s: float | None = None,
        fallback: Fallback = Fallback.CPU,
        launch: Launch = Launch.SINGLE,
        probe_after_s: float = PROBE_AFTER_S,
        api: xrt.Api | None = None,
    ) -> None:
        """`timeout_s`, and beside it what the input's size accounts for (run_limits.py), bounds each start of a CU, of
        which a request makes at most two of each kind, and so the wait for a free CU; without it, TIMEOUT_S or, where
        every clock is emulated, HW_EMU_TIMEOUT_S. With Launch.QUEUE, which image CUs have, a CU is started once for
        many requests: the bound is for each that it does, several are with it at a time, and no other driver can have
        it in between. `probe_after_s`: after which a CU that went out of service is looked at, with growing
        intervals; never if infinite. `api`: the emulated device or the real XRT, as `xrt.api_for`.

        Raises UsageError for a file without such CUs, or with those of an earlier release, and for a spec that they
        cannot do, DpuUnavailable, and what `xrt.api_for` raises."""
        self.spec = spec
        self.fallback = fallback
        self._counters = DpuCounters()
        self._disputed = 0  # photos that a CU found damaged and the CPU path did not
        container = read_checked(xclbin)
        if timeout_s is None:
            timeout_s = HW_EMU_TIMEOUT_S if container.mode is Mode.HW_EMU else TIMEOUT_S
        self._timeout_s = timeout_s
        kind = CUS[type(spec)]
        if launch is Launch.QUEUE and kind is not ImageCus:
            raise UsageError("only image CUs take their work from a queue; launch audio CUs by single starts")
        # By kernel; pyxrt does not tell.
        names = {kernel: [ip.instance for ip in container.ips if ip.kernel == kernel] for kernel in kind.kernels}
        for kernel, found in names.items():
            if not found:
                raise UsageError(f"{xclbin} has no {kernel} compute units; build one with `headrace build`")
        for each in kernels_of(container):
            if each.name in names and (lacking := ", ".join(_lacking(each))):
                raise UsageError(f"{xclbin}: {each.name} has no argument {lacking}; `headrace build` makes a newer one")
        self.cus = tuple(name for found in names.values() for name in found)
        self._closing = closing = threading.Event()
        pyxrt = xrt.api_for(xclbin, api)
        try:
            card = pyxrt.device(device)
            context = pyxrt.hw_context(card, card.register_xclbin(pyxrt.xclbin(str(xclbin))))

            def open_pool(cu: type[AnyCu], *arguments: Any) -> CuPool[Any]:
                def opened(name: str) -> Cu:  # without `self`: a circle would keep the device beyond the driver's end
                    return cu(pyxrt, card, context, name, closing, *arguments)

                cus = [opened(name) for name in names[cu.kernel_name]]
                return CuPool(cus, self._closing, opened, probe_after_s, timeout_s)

            rate = clocks_per_s(container.mode)
            if kind is ImageCus:
                polls = POLLS.get(container.mode, CARD_POLLS)
                self._cus: ImageCus | AudioCus = ImageCus(spec, open_pool, launch, polls, rate)  # type: ignore[arg-type]
            else:
                self._cus = AudioCus(spec, open_pool, rate)  # type: ignore[arg-type]
        except (IndexError, RuntimeError) as error:  # what XRT raises; the first for an argument the kernel lacks
            raise DpuUnavailable(f"device {device} cannot be used with {xclbin}: {error}") from error
        self._cpu = CpuPreprocessor(spec)

    async def __aenter__(self) -> "Dpu[Spec]":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the device; a run that still hangs ends with it. Calls that are not done are refused, whatever the
        fallback, as are all that come later."""
        self._closing.set()
        for pool in self._cus.pools:
            pool.close()
        for cu in self._opened:
            cu.stop()
        deadline = time.monotonic() + CLOSING_S
        for cu in self._opened:
            cu.close(deadline)
        self._cpu.close()

    async def reset(self) -> list[str]:
        """Look at all CUs that are out of service now, beside whatever runs, rather than when their turn comes; those
        that do a known job right are back. Returns the names of those that still are out."""
        for pool in self._cus.pools:
            await pool.reset()
        return [state.name for state in self.states() if state.lost]

    @property
    def _opened(self) -> list[Cu]:
        return [cu for pool in self._cus.pools for cu in pool.cus.values()]

    @property
    def counters(self) -> DpuCounters:
        self._counters.retried = sum(pool.retried for pool in self._cus.pools)
        return self._counters

    @property
    def damaged(self) -> int:
        """Return the number of photos that the CPU took although it or a CU found them damaged."""
        return self._cpu.damaged + self._disputed

    @property
    def out_of_service(self) -> dict[str, str]:
        """The reason, by CU."""
        return {name: reason for pool in self._cus.pools for name, reason in pool.lost.items()}

    def states(self) -> list[UnitState]:
        """Of the CUs, not of the CPU that does what they cannot take."""
        return [state for pool in self._cus.pools for state in pool.states()]

    async def preprocess(self, data: bytes) -> NDArray[Any]:
        """A file's bytes to the model's input tensor, in `spec.dtype`. Raises as `process` does."""
        return (await self.process(data)).tensor

    async def process(self, data: bytes, stage: ImageStage | AudioStage | None = None) -> Preprocessed:
        """Run the stages up to `stage`, which is one of the spec's kind, or all of them; the tensor is as that kind's
        `preprocess` makes it.

        Raises CorruptInput, BadInput or UsageError when the CPU path cannot take the input either; UnsupportedInput
        with `Fallback.RAISE`; DpuUnavailable with `Fallback.RAISE` when no CU is left; PreprocessorUnavailable, of
        which that is one, when the driver is closed."""
        try:
            done, status = await self._cus.process(data, stage, self._timeout_s)  # type: ignore[arg-type]
        except DpuUnavailable as error:
            if self.fallback is Fallback.RAISE or self._closing.is_set():
                raise
            return replace(await self._on_cpu(data, stage), out_of_service=str(error))
        if status == Status.OK:
            self._counters.done += 1
            return done
        self._counters.unsupported[status] += 1
        if self.fallback is Fallback.RAISE:
            raise UnsupportedInput(f"{status.name}: {status.reason}")
        try:
            done = await self._on_cpu(data, stage)
        except CorruptInput as error:
            raise CorruptInput(f"{status.name}: {status.reason}; {error}") from error
        done = replace(done, dpu_status=status.name)
        if done.damage is None and isinstance(self.spec, ImageSpec) and _finds_damage(status, data):
            self._disputed += 1
            opinions = f"a CU finds {status.name} ({status.reason}), the CPU path finds nothing wrong"
            done = replace(done, damage=opinions)
        return done

    async def _on_cpu(self, data: bytes, stage: ImageStage | AudioStage | None) -> Preprocessed:
        self._counters.on_cpu += 1
        return await self._cpu.process(data, stage)


def _finds_damage(status: Status, photo: bytes) -> bool:
    """Tell whether a CU finds the photo itself damaged, by what may have a part in its pixels."""
    if status is Status.CORRUPT_HEADER:
        return not image_file.has_harmless_faults(photo)
    return status in (Status.TRUNCATED, Status.CORRUPT_HUFFMAN, Status.RESTART_MISMATCH)


def _lacking(found: KernelSpec) -> list[str]:
    """Arguments that this release gives and a container's kernel, of an earlier one, does not have. XRT tells no names
    and, of a number that it does not know, little."""
    (own,) = parse_kernels((hls_folder() / found.name / "kernel.xml").read_bytes())
    return [arg.name for arg in own.args if arg.name not in {each.name for each in found.args}]

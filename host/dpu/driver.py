"""The DPU driver: pools of CUs that XRT gives access to. Each CU takes one request at a time.

The driver works alike on an emulated device and on a card. image_cus.py and audio_cu.py hold the parts that depend on
the kind of input.

A CU that does not answer in time goes out of service, and its request goes to another CU. The pool probes it and takes
it back when it works again (pool.py). The CPU preprocesses an input that the DPU cannot take, and the driver counts it
by reason. With Fallback.RAISE the driver raises UnsupportedInput instead.
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
from headrace.bitstreams import build_metadata
from headrace.bitstreams.kernel import KernelSpec, kernels_of, parse_kernels, read_checked
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.xclbin import Mode, Xclbin
from headrace.host import xrt
from headrace.host.dpu.fair_pool import UnitState
from headrace.host.dpu.preprocessor import CpuPreprocessor, Fallback, Launch, Preprocessed, Spec
from headrace.host.dpu.processors import ProcessorSpec
from headrace.host.dpu.reference import image_file
from headrace.host.dpu.specs import MAX_MEGAPIXELS, AudioSpec, AudioStage, Damaged, ImageSpec, ImageStage
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
HW_EMU_TIMEOUT_S = 1800.0  # an emulated clock takes microseconds; the device itself ends runs without progress
# How often a CU looks at an empty queue before its run ends. A look takes some 200 clocks on a card (40 ms in all) and
# 70 us as software (0.3 s). Where every clock is emulated, a look costs the host as much as work does.
POLLS = {Mode.HW_EMU: 500, Mode.SW_EMU: 5000}
CARD_POLLS = 60_000
CUS: Mapping[type, type[ImageCus | AudioCus]] = {ImageSpec: ImageCus, ProcessorSpec: ImageCus, AudioSpec: AudioCus}


@dataclass(slots=True)
class DpuCounters:
    """Counts of requests.

    Args:
        done: Requests that the CUs preprocessed.
        on_cpu: Requests that went to the CPU.
        retried: Runs that moved off a CU that hung.
        unsupported: Inputs that a CU did not take, by status.
        refused: Inputs that no CU was asked for, because no CU does what the spec wants of them.
    """

    done: int = 0
    on_cpu: int = 0
    retried: int = 0
    unsupported: Counter[Status] = field(default_factory=Counter)
    refused: int = 0


class Dpu(Generic[Spec]):
    """All CUs of one `.xclbin` that a spec's kind of input needs.

    Use it as an async context manager, from one event loop."""

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
        max_megapixels: int = MAX_MEGAPIXELS,
        damaged: Damaged = Damaged.STRICT,
    ) -> None:
        """Open the device and all CUs of the kind that `spec` needs.

        Args:
            timeout_s: Limit in seconds of each start of a CU, added to the time that the input's size accounts for
                (run_limits.py). A request starts at most two CUs of each kind, so this also bounds the wait for a free
                CU. None means TIMEOUT_S, or HW_EMU_TIMEOUT_S where every clock is emulated.
            fallback: What happens to an input that the DPU cannot take.
            launch: Launch.QUEUE starts an image CU once for many requests. The limit then holds for each request,
                several requests are with the CU at a time, and no other driver can use the CU in between.
            probe_after_s: Seconds after which the pool probes a CU that went out of service. The interval grows with
                each probe. Infinity switches probes off.
            api: The emulated device or the real XRT, as for `xrt.api_for`.
            max_megapixels, damaged: The rules for files, as in `ImageSpec`, for a ProcessorSpec. An ImageSpec has its
                own.

        Raises:
            UsageError: The file has no such CUs, or those of an earlier release, or its CUs cannot do the spec.
            DpuUnavailable: XRT refuses the device. `xrt.api_for` may raise other errors.
        """
        self.spec = spec
        self.fallback = fallback
        self._counters = DpuCounters()
        self._disputed = 0  # images that a CU found damaged and the CPU path did not
        container = read_checked(xclbin)
        if timeout_s is None:
            timeout_s = HW_EMU_TIMEOUT_S if container.mode is Mode.HW_EMU else TIMEOUT_S
        self._timeout_s = timeout_s
        kind = CUS[type(spec)]
        if launch is Launch.QUEUE and kind is not ImageCus:
            raise UsageError("only image CUs take their work from a queue; launch audio CUs by single starts")
        # By kernel. pyxrt cannot list the instances.
        names = {kernel: [ip.instance for ip in container.ips if ip.kernel == kernel] for kernel in kind.kernels}
        for kernel, instances in names.items():
            if not instances:
                raise UsageError(f"{xclbin} has no {kernel} compute units; build one with `headrace build`")
        for each in kernels_of(container):
            if each.name in names and (lacking := ", ".join(_lacking(each))):
                raise UsageError(f"{xclbin}: {each.name} has no argument {lacking}; `headrace build` makes a newer one")
        if kind is ImageCus and (left_out := _left_out(container, spec, launch)):
            raise UsageError(f"{xclbin}: its image CUs were built without {left_out}")
        self.cus = tuple(name for instances in names.values() for name in instances)
        self._closing = closing = threading.Event()
        pyxrt = xrt.api_for(xclbin, api)
        try:
            card = pyxrt.device(device)
            context = pyxrt.hw_context(card, card.register_xclbin(pyxrt.xclbin(str(xclbin))))

            def open_pool(cu: type[AnyCu], *arguments: Any) -> CuPool[Any]:
                def opened(name: str) -> Cu:  # no `self` here: a reference cycle would keep the device open
                    return cu(pyxrt, card, context, name, closing, *arguments)

                cus = [opened(name) for name in names[cu.kernel_name]]
                return CuPool(cus, self._closing, opened, probe_after_s, timeout_s)

            rate = clocks_per_s(container.mode)
            if kind is ImageCus:
                polls = POLLS.get(container.mode, CARD_POLLS)
                self._cus: ImageCus | AudioCus = ImageCus(
                    spec,  # type: ignore[arg-type]
                    open_pool,
                    launch,
                    polls,
                    rate,
                    max_megapixels,
                )
            else:
                self._cus = AudioCus(spec, open_pool, rate)  # type: ignore[arg-type]
        except (IndexError, RuntimeError) as error:  # XRT raises both; IndexError if the kernel lacks an argument
            raise DpuUnavailable(f"device {device} cannot be used with {xclbin}: {error}") from error
        self._cpu = CpuPreprocessor(spec, max_megapixels=max_megapixels, damaged=damaged)

    async def __aenter__(self) -> "Dpu[Spec]":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the device, and end a run that still hangs. Calls in progress and later calls raise, whatever the
        fallback."""
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
        """Probe all CUs that are out of service now, while other requests run.

        A CU that does a known job right is back in service. Returns the names of the CUs that stay out of service."""
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
        """The number of images that the CPU took although it or a CU found them damaged."""
        return self._cpu.damaged + self._disputed

    @property
    def out_of_service(self) -> dict[str, str]:
        """The reason why a CU is out of service, by the name of the CU."""
        return {name: reason for pool in self._cus.pools for name, reason in pool.lost.items()}

    def states(self) -> list[UnitState]:
        """Return the state of each CU. The CPU threads are not among them."""
        return [state for pool in self._cus.pools for state in pool.states()]

    async def preprocess(self, data: bytes) -> NDArray[Any]:
        """Return the model's input tensor for the bytes of a file, in `spec.dtype`. Raises the errors of `process`."""
        return (await self.process(data)).tensor

    async def process(self, data: bytes, stage: ImageStage | AudioStage | None = None) -> Preprocessed:
        """Preprocess one file.

        Args:
            data: The bytes of the file.
            stage: The last stage that runs, an ImageStage or AudioStage as the spec needs. None runs all stages.

        Returns:
            The result. Its tensor is as that kind's `preprocess` in reference/ makes it.

        Raises:
            CorruptInput, BadInput, UsageError: The CPU path cannot take the input either.
            UnsupportedInput: The DPU cannot take the input, with Fallback.RAISE.
            DpuUnavailable: No CU is left, with Fallback.RAISE.
            PreprocessorUnavailable: The driver is closed.
        """
        try:
            done, status = await self._cus.process(data, stage, self._timeout_s)  # type: ignore[arg-type]
        except DpuUnavailable as error:
            if self.fallback is Fallback.RAISE or self._closing.is_set():
                raise
            return replace(await self._on_cpu(data, stage), out_of_service=str(error))
        except UnsupportedInput as error:
            self._counters.refused += 1
            if self.fallback is Fallback.RAISE:
                raise
            return replace(await self._on_cpu(data, stage), refused=str(error))
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
        if done.damage is None and not isinstance(self.spec, AudioSpec) and _finds_damage(status, data):
            self._disputed += 1
            opinions = f"a CU finds {status.name} ({status.reason}), the CPU path finds nothing wrong"
            done = replace(done, damage=opinions)
        return done

    async def _on_cpu(self, data: bytes, stage: ImageStage | AudioStage | None) -> Preprocessed:
        self._counters.on_cpu += 1
        return await self._cpu.process(data, stage)


def _left_out(container: Xclbin, spec: object, launch: Launch) -> str:
    """Return what the spec and the launch need and the container's configuration lacks, with what to do; "" if nothing.

    A container of another tool does not say which configuration it has. There the CU answers BAD_ARGUMENT."""
    configuration = build_metadata.unpack(container.build_metadata).get("configuration")
    constants = configuration.get("constants") if isinstance(configuration, dict) else None
    if not isinstance(constants, dict):
        return ""
    if isinstance(spec, ProcessorSpec) and not constants.get("programs", 1):
        return "programs; image processors need a container of `headrace build --configuration full`"
    if launch is Launch.QUEUE and not constants.get("queue", 1):
        return "a queue; launch them by single starts, or build with `--configuration full`"
    return ""


def _finds_damage(status: Status, jpeg: bytes) -> bool:
    """Return whether the status says that the image itself is damaged, in a way that may change its pixels."""
    if status is Status.CORRUPT_HEADER:
        return not image_file.has_harmless_faults(jpeg)
    return status in (Status.TRUNCATED, Status.CORRUPT_HUFFMAN, Status.RESTART_MISMATCH)


def _lacking(kernel: KernelSpec) -> list[str]:
    """Return the arguments that this release passes and that a container's kernel, from an earlier release, does not
    have.

    XRT does not list the names of arguments, and its error for an unknown number says little."""
    (own,) = parse_kernels((hls_folder() / kernel.name / "kernel.xml").read_bytes())
    return [arg.name for arg in own.args if arg.name not in {each.name for each in kernel.args}]

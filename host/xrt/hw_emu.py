"""Clocked kernels that Verilator compiled: the Python side of bitstreams/hw_emu/hw_emu.h, and the engine of `hw_emu`
devices."""

import ctypes
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.batching import HeadraceError
from headrace.bitstreams.kernel import KernelSpec
from headrace.host.xrt.engine import Memory, MemoryRange, Outcome, RunFailed

# The longest run of the image CU, on an image of 8192 x 65500 pixels, takes some 600 M clocks.
MAX_CYCLES = 1_000_000_000
MAX_IDLE = 1 << 22
CLOCK_MHZ = 300


class KernelFailed(HeadraceError):
    """The run failed: it took too long, broke a rule of AXI or failed an assertion. The message says which.

    The next run of the model begins with a reset."""


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """Set the timing of the memory at a kernel's AXI4 ports.

    Args:
        latency: clocks from an address to its first data, and from the last data of a write to its response; 1 or more.
        bandwidth: data beats per clock on each port in each direction; above 0, at most 1.
        max_outstanding: bursts in flight on each port in each direction; 1 to 64.
        stall: probability per clock that a channel pauses, the host's AXI4-Lite channel included; 0 to below 1.
        errors: probability that a beat of a read or the response to a write is SLVERR or DECERR; 0 to below 1.
        seed: seed of the pauses and errors.

    Raises ValueError."""

    latency: int = 120
    bandwidth: float = 1.0
    max_outstanding: int = 32
    stall: float = 0.0
    errors: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.latency >= 1 and 0 < self.bandwidth <= 1 and 1 <= self.max_outstanding <= 64):
            raise ValueError(
                f"{self}: give a latency from 1, a bandwidth above 0 and at most 1, and max_outstanding from 1 to 64"
            )
        if not (0 <= self.stall < 1 and 0 <= self.errors < 1):
            raise ValueError(f"{self}: give stall and errors of 0 or more and below 1")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Count the bursts and data beats of one AXI4 port in one run, and the errors of memory.

    A beat of a read may be an error, and so may the one response to a burst of a write."""

    read_bursts: int
    read_beats: int
    read_errors: int
    write_bursts: int
    write_beats: int
    write_errors: int


@dataclass(frozen=True, slots=True)
class KernelRun:
    """Hold the measurements of one run.

    Args:
        cycles: clocks from the one that accepts ap_start to the one that reports done.
        total_cycles: `cycles` and the host's register accesses before and after it.
        registers: the values of the registers that `KernelModel.run` was asked to read, by offset.
        traffic: the traffic of each AXI4 port, by port name."""

    cycles: int
    total_cycles: int
    registers: Mapping[int, int]
    traffic: Mapping[str, Traffic]


class _Range(ctypes.Structure):
    _fields_ = (("base", ctypes.c_uint64), ("size", ctypes.c_uint64), ("host", ctypes.c_void_p))


class _Register(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint32), ("value", ctypes.c_uint32))


class _Options(ctypes.Structure):
    _fields_ = (
        ("latency", ctypes.c_uint32),
        ("max_outstanding", ctypes.c_uint32),
        ("bandwidth", ctypes.c_double),
        ("stall", ctypes.c_double),
        ("errors", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("max_cycles", ctypes.c_uint64),
        ("max_idle", ctypes.c_uint64),
        ("poll", ctypes.c_uint32),
        ("launch", ctypes.c_uint32),
        ("renew", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("wave", ctypes.c_char_p),
    )


class _Traffic(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in Traffic.__slots__)


class _Results(ctypes.Structure):
    _fields_ = (("cycles", ctypes.c_uint64), ("total", ctypes.c_uint64), ("message", ctypes.c_char * 1024))


class KernelModel:
    """Run one compute unit of a hw_emu library. Its state stays between runs. Only one thread at a time may use it."""

    def __init__(self, library: ctypes.CDLL, seed: int = 0) -> None:
        """Create the model. `seed` sets the content of registers and memories before reset."""
        library.hw_emu_create.argtypes = (ctypes.c_uint64,)
        library.hw_emu_create.restype = ctypes.c_void_p
        library.hw_emu_destroy.argtypes = (ctypes.c_void_p,)
        library.hw_emu_destroy.restype = None
        library.hw_emu_port.argtypes = (ctypes.c_size_t,)
        library.hw_emu_port.restype = ctypes.c_char_p
        self._library = library
        self._model = ctypes.c_void_p(library.hw_emu_create(seed))
        self.ports: list[str] = []
        while (name := library.hw_emu_port(len(self.ports))) is not None:
            self.ports.append(name.decode())
        self._end = weakref.finalize(self, library.hw_emu_destroy, self._model)
        self._end.atexit = False  # a thread may still execute the model when the process ends

    def run(
        self,
        writes: Mapping[int, int],
        ranges: Sequence[MemoryRange],
        reads: Sequence[int] = (),
        *,
        memory: MemoryModel | None = None,
        max_cycles: int = MAX_CYCLES,
        max_idle: int = MAX_IDLE,
        poll: bool = False,
        launch: int = 0,
        renew: bool = False,
        wave: Path | None = None,
    ) -> KernelRun:
        """Write the registers, start the kernel, wait for its end and read registers.

        Args:
            writes: 32-bit values of the registers to write before the start, by offset.
            ranges: the memory that the kernel sees. The caller keeps the buffers until this function returns.
            reads: offsets of the registers to read at the end.
            max_cycles: clocks that the run may take.
            max_idle: the kernel counts as hung after this many clocks without a transfer on any memory port.
            poll: read the control register until the kernel is done, instead of waiting for the interrupt.
            launch: clocks that pass before the start.
            renew: restart the count to `max_cycles` at each word that the kernel writes.
            wave: a VCD file to write; SAIF if the library was built for it.

        Raises KernelFailed."""
        memory = memory or MemoryModel()
        options = _Options(
            memory.latency,
            memory.max_outstanding,
            memory.bandwidth,
            memory.stall,
            memory.errors,
            memory.seed,
            max_cycles,
            max_idle,
            poll,
            launch,
            renew,
            0,
            None if wave is None else os.fsencode(wave),
        )
        written = (_Register * len(writes))(*(_Register(offset, value) for offset, value in writes.items()))
        read = (_Register * len(reads))(*(_Register(offset, 0) for offset in reads))
        mapped = (_Range * len(ranges))(*(_Range(r.base, r.size, r.pointer) for r in ranges))
        traffic = (_Traffic * len(self.ports))()
        results = _Results()
        failed = self._library.hw_emu_run(
            self._model,
            ctypes.byref(options),
            mapped,
            ctypes.c_size_t(len(mapped)),
            written,
            ctypes.c_size_t(len(written)),
            read,
            ctypes.c_size_t(len(read)),
            traffic,
            ctypes.byref(results),
        )
        if failed:
            raise KernelFailed(results.message.decode(errors="replace"))
        return KernelRun(
            results.cycles,
            results.total,
            {register.offset: register.value for register in read},
            {
                port: Traffic(*(getattr(entry, name) for name in Traffic.__slots__))
                for port, entry in zip(self.ports, traffic, strict=True)
            },
        )

    def write_coverage(self, path: Path) -> None:
        """Write the lines and toggles that the runs so far have covered, in Verilator's format.

        Raises ValueError if the library was built without coverage."""
        if self._library.hw_emu_write_coverage(self._model, os.fsencode(path)):
            raise ValueError("the library was built without coverage; build it with coverage")


def register_writes(spec: KernelSpec, values: Mapping[int, int]) -> dict[int, int]:
    """Return the values of the 32-bit registers, by offset, that hold the arguments `values` (by argument index)."""
    return {
        arg.offset + 4 * word: values[arg.index] >> 32 * word & 0xFFFFFFFF
        for arg in spec.args
        for word in range(arg.size // 4)
    }


class HwEmuEngine:
    """Execute the runs of one compute unit of a `hw_emu` container.

    bitstreams/hw_emu/library.py defines the container's BITSTREAM section. The unit is reset after a failed run."""

    def __init__(self, library: ctypes.CDLL, seed: int) -> None:
        self._model = KernelModel(library, seed)
        self.memory_model = MemoryModel()
        self.launch_us = 0.0

    def execute(self, spec: KernelSpec, values: Mapping[int, int], memory: Memory, wave: Path | None = None) -> Outcome:
        reads = [*spec.outputs.values(), *spec.counters.values()]
        try:
            done = self._model.run(
                register_writes(spec, values),
                memory.ranges(),
                reads,
                memory=self.memory_model,
                wave=wave,
                launch=round(self.launch_us * CLOCK_MHZ),
                renew=True,  # a run that serves a queue has no limit on its length
            )
        except KernelFailed as error:
            raise RunFailed(str(error)) from error
        counters = {name: done.registers[offset] for name, offset in spec.counters.items()}
        outputs = {offset: done.registers[offset] for offset in spec.outputs.values()}
        return Outcome(outputs, {"cycles": done.cycles} | counters)

"""Verilated compute units behind hw_emu's driver: any kernel, and image_cu as a function like units.image_cu."""

import atexit
import ctypes
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from builds import built, whole
from cocotb_program import FLAGS, INCLUDES, MAIN, SOURCES, VERSIONS, link_program
from includes import update
from numpy.typing import NDArray
from rtlsim import COVERAGE_FOLDER, coverage_file, coverage_of
from units import CENTRED, CuResult

from headrace.bitstreams.configurations import FULL, kernel_xml
from headrace.bitstreams.hw_emu.library import DRIVER, LIBRARY_FLAGS, driver_sources, kernel_objects
from headrace.bitstreams.kernel import KernelSpec, parse_kernels
from headrace.bitstreams.verilate import (
    COMPILE_FLAGS,
    VERILATE_FLAGS,
    VPI,
    link,
    needed_files,
    rtl_sources,
)
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.engine import MemoryRange
from headrace.host.xrt.hw_emu import KernelModel, KernelRun, MemoryModel, register_writes

LIBRARY = "hw_emu.so"
MAX_CYCLES = 100_000_000
BANK = 512 << 20  # device memory is reached in banks; each buffer here lies in one of its own
STAGGER = 0xFF0  # and begins just before a 4 KiB border, where bursts must be split


@dataclass(frozen=True)
class RtlResult(CuResult):
    run: KernelRun
    counters: dict[str, int]


@cache
def spec(kernel: str, configuration: str = FULL) -> KernelSpec:
    return parse_kernels(kernel_xml(kernel, configuration))[0]


@cache
def library(kernel: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(model_file(kernel)))


def sources(kernel: str, configuration: str = FULL) -> list[Path]:
    return needed_files(kernel, rtl_sources(configuration=configuration))


def model_file(kernel: str, *, configuration: str = FULL) -> Path:
    """The library of hw_emu. A container for hw_emu holds the same file, see containers.py."""
    return folder(kernel, configuration=configuration) / LIBRARY


@cache
def folder(kernel: str, *, configuration: str = FULL) -> Path:
    """One model of the kernel, linked to a LIBRARY for hw_emu and, with the kernel's name, to a program for cocotb.

    They are kept by content in build/tests/, and compiled when the RTL below the kernel or the driver has changed."""
    files = sources(kernel, configuration)
    coverage = coverage_of(files)
    key = (coverage, VERILATE_FLAGS, COMPILE_FLAGS, LIBRARY_FLAGS, FLAGS, spec(kernel, configuration), VERSIONS)
    digest = hashlib.sha256(repr(key).encode())
    update(digest, [*files, *driver_sources(), *SOURCES])
    chosen = "" if configuration == FULL else f"_{configuration}"

    def build(target: Path) -> None:
        objects = kernel_objects(
            spec(kernel, configuration), files, [MAIN], includes=INCLUDES, coverage=coverage, verilate_flags=FLAGS
        )
        with objects as made, whole(target) as folder:
            link_program(folder / kernel, [made[file] for file in made if file != DRIVER])
            link(folder / LIBRARY, [made[file] for file in made if file != MAIN and file.name != VPI], ["-shared"])

    return built(f"cu_{kernel}{chosen}{'_coverage' if coverage == 'all' else ''}", digest.hexdigest(), "", build)


@cache
def shared_model(kernel: str) -> KernelModel:
    """One compute unit for many tests, so that each meets the state that another left."""
    model = KernelModel(library(kernel), seed=1)
    if COVERAGE_FOLDER:
        atexit.register(model.write_coverage, coverage_file(kernel))
    return model


def run(
    kernel: str,
    buffers: Mapping[str, NDArray[np.uint8]],
    scalars: Mapping[str, int],
    *,
    model: KernelModel | None = None,
    behind: MemoryModel | None = None,
    stagger: int = STAGGER,
    high: int = 0,
    addresses: Mapping[str, int] | None = None,
    max_cycles: int = MAX_CYCLES,
    wave: Path | None = None,
) -> KernelRun:
    """One run, with the registers of outputs and counters. Each buffer, of whole words of 16 bytes, is all the memory
    there is around it: any access beyond it is answered with an error, and so ends in BUS_ERROR. Where words of its
    port are wider, the rest of its first and last word is there and must stay.

    `behind`: how memory behaves; `stagger`: where in a page buffers begin; `high`: more bits of their addresses;
    `addresses` replaces some pointers."""
    base = {name: high + (number + 1) * BANK + stagger for number, name in enumerate(buffers)}
    if "workspace" in base:
        base["workspace"] = -(-base["workspace"] // 128) * 128
    given = base | dict(scalars) | dict(addresses or {})
    index = {arg.name: arg for arg in spec(kernel).args}
    width = {port.name: port.data_width // 8 for port in spec(kernel).ports}
    rooms = [_Room(base[name], buffer, width[index[name].port]) for name, buffer in buffers.items()]
    outputs = list(spec(kernel).outputs.values())
    done = (model or shared_model(kernel)).run(
        register_writes(spec(kernel), {index[name].index: value for name, value in given.items()}),
        [room.range() for room in rooms],
        outputs + list(spec(kernel).counters.values()),
        memory=behind,
        max_cycles=max_cycles,
        wave=wave,
    )
    for room in rooms:
        room.fetch()
    return done


class _Room:
    """A buffer with the rest of the words of its port around it."""

    AROUND = 0x5A

    def __init__(self, base: int, buffer: NDArray[np.uint8], word: int) -> None:
        self._before, end = base % word, -(base + buffer.nbytes) % word
        self._base, self._buffer = base - self._before, buffer
        self._whole = buffer
        if self._before or end:
            self._whole = np.full(self._before + buffer.nbytes + end, self.AROUND, np.uint8)
            self._inside()[:] = buffer

    def range(self) -> MemoryRange:
        return MemoryRange(self._base, self._whole.nbytes, self._whole.ctypes.data)

    def fetch(self) -> None:
        """Take over what the kernel wrote."""
        if self._whole is not self._buffer:
            self._buffer[:] = self._inside()
            self._inside()[:] = self.AROUND
            assert (self._whole == self.AROUND).all(), "the kernel wrote beside a buffer"

    def _inside(self) -> NDArray[np.uint8]:
        return self._whole[self._before : self._before + self._buffer.nbytes]


def recorded(run: KernelRun, behind: MemoryModel | None, addresses: Mapping[str, int] | None) -> bool:
    """Whether the record of a run is in memory: not at an address without memory, nor after a random error."""
    at_random = behind is not None and behind.errors > 0
    return "result" not in (addresses or {}) and not (at_random and errors(run)[1])


def errors(run: KernelRun) -> tuple[int, int]:
    """Return how many beats of reads and how many responses to writes were errors."""
    ports = run.traffic.values()
    return sum(port.read_errors for port in ports), sum(port.write_errors for port in ports)


def image_cu(
    jpeg: bytes,
    *,
    stage=3,
    format=0,
    resize_short=256,
    crop=(224, 224),
    at=(CENTRED, CENTRED),
    tables=None,
    capacity=None,
    memory=4 << 20,
    model: KernelModel | None = None,
    behind: MemoryModel | None = None,
    stagger: int = STAGGER,
    high: int = 0,
    addresses: dict[str, int] | None = None,
    max_cycles: int = MAX_CYCLES,
    wave: Path | None = None,
    workspace_bytes: int = 1 << 20,
    program: bytes = b"",
    ring_entries: int = 0,
) -> RtlResult:
    """One run, as units.image_cu does it; see `run` for the settings."""
    words = np.zeros(3 * 256, np.uint32)
    if tables is not None:
        words[:] = np.asarray(tables).view(f"u{np.asarray(tables).itemsize}").reshape(-1)
    buffers = {
        "jpeg": _padded(np.frombuffer(jpeg, np.uint8), 0xEE),
        "tensor": np.full(memory, 0xA5, np.uint8),
        "tables": words.view(np.uint8),
        "result": np.full(32, 0xA5, np.uint8),
        "workspace": np.full(workspace_bytes, 0xA5, np.uint8),
        "program": _padded(np.frombuffer(program, np.uint8), 0xEE),
    }
    scalars = {
        "jpeg_bytes": len(jpeg),
        "tensor_capacity": memory if capacity is None else capacity,
        "stage": stage,
        "format": format,
        "resize_short": resize_short,
        "crop_width": crop[0],
        "crop_height": crop[1],
        "crop_x": at[0],
        "crop_y": at[1],
        "workspace_bytes": workspace_bytes,
        "ring": 0,
        "ring_entries": ring_entries,
        "ring_first": 0,
        "polls": 0,
        "program_bytes": len(program),
    }
    done = run(
        "image_cu",
        buffers,
        scalars,
        model=model,
        behind=behind,
        stagger=stagger,
        high=high,
        addresses=addresses,
        max_cycles=max_cycles,
        wave=wave,
    )
    registers = {name: done.registers[offset] for name, offset in spec("image_cu").outputs.items()}
    record = buffers["result"].view("<u4")
    if recorded(done, behind, addresses):
        assert list(record[:5]) == list(registers.values()), "record and registers differ"
    return RtlResult(
        Status(registers["status"]),
        (registers["out_width"], registers["out_height"]),
        (registers["src_width"], registers["src_height"]),
        int(record[5]) | int(record[6]) << 32,
        buffers["tensor"],
        done,
        {name: done.registers[offset] for name, offset in spec("image_cu").counters.items()},
    )


def _padded(data: NDArray[np.uint8], fill: int) -> NDArray[np.uint8]:
    """Whole words of 16 bytes, at least one."""
    whole = np.full(max(16, -(-len(data) // 16) * 16), fill, np.uint8)
    whole[: len(data)] = data
    return whole

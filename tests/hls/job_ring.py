"""image_cu with a ring of jobs, as C++ and as RTL: the same memory before, what each made of it after."""

import ctypes
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import cu_rtlsim
import numpy as np
import units
from numpy.typing import NDArray

from headrace.host.dpu.specs import IMAGE_FORMATS, ImageSpec, ImageStage
from headrace.host.xrt.hw_emu import KernelFailed, KernelRun, MemoryModel

CENTRED = 0xFFFFFFFF
JOB, STOP = 0, 1
NUMBER = 15  # the word of a descriptor, and 7 that of a record
SPEC = ImageSpec(resize_short=40, crop_width=33, crop_height=31)
SLOT = 0x8000  # of a tensor
PATIENCE_S = 120.0  # of the host for a record


def descriptor(
    at: int, size: int, tensor: int, *, stage=ImageStage.NORMALIZE, dtype="float32", command=JOB
) -> list[int]:
    """Without the number."""
    return [
        at,
        size,
        tensor,
        SLOT,
        int(stage),
        IMAGE_FORMATS.index(dtype),
        SPEC.resize_short,
        SPEC.crop_width,
        SPEC.crop_height,
        CENTRED,
        CENTRED,
        command,
        0,
        0,
        0,
    ]


@dataclass
class Memory:
    """Files one after the other from multiples of 16, `slots` places for tensors, and the ring with its records."""

    files: Sequence[bytes]
    slots: int
    entries: int
    jpeg: NDArray[np.uint8] = field(init=False)
    at: list[int] = field(init=False)

    def __post_init__(self) -> None:
        sizes = [-(-len(data) // 16) * 16 for data in self.files]
        self.at = [0, *itertools.accumulate(sizes)][:-1]
        self.jpeg = units._aligned(max(16, sum(sizes)), 0xEE)
        for at, data in zip(self.at, self.files, strict=True):
            self.jpeg[at : at + len(data)] = np.frombuffer(data, np.uint8)
        self.tensor = units._aligned(self.slots * SLOT, 0xA5)
        self.tables = units._aligned(3 * 256 * 4, 0)
        self.tables.view(np.uint32)[:] = SPEC.tables().view(np.uint32).reshape(-1)
        self.workspace = units._aligned(1 << 20, 0xA5)
        self.ring = units._aligned(self.entries * 64, 0)
        self.program = units._aligned(64, 0)
        self.result = units._aligned((self.entries + 1) * 32, 0)

    def job(self, file: int, slot: int, **more) -> list[int]:
        return descriptor(self.at[file], len(self.files[file]), slot * SLOT, **more)

    def begin(self, first: int) -> None:
        """No slot seems to have a job, and no record to be there, before it is."""
        self.ring.view(np.uint32)[NUMBER::16] = self.result.view(np.uint32)[7::8] = (first - 1) & 0xFFFFFFFF

    def put(self, number: int, job: Sequence[int]) -> None:
        """As the host does: the number last."""
        slot = self.ring.view(np.uint32).reshape(-1, 16)[number % self.entries]
        slot[:NUMBER] = job
        slot[NUMBER] = number & 0xFFFFFFFF

    @property
    def run_record(self) -> int:
        """Where the record of the run is: behind those of the jobs, or the only one where the ring is refused."""
        refused = self.entries & (self.entries - 1) or self.entries > 65536
        return 0 if refused else self.entries

    def records(self) -> NDArray[np.uint32]:
        """The last one is the run's."""
        return self.result.view(np.uint32).reshape(-1, 8)

    def record(self, number: int) -> list[int]:
        return self.records()[number % self.entries].tolist()


def csim(memory: Memory, first: int, polls: int) -> list[int]:
    """What the RTL has in its output registers: the run's own record begins with the same."""

    def pointer(array: NDArray[np.uint8]) -> ctypes.c_void_p:
        return array.ctypes.data_as(ctypes.c_void_p)

    units.library().image_cu(
        pointer(memory.jpeg),
        ctypes.c_uint32(memory.jpeg.nbytes),
        pointer(memory.tensor),
        ctypes.c_uint32(memory.tensor.nbytes),
        pointer(memory.tables),
        pointer(memory.result),
        *(ctypes.c_uint32(0) for _ in range(7)),
        pointer(memory.workspace),
        ctypes.c_uint32(memory.workspace.nbytes),
        pointer(memory.ring),
        ctypes.c_uint32(memory.entries),
        ctypes.c_uint32(first & 0xFFFFFFFF),
        ctypes.c_uint32(polls),
        pointer(memory.program),
        ctypes.c_uint32(memory.program.nbytes),
    )
    return memory.records()[memory.run_record][:5].tolist()


def rtl_run(memory: Memory, first: int, polls: int, *, behind: MemoryModel | None = None, **more) -> KernelRun:
    buffers = {
        name: getattr(memory, name) for name in ("jpeg", "tensor", "tables", "result", "workspace", "ring", "program")
    }
    scalars = {
        "jpeg_bytes": memory.jpeg.nbytes,
        "tensor_capacity": memory.tensor.nbytes,
        "ring_entries": memory.entries,
        "workspace_bytes": memory.workspace.nbytes,
        "ring_first": first & 0xFFFFFFFF,
        "polls": polls,
        "program_bytes": memory.program.nbytes,
    }
    unused = ("stage", "format", "resize_short", "crop_width", "crop_height", "crop_x", "crop_y")
    return cu_rtlsim.run(
        "image_cu", buffers, scalars | dict.fromkeys(unused, 0), behind=behind, **({"stagger": 0xFC0} | more)
    )


def rtlsim(memory: Memory, first: int, polls: int, **more) -> list[int]:
    """The output registers."""
    done = rtl_run(memory, first, polls, **more)
    return [done.registers[offset] for offset in cu_rtlsim.spec("image_cu").outputs.values()]


def stalled(memory: Memory, first: int, polls: int) -> list[int]:
    return rtlsim(memory, first, polls, behind=MemoryModel(stall=0.3, seed=first % 1000))


CUS: dict[str, Callable[..., list[int]]] = {"csim": csim, "rtlsim": rtlsim, "stalled": stalled}


def live(
    cu: Callable[..., list[int]],
    memory: Memory,
    jobs: Sequence[Sequence[int]],
    *,
    first=1,
    ahead: Callable[[], int] = lambda: 1 << 30,
    stop=True,
    polls=1 << 22,
) -> tuple[list[list[int]], list[int]]:
    """The host puts jobs while the CU runs, as many before the oldest unfinished one as there are slots and `ahead`
    says, then a stop. The records by job, and the output registers."""
    registers: list[list[int]] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            registers.append(cu(memory, first, polls))
        except (KernelFailed, AssertionError) as error:
            failures.append(error)

    memory.begin(first)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    records: list[list[int]] = []
    put = 0
    given = [*jobs, descriptor(0, 0, 0, command=STOP)] if stop else list(jobs)
    end = time.monotonic() + PATIENCE_S
    while len(records) < len(jobs) and thread.is_alive() and time.monotonic() < end:
        while put < len(given) and put - len(records) < min(memory.entries, max(1, ahead())):
            memory.put(first + put, given[put])
            put += 1
        number = first + len(records)
        if memory.record(number)[7] == number & 0xFFFFFFFF:
            records.append(memory.record(number))
            end = time.monotonic() + PATIENCE_S
        else:
            time.sleep(0.0002)
    while put < len(given):
        memory.put(first + put, given[put])
        put += 1
    thread.join(PATIENCE_S)
    assert not failures, failures
    assert not thread.is_alive(), "the run does not end"
    for number in range(first + len(records), first + len(jobs)):  # those that came with the end
        assert memory.record(number)[7] == number & 0xFFFFFFFF, "jobs without a record"
        records.append(memory.record(number))
    return records, registers[0]

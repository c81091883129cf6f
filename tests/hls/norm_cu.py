"""audio_norm_cu as a function, csim and rtlsim, and the contents of device memory that it runs on."""

import ctypes
from dataclasses import dataclass
from functools import cache

import csim
import cu_rtlsim
import numpy as np
from numpy.typing import NDArray
from units import _aligned

from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import KernelModel, KernelRun, MemoryModel

FORMATS = ("float32", "float16")
BY_FRAMES = 2  # of `format`: rows of the tensor are frames
STD_FLOOR = round(1e-5 * 2**40)
PLACES = 18  # binary ones of a log-mel value
UNTOUCHED = 0xA5
STATISTICS = (-(1 << 23), 0, 0)  # least, mean, scale


def statistics(ddof: int, variance_floor: float) -> tuple[int, int, int]:
    """Return the rule of the statistics over all frames that count but `ddof`, with what is added to the variance."""
    return STATISTICS[0], round(variance_floor * 2**36) | (ddof == 0) << 16, 0


@dataclass(frozen=True)
class NormResult:
    """`record`: its words behind the status; `memory`: the whole output buffer, 0xA5 where nothing was written."""

    status: Status
    record: tuple[int, ...]
    memory: NDArray[np.uint8]

    def tensor(self, dtype: str, by_frames: bool = False) -> NDArray[np.float64]:
        """(mels, frames), also of a tensor whose rows are frames. Checks pitch, size, and the zeros behind each row."""
        assert self.status == Status.OK
        frames, mels, pitch, size, *rest = self.record
        count, length = (frames, mels) if by_frames else (mels, frames)
        assert pitch == -(-length * np.dtype(dtype).itemsize // 16) * 16 and size == count * pitch and rest == [0, 0, 0]
        rows = self.memory[:size].view(dtype).reshape(count, -1)
        assert not rows[:, length:].view(np.uint8).any(), "no zeros behind a row"
        assert (self.memory[size:] == UNTOUCHED).all(), "bytes behind the tensor were written"
        values = rows[:, :length].astype(np.float64)
        return values.T if by_frames else values


@dataclass(frozen=True)
class RtlNormResult(NormResult):
    run: KernelRun
    counters: dict[str, int]

    @property
    def cycles(self) -> int:
        return self.run.cycles


def quantised(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(values * 2.0**PLACES).astype(np.int64)


def contents(q: NDArray[np.int64], sums=None, squares=None, *, counted=None) -> NDArray[np.uint8]:
    """Return what audio_mel_cu leaves: (frames, mels) values as float32, then their statistics, or other ones.

    The statistics are of the first `counted` frames, or of all."""
    values = (q / 2.0**PLACES).astype("<f4")
    statistics = np.zeros((q.shape[1], 2), np.uint64)
    of = q[:counted]
    statistics[:, 0] = (of.sum(0) if sums is None else np.asarray(sums)).view(np.uint64)
    statistics[:, 1] = (of * of).sum(0).astype(np.uint64) if squares is None else squares
    return np.concatenate([values.view(np.uint8).reshape(-1), statistics.view(np.uint8).reshape(-1)])


def tensor_bytes(frames: int, mels: int, format: int) -> int:
    rows, values = (frames, mels) if format & BY_FRAMES else (mels, frames)
    return -(-values * (2 if format & 1 else 4) // 16) * 16 * rows


def arguments(
    frames, counted, mels, format, std_floor, rule, capacity, memory
) -> tuple[NDArray[np.uint8], dict[str, int]]:
    """Return the output buffer and the scalars.

    `counted` defaults to `frames`, `capacity` to `memory`, and that to what the tensor needs and more."""
    if memory is None:
        memory = tensor_bytes(frames, mels, format) + 256
    given = _aligned(memory, UNTOUCHED)
    return given, {
        "frames": frames,
        "counted": frames if counted is None else counted,
        "mels": mels,
        "tensor_capacity": len(given) if capacity is None else capacity,
        "format": format,
        "std_floor": std_floor,
        **{name: value % 2**32 for name, value in zip(("least", "mean", "scale"), rule, strict=True)},
    }


@cache
def library() -> ctypes.CDLL:
    return csim.load("audio_norm_cu")


def run_csim(
    mel,
    frames,
    mels,
    *,
    counted=None,
    format=0,
    std_floor=STD_FLOOR,
    rule=STATISTICS,
    capacity=None,
    memory: int | None = None,
) -> NormResult:
    tensor, scalars = arguments(frames, counted, mels, format, std_floor, rule, capacity, memory)
    source, result = _aligned(len(mel), 0), _aligned(32, UNTOUCHED)
    source[: len(mel)] = mel
    library().audio_norm_cu(
        *(ctypes.c_void_p(buffer.ctypes.data) for buffer in (source, tensor, result)),
        *map(ctypes.c_uint32, scalars.values()),
    )
    code, *record = map(int, result.view("<u4"))
    return NormResult(Status(code), tuple(record), tensor)


def run_rtlsim(
    mel,
    frames,
    mels,
    *,
    counted=None,
    format=0,
    std_floor=STD_FLOOR,
    rule=STATISTICS,
    capacity=None,
    memory: int | None = None,
    model: KernelModel | None = None,
    behind: MemoryModel | None = None,
    max_cycles=50_000_000,
    **placed,
) -> RtlNormResult:
    """The same, with what `cu_rtlsim.run` takes besides."""
    tensor, scalars = arguments(frames, counted, mels, format, std_floor, rule, capacity, memory)
    result = np.full(32, UNTOUCHED, np.uint8)
    run = cu_rtlsim.run(
        "audio_norm_cu",
        {"mel": np.ascontiguousarray(mel), "tensor": tensor, "result": result},
        scalars,
        model=model,
        behind=behind,
        max_cycles=max_cycles,
        **placed,
    )
    spec = cu_rtlsim.spec("audio_norm_cu")
    (register,) = spec.outputs.values()
    code, *record = map(int, result.view("<u4"))
    if cu_rtlsim.recorded(run, behind, placed.get("addresses")):
        assert code == run.registers[register], "record and register differ"
    counters = {name: run.registers[offset] for name, offset in spec.counters.items()}
    return RtlNormResult(Status(run.registers[register]), tuple(record), tensor, run, counters)

"""audio_mel_cu as a function, csim and rtlsim, and what lies in device memory for it and behind it."""

import ctypes
from dataclasses import dataclass
from functools import cache

import csim
import cu_rtlsim
import numpy as np
from numpy.typing import NDArray
from units import _aligned

from headrace.host.dpu.specs import AudioSpec
from headrace.host.dpu.units.audio_cu import registers, tables
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import KernelModel, KernelRun, MemoryModel

RESAMPLE, MEL = 0, 1
UNTOUCHED = 0xA5
SPEC = AudioSpec()


@dataclass(frozen=True)
class MelResult:
    """`memory`: the whole output buffer, 0xA5 where nothing was written; `bytes` of it are told of."""

    status: Status
    count: int
    source: tuple[int, int]  # samples, rate
    bytes: int
    memory: NDArray[np.uint8]
    greatest: int  # log-mel, LSB 2^-18

    @property
    def told(self) -> tuple[object, ...]:
        """All that C++ and RTL must agree upon."""
        return self.status, self.count, self.source, self.bytes, self.greatest, self.memory.tobytes()

    def samples(self) -> NDArray[np.float32]:
        assert self.status == Status.OK and self.bytes == 4 * self.count
        end = -(-self.bytes // 16) * 16
        assert not self.memory[self.bytes : end].any() and (self.memory[end:] == UNTOUCHED).all()
        return self.memory[: self.bytes].view(np.float32)

    def bands(self, mels: int, left_out: int = SPEC.left_out) -> NDArray[np.float32]:
        """(T, mels). Checks the statistics behind them, which leave out so many frames at the end."""
        assert self.status == Status.OK and self.bytes == (self.count + 4) * mels * 4
        assert (self.memory[self.bytes :] == UNTOUCHED).all()
        values = self.memory[: self.count * mels * 4].view(np.float32).reshape(-1, mels)
        q = (values[: self.count - left_out].astype(np.float64) * 2**18).astype(np.int64)
        sums = self.memory[self.count * mels * 4 : self.bytes].view(np.int64).reshape(mels, 2)
        assert np.array_equal(sums, np.stack([q.sum(0), (q * q).sum(0)], 1)), (
            "the statistics are not those of the values"
        )
        return values


@dataclass(frozen=True)
class RtlMelResult(MelResult):
    run: KernelRun
    counters: dict[str, int]

    @property
    def cycles(self) -> int:
        return self.run.cycles


@cache
def library() -> ctypes.CDLL:
    return csim.load("audio_mel_cu")


def _setup(wav: bytes, stage, spec, taps_rate, capacity, memory, scalars):
    """Buffers by argument, and scalars."""
    source = _aligned(max(16, len(wav)), 0xEE)
    source[: len(wav)] = np.frombuffer(wav, np.uint8)
    table = tables(spec, taps_rate if taps_rate in spec.rates else spec.rate)
    held = _aligned(len(table), 0)
    held[:] = table
    buffers = {"wav": source, "mel": _aligned(memory, UNTOUCHED), "tables": held, "result": _aligned(32, UNTOUCHED)}
    given = {"wav_bytes": len(wav), "mel_capacity": memory if capacity is None else capacity, "stage": stage}
    given |= registers(spec) | {"taps_rate": taps_rate} | (scalars or {})
    return buffers, given


def _result(registers: dict[str, int], given: dict[str, int], buffers, has_record: bool = True):
    record = buffers["result"].view("<u4")
    told = [registers[name] for name in ("status", "count", "source_rate", "source_count")]
    if not has_record:
        return Status(told[0]), told[1], (told[3], told[2]), 0, buffers["mel"], 0
    assert [record[i] for i in (0, 1, 3, 4)] == told, "record and registers differ"
    refused = told[0] == Status.BAD_ARGUMENT and not told[3]
    assert record[2] in ((0, given["mels"]) if refused else (given["mels"] if given["stage"] else 0,))
    assert not record[6]
    return Status(told[0]), told[1], (told[3], told[2]), int(record[5]), buffers["mel"], int(record[7:].view("<i4")[0])


def mel_csim(
    wav: bytes,
    stage: int = MEL,
    spec: AudioSpec = SPEC,
    *,
    taps_rate: int = 16000,
    capacity: int | None = None,
    memory: int = 1 << 20,
    scalars: dict[str, int] | None = None,
) -> MelResult:
    """One run of the C++. `capacity` defaults to `memory` bytes; `scalars` replaces registers."""
    buffers, given = _setup(wav, stage, spec, taps_rate, capacity, memory, scalars)
    library().audio_mel_cu(
        *(buffer.ctypes.data_as(ctypes.c_void_p) for buffer in buffers.values()),
        *(ctypes.c_uint32(value) for value in given.values()),
    )
    record = buffers["result"].view("<u4")
    outputs = {"status": record[0], "count": record[1], "source_rate": record[3], "source_count": record[4]}
    return MelResult(*_result({name: int(value) for name, value in outputs.items()}, given, buffers))


def mel_rtlsim(
    wav: bytes,
    stage: int = MEL,
    spec: AudioSpec = SPEC,
    *,
    taps_rate: int = 16000,
    capacity: int | None = None,
    memory: int = 1 << 20,
    scalars: dict[str, int] | None = None,
    model: KernelModel | None = None,
    behind: MemoryModel | None = None,
    addresses: dict[str, int] | None = None,
    stagger: int = cu_rtlsim.STAGGER,
    max_cycles: int = 20_000_000,
) -> RtlMelResult:
    """One run of the RTL, as mel_csim."""
    buffers, given = _setup(wav, stage, spec, taps_rate, capacity, memory, scalars)
    run = cu_rtlsim.run(
        "audio_mel_cu",
        buffers,
        given,
        model=model,
        behind=behind,
        addresses=addresses,
        stagger=stagger,
        max_cycles=max_cycles,
    )
    kernel = cu_rtlsim.spec("audio_mel_cu")
    outputs = {name: run.registers[offset] for name, offset in kernel.outputs.items()}
    counters = {name: run.registers[offset] for name, offset in kernel.counters.items()}
    recorded = cu_rtlsim.recorded(run, behind, addresses)
    return RtlMelResult(*_result(outputs, given, buffers, recorded), run, counters)

"""Drive the audio CUs. A request runs on audio_mel_cu (CU A: resample and mel), then on audio_norm_cu (CU B:
normalize).

The CUs are two because normalize needs the statistics of the whole input (PREBA, Figure 12): while B works on one
request, A works on the next. A leaves its result in a device buffer, which B then reads, so that no CU waits for
another one.
"""

import math
import struct
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UnsupportedInput, UsageError
from headrace.host.dpu.fair_pool import FairPool
from headrace.host.dpu.preprocessor import CuRun, Preprocessed
from headrace.host.dpu.reference import audio, audio_file
from headrace.host.dpu.reference.audio_file import Pcm
from headrace.host.dpu.specs import AUDIO_FORMATS, AudioSpec, AudioStage, Ends, Floor, Rescale, Statistics
from headrace.host.dpu.units.audio_tables import (
    FLOOR_ONE,
    LOG_ONE,
    MEAN_ONE,
    PREEMPHASIS_ONE,
    added_floor,
    filter_program,
    floor_of,
    least_log,
    log_offset,
    plan_of,
    taps_table,
    window_table,
)
from headrace.host.dpu.units.cu import Cu, CuLost, as_int
from headrace.host.dpu.units.pool import CuPool, OpenPool
from headrace.host.dpu.units.run_limits import audio_clocks
from headrace.host.dpu.units.status import Status

STATISTICS_BYTES = 16  # for each band, after the log-mels
PROGRAM_BYTES = 6144  # at the start of `tables`, before the taps: the filterbank's program, and the window
MAX_SAMPLES = 65535 * 160 - 1  # of a sound at 16 kHz
LARGEST_LOG = 32  # of a log-mel
ROWS_OF_FRAMES = 2  # of CU B's `format`
NO_LEAST = -(1 << 23)  # least of all log-mels
VARIANCE_ONE, WHOLE_VARIANCE = 1 << 36, 1 << 16  # of what is added to a variance; and a variance over all frames
FACTOR_BITS, FACTOR_SHIFT = 24, 31  # a factor is n * 2^(shift - 31), n of 24 bits
# Fields of a spec that the CUs have one value for, which is the default.
FIXED = ("mel",)


def tables(spec: AudioSpec, rate: int) -> NDArray[np.uint8]:
    """Return the content of `tables` for files of `rate` Hz: the program of the filterbank, the window, the taps."""
    parts = (
        filter_program(spec).astype("<u8"),
        window_table(spec).astype("<u4"),
        taps_table(spec, rate).astype("<i4"),
    )
    assert parts[0].nbytes + parts[1].nbytes == PROGRAM_BYTES
    return np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])


def log_scale(spec: AudioSpec) -> float:
    """Return by what a natural logarithm is multiplied: the CUs know no other one."""
    return 1 / math.log(10) if spec.log10 else 1.0


def norm_registers(spec: AudioSpec, greatest: int) -> dict[str, int]:
    """Return the scalars of CU B from `std_floor` on, where `greatest` is the greatest log-mel, LSB 2^-18.

    Raises UsageError for a factor that the unit does not take."""
    rule, scale = spec.normalize, log_scale(spec)
    if isinstance(rule, Statistics):
        std_floor = round(spec.std_floor / scale * FLOOR_ONE)
        of_variance = round(rule.variance_floor / scale**2 * VARIANCE_ONE) | (WHOLE_VARIANCE if rule.ddof == 0 else 0)
        return {"std_floor": std_floor, "least": NO_LEAST, "mean": of_variance, "scale": 0}
    rule = Rescale() if rule is None else rule
    least = NO_LEAST if rule.span is None else max(NO_LEAST, greatest - round(rule.span / scale * LOG_ONE))
    mantissa, exponent = math.frexp(rule.factor * scale)
    reciprocal, shift = round(mantissa * (1 << FACTOR_BITS)), FACTOR_SHIFT - FACTOR_BITS + exponent
    if reciprocal == 1 << FACTOR_BITS:
        reciprocal, shift = reciprocal // 2, shift + 1
    mean = round(-(rule.offset / scale + log_offset(spec)) * MEAN_ONE)
    if not (rule.factor > 0 and 1 <= shift <= 47 and abs(mean) < 1 << 31):
        raise UsageError(
            f"normalize is {rule}; the DPU takes a factor of 2^-7 to below 2^40 and an offset between -32 and 32, both "
            "of natural logarithms"
        )
    return {"std_floor": 0, "least": least, "mean": mean, "scale": shift << FACTOR_BITS | reciprocal}


def registers(spec: AudioSpec) -> dict[str, int]:
    """Return the scalars of CU A that come from the spec, in their order."""
    return {
        "mels": spec.n_mels,
        "preemphasis": min(round(spec.preemphasis * PREEMPHASIS_ONE), PREEMPHASIS_ONE - 1),
        "log_floor": floor_of(spec) % 2**32,
        "left_out": spec.left_out,
        "plan": plan_of(spec),
        "min_samples": spec.padded(0),
        "max_samples": max_samples(spec),
    }


def max_samples(spec: AudioSpec) -> int:
    """Return how many samples of a sound, with the zeros behind it, CU A makes frames of."""
    lengths = spec.lengths
    if lengths.samples is not None:
        return lengths.samples
    if lengths.frames is not None:  # they lie inside
        return min(MAX_SAMPLES, (lengths.frames - 1) * spec.hop + spec.window)
    return MAX_SAMPLES


def unit_frames(spec: AudioSpec, samples: int) -> int:
    """Return how many frames of a sound of `samples` samples go through both CUs."""
    frames = spec.frames(samples)
    return frames if spec.lengths.frames is None else min(frames, spec.lengths.frames)


@dataclass(frozen=True, slots=True)
class MelResult:
    """The result of CU A.

    Args:
        status: Status of the run.
        mel: Buffer with the log-mels of `frames` frames and their statistics. None if they were fetched or the status
            is not OK.
        greatest: The greatest log-mel, LSB 2^-18.
        output: The fetched values. Empty if they stay in `mel` or the status is not OK.
        source_samples: Samples of each channel of the input.
        counters: Clocks of the run, from devices that count them.
    """

    status: Status
    mel: Any
    frames: int
    greatest: int
    output: NDArray[np.float32]
    source_samples: int
    counters: Mapping[str, int] | None


class MelCu(Cu):
    """CU A. Its output goes into a buffer of `free`, or into a new one if no free buffer is large enough."""

    kernel_name = "audio_mel_cu"
    result_argument = 3

    def __init__(
        self,
        api: ModuleType,
        device: Any,
        context: Any,
        name: str,
        closing: threading.Event,
        spec: AudioSpec,
        free: deque[Any],
    ) -> None:
        super().__init__(api, device, context, name, closing)
        self._spec = spec
        self._free = free
        self._wav = self._buffer(1 << 20, argument=0)
        self._tables: dict[int, Any] = {}  # by rate, for the rates that files had so far

    def run(self, wav: bytes, header: Pcm | None, stage: AudioStage, timeout_s: float) -> MelResult:
        """Run the CU on one WAV file.

        Args:
            header: Header of the file as the host parsed it. None if the file is not for the DPU; the CU then finds the
                reason.
            timeout_s: The call blocks for at most about this long.

        Raises:
            CuLost: The CU hung or ended in an error state, or a transfer failed.
        """
        spec = self._spec
        rate = spec.rate if header is None else header.rate
        samples = 0 if header is None else spec.resampled(header.frames, rate)
        bands = stage >= AudioStage.MEL
        given, frames = registers(spec), unit_frames(spec, samples)
        if stage != AudioStage.NORMALIZE and spec.lengths.frames is not None:  # this stage has all frames
            given, frames = given | {"max_samples": MAX_SAMPLES}, spec.frames(samples)
        size = (frames * 4 + STATISTICS_BYTES) * spec.n_mels if bands else samples * 4
        try:
            if len(wav) > self._wav.size():
                self._wav = self._buffer(len(wav), argument=0)
            self._send(self._wav, wav)
            mel = self._output(size)
            words = self._start(
                timeout_s,
                self._wav,
                mel,
                self._tables_of(rate),
                self._result,
                len(wav),
                mel.size(),
                int(bands),
                *map(as_int, given.values()),
                rate,
            )
            status, count, source_samples = Status(words[0]), words[1], words[4]
            greatest = words[7] - (words[7] >> 31 << 32)  # signed
            if header is None and status in (Status.OK, Status.BUFFER_TOO_SMALL, Status.BAD_ARGUMENT):
                status = Status.RATE  # the CU takes this rate, but the spec leaves it out
            if status == Status.OK and count != (frames if bands else samples):
                raise ValueError(f"it reports {count} frames or samples, which the file does not have")
            output = np.empty(0, np.float32)
            if status == Status.OK and stage != AudioStage.NORMALIZE:
                values = self._fetch(mel, 4 * count * (spec.n_mels if bands else 1)).view(np.float32)
                if bands:
                    values = values.reshape(count, spec.n_mels).T + np.float32(log_offset(spec))
                    values = np.multiply(values, np.float32(log_scale(spec)), order="C")
                output = values.copy()
        except (RuntimeError, ValueError) as error:  # RuntimeError is from XRT, ValueError from an invalid record
            raise CuLost(f"{self.name}: {error}") from error
        if status != Status.OK or stage != AudioStage.NORMALIZE:
            self._free.append(mel)
            mel = None
        return MelResult(status, mel, count, greatest, output, source_samples, self.counters)

    def probe(self, timeout_s: float) -> bool:
        """Return whether the CU resamples silence to silence."""
        rate = self._spec.rate
        silence = np.zeros(rate // 10, np.int16)
        header = b"RIFF" + struct.pack(
            "<I4s4sIHHIIHH4sI",
            36 + silence.nbytes,
            b"WAVE",
            b"fmt ",
            16,
            1,
            1,
            rate,
            2 * rate,
            2,
            16,
            b"data",
            silence.nbytes,
        )
        wav = header + silence.tobytes()
        done = self.run(
            wav, audio_file.pcm(wav, self._spec.rates, self._spec.longest_s), AudioStage.RESAMPLE, timeout_s
        )
        return done.status == Status.OK and len(done.output) == len(silence) and not done.output.any()

    def _output(self, size: int) -> Any:
        try:
            mel = self._free.popleft()
        except IndexError:
            mel = None
        return mel if mel is not None and mel.size() >= size else self._buffer(size, argument=1)

    def _tables_of(self, rate: int) -> Any:
        if rate not in self._tables:
            content = tables(self._spec, rate)
            held = self._buffer(content.nbytes, argument=2)
            self._send(held, content)
            self._tables[rate] = held
        return self._tables[rate]


class NormCu(Cu):
    """CU B."""

    kernel_name = "audio_norm_cu"
    result_argument = 2

    def __init__(
        self, api: ModuleType, device: Any, context: Any, name: str, closing: threading.Event, spec: AudioSpec
    ) -> None:
        super().__init__(api, device, context, name, closing)
        self._spec = spec
        self._tensor = self._buffer(1 << 20, argument=1)

    def run(
        self, mel: Any, frames: int, greatest: int, timeout_s: float
    ) -> tuple[NDArray[Any], Mapping[str, int] | None]:
        """Return the tensor (n_mels, `frames`) in `spec.dtype` for the content of `mel`, which a MelCu left with its
        greatest value, and the clocks. In memory its order is that of the spec.

        It blocks for at most about `timeout_s`. Raises CuLost if the CU hung or ended in an error state, or a transfer
        failed."""
        spec, dtype = self._spec, np.dtype(self._spec.dtype)
        rows, values = (spec.n_mels, frames) if spec.bands_first else (frames, spec.n_mels)
        pitch = -(-values * dtype.itemsize // 16) * 16
        size = pitch * rows
        try:
            if size > self._tensor.size():
                self._tensor = self._buffer(size, argument=1)
            words = self._start(
                timeout_s,
                mel,
                self._tensor,
                self._result,
                frames,
                spec.counted(frames),
                spec.n_mels,
                self._tensor.size(),
                AUDIO_FORMATS.index(spec.dtype) | (0 if spec.bands_first else ROWS_OF_FRAMES),
                *(as_int(value % 2**32) for value in norm_registers(spec, greatest).values()),
            )
            if words[0] != Status.OK or words[3] != pitch:
                raise ValueError(f"it ended with status {words[0]} and rows of {words[3]} bytes")
            fetched = self._fetch(self._tensor, size).view(dtype).reshape(rows, -1)
        except (RuntimeError, ValueError) as error:
            raise CuLost(f"{self.name}: {error}") from error
        tensor = fetched[:, :values].copy()  # as the next request reuses the buffer
        return tensor if spec.bands_first else tensor.T, self.counters

    def probe(self, timeout_s: float) -> bool:
        """Return whether the CU makes the same of zeros everywhere, in a buffer that held other values."""
        frames, bands = 4, self._spec.n_mels
        mel = self._buffer((frames * 4 + STATISTICS_BYTES) * bands, argument=0)
        self._send(mel, bytes(mel.size()))
        self._send(self._tensor, b"\xff" * 4096)
        values = self.run(mel, frames, 0, timeout_s)[0]
        wanted = 0.0
        if not isinstance(rule := self._spec.normalize, Statistics):
            rule = Rescale() if rule is None else rule
            wanted = (rule.offset + log_offset(self._spec) * log_scale(self._spec)) * rule.factor
        return bool(np.all(np.abs(values - wanted) <= 1e-3 * abs(wanted)))


class AudioCus:
    """All audio CUs, any A with any B. Each CU does at least `clocks_per_s` clocks in a second.

    Raises UsageError for a spec that the CUs cannot do. If it is a feature extractor of transformers, `process` raises
    UnsupportedInput instead, as it does for images of a processor."""

    kernels = (MelCu.kernel_name, NormCu.kernel_name)

    def __init__(self, spec: AudioSpec, open_pool: OpenPool, clocks_per_s: float) -> None:
        self._refused: str | None = None  # the reason why no CU is asked
        try:
            check(spec)
        except UsageError as error:
            if spec.tensors is None:
                raise
            self._refused = f"{spec.name}: {error}"
        self._clocks_per_s = clocks_per_s
        self._spec = spec
        self._free: deque[Any] = deque()  # buffers without a result
        self._mel: CuPool[MelCu] = open_pool(MelCu, spec, self._free)
        self._norm: CuPool[NormCu] = open_pool(NormCu, spec)
        self.pools = (self._mel, self._norm)
        # Limits the requests in work, each with at most one buffer. More than one a CU would only wait in between.
        self._places = FairPool(range(sum(len(pool.names) for pool in self.pools)), "place {}".format)

    async def process(self, data: bytes, stage: AudioStage | None, timeout_s: float) -> tuple[Preprocessed, Status]:
        """Run one file through both CUs, and return its result and status.

        `timeout_s` is added to the time that the input's size accounts for. Raises DpuUnavailable, BadInput for an
        input that is too long, and UnsupportedInput for a feature extractor that the CUs cannot do."""
        if self._refused is not None:
            raise UnsupportedInput(self._refused)
        last = AudioStage.NORMALIZE if stage is None else stage
        limit_s = timeout_s + audio_clocks(data, self._spec) / self._clocks_per_s
        try:
            header = audio_file.pcm(data, self._spec.rates, self._spec.longest_s)
        except UnsupportedInput:
            header = None
        if header is not None and last >= AudioStage.MEL:
            samples = self._spec.resampled(header.frames, header.rate)
            audio.check_frames(samples, self._spec)
            if not self._spec.frames(samples):
                raise UnsupportedInput(f"{self._spec.name}: the sound is shorter than a frame; the DPU needs one")
        place = await self._places.acquire()
        try:
            run, mel = await self._mel.run(lambda cu: cu.run(data, header, last, limit_s))
            if mel.mel is None:
                return _done(mel.output, (run,), {"mel": mel.counters}, mel), mel.status
            then, (tensor, counters) = await self._norm.run(
                lambda cu: cu.run(mel.mel, mel.frames, mel.greatest, limit_s)
            )
            self._free.append(mel.mel)
            assert header is not None  # otherwise CU A refuses the file
            samples = self._spec.resampled(header.frames, header.rate)
            done = _done(tensor, (run, then), {"mel": mel.counters, "norm": counters}, mel)
            return _named(done, samples, self._spec), Status.OK
        finally:
            self._places.release(place)


def _done(
    tensor: NDArray[Any], runs: tuple[CuRun, ...], counters: Mapping[str, Mapping[str, int] | None], mel: MelResult
) -> Preprocessed:
    """Return the result of all runs. Its counters hold the clocks of each CU and their sum."""
    every: dict[str, int] | None = {"cycles": 0}
    for kind, of in counters.items():
        if every is None or of is None:
            every = None
            continue
        every |= {f"{kind}_{name}": value for name, value in of.items()}
        every["cycles"] += of.get("cycles", 0)
    return Preprocessed(
        tensor,
        ", ".join(run.unit for run in runs),
        runs[0].started,
        runs[-1].finished,
        mel.status.name,
        counters=every,
        runs=runs,
        source_samples=mel.source_samples,
    )


def _named(done: Preprocessed, samples: int, spec: AudioSpec) -> Preprocessed:
    """Return the result with the tensors of a feature extractor, if the spec is one, for `samples` at its rate."""
    arranged = audio.arranged(_lengthened(done.tensor, spec), spec)
    if spec.tensors is None:
        return replace(done, tensor=arranged)
    tensors = audio.named(arranged, spec.valid(samples), spec)
    return replace(done, tensor=tensors[spec.tensors.features], tensors=tensors)


def _lengthened(values: NDArray[Any], spec: AudioSpec) -> NDArray[Any]:
    """Return normalized values, shape (n_mels, T), with the frames that `lengths.frames` adds: log-mels of 0."""
    if (frames := spec.lengths.frames) is None:
        return values
    rule = spec.normalize
    padding = rule.offset * rule.factor if isinstance(rule, Rescale) else 0.0
    made = np.full((len(values), frames), padding, values.dtype, order="C" if spec.bands_first else "F")
    made[:, : values.shape[1]] = values
    return made


def check(spec: AudioSpec) -> None:
    """Raise UsageError for a spec that audio CUs cannot do. It runs before CUs are built."""
    for name in FIXED:
        if (given := getattr(spec, name)) != (own := getattr(AudioSpec(), name)):
            raise UsageError(f"{name} is {_text(given)}; the DPU takes {_text(own)} only")
    filter_program(spec)  # raises UsageError itself
    norm_registers(spec, 0)  # so does this
    _check_frames(spec)
    takes = f"log_floor is {spec.log_floor}; the DPU takes"
    of = "" if spec.gain == 1 else ", of samples without gain"
    if spec.floor is Floor.ADDED and not 1 <= round(added_floor(spec) * FLOOR_ONE) < 1 << 32:
        raise UsageError(f"{takes} 2^-40 to below 2^-8 where it is added{of}")
    if spec.floor is Floor.LEAST and abs(least_log(spec)) >= LARGEST_LOG:
        raise UsageError(f"{takes} e^-32 to e^32 as the least power{of}")
    if isinstance(rule := spec.normalize, Statistics):
        if round(rule.variance_floor / log_scale(spec) ** 2 * VARIANCE_ONE) >= WHOLE_VARIANCE:
            raise UsageError(f"variance_floor is {rule.variance_floor}; the DPU takes 0 to below 2^-20")
        if spec.std_floor and not 1 <= round(spec.std_floor / log_scale(spec) * FLOOR_ONE) < 1 << 32:
            raise UsageError(f"std_floor is {spec.std_floor}; the DPU takes 0, and 2^-40 to below 2^-8")
    if (frames := spec.lengths.frames) is not None:
        if isinstance(rule, Statistics) or (isinstance(rule, Rescale) and rule.span is not None):
            raise UsageError(f"lengths.frames is {frames}; the DPU has it only if each value is normalized by itself")
        if spec.ends is not Ends.INSIDE:
            raise UsageError(f"lengths.frames is {frames}; the DPU takes it with ends inside only")
    if spec.padded(0) > MAX_SAMPLES:
        raise UsageError(f"lengths are {spec.lengths}; the DPU takes up to {MAX_SAMPLES} samples")


def _check_frames(spec: AudioSpec) -> None:
    """Raise UsageError for steps in a frame that the mel unit does not have together."""
    alone = spec.preemphasis_per_frame and spec.preemphasis > 0
    if spec.remove_mean and spec.preemphasis and not alone:
        raise UsageError("remove_mean follows the preemphasis; the DPU removes it first, so set preemphasis_per_frame")
    if not (spec.remove_mean or alone):
        return
    name = "remove_mean" if spec.remove_mean else "preemphasis_per_frame"
    if spec.ends is not Ends.INSIDE:
        raise UsageError(f"{name} is True, and ends is {spec.ends.value}; the DPU takes it with ends inside only")
    if spec.lengths.least or spec.lengths.samples is not None:
        raise UsageError(f"{name} is True, and lengths pad a sound; the DPU takes it for sounds without padding only")


def _text(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)

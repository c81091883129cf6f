"""Random errors of memory, SLVERR and DECERR, at any beat of a read and any response to a write, with random data.

Every compute unit ends such a run with BUS_ERROR, without a hang, and does the next run right. An error in a word that
nobody waits for, such as one behind the end of an image, changes nothing. image_stream has no master, so it is not
here."""

from collections.abc import Callable
from dataclasses import dataclass

import cu_rtlsim
import job_ring
import numpy as np
import pytest
from job_ring import SLOT, STOP, Memory, descriptor
from mel_cu import MEL, RESAMPLE, mel_rtlsim
from norm_cu import contents, run_rtlsim
from sounds import int16, speechlike, wav
from test_image_cu import SMALL_JPEG, SMALL_SETTINGS
from test_image_cu_progressive import progressive
from test_image_program import SPECS, jpeg
from test_image_program import run as run_program
from test_small_image_cu import model as small_model

from headrace.host.dpu.hugging_face.reading import from_hf
from headrace.host.dpu.specs import ImageStage
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import KernelModel, KernelRun, MemoryModel

MAX_CYCLES = 400_000  # of a run that takes a tenth of it
PROGRAM_JPEG = jpeg(90, 70)
CHANCES = (0.0005, 0.003, 0.03, 0.5)
FEW = range(2, 6)  # every chance, with stalls and without
MANY = [seed for seed in range(200) if seed not in FEW]
SLOW = pytest.mark.slow
WITH_SLOW = [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=SLOW)]


@dataclass(frozen=True)
class Done:
    status: Status
    run: KernelRun
    told: tuple[object, ...]  # all that the run left: status, sizes, bytes of memory


Case = Callable[[MemoryModel | None], Done]


def behind(seed: int) -> MemoryModel:
    return MemoryModel(
        errors=CHANCES[seed % 4], stall=0.3 * (seed // 4 % 2), latency=(120, 3)[seed // 8 % 2], seed=seed
    )


def image(data: bytes, stage: ImageStage, *, model: KernelModel | None = None) -> Case:
    def case(behind: MemoryModel | None) -> Done:
        settings = {**SMALL_SETTINGS, "memory": 1 << 17, "max_cycles": MAX_CYCLES}
        return of_image(cu_rtlsim.image_cu(data, stage=stage, behind=behind, model=model, **settings))

    return case


def small(stage: ImageStage) -> Case:
    """Of the configuration `small`, whose ports have words of 16 bytes."""

    def case(behind: MemoryModel | None) -> Done:
        return image(SMALL_JPEG, stage, model=small_model())(behind)

    return case


def program(name: str) -> Case:
    """Of one pass or of several, which keep images in the workspace."""

    def case(behind: MemoryModel | None) -> Done:
        _, done = run_program(True, PROGRAM_JPEG, from_hf(SPECS[name]), behind=behind, max_cycles=MAX_CYCLES)
        return of_image(done)

    return case


def of_image(done: cu_rtlsim.RtlResult) -> Done:
    told = (done.status, done.out_size, done.src_size, done.bytes, done.memory.tobytes())
    return Done(done.status, done.run, told)


def mel(rate: int, stage: int) -> Case:
    data = wav(int16(speechlike(0.03, rate, 1)), rate)

    def case(behind: MemoryModel | None) -> Done:
        done = mel_rtlsim(data, stage, taps_rate=rate, memory=1 << 14, behind=behind, max_cycles=MAX_CYCLES)
        return Done(done.status, done.run, done.told)

    return case


def norm(frames: int, mels: int, format: int) -> Case:
    values = np.random.default_rng(frames).integers(-4_000_000, 1_000_000, (frames, mels))
    data = contents(values)

    def case(behind: MemoryModel | None) -> Done:
        done = run_rtlsim(data, frames, mels, format=format, behind=behind, max_cycles=MAX_CYCLES)
        return Done(done.status, done.run, (done.status, done.record, done.memory.tobytes()))

    return case


CASES = {
    "pixels": image(SMALL_JPEG, ImageStage.DECODE),
    "planes": image(SMALL_JPEG, ImageStage.NORMALIZE),
    "several scans": image(progressive(1, 75, 60), ImageStage.NORMALIZE),
    "program": program("clip with zeros around"),
    "patches": program("qwen"),
    "passes": program("llava-next"),
    "samples": mel(16000, RESAMPLE),
    "mel": mel(16000, MEL),
    "mel with taps": mel(44100, MEL),
    "normalize": norm(140, 8, 0),
    "normalize by frames": norm(40, 80, 3),
    "small, pixels": small(ImageStage.DECODE),
    "small, planes": small(ImageStage.NORMALIZE),
}
# The model of the configuration `small` is not compiled for the quick tests.
NAMES = [pytest.param(name, marks=SLOW if name.startswith("small") else ()) for name in CASES]


@pytest.mark.parametrize("seeds", WITH_SLOW)
@pytest.mark.parametrize("name", NAMES)
def test_random_errors_end_in_bus_error_and_the_next_run_is_right(name, seeds):
    case, found = CASES[name], 0
    expected = case(None).told
    for seed in seeds:
        done = case(behind(seed))
        reads, writes = cu_rtlsim.errors(done.run)
        if writes or done.status == Status.BUS_ERROR:
            assert done.status == Status.BUS_ERROR and reads + writes, seed
            found += 1
        else:  # a word that was not needed
            assert done.told == expected, seed
        assert case(None).told == expected, seed
    assert found > len(seeds) / 3


@pytest.mark.parametrize("seeds", WITH_SLOW)
def test_random_errors_in_a_ring_end_its_run_or_one_of_its_jobs(seeds):
    files = [SMALL_JPEG, progressive(1, 75, 60), SMALL_JPEG[:300]]

    def ring(behind: MemoryModel | None) -> tuple[list[int], Memory, KernelRun]:
        memory = Memory(files, 3, 4)
        memory.begin(1)
        for number in range(3):
            memory.put(number + 1, memory.job(number, number))
        memory.put(4, descriptor(0, 0, 0, command=STOP))
        run = job_ring.rtl_run(memory, 1, 1, behind=behind, max_cycles=3 * MAX_CYCLES)
        return [run.registers[offset] for offset in cu_rtlsim.spec("image_cu").outputs.values()], memory, run

    expected, right, _ = ring(None)
    assert expected == [Status.OK, 3, 5, 1, 0]
    ended = failed = 0
    for seed in seeds:
        registers, memory, run = ring(behind(seed))
        assert registers[0] in (Status.OK, Status.BUS_ERROR) and (
            registers[0] == Status.OK or any(cu_rtlsim.errors(run))
        )
        assert registers == expected or registers[0] == Status.BUS_ERROR, seed
        ended += registers[0] == Status.BUS_ERROR
        for number in range(1, registers[1] + 1):
            record = memory.record(number)
            if record[0] == Status.BUS_ERROR:
                failed += 1
            else:
                slot = slice((number - 1) * SLOT, number * SLOT)
                assert record == right.record(number) and np.array_equal(memory.tensor[slot], right.tensor[slot]), seed
        registers, memory, _ = ring(None)
        assert registers == expected and np.array_equal(memory.tensor, right.tensor), seed
        assert np.array_equal(memory.result, right.result), seed
    assert ended and failed

"""Rare situations that cover properties of the RTL name, and a run that meets each of them.

The names are those of MODULE.PROPERTY, of all modules in a compute unit. The models of the tests count them."""

import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile

import cu_rtlsim
import cv2
import job_ring
import numpy as np
import pytest
from job_ring import STOP, Memory, descriptor
from mel_cu import MEL, RESAMPLE, mel_rtlsim
from rtlsim import covers
from sounds import int16, speechlike, wav
from test_image_cu import SMALL_JPEG, SMALL_SETTINGS
from test_image_cu_progressive import progressive
from test_image_program import SPECS, jpeg
from test_image_program import run as run_program

from headrace.host.dpu.hugging_face.reading import from_hf
from headrace.host.dpu.specs import ImageStage
from headrace.host.dpu.units.status import Status
from headrace.host.xrt.hw_emu import KernelModel, MemoryModel

NOWHERE = 0xDEAD_0000_0000
OPTIMIZED = [cv2.IMWRITE_JPEG_OPTIMIZE, 1, cv2.IMWRITE_JPEG_QUALITY, 5]
FLAT_JPEG = cv2.imencode(".jpg", np.full((64, 64, 3), 90, np.uint8), OPTIMIZED)[1].tobytes()
SCANS = progressive(1, 75, 60)
PASS_ERROR, LAST_PASS_ERROR = "image_cu.c_pass_error", "progressive_decoder.c_memory_error_in_the_last_pass"

Situation = Callable[[KernelModel], object]


def image(data: bytes, *, stage: ImageStage = ImageStage.NORMALIZE, status: Status = Status.OK, **more) -> Situation:
    def run(model: KernelModel) -> None:
        settings = {**SMALL_SETTINGS, "memory": 1 << 17, **more}
        done = cu_rtlsim.image_cu(data, stage=stage, model=model, **settings)
        assert done.status == status

    return run


def bad_pointer(name: str, data: bytes = SMALL_JPEG) -> Situation:
    return image(data, status=Status.BUS_ERROR, addresses={name: NOWHERE})


def program(spec: str, **more) -> Situation:
    return lambda model: run_program(True, jpeg(90, 70), from_hf(SPECS[spec]), model=model, **more)


def random_errors(situation: Callable[..., object], chance: float, seeds: range, name: str) -> Situation:
    """Up to the first seed that reaches the property `name`."""

    def run(model: KernelModel) -> None:
        before = counts(model)[name]
        for seed in seeds:
            situation(model, behind=MemoryModel(errors=chance, seed=seed))
            if counts(model)[name] > before:
                return

    return run


def counts(model: KernelModel) -> dict[str, int]:
    with NamedTemporaryFile() as file:
        model.write_coverage(Path(file.name))
        return covers(Path(file.name))


def passes(model: KernelModel, behind: MemoryModel) -> None:
    program("llava-next", behind=behind)(model)


def scans(model: KernelModel, behind: MemoryModel) -> None:
    cu_rtlsim.image_cu(SCANS, stage=0, memory=1 << 17, model=model, behind=behind)


def ring(model: KernelModel, *, command: int = 0, addresses: dict[str, int] | None = None) -> None:
    memory = Memory([SMALL_JPEG], 2, 4)
    memory.begin(1)
    for number, job in enumerate((memory.job(0, 0), memory.job(0, 1, command=command))):
        memory.put(number + 1, job)
    memory.put(3, descriptor(0, 0, 0, command=STOP))
    job_ring.rtl_run(memory, 1, 1, model=model, addresses=addresses)


def first_scan_damaged() -> bytes:
    data = bytearray(SCANS)
    begin = data.index(b"\xff\xda") + 30
    data[begin : begin + 8] = b"\xff\x00" * 4
    return bytes(data)


def fifth_scan_cut() -> bytes:
    *_, fifth = itertools.islice(re.finditer(b"\xff\xda", SCANS), 5)
    return SCANS[: fifth.start() + 30]


def mel(
    rate: int, stage: int = MEL, *, addresses: dict[str, int] | None = None, behind: bytes = b"", taps: int = 0
) -> Situation:
    def run(model: KernelModel) -> None:
        data = wav(int16(speechlike(0.03, rate, 1)), rate) + behind
        mel_rtlsim(data, stage, taps_rate=taps or rate, memory=1 << 14, model=model, addresses=addresses)

    return run


def both(*situations: Situation) -> Situation:
    return lambda model: [situation(model) for situation in situations]


SITUATIONS: dict[str, dict[Situation, set[str]]] = {
    "image_cu": {
        image(SMALL_JPEG + bytes(40_000)): {"image_cu.c_file_goes_on"},
        both(image(SMALL_JPEG), image(SMALL_JPEG)): {
            "huffman_table.c_code_spreads",
            "huffman_table.c_code_of_16_bits",
            "huffman_table.c_table_replaced",
        },
        image(FLAT_JPEG): {"huffman_table.c_code_of_1_bit"},
        bad_pointer("jpeg"): {"image_cu.c_file_error"},
        bad_pointer("tables"): {"image_cu.c_tables_error"},
        bad_pointer("tensor"): {"image_cu.c_output_error"},
        bad_pointer("result"): {"image_cu.c_record_error"},
        bad_pointer("workspace", SCANS): {"progressive_decoder.c_memory_error"},
        program("llava-next"): {"image_cu.c_second_pass"},
        program("qwen", addresses={"program": NOWHERE}): {"image_cu.c_program_error"},
        program("qwen", addresses={"tensor": NOWHERE}): {"image_cu.c_words_error"},
        program("qwen", change=lambda code: code[:16]): {"image_cu.c_program_refused"},
        random_errors(passes, 0.002, range(12), PASS_ERROR): {PASS_ERROR},
        random_errors(scans, 0.0005, range(30), LAST_PASS_ERROR): {LAST_PASS_ERROR},
        ring: {"image_cu.c_job_follows"},
        partial(ring, command=7): {"image_cu.c_job_refused"},
        partial(ring, addresses={"ring": NOWHERE}): {"image_cu.c_ring_error"},
        partial(ring, addresses={"result": NOWHERE}): {"image_cu.c_job_record_error"},
        image(SCANS): {
            "progressive_decoder.c_waits_for_writes",
            "progressive_decoder.c_blocks_ahead_full",
        },
        image(first_scan_damaged(), status=Status.CORRUPT_HUFFMAN): {"progressive_decoder.c_scan_passed_over"},
        image(fifth_scan_cut(), status=Status.TRUNCATED): {"progressive_decoder.c_drops_reads"},
        image(progressive(2, 16, 1), resize_short=999): {"progressive_decoder.c_waits_for_the_window"},
    },
    "audio_mel_cu": {
        both(mel(44100), mel(44100)): {"audio_mel_cu.c_taps_kept"},
        both(mel(16000), mel(48000, RESAMPLE)): {"audio_mel_cu.c_program_passes_by"},
        mel(44100, addresses={"tables": NOWHERE}): {"audio_mel_cu.c_taps_loaded_half"},
        mel(16000, behind=b"LIST" + (8000).to_bytes(4, "little") + bytes(8000)): {"audio_mel_cu.c_file_goes_on"},
        mel(16000, addresses={"wav": NOWHERE}): {"audio_mel_cu.c_file_error"},
        mel(16000, addresses={"mel": NOWHERE}): {"audio_mel_cu.c_output_error"},
        mel(16000, addresses={"result": NOWHERE}): {"audio_mel_cu.c_record_error"},
    },
}


@pytest.mark.parametrize("kernel", SITUATIONS)
def test_every_cover_property_is_reached_by_its_situation(kernel):
    model = KernelModel(cu_rtlsim.library(kernel), seed=2)
    reached: set[str] = set()
    for situation, names in SITUATIONS[kernel].items():
        before = counts(model)
        situation(model)
        after = counts(model)
        assert names <= {name for name in after if after[name] > before[name]}, (names, after)
        reached |= names
    assert reached == set(counts(model))


def properties(text: str) -> Iterator[str]:
    return (line.split(":")[0].strip() for line in text.splitlines() if "cover property" in line)


def test_every_cover_property_of_the_rtl_has_a_situation():
    names = {name for situations in SITUATIONS.values() for each in situations.values() for name in each}
    written = {
        f"{file.stem}.{name}"
        for kernel in SITUATIONS
        for file in cu_rtlsim.sources(kernel)
        for name in properties(file.read_text())
    }
    assert names == written

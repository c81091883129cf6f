"""The work of audio settings, as the cycle model takes it."""

from dataclasses import replace

import pytest

from headrace.host.dpu.audio_work import mel_cu_clocks, mel_plan, norm_cu_clocks
from headrace.host.dpu.hugging_face.names import audio_processor
from headrace.host.dpu.specs import AudioSpec
from headrace.host.dpu.specs.front_ends import Lengths
from headrace.sim.hardware.dpu.audio import NEMO, MelPlan, mel_cu_cycles, norm_cycles

WHISPER = audio_processor("whisper-tiny")


def test_plans_are_those_of_the_specs():
    assert mel_plan(AudioSpec()) == NEMO
    assert mel_plan(WHISPER) == MelPlan(points_400=True, ends="mirrored", min_samples=480_000, max_samples=480_000)


@pytest.mark.parametrize(("samples", "rate"), [(16000, 16000), (44100, 44100), (480_001, 16000)])
def test_clocks_are_those_of_both_units(samples, rate):
    spec = AudioSpec(n_mels=128)
    assert mel_cu_clocks(spec, samples, rate) == mel_cu_cycles(samples, rate, 128, loads_taps=rate != 16000)
    assert norm_cu_clocks(spec, samples, rate) == norm_cycles(-(-samples * 16000 // rate) // 160 + 1, 128)


def test_the_second_unit_writes_values_of_the_specs_size():
    single, half = (norm_cu_clocks(AudioSpec(dtype=dtype), 480_000) for dtype in ("float32", "float16"))
    assert half == norm_cycles(3001, 80, element_bytes=2) != single


def test_a_sound_that_is_padded_takes_as_long_as_a_full_one():
    short, full = (mel_cu_clocks(WHISPER, seconds * 16000) for seconds in (1, 30))
    assert short == pytest.approx(full, rel=1e-3)
    assert norm_cu_clocks(WHISPER, 16000) == norm_cu_clocks(WHISPER, 480_000)


def test_a_piece_of_a_stream_takes_microseconds():
    """docs/how_to/hugging_face_processors.md and benchmarks/front_ends.py tell this."""
    assert mel_cu_clocks(replace(WHISPER, lengths=Lengths(least=1840)), 1840) == 3531

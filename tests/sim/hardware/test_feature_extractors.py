"""Feature extractors in the simulator: their work, what is refused, and times of a core.

tests/hls compares the cycle model with the RTL."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from properties import examples

from headrace.batching import UsageError
from headrace.host.dpu.audio_work import audio_work, mel_cu_clocks, norm_cu_clocks
from headrace.host.dpu.hugging_face.front import preprocess
from headrace.host.dpu.hugging_face.names import audio_names, audio_processor
from headrace.sim.hardware.cpu import MEASURED
from headrace.sim.hardware.inputs import Audio
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.system.processors import CoreTime, core_seconds, inputs_of, measured_processors, work_of

PADDED = ("qwen2-audio", "voxtral-mini", "whisper-large-v3", "whisper-small", "whisper-tiny")  # to 30 s
OTHERS = (
    *("parakeet-ctc-1.1b", "parakeet-tdt-0.6b-v3", "qwen3-asr", "seamless-m4t-v2", "w2v-bert-2.0", "phi-4-multimodal"),
    *("ast-finetuned-audioset", "s2t-small-librispeech-asr"),
)
REFUSED = tuple(name for name in audio_names() if name not in (*PADDED, *OTHERS))
SECONDS = st.floats(0.02, 59.0)
SERVER = {
    "model": "whisper_small_encoder",
    "accelerator": "a100-40gb",
    "partition": "1g.5gb:7",
    "preprocess": "dpu:4:queue",
    "policy": "graph",
    "rate_rps": 5.0,
    "requests": 100,
}


def sounds(name: str) -> Audio:
    found = inputs_of(name, "audio", None, "dpu:1")
    assert isinstance(found, Audio)
    return found


def result(**settings):
    return run_scenario(Scenario.of(**{**SERVER, **settings}))[0].result


@pytest.mark.parametrize("name", [*PADDED, *OTHERS])
@examples(15, 100)
@given(st.lists(st.integers(1, 59 * 16000), min_size=1, max_size=5))
def test_clocks_are_those_of_the_cycle_model(name, samples):
    spec, clocks, sizes = audio_processor(name), sounds(name).clocks, np.array(samples) / 16000
    assert clocks["mel cu"](sizes).tolist() == [mel_cu_clocks(spec, each) for each in samples]
    assert clocks["norm cu"](sizes).tolist() == [norm_cu_clocks(spec, each) for each in samples]


@pytest.mark.parametrize("name", [*PADDED, *OTHERS])
@examples(20, 100)
@given(st.lists(SECONDS, min_size=2, max_size=5))
def test_longer_sounds_never_take_fewer_clocks_or_bytes(name, lengths):
    found, sizes = sounds(name), np.sort(np.array(lengths))
    for values in (found.clocks["mel cu"](sizes), found.file_bytes(sizes), found.tensor_bytes(sizes)):
        assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("name", PADDED)
@given(st.lists(st.floats(0.1, 30.0), min_size=2, max_size=5))
def test_what_is_padded_takes_the_same_for_any_length(name, lengths):
    found, sizes = sounds(name), np.array(lengths)
    for values in (*(of(sizes) for of in found.clocks.values()), found.tensor_bytes(sizes)):
        assert len(set(values.tolist())) == 1


@pytest.mark.parametrize("name", audio_names())
@given(st.integers(4000, 40_000))
@example(12_399)
@example(12_400)
@example(12_480)
@settings(max_examples=10)
def test_the_tensors_have_the_bytes_that_the_cpu_path_makes(name, samples):
    made = preprocess(np.linspace(-0.5, 0.5, samples, dtype=np.float32), name)
    assert audio_work(audio_processor(name)).tensor_bytes(samples) == sum(each.nbytes for each in made.values())


def test_a_file_of_a_model_is_as_good_as_its_name(tmp_path):
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128}))
    sizes = np.array([2.0, 20.0])
    for unit, clocks in sounds("whisper-large-v3").clocks.items():
        assert sounds(str(file)).clocks[unit](sizes).tolist() == clocks(sizes).tolist()
    with pytest.raises(UsageError, match="the time of a core is not measured for it, only for ast-finetuned"):
        inputs_of(str(file), "audio", None, "cpu:32")


def test_a_run_takes_the_clocks_of_the_feature_extractor():
    """Every sound waits for nothing at so low a rate."""
    short, long = (result(processor="whisper-tiny", lengths=length, rate_rps=1.0) for length in ("2", "20"))
    least = 1e3 * sum(of(np.array([2.0]))[0] for of in sounds("whisper-tiny").clocks.values()) / 300e6
    for each in (short, long):
        assert least < each["preprocess_ms"]["p50"] < least + 0.5
    assert result(processor="qwen3-asr", lengths="2", rate_rps=1.0)["preprocess_ms"]["p50"] < least / 3


def test_cores_take_the_measured_times():
    for label, library in (("", "ours"), (":ours", "ours"), (":transformers", "transformers")):
        found = result(processor="whisper-tiny", preprocess=f"cpu:32{label}", lengths="5", rate_rps=1.0)
        taken = 1e3 * core_seconds("whisper-tiny")[library](np.array([5.0]))[0]
        assert taken < found["preprocess_ms"]["p50"] < 1.15 * taken + 0.1  # cores slow each other down, and PCIe
    assert MEASURED.label in core_seconds("whisper-tiny")


@pytest.mark.parametrize("name", audio_names())
def test_the_time_of_a_core_is_measured_for_every_known_model(name):
    assert name in measured_processors("audio") and name not in measured_processors("image")
    times = core_seconds(name)
    assert {"ours", "measured", "transformers"} == set(times)
    for of in times.values():
        at = of(np.array([0.05, 1.0, 30.0, 60.0]))
        assert at[0] > 0 and at[1] < 1.1 * at[2] and at[3] >= at[2]


def test_times_of_a_core_never_fall_beyond_what_was_measured():
    rising, falling = CoreTime((1.0, 2.0), (1.0, 3.0)), CoreTime((1.0, 2.0), (3.0, 2.0))
    assert rising(np.array([0.5, 1.5, 3.0])).tolist() == [0.5, 2.0, 5.0]
    assert falling(np.array([0.5, 1.5, 3.0])).tolist() == [1.5, 2.5, 2.0]


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_units_do_not_have_is_for_cores_alone(name):
    reason = work_of(name).plan
    assert isinstance(reason, str) and "the DPU takes" in reason
    with pytest.raises(UsageError) as refused:
        inputs_of(name, "audio", None, "dpu:4")
    wording = f"--processor {name}: the audio CUs do not have it: {reason}; give --preprocess cpu"
    assert str(refused.value) == wording
    with pytest.raises(UsageError, match="do not have this feature extractor"):
        _ = Audio(work_of(name)).clocks
    assert isinstance(inputs_of(name, "audio", None, "cpu:32"), Audio)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processor": "whisper"}, "there is no processor 'whisper'; did you mean"),
        (
            {"processor": "qwen2-vl"},
            "--processor qwen2-vl is for images, and --model takes audio; name a processor for",
        ),
        ({"processor": "whisper-tiny", "preprocess": "nvjpg"}, "nvjpg only decodes; give --preprocess dpu or cpu"),
        ({"processor": "whisper-tiny", "preprocess": "cpu:32:librosa"}, "no costs 'librosa'; choose from measured, tr"),
        ({"processor": "whisper-tiny", "preprocess": "cpu:32", "cpu_costs": "x"}, "has no costs of processors"),
        ({"processor": "whisper-tiny", "lengths": "70"}, "has 70 s, and the feature extractor takes up to 60 s; give"),
    ],
)
def test_what_cannot_be_simulated_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        result(**options)

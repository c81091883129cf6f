"""The adapters of feature extractors give the tensors of the library within the rounding of float32."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import transformers
from equal import assert_same, model, outcome
from speech_front_ends import SOUNDS
from transformers.feature_extraction_sequence_utils import SequenceFeatureExtractor

import headrace
from headrace.bitstreams.build import build_sw_emu
from headrace.host.dpu.hugging_face.names import audio_names
from headrace.host.dpu.specs.feature_extractors import MODELS

VOICE, QUIET, NOISE = (SOUNDS[name] for name in ("voice", "quiet voice", "noise"))
BOUND, BOUND_OF_NEMO = 1e-4, 2e-3  # NeMo's classes divide by small deviations, in float32 here and there
NOTHING = {"dpu": 0, "cpu": 0, "library": 0}
GIVEN = {
    "one sound": (VOICE, {}),
    "batch": ([VOICE, QUIET, NOISE], {"padding": True}),
    "batch with a mask": ([VOICE, NOISE, QUIET], {"padding": "longest", "return_attention_mask": True}),
    "cut": ([VOICE, QUIET], {"padding": "max_length", "max_length": 40000, "truncation": True}),
    "list": (QUIET[:9000].tolist(), {}),
    "float64": (QUIET.astype(np.float64), {}),
    "multiple": ([QUIET, NOISE], {"padding": True, "pad_to_multiple_of": 320}),
}


def pair(name, folder):
    library = transformers.AutoFeatureExtractor.from_pretrained(model(folder, MODELS[name]))
    return library, headrace.HeadraceFeatureExtractor.from_pretrained(name)


@pytest.mark.quick(12)
@pytest.mark.filterwarnings("ignore:At least one mel filter")
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("name", audio_names())
def test_a_known_model_gives_the_tensors_of_the_library(name, given, tmp_path):
    library, adapter = pair(name, tmp_path)
    bound = BOUND_OF_NEMO if name.startswith("parakeet") else BOUND
    sounds, settings = GIVEN[given]
    for form in ("pt", "np", None):
        call = {"sampling_rate": 16000, "return_tensors": form, **settings}
        expected = outcome(lambda call=call: library(sounds, **call))
        found = outcome(lambda call=call: adapter(sounds, **call))
        if isinstance(expected, tuple):
            assert found == expected
        else:
            assert_same(found, expected, bound)
    assert adapter.counts["cpu"] > 0 == adapter.counts["library"] or isinstance(expected, tuple)


@pytest.mark.parametrize(
    "sounds, settings",
    [
        (VOICE, {"sampling_rate": 8000}),
        (np.zeros((2, 2, 900), np.float32), {}),
        ("speech.wav", {}),
        (VOICE[:0], {}),
        (VOICE[:300], {}),
        (np.full(900, np.nan, np.float32), {}),
    ],
    ids=["rate", "stereo", "path", "empty", "short", "no number"],
)
@pytest.mark.parametrize("name", ["whisper-tiny", "wav2vec2-base-960h", "seamless-m4t-v2", "parakeet-ctc-1.1b"])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.quick(8)
def test_bad_input_gives_what_the_library_gives(name, sounds, settings, tmp_path):
    library, adapter = pair(name, tmp_path)
    call = {"sampling_rate": 16000, "return_tensors": "np", **settings}
    expected, found = (outcome(lambda each=each: each(sounds, **call)) for each in (library, adapter))
    if isinstance(expected, tuple):
        assert found == expected
    else:
        assert list(found) == list(expected)
        for key, values in expected.items():
            assert found[key].shape == values.shape and np.allclose(found[key], values, atol=1e-4, equal_nan=True)


def test_what_headrace_has_not_goes_to_the_library_and_is_counted(tmp_path):
    settings = {"feature_extractor_type": "WhisperFeatureExtractor", "dither": 1e-3}
    adapter = headrace.HeadraceFeatureExtractor.from_pretrained(model(tmp_path, settings))
    assert adapter([VOICE, QUIET], sampling_rate=16000, return_tensors="np")["input_features"].shape == (2, 80, 3000)
    assert adapter.counts == {**NOTHING, "library": 2} and "dither" in adapter.reasons["library"]


def test_a_class_that_headrace_has_not_is_the_librarys(tmp_path):
    settings = {"feature_extractor_type": "ClapFeatureExtractor"}
    library = transformers.AutoFeatureExtractor.from_pretrained(model(tmp_path, settings))
    adapter = headrace.HeadraceFeatureExtractor.from_pretrained(tmp_path)
    for sounds in (VOICE, [VOICE, QUIET]):
        call = {"sampling_rate": 48000, "return_tensors": "np", "truncation": "rand_trunc", "padding": "pad"}
        assert_same(adapter(sounds, **call), library(sounds, **call))
    assert adapter.counts == {**NOTHING, "library": 3}
    assert "ClapFeatureExtractor has no counterpart" in adapter.reasons["library"]


def test_an_adapter_is_an_object_of_the_librarys_class(tmp_path):
    library, adapter = pair("whisper-tiny", tmp_path)
    assert isinstance(adapter, SequenceFeatureExtractor) and isinstance(adapter, type(library))
    assert isinstance(adapter, headrace.HeadraceFeatureExtractor)
    assert str(adapter) == str(library) and adapter.n_samples == library.n_samples
    adapter.save_pretrained(tmp_path / "saved")
    again = transformers.AutoFeatureExtractor.from_pretrained(tmp_path / "saved")
    assert type(again) is type(library) and str(again) == str(library)
    twin, other = copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))
    expected = adapter(QUIET, sampling_rate=16000, return_tensors="np")
    for each in (twin, other):
        assert_same(each(QUIET, sampling_rate=16000, return_tensors="np"), expected)
    assert adapter.counts == {**NOTHING, "cpu": 2} and other.counts == {**NOTHING, "cpu": 1}


def test_a_target_is_checked():
    make = headrace.HeadraceFeatureExtractor.from_pretrained
    with pytest.raises(headrace.UsageError, match="target is 'gpu'; give cpu"):
        make("whisper-tiny", target="gpu")


def test_threads_may_call_one_adapter_at_once():
    adapter = headrace.HeadraceFeatureExtractor.from_pretrained("wav2vec2-base-960h")
    sounds = (VOICE, QUIET, NOISE)
    expected = [adapter(sound, sampling_rate=16000, return_tensors="np") for sound in sounds]
    start = threading.Barrier(3)

    def work(_):
        start.wait(timeout=60)
        return [adapter(sound, sampling_rate=16000, return_tensors="np") for sound in sounds]

    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(work, range(3)):
            assert_same(found, expected)
    assert adapter.counts == {**NOTHING, "cpu": 12}


@pytest.fixture(scope="module")
def xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "audio.xclbin"
    build_sw_emu(path, image_cus=0, mel_cus=1, norm_cus=1)
    return path


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["whisper-tiny", "whisper-large-v3", "qwen3-asr"])
def test_samples_of_16_bits_get_their_features_on_the_dpu(name, xclbin, tmp_path):
    library = pair(name, tmp_path)[0]
    call = {"sampling_rate": 16000, "return_tensors": "np", "return_attention_mask": True}
    floats = (NOISE * np.float32(0.7)).astype(np.float32)
    with headrace.HeadraceFeatureExtractor.from_pretrained(name, target=xclbin) as adapter:
        assert_same(adapter([VOICE, QUIET], **call), library([VOICE, QUIET], **call), BOUND)
        assert adapter.counts == {**NOTHING, "dpu": 2} and adapter.reasons == {}
        assert_same(adapter([VOICE, floats], **call), library([VOICE, floats], **call), BOUND)
        assert adapter.counts == {**NOTHING, "dpu": 3, "cpu": 1} and "no 16-bit numbers" in adapter.reasons["cpu"]
        silence = np.zeros(800, np.float32)
        assert_same(adapter(silence, **call), library(silence, **call), BOUND)
    assert_same(adapter(VOICE, **call), library(VOICE, **call), BOUND)
    assert adapter.counts == {**NOTHING, "dpu": 4, "cpu": 2} and adapter.reasons["cpu"] == "the device is closed"


def test_other_classes_stay_on_the_cpu_with_a_dpu(xclbin):
    with headrace.HeadraceFeatureExtractor.from_pretrained("wav2vec2-base-960h", target=xclbin) as adapter:
        adapter([QUIET, QUIET], sampling_rate=16000, return_tensors="np")
    assert adapter.counts == {**NOTHING, "cpu": 2} and "the DPU has not the step" in adapter.reasons["cpu"]

"""Test that the files of feature extractors are read as transformers reads them, and what is refused."""

import json
from dataclasses import replace

import pytest
import transformers
from speech_front_ends import CASES
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES

from headrace.batching import UsageError
from headrace.host.dpu.specs import (
    AudioSpec,
    Ends,
    Floor,
    Lengths,
    Mask,
    Rescale,
    Statistics,
    Tensors,
    Tokens,
    Window,
)
from headrace.host.dpu.specs.feature_extractors import CLASSES, MODEL_TYPES
from headrace.host.workers.inspection.json_values import from_plain, to_plain


def spec_of(name: str, **settings) -> AudioSpec:
    return AudioSpec.from_hf({"feature_extractor_type": f"{name}FeatureExtractor", **settings})


def test_whispers_settings_are_the_fields_of_a_spec():
    assert spec_of("Whisper") == AudioSpec(
        n_fft=400,
        preemphasis=0.0,
        log_floor=1e-10,
        longest_s=60.0,
        normalize_over="all",
        ends=Ends.MIRRORED,
        window_shape=Window.PERIODIC_HANN,
        high_hz=8000.0,
        floor=Floor.LEAST,
        log10=True,
        normalize=Rescale(8.0, 4.0, 0.25),
        lengths=Lengths(samples=480000),
        tensors=Tensors("WhisperFeatureExtractor", "input_features"),
    )


def test_nemos_settings_are_the_defaults():
    spec = spec_of("Parakeet")
    assert replace(spec, tensors=None, bands_first=True, longest_s=35.0) == AudioSpec()


@pytest.mark.parametrize("case", CASES)
def test_a_spec_is_one_value_that_passes_between_processes(case):
    name, settings = CASES[case]
    spec = AudioSpec.from_hf({"feature_extractor_type": name, **settings})
    assert from_plain(to_plain(spec)) == spec and hash(spec) == hash(replace(spec)) and spec.name == name


@pytest.mark.parametrize("case", CASES)
def test_a_file_that_transformers_saves_is_read_as_it_reads_it(case, tmp_path):
    name, settings = CASES[case]
    extractor = getattr(transformers, name)(**settings)
    extractor.save_pretrained(tmp_path)
    settings = {key: value for key, value in settings.items() if hasattr(extractor, key)}  # others are not saved
    file = tmp_path / "preprocessor_config.json"
    spec = AudioSpec.from_hf(file)
    assert spec == AudioSpec.from_hf(str(file)) == AudioSpec.from_hf({"feature_extractor_type": name, **settings})


# Files as they are published, with the settings that change features.
PUBLISHED = {
    "whisper-large-v3": (
        {"chunk_length": 30, "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "n_fft": 400}
        | {"hop_length": 160, "n_samples": 480000, "nb_max_frames": 3000, "padding_side": "right", "padding_value": 0.0}
        | {"processor_class": "WhisperProcessor", "return_attention_mask": False, "sampling_rate": 16000},
        (128, 3000),
    ),
    "w2v-bert": (
        {"feature_extractor_type": "SeamlessM4TFeatureExtractor", "feature_size": 80, "num_mel_bins": 80, "stride": 2}
        | {"padding_side": "right", "padding_value": 1, "return_attention_mask": True, "sampling_rate": 16000},
        (49, 160),
    ),
    "speech2text": (
        {"do_ceptral_normalize": True, "feature_size": 80, "normalize_means": True, "normalize_vars": True}
        | {"feature_extractor_type": "Speech2TextFeatureExtractor", "num_mel_bins": 80, "padding_side": "right"}
        | {"padding_value": 0.0, "return_attention_mask": True, "sampling_rate": 16000},
        (98, 80),
    ),
    "wav2vec2": (
        {"do_normalize": True, "feature_extractor_type": "Wav2Vec2FeatureExtractor", "feature_size": 1}
        | {"padding_side": "right", "padding_value": 0.0, "return_attention_mask": True, "sampling_rate": 16000},
        (16000,),
    ),
    "qwen2.5-omni, with the settings of images": (
        {"feature_extractor_type": "WhisperFeatureExtractor", "image_processor_type": "Qwen2VLImageProcessor"}
        | {"patch_size": 14, "image_mean": [0.5] * 3, "feature_size": 128, "chunk_length": 300, "dither": 0.0},
        (128, 30000),
    ),
}


@pytest.mark.parametrize("config, shape", PUBLISHED.values(), ids=PUBLISHED)
def test_a_published_file_is_read(config, shape):
    spec = AudioSpec.from_hf(config)
    assert spec.shape(16000) == shape
    if config.get("return_attention_mask"):
        assert ("attention_mask", Mask()) in spec.tensors.extras


def test_settings_change_the_spec():
    assert spec_of("Whisper", feature_size=128, chunk_length=10).shape(1) == (128, 1000)
    assert spec_of("Whisper", chunk_length=300).longest_s == 300
    assert spec_of("Qwen3ASR", n_window=0, min_length=400).shape(1) == (128, 2)
    assert spec_of("Parakeet", preemphasis=None).preemphasis == 0
    assert spec_of("Speech2Text", do_ceptral_normalize=False, normalize_vars=False).normalize is None
    assert spec_of("Speech2Text").normalize == Statistics(ddof=0)
    assert spec_of("AST", mean=1.0, std=0.25).normalize == Rescale(None, -1.0, 2.0)
    phi = spec_of("Phi4Multimodal", audio_compression_rate=4, audio_downsample_rate=3)
    assert phi.tensors.extras == (("audio_embed_sizes", Tokens(12)),)
    assert spec_of("Wav2Vec2", sampling_rate=8000, do_normalize=False).rate == 8000
    assert spec_of("CohereAsr", dither=0.0, max_audio_clip_s=20).longest_s == 20


def test_a_file_that_names_no_class_has_that_of_the_model():
    assert AudioSpec.from_hf({"feature_size": 128}, "WhisperFeatureExtractor").shape(1) == (128, 3000)


def test_the_types_of_models_are_those_of_transformers():
    of_transformers = {each: name for each, name in FEATURE_EXTRACTOR_MAPPING_NAMES.items() if name in CLASSES}
    assert of_transformers == MODEL_TYPES


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"feature_extractor_type": "ClapFeatureExtractor"},
            "ClapFeatureExtractor has no counterpart here; known are W",
        ),
        ({"feature_extractor_type": 3}, "the file has no feature_extractor_type; name its class in transformers"),
        ({"image_processor_type": "ViTImageProcessor"}, "ViTImageProcessor is for images; name the feature extractor"),
        ({"dithers": 0}, "WhisperFeatureExtractor: the setting dithers is unknown here; leave it out if transformers"),
        ({"dither": 0.1}, "WhisperFeatureExtractor: dither is 0.1; give 0, because dither is noise"),
        ({"padding_side": "left"}, 'padding_side is "left"; give "right", because padding follows the sound'),
        ({"padding_value": 1.0}, "padding_value is 1.0; give 0, because silence follows"),
        ({"sampling_rate": 8000}, "sampling_rate is 8000; give 16000, because windows and filters are for this rate"),
        ({"chunk_length": 0}, "chunk_length is 0; give a whole number from 1 to 600"),
        ({"chunk_length": 100000}, "chunk_length is 100000; give a whole number from 1 to 600"),
        ({"feature_size": True}, "feature_size is true; give a whole number"),
        ({"feature_size": 201}, r"n_mels is 201; give 1 to n_fft / 2 \(200\) bands"),
        ({"n_fft": 480}, "n_fft is 480; give a power of two of 2 to 4096 samples, or 400"),
        ({"hop_length": 0}, "hop_length is 0; give a whole number"),
        ({"return_attention_mask": "yes"}, 'return_attention_mask is "yes"; give true or false'),
        ({"feature_extractor_type": "CohereAsrFeatureExtractor"}, "CohereAsrFeatureExtractor: dither is 1e-05; give 0"),
        ({"feature_extractor_type": "SeamlessM4TFeatureExtractor", "stride": 1}, "stride is 1; give 2, because"),
        ({"feature_extractor_type": "Speech2TextFeatureExtractor", "normalize_vars": False}, "is false; give true"),
        ({"feature_extractor_type": "ASTFeatureExtractor", "std": 0}, "std is 0; give a number above 0"),
        ({"feature_extractor_type": "ASTFeatureExtractor", "mean": None}, "mean is null; give a number"),
        ({"feature_extractor_type": "Phi4MultimodalFeatureExtractor", "audio_feat_stride": 2}, "is 2; give 1"),
        ({"feature_extractor_type": "Phi4MultimodalFeatureExtractor", "mel_max_frequency": 9000}, "high_hz is 9000"),
        ({"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 100}, "sampling_rate is 100; give"),
        ({"feature_extractor_type": "ParakeetFeatureExtractor", "win_length": 600}, "window is 600; give an even"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(settings, told, tmp_path):
    config = {"feature_extractor_type": "WhisperFeatureExtractor", **settings}
    if "image_processor_type" in settings:
        del config["feature_extractor_type"]
    with pytest.raises(UsageError, match=told):
        AudioSpec.from_hf(config)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=rf"{tmp_path}/preprocessor_config.json: .*{told}"):
        AudioSpec.from_hf(tmp_path / "preprocessor_config.json")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"none\.json: No such file"):
        AudioSpec.from_hf(tmp_path / "none.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(UsageError, match=r"list\.json has no object of settings"):
        AudioSpec.from_hf(tmp_path / "list.json")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"gain": 0.0}, "gain is 0.0; it must be above 0"),
        ({"low_hz": 9000.0}, "low_hz is 9000.0 and high_hz is None; give 0 to half the rate"),
        ({"ends": Ends.INSIDE}, "normalize_over is 'nemo', which is for mean and deviation of centred frames"),
        ({"normalize": None}, "normalize_over is 'nemo'"),
        ({"ends": Ends.MIRRORED, "normalize_over": "all"}, "give lengths.least or lengths.samples of 201 or more"),
        ({"mel": False, "normalize_over": "all", "lengths": Lengths(multiple=2)}, "lengths are for frames"),
        (
            {"mel": False, "normalize_over": "all", "normalize": Rescale()},
            "normalize is a rescale, which is for frames",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(change, told):
    with pytest.raises(UsageError, match=told):
        AudioSpec(**change)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Statistics(ddof=2), "ddof is 2; give 0 or 1"),
        (lambda: Statistics(variance_floor=-1.0), "variance_floor is -1.0; give 0 or more"),
        (lambda: Rescale(span=0.0), "span is 0.0; it must be above 0"),
        (lambda: Rescale(factor=0.0), "give numbers, the factor not 0"),
        (lambda: Lengths(multiple=0), "lengths.multiple is 0; give 1 to"),
        (lambda: Lengths(samples=1 << 40), "lengths.samples is"),
        (lambda: Lengths(pad_value=float("nan")), "lengths.pad_value is nan; give a number"),
        (lambda: Mask("float32"), "the type of a mask is 'float32'; give one of bool, int32, int64"),
        (lambda: Tokens(0), "the frames of a token are 0; give 1 or more"),
    ],
)
def test_values_out_of_range_are_refused(make, told):
    with pytest.raises(UsageError, match=told):
        make()

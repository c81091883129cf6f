"""Read the feature extractor of a speech model on Hugging Face: `preprocessor_config.json` to the fields of an
`AudioSpec`.

A file names a class of transformers, and changes some of its settings. CLASSES has the classes, with the settings that
transformers 5.23 gives them. Every key of a file is either read, or known to have no effect, or refused by name.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.batching import UsageError
from headrace.host.dpu.specs.config_file import Config, FileSettings, read, refuse_unknown
from headrace.host.dpu.specs.front_ends import (
    Ends,
    Floor,
    Lengths,
    Mask,
    MelScale,
    Rescale,
    Statistics,
    Tensors,
    Tokens,
    Window,
)

LONGEST_S: Final = 60.0  # longest input of a spec that is read; `dataclasses.replace` changes it
LONGEST_CHUNK_S: Final = 600
RATE: Final = 16000  # Hz; all classes with a mel stage have windows and filters for it
KALDI_GAIN: Final = 32768.0  # Kaldi takes the numbers of 16-bit samples
KALDI_FLOOR: Final = 1.192092955078125e-07  # the epsilon of float32, as in Kaldi
ATTENTION: Final = "attention_mask"

Fields = dict[str, Any]


class Settings(FileSettings):
    """The settings of a file over those of its class. Its methods refuse a value of the wrong form by its key."""

    def count(self, key: str, high: int, low: int = 1) -> int:
        given = self[key]
        if not isinstance(given, int) or isinstance(given, bool) or not low <= given <= high:
            raise self.refuse(key, f"a whole number from {low} to {high}")
        return given

    def number(self, key: str) -> float:
        given = self[key]
        if not isinstance(given, int | float) or isinstance(given, bool) or not math.isfinite(given):
            raise self.refuse(key, "a number")
        return float(given)

    def must_be(self, value: Any, key: str, why: str) -> None:
        """Refuse every other value."""
        if isinstance(self[key], bool) is not isinstance(value, bool) or self[key] != value:
            raise self.refuse(key, f"{json.dumps(value)}, because {why}")

    def mask(self, dtype: str = "int32") -> tuple[tuple[str, Mask | Tokens], ...]:
        """Return the mask that the class returns if the file says so."""
        return ((ATTENTION, Mask(dtype)),) if self.flag("return_attention_mask") else ()

    def no_noise(self) -> None:
        self.must_be(0, "dither", "dither is noise, with which no two results are equal")

    def pads_right(self) -> None:
        self.must_be("right", "padding_side", "padding follows the sound here")


@dataclass(frozen=True, slots=True)
class Class:
    """A class of transformers.

    Args:
        defaults: Its settings where a file has none. Other settings of a file have no effect on one sound.
        fields: The function that makes the fields of an AudioSpec from the settings.
    """

    defaults: Config
    fields: Callable[[Settings], Fields]


def _frames(settings: Settings, window: str = "win_length") -> Fields:
    """Return the sizes of frames. The other checks are those of AudioSpec."""
    return {
        "n_fft": settings.count("n_fft", 4096, 2),
        "window": settings.count(window, 4096, 2),
        "hop": settings.count("hop_length", 4096),
        "n_mels": settings.count("feature_size", 2048),
    }


def _whispers(settings: Settings) -> Fields:
    """Return what Whisper and Qwen3-ASR have in common."""
    settings.no_noise()
    return {
        **_frames(settings, "n_fft"),
        "ends": Ends.MIRRORED,
        "window_shape": Window.PERIODIC_HANN,
        "preemphasis": 0.0,
        "high_hz": 8000.0,
        "floor": Floor.LEAST,
        "log_floor": 1e-10,
        "log10": True,
        "normalize_over": "all",
        "normalize": Rescale(8.0, 4.0, 0.25),
    }


def _whisper(settings: Settings) -> Fields:
    settings.pads_right()
    settings.must_be(0, "padding_value", "silence follows the sound here")
    chunk_s = settings.count("chunk_length", LONGEST_CHUNK_S)
    return {
        **_whispers(settings),
        "longest_s": max(LONGEST_S, chunk_s),
        "lengths": Lengths(samples=chunk_s * RATE),
        "tensors": Tensors(settings.name, "input_features", settings.mask()),
    }


def _qwen3_asr(settings: Settings) -> Fields:
    """The fields are those with `padding=True`, as `Qwen3ASRProcessor` calls its extractor."""
    least, window = settings.count("min_length", 1 << 20, 0), settings.count("n_window", 1 << 16, 0)
    return {
        **_whispers(settings),
        "lengths": Lengths(least=least, multiple=max(1, 2 * window)),
        "tensors": Tensors(settings.name, "input_features", settings.mask()),
    }


def _nemo(settings: Settings) -> Fields:
    preemphasis = 0.0 if settings["preemphasis"] is None else settings.number("preemphasis")
    return {
        **_frames(settings),
        "preemphasis": preemphasis,
        "bands_first": False,
        "tensors": Tensors(settings.name, "input_features", ((ATTENTION, Mask("bool")),)),
    }


def _cohere(settings: Settings) -> Fields:
    """transformers cuts a longer sound where it is quiet, so such a sound is refused here."""
    settings.no_noise()
    longest_s = settings.number("max_audio_clip_s")
    if not 0 < longest_s <= LONGEST_CHUNK_S:
        raise settings.refuse("max_audio_clip_s", f"a number above 0, at most {LONGEST_CHUNK_S}")
    return {**_nemo(settings), "longest_s": longest_s}


def _kaldi(settings: Settings) -> Fields:
    """Return what the classes with Kaldi's filterbank have in common."""
    return {
        "n_fft": 512,
        "window": 400,
        "hop": 160,
        "n_mels": settings.count("num_mel_bins", 256),
        "ends": Ends.INSIDE,
        "window_shape": Window.POVEY,
        "gain": KALDI_GAIN,
        "remove_mean": True,
        "preemphasis": 0.97,
        "preemphasis_per_frame": True,
        "mel_scale": MelScale.KALDI,
        "low_hz": 20.0,
        "floor": Floor.LEAST,
        "log_floor": KALDI_FLOOR,
        "normalize_over": "all",
        "std_floor": 0.0,
        "bands_first": False,
    }


def _seamless(settings: Settings) -> Fields:
    settings.pads_right()
    settings.must_be(2, "stride", "transformers has a mask for pairs of frames alone")
    return {
        **_kaldi(settings),
        "normalize": Statistics(variance_floor=1e-7),
        "lengths": Lengths(multiple=2, pad_value=settings.number("padding_value"), stack=2),
        "tensors": Tensors(settings.name, "input_features", settings.mask()),
    }


def _speech_to_text(settings: Settings) -> Fields:
    settings.no_noise()
    normalizes = settings.flag("do_ceptral_normalize")
    if normalizes:
        for key in ("normalize_means", "normalize_vars"):
            settings.must_be(True, key, "normalize takes mean and deviation together")
    return {
        **_kaldi(settings),
        "normalize": Statistics(ddof=0) if normalizes else None,
        "tensors": Tensors(settings.name, "input_features", ((ATTENTION, Mask()),)),
    }


def _ast(settings: Settings) -> Fields:
    rescale = None
    if settings.flag("do_normalize"):
        mean, std = settings.number("mean"), settings.number("std")
        if std <= 0:
            raise settings.refuse("std", "a number above 0")
        rescale = Rescale(offset=-mean, factor=1 / (2 * std))
    return {
        **_kaldi(settings),
        "gain": 1.0,
        "window_shape": Window.HANN,
        "normalize": rescale,
        "lengths": Lengths(frames=settings.count("max_length", 1 << 16)),
        "tensors": Tensors(settings.name, "input_values"),
    }


def _phi4(settings: Settings) -> Fields:
    settings.must_be(1, "audio_feat_stride", "a token is counted in frames")
    low, high = settings.number("mel_min_frequency"), settings.number("mel_max_frequency")
    frames = settings.count("audio_compression_rate", 1 << 10) * settings.count("audio_downsample_rate", 1 << 10)
    return {
        **_frames(settings),
        "ends": Ends.INSIDE,
        "window_shape": Window.HAMMING,
        "gain": KALDI_GAIN,
        "preemphasis": settings.number("preemphasis"),
        "preemphasis_per_frame": True,
        "mel_scale": MelScale.KALDI,
        "low_hz": low,
        "high_hz": high,
        "floor": Floor.LEAST,
        "log_floor": 1.0,
        "normalize_over": "all",
        "normalize": None,
        "bands_first": False,
        "tensors": Tensors(settings.name, "audio_input_features", (("audio_embed_sizes", Tokens(frames)),)),
    }


def _wav2vec2(settings: Settings) -> Fields:
    return {
        "mel": False,
        "normalize_over": "all",
        "std_floor": 0.0,
        "normalize": Statistics(ddof=0, variance_floor=1e-7) if settings.flag("do_normalize") else None,
        "tensors": Tensors(settings.name, "input_values", settings.mask()),
    }


_WHISPER: Final[Config] = {
    "feature_size": 80,
    "hop_length": 160,
    "chunk_length": 30,
    "n_fft": 400,
    "dither": 0.0,
    "return_attention_mask": False,
}
_NEMO: Final[Config] = {"feature_size": 80, "hop_length": 160, "n_fft": 512, "win_length": 400, "preemphasis": 0.97}
_EVERY: Final[Config] = {"sampling_rate": RATE, "padding_value": 0.0, "padding_side": "right"}

CLASSES: Final[Mapping[str, Class]] = {
    "WhisperFeatureExtractor": Class(_WHISPER, _whisper),
    "Qwen3ASRFeatureExtractor": Class(
        {**_WHISPER, "feature_size": 128, "return_attention_mask": True, "n_window": 50, "min_length": 8000}, _qwen3_asr
    ),
    "ParakeetFeatureExtractor": Class(_NEMO, _nemo),
    "CohereAsrFeatureExtractor": Class(
        {**_NEMO, "feature_size": 128, "dither": 1e-5, "max_audio_clip_s": 35.0}, _cohere
    ),
    "SeamlessM4TFeatureExtractor": Class({"num_mel_bins": 80, "stride": 2, "return_attention_mask": True}, _seamless),
    "Speech2TextFeatureExtractor": Class(
        {
            "num_mel_bins": 80,
            "dither": 0.0,
            "do_ceptral_normalize": True,
            "normalize_means": True,
            "normalize_vars": True,
        },
        _speech_to_text,
    ),
    "ASTFeatureExtractor": Class(
        {"num_mel_bins": 128, "max_length": 1024, "do_normalize": True, "mean": -4.2677393, "std": 4.5689974}, _ast
    ),
    "Phi4MultimodalFeatureExtractor": Class(
        {
            **_NEMO,
            "audio_compression_rate": 8,
            "audio_downsample_rate": 1,
            "audio_feat_stride": 1,
            "mel_min_frequency": 0,
            "mel_max_frequency": 7690,
        },
        _phi4,
    ),
    "Wav2Vec2FeatureExtractor": Class({"do_normalize": True, "return_attention_mask": False}, _wav2vec2),
}

# Keys that say how a library runs, what it does with many sounds, or what follows from other keys.
WITHOUT_EFFECT: Final = frozenset(
    (
        "feature_extractor_type",
        "processor_class",
        "_processor_class",
        "auto_map",
        "return_tensors",
        "device",
        "n_samples",
        "nb_max_frames",
        "mel_filters",
        "window",
        "overlap_chunk_second",
        "min_energy_window_samples",
    )
)
KNOWN: Final = WITHOUT_EFFECT.union(_EVERY, *(known.defaults for known in CLASSES.values()))


def _of(name: str, **settings: Any) -> Config:
    return {"feature_extractor_type": f"{name}FeatureExtractor", **settings}


# Known models by name, with the settings that change their tensors.
MODELS: Final[Mapping[str, Config]] = {
    "ast-finetuned-audioset": _of("AST"),
    "parakeet-ctc-1.1b": _of("Parakeet"),
    "parakeet-tdt-0.6b-v3": _of("Parakeet", feature_size=128),
    "phi-4-multimodal": _of("Phi4Multimodal"),
    "qwen2-audio": _of("Whisper", feature_size=128, return_attention_mask=True),
    "qwen3-asr": _of("Qwen3ASR"),
    "s2t-small-librispeech-asr": _of("Speech2Text"),
    "seamless-m4t-v2": _of("SeamlessM4T"),
    "voxtral-mini": _of("Whisper", feature_size=128),
    "w2v-bert-2.0": _of("SeamlessM4T", padding_value=1.0),
    "wav2vec2-base-960h": _of("Wav2Vec2"),
    "wav2vec2-large-960h-lv60": _of("Wav2Vec2", return_attention_mask=True),
    "whisper-large-v3": _of("Whisper", feature_size=128),
    "whisper-small": _of("Whisper"),
    "whisper-tiny": _of("Whisper"),
}

_TYPES: Final = {
    "Whisper": "audioflamingo3 glmasr qwen2_5_omni qwen2_audio qwen3_omni_moe voxtral whisper",
    "Qwen3ASR": "qwen3_asr",
    "Parakeet": "canary parakeet_ctc parakeet_encoder parakeet_rnnt parakeet_tdt",
    "CohereAsr": "cohere_asr",
    "SeamlessM4T": "seamless_m4t seamless_m4t_v2",
    "Speech2Text": "speech_to_text",
    "AST": "audio-spectrogram-transformer",
    "Phi4Multimodal": "phi4_multimodal",
    "Wav2Vec2": "data2vec-audio hubert moonshine sew sew-d unispeech unispeech-sat wav2vec2 wav2vec2-bert "
    "wav2vec2-conformer wavlm",
}
# The class for a file of an older release that names none, by the type in the model's `config.json`.
MODEL_TYPES: Final[Mapping[str, str]] = {
    each: f"{name}FeatureExtractor" for name, types in _TYPES.items() for each in types.split()
}


def fields_of(config: Config | Path | str, base: str | None = None) -> Fields:
    """Return the fields of an `AudioSpec`, as `AudioSpec.from_hf` takes its arguments. Raises UsageError."""
    if not isinstance(config, Mapping):
        path = Path(config)
        settings_of_file = read(path)
        try:
            return fields_of(settings_of_file, base)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
    name = _class_name(config, base)
    known = CLASSES[name]
    if "image_processor_type" not in config:  # one file may have the settings of images, too
        refuse_unknown(name, config, KNOWN, {**known.defaults, **_EVERY})
    settings = Settings(name, {**_EVERY, **known.defaults, **config})
    if name != "Wav2Vec2FeatureExtractor":
        settings.must_be(RATE, "sampling_rate", "windows and filters are for this rate")
    fields: Fields = {"longest_s": LONGEST_S, "rate": settings.count("sampling_rate", 48000, 4000)}
    return fields | known.fields(settings)


def _class_name(config: Config, base: str | None) -> str:
    named = config.get("feature_extractor_type") or base
    if not isinstance(named, str):
        if isinstance(image := config.get("image_processor_type"), str):
            raise UsageError(f"{image} is for images; name the feature extractor of a model that takes audio")
        raise UsageError("the file has no feature_extractor_type; name its class in transformers")
    if named not in CLASSES:
        raise UsageError(f"{named} has no counterpart here; known are {', '.join(CLASSES)}")
    return named

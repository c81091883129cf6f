"""Feature extractors of transformers that compute by Headrace.

Each class of the library has one method that makes spectrograms of samples, or that normalizes samples. The adapter
replaces this method. The rest is the library's own: checks, padding, masks and types.
"""

import importlib
import io
import os
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, UsageError
from headrace.host.adapters.counts import DPU, LIBRARY, Place
from headrace.host.adapters.device import CPU
from headrace.host.adapters.library import Adapter, is_library_class, loaded
from headrace.host.dpu.reference import audio
from headrace.host.dpu.specs import AudioSpec, Lengths, feature_extractors

TYPE: Final = "feature_extractor_type"
NOT_ON_DPU: Final = "the DPU has not the step that this class of transformers takes from Headrace"
NO_16_BITS: Final = "the samples are no 16-bit numbers, and the DPU takes only such samples"


class HeadraceFeatureExtractor(Adapter):
    """A feature extractor of transformers that computes by Headrace.

    `from_pretrained` makes one. It is an object of the library's class for the model, and has all that such an object
    has. A call gives tensors of the same names, shapes and types. The values differ by the rounding of float32.

    Samples that Headrace does not take, or a setting, go to the library itself. `counts` has the number of sounds by
    place.
    """

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        target: str | os.PathLike[str] = CPU,
        **settings: Any,
    ) -> Any:
        """Return the feature extractor of a model.

        Args:
            pretrained_model_name_or_path: A folder with a `preprocessor_config.json`, as `AutoFeatureExtractor` takes
                it, or a name of `headrace preprocess processors`, which takes precedence.
            target: "cpu", "sw_emu", "hw_emu", or the path of an .xclbin file. The DPU takes samples of 16 bits for
                all models but Wav2Vec2; the CPU takes all else.
            settings: Arguments of `AutoFeatureExtractor.from_pretrained`. Among them are settings that take the place
                of those of the file. Nothing is downloaded unless they say `local_files_only=False`.

        Raises:
            UsageError: There is no such target, or transformers is missing. An emulated target cannot be built.
            OSError, ValueError: transformers does not load the model.
        """
        name = pretrained_model_name_or_path
        known = feature_extractors.MODELS.get(name) if isinstance(name, str) else None
        return loaded(HeadraceFeatureExtractor, "AutoFeatureExtractor", name, known, target, settings)

    @staticmethod
    def _knows(kind: type) -> bool:
        """Tell whether Headrace has a class of transformers."""
        return _is_known(kind)

    @staticmethod
    def _class_for(kind: type) -> type:
        """Return the adapter's class for a class of transformers."""
        return _adapter(kind)

    def _by_headrace(self, method: str, make: "Make", arguments: tuple[Any, ...], settings: Mapping[str, Any]) -> Any:
        """Return what a method of the library returns, computed by `make` or by the library."""
        number = len(arguments[0]) if isinstance(arguments[0], list) or arguments[0].ndim == 2 else 1
        try:
            made, places = make(self, *arguments, **settings)
        except (UsageError, BadInput) as error:
            self._work.counts.add([(LIBRARY, str(error))] * number)
            return getattr(super(), method)(*arguments, **settings)
        on_cpu = CPU, None if self._work.device is None else NOT_ON_DPU
        self._work.counts.add([on_cpu] * number if places is None else places)
        return made


class _OfLibrary(HeadraceFeatureExtractor):
    """An adapter for a class that Headrace does not have. The library does all of its work."""

    def __call__(self, raw_speech: Any, *arguments: Any, **settings: Any) -> Any:
        made = super().__call__(raw_speech, *arguments, **settings)  # type: ignore[misc]
        several = isinstance(raw_speech, list | tuple) and len(raw_speech) > 0 and not np.isscalar(raw_speech[0])
        number = len(raw_speech) if several or getattr(raw_speech, "ndim", 1) > 1 else 1
        self._work.counts.add([(LIBRARY, f"{self.library_class.__name__} has no counterpart in Headrace")] * number)
        return made


Make = Callable[..., tuple[Any, list[Place] | None]]  # a result, and its places if they are not all the CPU


@dataclass(frozen=True, slots=True)
class Replaced:
    """The method of a class that the adapter replaces, the function in its place, and settings of no effect on it."""

    method: str
    make: Make
    without_effect: Mapping[str, Any]


# ---- What the methods return ----


def _spec(extractor: Any, **fields: Any) -> AudioSpec:
    """Return the spec of an object's settings, with some fields replaced. Raises UsageError."""
    name = extractor.library_class.__name__
    keys = {**feature_extractors.CLASSES[name].defaults, "sampling_rate": 0, "padding_value": 0, "padding_side": 0}
    found = {key: getattr(extractor, key) for key in keys if hasattr(extractor, key)}
    spec = AudioSpec.from_hf({**found, **REPLACED[name].without_effect, TYPE: name})
    return replace(spec, dtype="float32", **fields)


def _on_cpu(device: Any) -> None:
    if str(device) != "cpu":
        raise UsageError(f"device is {str(device)!r}; Headrace computes on the CPU")


def _samples(waveform: Any, axes: int) -> NDArray[np.float32]:
    """Return samples as float32. Raises UsageError for an array of other axes or of integers."""
    array = np.asarray(waveform)
    if array.ndim != axes or array.dtype.kind != "f" or array.shape[-1] == 0:
        raise UsageError(f"samples are {array.dtype} with shape {array.shape}; Headrace takes floats of one channel")
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise UsageError("a sample is no number")
    return array


def _like_whisper(extractor: Any, waveform: Any, device: str = "cpu") -> tuple[Any, list[Place] | None]:
    """Return spectrograms, shape (sounds, bands, frames), of padded sounds, shape (sounds, samples)."""
    _on_cpu(device)
    waveforms = _samples(waveform, 2)
    spec = _spec(extractor, lengths=Lengths(samples=waveforms.shape[1]))
    files = [_file(each, spec.rate) for each in waveforms]
    dpu = extractor._work.device
    done = iter([] if dpu is None else dpu.process([file for file in files if file is not None], spec))
    made, places = [], []
    for waveform, file in zip(waveforms, files, strict=True):
        found = None if dpu is None else NO_16_BITS if file is None else next(done)
        if found is None or isinstance(found, str):
            made.append(audio.features(waveform, spec))
            places.append((CPU, found))
        else:
            made.append(found["input_features"][0])
            places.append((DPU, None))
    return np.stack(made), places


def _file(samples: NDArray[np.float32], rate: int) -> bytes | None:
    """Return a WAV file with the same samples, without silence at the end. None if they are not those of 16 bits."""
    scaled = samples * np.float32(32768)
    if not ((scaled == np.rint(scaled)) & (scaled >= -32768) & (scaled <= 32767)).all():
        return None
    heard = np.flatnonzero(scaled)
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(rate)
        written.writeframes(scaled[: heard[-1] + 1 if len(heard) else 1].astype("<i2").tobytes())
    return file.getvalue()


def _nemo(extractor: Any, waveform: Any, device: str = "cpu") -> tuple[Any, list[Place] | None]:
    """Return logarithms, shape (sounds, frames, bands), of padded sounds after their pre-emphasis."""
    _on_cpu(device)
    waveforms = _samples(waveform, 2)
    spec = _spec(extractor, preemphasis=0.0)
    return _torch(np.stack([audio.log_mel(each, spec).astype(np.float32, copy=False).T for each in waveforms])), None


def _kaldi(extractor: Any, waveform: Any) -> tuple[Any, list[Place] | None]:
    """Return logarithms, shape (frames, bands), of a sound."""
    spec = _spec(extractor, normalize=None, lengths=Lengths())
    return audio.features(_samples(np.squeeze(waveform), 1), spec), None


def _ast(extractor: Any, waveform: Any, max_length: int) -> tuple[Any, list[Place] | None]:
    spec = _spec(extractor, normalize=None, lengths=Lengths(frames=max_length))
    return audio.features(_samples(np.squeeze(waveform), 1), spec), None


def _phi4(extractor: Any, waveform: Any, audio_lengths: Any, device: str = "cpu") -> tuple[Any, list[Place] | None]:
    """Return logarithms, shape (sounds, frames, bands), of padded sounds.

    The library clears frames that begin within a shorter sound and end after it."""
    _on_cpu(device)
    waveforms = _samples(waveform, 2)
    spec = _spec(extractor)
    lengths = [int(each) for each in audio_lengths]
    if min(lengths) < spec.window:
        raise UsageError(f"a sound has {min(lengths)} samples, and a frame takes {spec.window}")
    made = np.stack([audio.features(each, spec) for each in waveforms])
    silent = np.full(spec.n_mels, np.log(np.float32(spec.log_floor)))
    for row, length in zip(made, lengths, strict=True):
        if length != max(lengths):
            row[(length - spec.window) // spec.hop + 1 : length // spec.hop - 1] = silent
    return _torch(made), None


def _wav2vec2(
    extractor: Any, input_values: Any, attention_mask: Any = None, padding_value: float = 0.0
) -> tuple[list[NDArray[np.float32]], None]:
    """Return normalized samples of each sound, shape (samples,). Padding does not count, and has its own value."""
    spec = _spec(extractor)
    masks = [None] * len(input_values) if attention_mask is None else attention_mask
    made = []
    for waveform, mask in zip(input_values, masks, strict=True):
        samples = _samples(waveform, 1)
        length = len(samples) if mask is None else int(np.sum(mask))
        if not length:
            raise UsageError("a sound has no samples")
        values = np.full(len(samples), padding_value, np.float32)
        values[:length] = audio.normalize(samples[:length], spec)
        made.append(values)
    return made, None


def _torch(values: NDArray[Any]) -> Any:
    return importlib.import_module("torch").from_numpy(np.ascontiguousarray(values))


_FBANK: Final = "_extract_fbank_features"
_OF_TORCH: Final = "_torch_extract_fbank_features"
REPLACED: Final[Mapping[str, Replaced]] = {
    "WhisperFeatureExtractor": Replaced(_OF_TORCH, _like_whisper, {"return_attention_mask": False}),
    "Qwen3ASRFeatureExtractor": Replaced(_OF_TORCH, _like_whisper, {"return_attention_mask": False}),
    "ParakeetFeatureExtractor": Replaced(_OF_TORCH, _nemo, {}),
    "CohereAsrFeatureExtractor": Replaced(_OF_TORCH, _nemo, {"dither": 0.0}),  # the library adds it before
    "SeamlessM4TFeatureExtractor": Replaced(
        _FBANK, _kaldi, {"return_attention_mask": False, "stride": 2, "padding_side": "right", "padding_value": 0.0}
    ),
    "Speech2TextFeatureExtractor": Replaced(_FBANK, _kaldi, {"do_ceptral_normalize": False}),
    "ASTFeatureExtractor": Replaced(_FBANK, _ast, {"do_normalize": False, "max_length": 1024}),
    "Phi4MultimodalFeatureExtractor": Replaced(
        _OF_TORCH, _phi4, {"audio_feat_stride": 1, "audio_compression_rate": 8, "audio_downsample_rate": 1}
    ),
    "Wav2Vec2FeatureExtractor": Replaced("zero_mean_unit_var_norm", _wav2vec2, {"return_attention_mask": False}),
}


def _is_known(kind: type) -> bool:
    """Tell whether Headrace has the class."""
    return is_library_class(kind) and kind.__name__ in REPLACED


@cache
def _adapter(kind: type) -> type:
    """Return the subclass for a class of transformers. It has its name, which files of settings have."""
    fields: dict[str, Any] = {"library_class": kind, "__doc__": kind.__doc__, "__module__": __name__}
    if not _is_known(kind):
        return type(kind.__name__, (_OfLibrary, kind), fields)
    replaced = REPLACED[kind.__name__]

    def method(self: Any, *arguments: Any, **settings: Any) -> Any:
        return self._by_headrace(replaced.method, replaced.make, arguments, settings)

    return type(kind.__name__, (HeadraceFeatureExtractor, kind), {**fields, replaced.method: method})

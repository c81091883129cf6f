"""Feature extractors of transformers, an independent computation of their features in float64, and sounds."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import scipy  # its parts are large, and load when they are used
import transformers
from numpy.typing import NDArray
from sounds import int16, speechlike, wav
from transformers.audio_utils import mel_filter_bank

# Class and settings. The banks of 80 and 128 bands are both there for each family.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "whisper": ("WhisperFeatureExtractor", {}),
    "whisper-large-v3": ("WhisperFeatureExtractor", {"feature_size": 128}),
    "qwen2-audio": ("WhisperFeatureExtractor", {"feature_size": 128, "return_attention_mask": True}),
    "qwen3-asr": ("Qwen3ASRFeatureExtractor", {}),
    "qwen3-asr 80": ("Qwen3ASRFeatureExtractor", {"feature_size": 80}),
    "parakeet": ("ParakeetFeatureExtractor", {}),
    "parakeet 128": ("ParakeetFeatureExtractor", {"feature_size": 128}),
    "cohere": ("CohereAsrFeatureExtractor", {"dither": 0.0}),
    "seamless": ("SeamlessM4TFeatureExtractor", {}),
    "w2v-bert": ("SeamlessM4TFeatureExtractor", {"padding_value": 1.0}),
    "seamless 128": ("SeamlessM4TFeatureExtractor", {"feature_size": 128, "num_mel_bins": 128}),
    "speech2text": ("Speech2TextFeatureExtractor", {}),
    "speech2text raw": ("Speech2TextFeatureExtractor", {"do_ceptral_normalize": False}),
    "ast": ("ASTFeatureExtractor", {}),
    "ast 80": ("ASTFeatureExtractor", {"num_mel_bins": 80, "max_length": 300, "do_normalize": False}),
    "phi-4": ("Phi4MultimodalFeatureExtractor", {}),
    "phi-4 128": ("Phi4MultimodalFeatureExtractor", {"feature_size": 128, "mel_max_frequency": 8000}),
    "wav2vec2": ("Wav2Vec2FeatureExtractor", {}),
    "wav2vec2 masked": ("Wav2Vec2FeatureExtractor", {"return_attention_mask": True}),
    "wav2vec2 raw": ("Wav2Vec2FeatureExtractor", {"do_normalize": False}),
}


def noise(count: int, loudness: float = 0.1) -> NDArray[np.float64]:
    return loudness * np.random.default_rng(count).standard_normal(count)


def sine(count: int, hertz: float, loudness: float) -> NDArray[np.float64]:
    return loudness * np.sin(2 * np.pi * hertz / 16000 * np.arange(count))


class Sounds(Mapping[str, NDArray[np.float32]]):
    """Sounds by name. Each is what a file of 16-bit samples at 16 kHz gives, and is made when it is first asked for."""

    def __init__(self, made: Mapping[str, Callable[[], NDArray[np.float64]]]) -> None:
        self._made = made
        self._done: dict[str, NDArray[np.float32]] = {}

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        if name not in self._done:
            samples = np.clip(self._made[name](), -1, 32767 / 32768)
            self._done[name] = int16(samples).astype(np.float32) / 32768
        return self._done[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


SOUNDS = Sounds(
    {
        "voice": lambda: speechlike(4.3, 16000),
        "voice of 30 s": lambda: speechlike(30, 16000),
        "voice of 32 s": lambda: speechlike(32.0123, 16000),
        "quiet voice": lambda: speechlike(2, 16000) / 1000,
        "noise": lambda: noise(20003),
        "quiet noise": lambda: noise(20003, 1e-4),
        "sine": lambda: sine(30000, 440.0, 0.9),
        "clipped sine": lambda: sine(30000, 764.0, 3.0),
        "square": lambda: np.where(np.arange(32000) // 18 % 2, 1.0, -1.0),
        "click": lambda: (np.arange(16000) == 8000) * 0.9,
        "constant": lambda: np.full(8000, 0.5),
        "pause": lambda: np.concatenate((speechlike(1, 16000), np.zeros(16000), speechlike(1, 16000, 7))),
        **{f"{count} samples": partial(noise, count) for count in (1, 159, 399, 400, 401, 560, 799, 8000, 16079)},
        "silence": lambda: np.zeros(16000),
        "empty": lambda: np.zeros(0),
    }
)


def theirs(name: str, settings: Mapping[str, Any], samples: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """Return the tensors of transformers, with the arguments of the processor of the model."""
    extractor = getattr(transformers, name)(**settings)
    more = {"padding": True} if name == "Qwen3ASRFeatureExtractor" else {}
    if name in ("WhisperFeatureExtractor", "Qwen3ASRFeatureExtractor") and extractor.return_attention_mask:
        more["return_attention_mask"] = True
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        made = extractor(samples, sampling_rate=16000, return_tensors="np", **more)
    return {key: np.asarray(each) for key, each in made.items() if key != "audio_chunk_index"}


def exact(name: str, settings: Mapping[str, Any], samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the features of one sound in float64, with the axes of transformers and without the batch."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # of bands without a bin, and of one frame alone
        warnings.simplefilter("ignore")
        return _exact(name, settings, samples.astype(np.float64))


def _exact(name: str, settings: Mapping[str, Any], x: NDArray[np.float64]) -> NDArray[np.float64]:
    if name == "Wav2Vec2FeatureExtractor":
        return (x - x.mean()) / np.sqrt(x.var() + 1e-7) if settings.get("do_normalize", True) else x
    of_bands = {"Seaml": "num_mel_bins", "Speec": "num_mel_bins", "ASTFe": "num_mel_bins"}
    default = {"Qwen3": 128, "Coher": 128, "ASTFe": 128}.get(name[:5], 80)
    bands = settings.get(of_bands.get(name[:5], "feature_size"), default)
    match name[:5]:
        case "Whisp" | "Qwen3":
            count = 480000 if name.startswith("Whisper") else max(8000, len(x))
            x = np.pad(x[:count], (0, max(0, count - len(x))))
            power = _power(_framed(np.pad(x, 200, "reflect"), 400)[:-1], scipy.signal.windows.hann(400, False), 400)
            mel = np.log10(np.maximum(power @ mel_filter_bank(201, bands, 0, 8000, 16000, "slaney", "slaney"), 1e-10))
            mel = (np.maximum(mel, mel.max() - 8) + 4) / 4
            return np.pad(mel, ((0, -len(mel) % 100 if name.startswith("Qwen") else 0), (0, 0))).T
        case "Parak" | "Coher":
            x = np.append(x[:1], x[1:] - 0.97 * x[:-1])
            power = _power(_framed(np.pad(x, 256), 512), np.pad(scipy.signal.windows.hann(400), 56), 512)
            mel = np.log(power @ mel_filter_bank(257, bands, 0, 8000, 16000, "slaney", "slaney") + 2.0**-24)
            made = (mel[:-1] - mel[:-1].mean(0)) / (mel[:-1].std(0, ddof=1) + 1e-5)
            return np.pad(made, ((0, 1), (0, 0)))
        case "Phi4M":
            frames = _framed(x, 400)
            frames = (frames - 0.97 * np.concatenate((frames[:, :1], frames[:, :-1]), 1)) * 32768
            high = settings.get("mel_max_frequency", 7690)
            bank = mel_filter_bank(257, bands, 0, high, 16000, None, "kaldi", True)
            return np.log(np.maximum(_power(frames, scipy.signal.windows.hamming(400), 512) @ bank, 1.0))
    frames = _framed(x, 400) * (1.0 if name.startswith("AST") else 32768.0)
    frames = frames - frames.mean(1, keepdims=True)
    frames = frames - 0.97 * np.concatenate((frames[:, :1], frames[:, :-1]), 1)
    window = scipy.signal.windows.hann(400)
    window = window if name.startswith("AST") else window**0.85
    bank = mel_filter_bank(257, bands, 20, 8000, 16000, None, "kaldi", True)
    mel = np.log(np.maximum(_power(frames, window, 512) @ bank, 1.192092955078125e-07))
    match name[:5]:
        case "ASTFe":
            length = settings.get("max_length", 1024)
            mel = np.pad(mel[:length], ((0, max(0, length - len(mel))), (0, 0)))
            return (mel + 4.2677393) / (2 * 4.5689974) if settings.get("do_normalize", True) else mel
        case "Speec":
            return (mel - mel.mean(0)) / mel.std(0) if settings.get("do_ceptral_normalize", True) else mel
    mel = (mel - mel.mean(0)) / np.sqrt(mel.var(0, ddof=1) + 1e-7)
    mel = np.pad(mel, ((0, len(mel) % 2), (0, 0)), constant_values=settings.get("padding_value", 0.0))
    return mel.reshape(len(mel) // 2, -1)


def _framed(samples: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return frames of a size, one for each 160 samples."""
    count = max(0, (len(samples) - size) // 160 + 1)
    return np.stack([samples[160 * t : 160 * t + size] for t in range(count)]) if count else np.zeros((0, size))


def _power(frames: NDArray[np.float64], window: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    return np.abs(np.fft.rfft(frames * window, size)) ** 2


TIME = np.arange(48000) / 16000
HELD_OUT = Sounds(
    {
        "other voice": lambda: speechlike(6.1, 16000, 99),
        "voice, 60 dB lower": lambda: speechlike(3, 16000, 98) / 1000,
        "voice behind noise": lambda: speechlike(3, 16000, 97) + noise(48000, 0.05),
        "loud noise": lambda: noise(48001, 0.5),
        "noise of two steps": lambda: np.random.default_rng(40).integers(-1, 2, 48000) / 32768,
        "chirp": lambda: 0.8 * np.sin(2 * np.pi * 1300 * TIME**2),
        "two sines, 80 dB apart": lambda: sine(48000, 701, 0.9) + sine(48000, 5003, 9e-5),
        "full-scale sine at 7.9 kHz": lambda: sine(48000, 7900, 1.0),
        "square wave at 50 Hz": lambda: np.where(TIME * 50 % 1 < 0.5, 1.0, -1.0),
        "clicks": lambda: (np.arange(48000) % 1601 == 7) * 0.99,
        "full-scale DC": lambda: np.full(48000, 1.0),
        "fading noise": lambda: noise(48000, 0.3) * 10 ** (-TIME * 1.5),
    }
)


def clips() -> dict[str, NDArray[np.float32]]:
    """Return the sounds of some length, those of no test with a star behind their names."""
    kept = [name for name in SOUNDS if name != "empty" and not name.endswith("samples")]
    return {name: SOUNDS[name] for name in kept} | {f"{name} *": HELD_OUT[name] for name in HELD_OUT}


def file_of(samples: NDArray[np.float32]) -> bytes:
    """Return a WAV file of 16-bit samples at 16 kHz."""
    return wav(int16(samples), 16000)

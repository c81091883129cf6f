"""Speech as bytes of WAV and FLAC files: what ALSA's utilities bundle, what espeak-ng says, or a folder of one's own.

espeak-ng comes as a Python package and alsa-utils' recordings come with scripts/setup, as no more than files: neither
needs root. What is not there is told, and left out.
"""

import contextlib
import ctypes
import io
import signal
import sys
import threading
import wave
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
import soxr
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.sim.workload.lengths import LIBRISPEECH

RECORDED = (Path("/usr/share/sounds/alsa"), Path(sys.prefix) / "share/sounds/alsa")  # Debian's, and scripts/setup's
SUFFIXES = (".wav", ".flac")

# Of espeak-ng: English of somewhere, in a variant of the voice; words a minute.
VOICES = (
    ("en-US", 165),
    ("en-US+f3", 150),
    ("en", 175),
    ("en+f2", 190),
    ("en-GB-scotland+m3", 155),
    ("en-GB-x-rp+f4", 180),
    ("en-US+m7", 210),
    ("en-029+m2", 140),
)
# Hz and channels of the spoken ones, which take turns.
FORMS = (
    (16000, 1),
    (44100, 1),
    (16000, 1),
    (48000, 2),
    (22050, 1),
    (16000, 1),
    (8000, 1),
    (32000, 1),
    (24000, 2),
    (16000, 1),
    (11025, 1),
    (44100, 2),
)
SPOKEN = 24

TEXT = """
A headrace is the channel that feeds a mill. It takes water from the river above the weir, keeps most of the height
that the river would have lost by then, and gives it all to the wheel at once. The miller does not ask how the rain
fell. He asks how much of it stands behind the gate, and when to open. If he opens for every bucket, the wheel turns
slowly and stops between; if he waits until the pond is full, the stone is strong, and the farmers stand in the yard
with their sacks. Between the two lies a level at which a little more water brings hardly any more flour, and that
is the level to open at. On dry days the gate opens at noon and at night. In spring it never closes. When two streams
come in, one quick and small, the other late and wide, it would be a poor miller who let the small one wait for the
wide, or who sent both down half empty. So there are two gates, and a man who listens. Now and then somebody asks
whether the river could not simply run through the wheel. It could, and that is what rivers did before there were
mills.
"""


@dataclass(frozen=True, slots=True)
class AudioClip:
    """A file's bytes."""

    name: str
    data: bytes


def demo_audio(tell: Callable[[str], None]) -> list[AudioClip]:
    """The recordings, then speech in many voices, rates and lengths. `tell` is told what is left out and why. Raises
    UsageError if nothing is there."""
    found = []
    for part in (recorded_audio, spoken_audio):
        try:
            found += part()
        except UsageError as error:
            tell(f"going without some sounds: {error}")
    if not found:
        raise UsageError("no sounds: run scripts/setup or `pip install headrace[demo]`, or name a folder with --audio")
    return found


def recorded_audio() -> list[AudioClip]:
    """A voice that names loudspeakers, at 48 kHz. Raises UsageError if alsa-utils is not there."""
    for folder in RECORDED:
        files = [path for path in sorted(folder.glob("*.wav")) if path.stem != "Noise"]
        if files:
            return [AudioClip(f"alsa {path.stem}", path.read_bytes()) for path in files]
    raise UsageError("no recordings of alsa-utils; install that, or run scripts/setup where there is apt-get")


def spoken_audio(count: int = SPOKEN) -> list[AudioClip]:
    """Said by espeak-ng, with about LibriSpeech's lengths, from its shortest to its longest. Raises UsageError if it
    is not there, or cannot speak."""
    drawn, _ = LIBRISPEECH.sample(20_000, np.random.default_rng(0))
    lengths = np.quantile(drawn, np.linspace(0, 1, count))
    seconds = np.random.default_rng(1).permutation(lengths)  # short beside long, always the same
    words = TEXT.split()
    sounds = []
    with Speaker() as speaker:
        for number, length in enumerate(seconds.tolist()):
            voice, speed = VOICES[number % len(VOICES)]
            rate, channels = FORMS[number % len(FORMS)]
            first = 17 * number % len(words)
            said = (words * 3)[first : first + max(1, round(length * speed / 60))]
            samples = speaker.say(" ".join(said), voice, speed)[: round(LIBRISPEECH.longest * speaker.rate)]
            resampled = soxr.resample(samples, speaker.rate, rate)
            if channels == 2:  # from somewhere on the left
                resampled = np.stack([resampled, 0.6 * resampled], axis=1)
            name = f"espeak {voice} {len(resampled) / rate:.1f} s {rate} Hz{' stereo' if channels == 2 else ''}"
            sounds.append(AudioClip(name, pcm_file(resampled, rate)))
    return sounds


def folder_audio(folder: Path) -> list[AudioClip]:
    """Every WAV and FLAC file below `folder`, in order of name. Raises UsageError if it is no folder or holds none."""
    if not folder.is_dir():
        raise UsageError(f"--audio {folder}: there is no such folder")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not files:
        raise UsageError(f"--audio {folder}: it holds no .wav or .flac files")
    return [AudioClip(str(path.relative_to(folder)), path.read_bytes()) for path in files]


def pcm_file(samples: NDArray[np.floating], rate: int) -> bytes:
    """A WAV file of 16 bits of (n,) or (n, channels), -1..1."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").tobytes())
    return file.getvalue()


# Of espeak-ng/speak_lib.h.
_AUDIO_OUTPUT_SYNCHRONOUS, _DONT_EXIT, _RATE, _CHARS_UTF8 = 2, 0x8000, 1, 1
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Speaker:
    """espeak-ng, of which a process has one. `rate` in Hz. Use as a context manager; raises UsageError."""

    def __init__(self) -> None:
        try:
            import espeakng_loader  # of the extra "demo"

            self._library = ctypes.CDLL(espeakng_loader.get_library_path())
            data = espeakng_loader.get_data_path()
        except (ImportError, OSError, RuntimeError) as error:
            raise UsageError(f"espeak-ng is not there ({error}); `pip install headrace[demo]`") from error
        self.rate = int(
            self._library.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, 0, str(Path(data)).encode(), _DONT_EXIT)
        )
        if self.rate <= 0:
            raise UsageError(f"espeak-ng cannot use {data}; install espeakng-loader anew")
        self._parts: list[NDArray[np.int16]] = []
        self._interrupts: list[tuple[int, FrameType | None]] = []
        self._callback = _CALLBACK(self._take)  # kept: espeak-ng calls it
        self._library.espeak_SetSynthCallback(self._callback)

    def __enter__(self) -> "Speaker":
        return self

    def __exit__(self, *_: object) -> None:
        self._library.espeak_Terminate()

    def _take(self, samples: "ctypes._Pointer[ctypes.c_short]", count: int, _events: int) -> int:
        if samples and count > 0:
            self._parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return int(bool(self._interrupts))  # 1: say no more

    @contextlib.contextmanager
    def _interrupted_afterwards(self) -> Iterator[None]:
        """Ctrl-C waits for the end of what runs inside: raised in a function that C calls, it would be lost."""
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            yield
            return
        self._interrupts.clear()
        signal.signal(signal.SIGINT, lambda *interrupt: self._interrupts.append(interrupt))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)
            if self._interrupts:
                handler(*self._interrupts[0])

    def say(self, text: str, voice: str, words_a_minute: int) -> NDArray[np.float64]:
        """(n,), -1..1. Raises UsageError for a voice that there is not."""
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise UsageError(f"espeak-ng has no voice {voice!r}; install espeakng-loader anew")
        self._library.espeak_SetParameter(_RATE, words_a_minute, 0)
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(1))  # breath is noise: the same each time
        self._parts.clear()
        spoken = text.encode() + b"\0"
        with self._interrupted_afterwards():
            self._library.espeak_Synth(
                spoken, ctypes.c_size_t(len(spoken)), ctypes.c_uint(0), 0, ctypes.c_uint(0), _CHARS_UTF8, None, None
            )
        return np.concatenate([*self._parts, np.zeros(0, np.int16)]) / 32768

"""Speech as the bytes of WAV and FLAC files.

The speech is the recordings of ALSA's utilities and sentences that espeak-ng speaks, or a folder of the user's own.
espeak-ng is a Python package, and scripts/setup unpacks the recordings as plain files, so neither needs root. The demo
reports a missing source and goes on without it.
"""

import io
import sys
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from headrace.batching import UsageError
from headrace.host.demo.inputs.speaker import Speaker
from headrace.sim.workload.lengths import LIBRISPEECH

RECORDED = (Path("/usr/share/sounds/alsa"), Path(sys.prefix) / "share/sounds/alsa")  # Debian's, and scripts/setup's
SUFFIXES = (".wav", ".flac")

# Voices of espeak-ng (an English accent, and a variant after the plus sign) with their words per minute.
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
# The spoken clips take these sample rates (Hz) and numbers of channels in turn.
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
    """An audio file: its name and its bytes."""

    name: str
    data: bytes


def demo_audio(tell: Callable[[str], None]) -> list[AudioClip]:
    """Return the recordings, then speech in many voices, sample rates and lengths.

    `tell` receives a line for each source that is missing, with the reason. Raises UsageError if both are missing."""
    clips = []
    for source in (recorded_audio, spoken_audio):
        try:
            clips += source()
        except UsageError as error:
            tell(f"some sounds are left out: {error}")
    if not clips:
        raise UsageError("no sounds: run scripts/setup or `pip install headrace[demo]`, or name a folder with --audio")
    return clips


def recorded_audio() -> list[AudioClip]:
    """Return the recordings of alsa-utils: a voice that names loudspeakers, at 48 kHz.

    Raises UsageError if alsa-utils is not installed."""
    for folder in RECORDED:
        paths = [path for path in sorted(folder.glob("*.wav")) if path.stem != "Noise"]
        if paths:
            return [AudioClip(f"alsa {path.stem}", path.read_bytes()) for path in paths]
    raise UsageError(
        "the recordings of alsa-utils are missing; install it, or run scripts/setup where there is apt-get"
    )


def spoken_audio(count: int = SPOKEN) -> list[AudioClip]:
    """Return `count` clips that espeak-ng speaks. Their lengths span LibriSpeech's, from the shortest to the longest.

    Raises UsageError if espeak-ng is not installed, or cannot speak."""
    drawn, _ = LIBRISPEECH.sample(20_000, np.random.default_rng(0))
    lengths = np.quantile(drawn, np.linspace(0, 1, count))
    seconds = np.random.default_rng(1).permutation(lengths)  # short and long clips mixed, in the same order every time
    words = TEXT.split()
    clips = []
    with Speaker() as speaker:
        for number, length in enumerate(seconds.tolist()):
            voice, speed = VOICES[number % len(VOICES)]
            rate, channels = FORMS[number % len(FORMS)]
            first = 17 * number % len(words)
            spoken = (words * 3)[first : first + max(1, round(length * speed / 60))]
            samples = speaker.say(" ".join(spoken), voice, speed)[: round(LIBRISPEECH.longest * speaker.rate)]
            resampled = soxr.resample(samples, speaker.rate, rate)
            if channels == 2:  # the left channel is louder
                resampled = np.stack([resampled, 0.6 * resampled], axis=1)
            name = f"espeak {voice} {len(resampled) / rate:.1f} s {rate} Hz{' stereo' if channels == 2 else ''}"
            clips.append(AudioClip(name, pcm_file(resampled, rate)))
    return clips


def folder_audio(folder: Path) -> list[AudioClip]:
    """Return every WAV and FLAC file below `folder`, in the order of the names.

    Raises UsageError if `folder` is not a folder, or holds no such file."""
    if not folder.is_dir():
        raise UsageError(f"--audio {folder}: there is no such folder")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise UsageError(f"--audio {folder}: it holds no .wav or .flac files")
    return [AudioClip(str(path.relative_to(folder)), path.read_bytes()) for path in paths]


def pcm_file(samples: NDArray[np.floating], rate: int) -> bytes:
    """Return a 16-bit WAV file of `samples`, shape (n,) or (n, channels), range -1..1. Larger values are clipped."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").tobytes())
    return file.getvalue()

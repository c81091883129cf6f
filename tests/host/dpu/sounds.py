"""Audio for tests, and files with it in every form."""

import io
import wave

import numpy as np
import soundfile
from numpy.typing import NDArray


def speechlike(seconds: float, rate: int, seed: int = 1) -> NDArray[np.float64]:
    """Return voiced and unvoiced parts, -1..1, with most of the power below 0.85 of the band."""
    random = np.random.default_rng(seed)
    time = np.arange(round(seconds * rate)) / rate
    pitch = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 2 * time)) / rate
    highest = min(30, int(0.4 * rate / 150))
    voiced = sum(np.sin(k * pitch + random.uniform(0, 6)) / k for k in range(1, highest))
    noise = np.convolve(random.standard_normal(len(time) + 2), [0.25, 0.5, 0.25], "valid")
    envelope = np.clip(np.sin(2 * np.pi * 1.7 * time), 0, 1)
    return 0.25 * envelope * voiced + 0.05 * (1 - envelope) * noise


def int16(samples: NDArray[np.float64]) -> NDArray[np.int16]:
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)


def wav(samples: NDArray[np.int16], rate: int) -> bytes:
    """Return a WAV file with samples (n,) or (n, channels), written by Python."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def written(samples: NDArray[np.float64] | NDArray[np.int16], rate: int, form: str, subtype: str) -> bytes:
    """Return a file written by libsndfile."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()

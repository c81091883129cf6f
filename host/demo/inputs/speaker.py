"""Speech from espeak-ng, called through ctypes."""

import contextlib
import ctypes
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from headrace.batching import UsageError

# Constants of espeak-ng/speak_lib.h.
_AUDIO_OUTPUT_SYNCHRONOUS, _DONT_EXIT, _RATE, _CHARS_UTF8 = 2, 0x8000, 1, 1
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Speaker:
    """The process's one instance of espeak-ng. Use it as a context manager.

    `rate` is the sample rate of the speech, in Hz."""

    def __init__(self) -> None:
        """Load and initialize espeak-ng. Raises UsageError if it is not installed, or cannot start."""
        try:
            import espeakng_loader  # the extra "demo" installs it

            self._library = ctypes.CDLL(espeakng_loader.get_library_path())
            data = espeakng_loader.get_data_path()
        except (ImportError, OSError, RuntimeError) as error:
            raise UsageError(f"espeak-ng is not installed ({error}); `pip install headrace[demo]`") from error
        self.rate = int(
            self._library.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, 0, str(Path(data)).encode(), _DONT_EXIT)
        )
        if self.rate <= 0:
            raise UsageError(f"espeak-ng cannot use {data}; reinstall espeakng-loader")
        self._parts: list[NDArray[np.int16]] = []
        self._interrupts: list[tuple[int, FrameType | None]] = []
        self._callback = _CALLBACK(self._take)  # espeak-ng calls it, so it must stay alive
        self._library.espeak_SetSynthCallback(self._callback)

    def __enter__(self) -> "Speaker":
        return self

    def __exit__(self, *_: object) -> None:
        self._library.espeak_Terminate()

    def _take(self, samples: "ctypes._Pointer[ctypes.c_short]", count: int, _events: int) -> int:
        if samples and count > 0:
            self._parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return int(bool(self._interrupts))  # 1 ends the speech

    @contextlib.contextmanager
    def _interrupted_afterwards(self) -> Iterator[None]:
        """Delay Ctrl-C until the end of the block. An exception in a function that C calls would be lost."""
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

    def say(self, text: str, voice: str, words_per_minute: int) -> NDArray[np.float64]:
        """Return the spoken text as samples, shape (n,), range -1..1. Raises UsageError for an unknown voice."""
        if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
            raise UsageError(f"espeak-ng has no voice {voice!r}; reinstall espeakng-loader")
        self._library.espeak_SetParameter(_RATE, words_per_minute, 0)
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(1))  # the noise of breath is the same every time
        self._parts.clear()
        spoken = text.encode() + b"\0"
        with self._interrupted_afterwards():
            self._library.espeak_Synth(
                spoken, ctypes.c_size_t(len(spoken)), ctypes.c_uint(0), 0, ctypes.c_uint(0), _CHARS_UTF8, None, None
            )
        return np.concatenate([*self._parts, np.zeros(0, np.int16)]) / 32768

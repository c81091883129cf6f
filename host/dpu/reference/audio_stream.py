"""Features of a sound that comes in pieces, as from a microphone or a telephone line.

The frames of all pieces are those of the whole sound, which `audio.log_mel` defines. A frame comes with the piece that
has its last sample. Mean and deviation of a sound, or its greatest value, are known at its end only. So the pieces give
logarithms of powers, and the end gives the tensors.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput
from headrace.host.dpu.reference import audio
from headrace.host.dpu.reference.audio import Values
from headrace.host.dpu.specs import AudioSpec, Ends


class AudioStream:
    """A sound in pieces, and its features.

        stream = AudioStream(spec)
        for samples in microphone:
            frames = stream.push(samples)
        tensor = stream.end()

    Some plans have windows of a fixed length, such as the 30 s of Whisper. `full` tells that a window has all its
    samples, and `end` gives its tensors. Further samples wait for the next window, which begins at `end`."""

    def __init__(self, spec: AudioSpec) -> None:
        self.spec = spec
        self._margin = 0 if spec.ends is Ends.INSIDE else spec.window // 2
        self._waiting = np.zeros(0, np.float32)  # samples of the next windows
        self._begin()

    def _begin(self) -> None:
        self._samples = 0
        self._head: list[NDArray[np.float32]] = []  # all samples, until there is a frame
        self._last = np.zeros(0, np.float32)  # the sample before the next one
        self._signal = np.zeros(0, audio.precision(self.spec))  # with pre-emphasis, from the beginning of a frame on
        self._skip = 0  # samples of the signal before the next frame; a mirrored end needs them
        self._made: list[Values] = []  # logarithms of frames
        self._returned = 0  # how many of them `push` has returned

    @property
    def samples(self) -> int:
        """The number of samples of this sound or window so far."""
        return self._samples

    @property
    def full(self) -> bool:
        """Whether the window has all its samples. Only plans with a fixed length have windows."""
        return self._samples == self.spec.lengths.samples

    def push(self, samples: NDArray[Any]) -> NDArray[np.float32]:
        """Take samples of -1 to 1, shape (n,), at `spec.rate`.

        Returns:
            The logarithms of the powers of the frames that have become complete, shape (n_mels, T). T may be 0. Without
            a mel stage, the samples.

        Raises:
            BadInput: A sample is not a number, or the sound is longer than `spec.longest_s`, or that many seconds
                already wait for `end`. Nothing was taken.
            UsageError: The array is no sound.
        """
        spec = self.spec
        given = audio.of_array(samples, spec)
        longest, window = spec.longest_s * spec.rate, spec.lengths.samples
        if window is None:
            if self._samples + len(given) > longest:
                raise BadInput(f"the stream is longer than {spec.longest_s:g} s; end it earlier")
        else:
            every, room = np.concatenate((self._waiting, given)), window - self._samples
            if len(every) - room > longest:
                raise BadInput(f"more than {spec.longest_s:g} s wait for the next window; call end when one is full")
            given, self._waiting = every[:room], every[room:]
        self._take(given)
        if not spec.mel:
            return given
        made, self._returned = self._made[self._returned :], len(self._made)
        return np.concatenate((np.zeros((spec.n_mels, 0), np.float32), *made), 1, dtype=np.float32)

    def end(self) -> dict[str, NDArray[Any]] | NDArray[Any]:
        """Return the tensors of this sound or window, as `headrace.preprocess` does, and begin the next.

        A spec without names for its tensors gives the one tensor.

        Raises BadInput for a sound that is too short for a frame."""
        spec, count = self.spec, self._samples
        try:
            made = audio.arranged(audio.normalize(self._whole(), spec), spec)
        finally:
            self._begin()
            window = spec.lengths.samples
            first, self._waiting = self._waiting[:window], self._waiting[window:]
            self._take(first)
        return made if spec.tensors is None else audio.named(made, spec.valid(count), spec)

    def _take(self, samples: NDArray[np.float32]) -> None:
        spec = self.spec
        self._samples += len(samples)
        if not self._made:
            self._head.append(samples)
        if not spec.mel:
            return
        signal = samples.astype(self._signal.dtype)
        audio.emphasise(signal, samples, self._last, spec)
        self._signal = np.concatenate((self._signal, signal))
        self._last = samples[-1:] if len(samples) else self._last
        if not self._made:
            if self._samples < max(spec.window - self._margin, self._margin + 1):
                return
            self._signal = np.concatenate((self._left_end(), self._signal))
            self._head = []
        self._make_frames()

    def _left_end(self) -> NDArray[Any]:
        if self.spec.ends is Ends.MIRRORED:
            return self._signal[self._margin : 0 : -1]
        return np.zeros(self._margin, self._signal.dtype)

    def _make_frames(self, max_frames: int | None = None) -> None:
        """Make the frames that the signal completes, at most `max_frames`, and drop what no later frame needs."""
        spec, signal = self.spec, self._signal
        count = max(0, (len(signal) - self._skip - spec.window) // spec.hop + 1)
        count = count if max_frames is None else min(count, max_frames)
        if count:
            frames = np.lib.stride_tricks.sliding_window_view(signal[self._skip :], spec.window)[:: spec.hop]
            self._made.append(audio.log_bands(frames[:count], spec))
        begin = self._skip + count * spec.hop
        drop = max(0, min(begin, len(signal) - self._margin - 1))
        self._signal, self._skip = signal[drop:], begin - drop

    def _whole(self) -> Values:
        """Return what audio.log_mel gives for all samples."""
        spec = self.spec
        if not self._made:
            return audio.log_mel(np.concatenate((np.zeros(0, np.float32), *self._head)), spec)
        missing = spec.padded(self._samples) - self._samples
        signal = np.concatenate((self._signal, np.zeros(missing, self._signal.dtype)))
        right = np.zeros(self._margin, signal.dtype)
        if spec.ends is Ends.MIRRORED:
            right = signal[-2 : -self._margin - 2 : -1]
        self._signal = np.concatenate((signal, right))
        self._make_frames(spec.frames(self._samples) - sum(made.shape[1] for made in self._made))
        return np.concatenate(self._made, 1)

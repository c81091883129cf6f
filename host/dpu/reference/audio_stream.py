"""Features of a sound that comes in pieces, as from a microphone or a telephone line.

The frames of all pieces are those of the whole sound, which `audio.log_mel` defines. A frame comes as soon as its last
sample is there. Mean and deviation of a whole sound, or its greatest value, are known at its end only. So the pieces
give logarithms of powers, and the end gives the tensors.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, UsageError
from headrace.host.dpu.reference import audio, audio_file
from headrace.host.dpu.reference.audio import Values
from headrace.host.dpu.specs import AudioSpec, Ends


class AudioStream:
    """A sound in pieces, and its features.

        stream = AudioStream(spec)
        for samples in microphone:
            frames = stream.push(samples)
        tensor = stream.end()

    A plan whose tensor has a fixed length, such as the 30 s of Whisper, gives a tensor for each such window: `full`
    tells that one has all its samples. Samples beyond it wait for the first `push` after `end`."""

    def __init__(self, spec: AudioSpec) -> None:
        self.spec = spec
        self._margin = 0 if spec.ends is Ends.INSIDE else spec.window // 2
        self._waiting = np.zeros(0, np.float32)  # of the next window
        self._begin()

    def _begin(self) -> None:
        self._samples = 0
        self._head: list[NDArray[np.float32]] = []  # all samples, until there is a frame
        self._last = np.zeros(0, np.float32)  # the sample before the next one
        self._signal = np.zeros(0, audio.precision(self.spec))  # with pre-emphasis, from the beginning of a frame on
        self._skip = 0  # samples of the signal before the next frame; they are kept for a mirrored end
        self._made: list[Values] = []

    @property
    def samples(self) -> int:
        """The number of samples since the beginning, or since the last `end`."""
        return self._samples

    @property
    def full(self) -> bool:
        """Whether the window has all its samples. Only plans with a fixed length have windows."""
        return self._samples == self.spec.lengths.samples

    def push(self, samples: NDArray[Any]) -> NDArray[np.float32]:
        """Take samples of -1 to 1, shape (n,), at `spec.rate`.

        Returns:
            The logarithms of the powers of the frames that are complete now, shape (n_mels, T), where T may be 0.
            Without a mel stage, the samples.

        Raises:
            BadInput: A sample is not a number, or the sound is longer than `spec.longest_s`. Nothing was taken.
            UsageError: The array is no sound.
        """
        spec = self.spec
        if samples.dtype.kind != "f" or samples.ndim != 1:
            raise UsageError(f"an array of {samples.dtype} with shape {samples.shape} is no audio; give floats (n,)")
        given = samples.astype(np.float32)
        audio_file.check_samples(given, spec.rate, spec.longest_s)
        if (window := spec.lengths.samples) is not None:
            given, self._waiting = np.split(np.concatenate((self._waiting, given)), [window - self._samples])
        elif self._samples + len(given) > spec.longest_s * spec.rate:
            raise BadInput(f"the stream is longer than {spec.longest_s:g} s; end it earlier")
        return self._take(given)

    def end(self) -> dict[str, NDArray[Any]] | NDArray[Any]:
        """Return the tensors of the samples since the beginning or the last `end`, as `headrace.preprocess` does.

        A spec without names for its tensors gives the one tensor. The stream then begins anew.

        Raises BadInput for samples that are too short for a frame."""
        spec, count = self.spec, self._samples
        try:
            made = audio.arranged(audio.normalize(self._whole(), spec), spec)
        finally:
            self._begin()
        return made if spec.tensors is None else audio.named(made, spec.valid(count), spec)

    def _take(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        spec = self.spec
        self._samples += len(samples)
        if not spec.mel:
            self._head.append(samples)
            return samples
        self._signal = np.concatenate((self._signal, audio.emphasised(samples, self._last, spec)))
        self._last = samples[-1:] if len(samples) else self._last
        if not self._made:
            self._head.append(samples)
            if self._samples < max(spec.window - self._margin, self._margin + 1):
                return np.zeros((spec.n_mels, 0), np.float32)
            self._signal = np.concatenate((self._left_end(), self._signal))
            self._head = []
        return self._next(self._signal)

    def _left_end(self) -> NDArray[Any]:
        if self.spec.ends is Ends.MIRRORED:
            return self._signal[self._margin : 0 : -1]
        return np.zeros(self._margin, self._signal.dtype)

    def _next(self, signal: NDArray[Any], max_frames: int | None = None) -> NDArray[np.float32]:
        """Make the frames that a signal completes, at most `max_frames`, and drop what no later frame needs."""
        spec = self.spec
        count = max(0, (len(signal) - self._skip - spec.window) // spec.hop + 1)
        count = count if max_frames is None else min(count, max_frames)
        mel = np.zeros((spec.n_mels, 0), np.float32)
        if count:
            frames = np.lib.stride_tricks.sliding_window_view(signal[self._skip :], spec.window)[:: spec.hop]
            made = audio.logarithms(audio.band_powers(frames[:count], spec), spec)
            self._made.append(made)
            mel = made.astype(np.float32, copy=False)
        begin = self._skip + count * spec.hop
        drop = max(0, min(begin, len(signal) - self._margin - 1))
        self._signal, self._skip = signal[drop:], begin - drop
        return mel

    def _whole(self) -> Values:
        """Return what audio.log_mel gives for all samples."""
        spec = self.spec
        if not self._made:
            head = np.concatenate((np.zeros(0, np.float32), *self._head))
            return audio.log_mel(head, spec)
        count, total = spec.padded(self._samples), spec.frames(self._samples)
        signal = np.concatenate((self._signal, np.zeros(count - self._samples, self._signal.dtype)))
        right = np.zeros(self._margin, signal.dtype)
        if spec.ends is Ends.MIRRORED:
            right = signal[-2 : -self._margin - 2 : -1]
        done = sum(made.shape[1] for made in self._made)
        self._next(np.concatenate((signal, right)), total - done)
        return np.concatenate(self._made, 1)

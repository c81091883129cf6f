"""Decode WAV and FLAC files to samples, within limits that are checked before anything is decoded.

`pcm` checks which files the DPU may get: complete WAV files of 16-bit PCM, with the plain or the extensible form of the
header. libsndfile decides on all other files, as it does for users of librosa. It takes 24-bit, float and A-law WAV,
and FLAC. It also takes files whose data chunk claims more samples than there are, such as files written to a pipe.
Their samples are those that are there.
"""

import io
import math
import struct
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.batching import BadInput, CorruptInput, UnsupportedInput

PCM = 1  # WAVE_FORMAT_PCM
EXTENSIBLE = 0xFFFE  # WAVE_FORMAT_EXTENSIBLE
FMT_BYTES = 16  # what every fmt chunk has
EXTENSION_BYTES = 24  # an extensible fmt chunk has these after them
# The extension of 16-bit PCM, without its mask of speakers: its own length, valid bits; KSDATAFORMAT_SUBTYPE_PCM.
PCM_EXTENSION = (22, 16, bytes.fromhex("0100000000001000800000aa00389b71"))
MAX_CHUNKS = 64  # before the samples; files have a handful
MAX_CHANNELS = 16  # mixed to one; surround sound has 12
LOWEST_HZ, HIGHEST_HZ = 1000, 192000
SUBTYPES = ("PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ALAW", "ULAW")  # libsndfile's names
UNKNOWN = 1 << 62  # libsndfile reports at least so many frames for a FLAC stream of unknown length
LOUDEST = 2.0**16  # largest float sample, where 1 is full scale; its power still is a float32


class Pcm(NamedTuple):
    """The place of the samples in a WAV file: `frames` of `channels` little-endian int16 each, from byte `start` on.

    `rate` is in Hz."""

    rate: int
    channels: int
    start: int
    frames: int


def pcm(data: bytes, rates: Collection[int], longest_s: float) -> Pcm:
    """Return the place of the samples, if the DPU may take the file. Looks at no more than MAX_CHUNKS chunk headers.

    Raises:
        UnsupportedInput: The file has to go to the CPU. The text is the reason.
        BadInput: The audio is longer than `longest_s` seconds.
    """
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise UnsupportedInput("not a WAV file: it does not begin with RIFF and WAVE; the DPU takes WAV")
    form: tuple[int, ...] | None = None
    extended = False  # as 16-bit PCM
    at = 12
    for _ in range(MAX_CHUNKS):
        if at + 8 > len(data):
            raise UnsupportedInput("the file ends before its data chunk")
        name, size = struct.unpack_from("<4sI", data, at)
        at += 8
        if name == b"data":
            break
        if name == b"fmt ":
            if form is not None:
                raise UnsupportedInput("two fmt chunks; write the file anew")
            if size < FMT_BYTES or at + FMT_BYTES > len(data):
                raise UnsupportedInput("the fmt chunk is cut short")
            form = struct.unpack_from("<HHIIHH", data, at)
            if form[0] == EXTENSIBLE and min(size, len(data) - at) >= FMT_BYTES + EXTENSION_BYTES:
                extended = struct.unpack_from("<HH4x16s", data, at + FMT_BYTES) == PCM_EXTENSION
        at += size + size % 2  # chunks begin at even places
    else:
        raise UnsupportedInput(f"more than {MAX_CHUNKS} chunks before the samples; write the file without its tags")
    if form is None:
        raise UnsupportedInput("no fmt chunk before the data chunk")
    code, channels, rate, _, block, bits = form
    if (code != PCM and not extended) or bits != 16:
        raise UnsupportedInput(
            f"format {code:#x} with {bits} bits; the DPU takes 16-bit PCM, which is format 0x1, or 0xfffe if its "
            "extension says so"
        )
    if channels not in (1, 2):
        raise UnsupportedInput(f"{channels} channels; the DPU takes mono and stereo")
    if rate not in rates:
        raise UnsupportedInput(f"{rate} Hz; the DPU takes {', '.join(map(str, sorted(rates)))} Hz")
    if block != 2 * channels or size % block:
        raise UnsupportedInput(f"blocks of {block} bytes in {size} bytes do not fit {channels} channels of 16 bits")
    if size > len(data) - at:
        raise UnsupportedInput(f"the data chunk claims {size} bytes, of which {len(data) - at} are there")
    _check_length(size // block, rate, longest_s)
    return Pcm(rate, channels, at, size // block)


def length(data: bytes, rates: Collection[int]) -> tuple[int, int]:
    """Return the number of sample frames and their rate in Hz, from the header of a WAV or FLAC file. Raises
    CorruptInput."""
    import soundfile

    try:
        header = pcm(data, rates, math.inf)
    except UnsupportedInput:
        pass
    else:
        return header.frames, header.rate
    _check_kind(data)
    try:
        info = soundfile.info(io.BytesIO(data))
    except soundfile.LibsndfileError as error:
        raise CorruptInput(f"libsndfile cannot decode it: {error.error_string}") from error
    return int(info.frames), int(info.samplerate)


def decode(data: bytes, rates: Collection[int], longest_s: float) -> tuple[NDArray[np.float32], int]:
    """Return mono samples of -1..1, shape (n,), and their rate in Hz. Samples of float files may exceed that range.

    Several channels become their mean, as in librosa. It never makes more than `longest_s` seconds of samples.

    Raises:
        CorruptInput: libsndfile cannot decode the file.
        BadInput: The audio is too long, has more than MAX_CHANNELS or an unusual rate, or its samples are no numbers.
    """
    try:
        header = pcm(data, rates, longest_s)
    except UnsupportedInput as reason:
        return _by_libsndfile(data, longest_s, reason)
    count = header.frames * header.channels
    return _mono(np.frombuffer(data, "<i2", count, header.start).reshape(-1, header.channels), 1 / 32768), header.rate


def _by_libsndfile(data: bytes, longest_s: float, reason: UnsupportedInput) -> tuple[NDArray[np.float32], int]:
    import soundfile  # here, as plain WAV files need no libsndfile

    _check_kind(data)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            if file.subtype not in SUBTYPES:
                raise BadInput(f"samples are {file.subtype}; convert them to PCM, float, A-law or u-law")
            if channels > MAX_CHANNELS:
                raise BadInput(f"{channels} channels; mix them down to at most {MAX_CHANNELS}")
            if not LOWEST_HZ <= rate <= HIGHEST_HZ:
                raise BadInput(f"{rate} Hz; resample it to one of {LOWEST_HZ} to {HIGHEST_HZ} Hz")
            if file.frames >= UNKNOWN:
                raise BadInput("a FLAC stream without its length in the header; write it to a file, not to a pipe")
            _check_length(file.frames, rate, longest_s)
            samples: NDArray[Any] = file.read(dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise CorruptInput(f"libsndfile cannot decode it: {error.error_string} As for the DPU: {reason}") from error
    check_samples(samples, rate, longest_s)
    return _mono(samples, 1.0), rate


def check_samples(samples: NDArray[np.float32], rate: int, longest_s: float) -> None:
    """Raise BadInput for samples, shape (n,) or (n, channels), that are no numbers, too large, or too many."""
    _check_length(len(samples), rate, longest_s)
    if not np.abs(samples).max(initial=0.0) <= LOUDEST:  # this form refuses NaN too
        raise BadInput(
            "it has samples that are no numbers or far beyond full scale; write float samples within -1 to 1"
        )


def is_audio(data: bytes) -> bool:
    """Return whether the data begin like a FLAC or WAV file. RF64, the WAV format for more than 4 GiB, counts too."""
    return data[:4] == b"fLaC" or (data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE")


def _check_kind(data: bytes) -> None:
    if not data:
        raise CorruptInput("it is empty")
    if not is_audio(data):  # libsndfile would take dozens of other formats
        raise CorruptInput("neither a WAV nor a FLAC file; convert it to one of them")


def _check_length(frames: int, rate: int, longest_s: float) -> None:
    if frames > longest_s * rate:
        raise BadInput(f"the audio is {frames / rate:.1f} s long; cut it into pieces of at most {longest_s:g} s")


def _mono(frames: NDArray[Any], scale: float) -> NDArray[np.float32]:
    """Return the mean of the channels of (n, channels) samples, times `scale`.

    The result is exact for int16, as the sum of two such samples has 17 bits."""
    if frames.shape[1] == 1:
        return frames[:, 0].astype(np.float32) * np.float32(scale)
    if frames.shape[1] == 2:
        return (frames[:, 0].astype(np.float32) + frames[:, 1]) * np.float32(scale / 2)
    return np.mean(frames.T.astype(np.float32), 0) * np.float32(scale)

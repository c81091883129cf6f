"""Bytes of a WAV or FLAC file to samples, within bounds that are checked before anything is decoded.

`pcm` is the check that tells what the DPU may be given: a WAV file of 16-bit PCM, all of it there, with the plain or
the extensible form of its header. Whatever it refuses, libsndfile decides upon, as it does for users of librosa:
24-bit, float and A-law WAV and FLAC, and files whose data chunk claims more than there is, as those written to a pipe
do, whose samples are those that are there.
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
EXTENSION_BYTES = 24  # and an extensible one behind them
# The extension of 16-bit PCM, without its mask of speakers: its own length, valid bits; KSDATAFORMAT_SUBTYPE_PCM.
PCM_EXTENSION = (22, 16, bytes.fromhex("0100000000001000800000aa00389b71"))
MAX_CHUNKS = 64  # before the samples; files have a handful
MAX_CHANNELS = 16  # that are mixed to one: surround sound has 12
LOWEST_HZ, HIGHEST_HZ = 1000, 192000
SUBTYPES = ("PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ALAW", "ULAW")  # libsndfile's names
UNKNOWN = 1 << 62  # libsndfile's frames of a FLAC stream that does not tell them are more
LOUDEST = 2.0**16  # of float samples, full scale being 1: their power still is a float32


class Pcm(NamedTuple):
    """`frames` of `channels` little-endian int16 each, the first at byte `start`; `rate` in Hz."""

    rate: int
    channels: int
    start: int
    frames: int


def pcm(data: bytes, rates: Collection[int], longest_s: float) -> Pcm:
    """Where the samples are that the DPU may be given. Looks at no more than MOST_CHUNKS chunk headers.

    Raises UnsupportedInput, with the reason, for all that is to go to the CPU, and BadInput for what is too long."""
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
    """Sample frames and their rate in Hz, by the headers of a WAV or FLAC file. Raises CorruptInput."""
    import soundfile

    try:
        header = pcm(data, rates, math.inf)
    except UnsupportedInput:
        pass
    else:
        return header.frames, header.rate
    _check_kind(data)
    try:
        told = soundfile.info(io.BytesIO(data))
    except soundfile.LibsndfileError as error:
        raise CorruptInput(f"libsndfile cannot decode it: {error.error_string}") from error
    return int(told.frames), int(told.samplerate)


def decode(data: bytes, rates: Collection[int], longest_s: float) -> tuple[NDArray[np.float32], int]:
    """Return mono samples of -1..1 (float files may go beyond), shape (n,), and their rate in Hz.

    Several channels become their mean, as in librosa. Raises CorruptInput for a file that libsndfile cannot decode.
    Raises BadInput for one that is too long, has more than MOST_CHANNELS, an unusual rate or samples that are no sound.
    Never makes more than `longest_s` of samples."""
    try:
        header = pcm(data, rates, longest_s)
    except UnsupportedInput as reason:
        return _by_libsndfile(data, longest_s, reason)
    count = header.frames * header.channels
    return _mono(np.frombuffer(data, "<i2", count, header.start).reshape(-1, header.channels), 1 / 32768), header.rate


def _by_libsndfile(data: bytes, longest_s: float, reason: UnsupportedInput) -> tuple[NDArray[np.float32], int]:
    import soundfile  # brings libsndfile, which plain WAV files need not wait for

    _check_kind(data)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            rate, channels = int(sound.samplerate), int(sound.channels)
            if sound.subtype not in SUBTYPES:
                raise BadInput(f"samples are {sound.subtype}; convert them to PCM, float, A-law or u-law")
            if channels > MAX_CHANNELS:
                raise BadInput(f"{channels} channels; mix them down to at most {MAX_CHANNELS}")
            if not LOWEST_HZ <= rate <= HIGHEST_HZ:
                raise BadInput(f"{rate} Hz; resample it to one of {LOWEST_HZ} to {HIGHEST_HZ} Hz")
            if sound.frames >= UNKNOWN:
                raise BadInput("a FLAC stream that does not tell its length; write it to a file, not to a pipe")
            _check_length(sound.frames, rate, longest_s)
            samples: NDArray[Any] = sound.read(dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise CorruptInput(f"libsndfile cannot decode it: {error.error_string} As for the DPU: {reason}") from error
    if not np.abs(samples).max(initial=0.0) <= LOUDEST:  # so that NaN is refused, too
        raise BadInput(
            "it has samples that are no numbers or far beyond full scale; write float samples within -1 to 1"
        )
    return _mono(samples, 1.0), rate


def is_audio(data: bytes) -> bool:
    """Return whether the data begin like a FLAC or WAV file. RF64, the WAV format for more than 4 GiB, counts too."""
    return data[:4] == b"fLaC" or (data[:4] in (b"RIFF", b"RF64") and data[8:12] == b"WAVE")


def _check_kind(data: bytes) -> None:
    if not data:
        raise CorruptInput("it is empty")
    if not is_audio(data):  # libsndfile knows dozens of formats
        raise CorruptInput("neither a WAV nor a FLAC file; convert it to one of them")


def _check_length(frames: int, rate: int, longest_s: float) -> None:
    if frames > longest_s * rate:
        raise BadInput(f"{frames / rate:.1f} s; cut it into pieces of at most {longest_s:g} s")


def _mono(frames: NDArray[Any], scale: float) -> NDArray[np.float32]:
    """Of (n, channels), times `scale`; exact for int16, the sum of two being one of 17 bits."""
    if frames.shape[1] == 1:
        return frames[:, 0].astype(np.float32) * np.float32(scale)
    if frames.shape[1] == 2:
        return (frames[:, 0].astype(np.float32) + frames[:, 1]) * np.float32(scale / 2)
    return np.mean(frames.T.astype(np.float32), 0) * np.float32(scale)

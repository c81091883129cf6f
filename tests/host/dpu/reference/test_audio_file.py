"""Files become their samples, or an error gives the reason. The DPU gets plain 16-bit PCM and nothing else."""

import io
import struct
import tracemalloc
import warnings

import librosa
import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from sounds import int16, speechlike, wav, written

from headrace.batching import BadInput, CorruptInput, UnsupportedInput
from headrace.host.dpu.reference.audio import preprocess
from headrace.host.dpu.reference.audio_file import MAX_CHUNKS, decode, length, pcm
from headrace.host.dpu.specs import RATES, AudioSpec

LONGEST_S = 35.0
SPEECH = int16(speechlike(0.2, 16000))


def chunk(name: bytes, body: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(body) if size is None else size) + body + b"\0" * (len(body) % 2)


def form(code=1, channels=1, rate=16000, block=2, bits=16) -> bytes:
    return chunk(b"fmt ", struct.pack("<HHIIHH", code, channels, rate, rate * block, block, bits))


def riff(*chunks: bytes) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


DATA = chunk(b"data", SPEECH.tobytes())


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("channels", [1, 2])
def test_a_plain_wav_file_is_for_the_dpu_and_its_samples_are_libsndfiles(rate, channels, tmp_path):
    samples = np.stack([SPEECH, SPEECH[::-1]], 1)[:, :channels]
    data = wav(samples, rate)
    found = pcm(data, RATES, LONGEST_S)
    assert found == (rate, channels, 44, len(SPEECH))
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    theirs, _ = soundfile.read(path, dtype="float64", always_2d=True)
    ours, at = decode(data, RATES, LONGEST_S)
    assert at == rate and ours.dtype == np.float32 and np.array_equal(ours, theirs.mean(1))


@pytest.mark.parametrize("channels", [1, 2])
def test_the_extensible_form_of_a_wav_file_is_for_the_dpu_and_its_samples_are_libsndfiles(channels):
    samples = np.stack([SPEECH, SPEECH[::-1]], 1)[:, :channels]
    data = written(samples, 44100, "WAVEX", "PCM_16")
    found = pcm(data, RATES, LONGEST_S)
    assert (found.rate, found.channels, found.frames) == (44100, channels, len(SPEECH))
    assert data[found.start :] == samples.astype("<i2").tobytes()
    theirs, _ = soundfile.read(io.BytesIO(data), dtype="float64", always_2d=True)
    assert np.array_equal(decode(data, RATES, LONGEST_S)[0], theirs.mean(1))


def test_chunks_of_odd_size_before_and_behind_the_samples_are_passed_over():
    data = riff(chunk(b"LIST", b"abc"), form(), chunk(b"fact", b"1234"), DATA, chunk(b"id3 ", b"tag"))
    assert np.array_equal(decode(data, RATES, LONGEST_S)[0], SPEECH / 32768)
    assert pcm(data, RATES, LONGEST_S).frames == len(SPEECH)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a WAV file"),
        (written(SPEECH, 16000, "FLAC", "PCM_16"), "not a WAV file"),
        (written(SPEECH, 16000, "WAV", "PCM_24"), "with 24 bits"),
        (written(SPEECH, 16000, "WAV", "FLOAT"), "format 0x3 with 32 bits"),
        (written(SPEECH, 16000, "WAV", "ALAW"), "format 0x6 with 8 bits"),
        (written(SPEECH, 16000, "WAVEX", "PCM_24"), "format 0xfffe with 24 bits"),
        (riff(form(code=0xFFFE), DATA), "format 0xfffe with 16 bits"),
        (wav(np.zeros((9, 3), np.int16), 16000), "3 channels"),
        (wav(SPEECH, 12000), "12000 Hz; the DPU takes 8000, 11025"),
        (riff(form(block=4), DATA), "blocks of 4 bytes"),
        (riff(form(), chunk(b"data", b"abc")), "blocks of 2 bytes in 3 bytes"),
        (riff(DATA, form()), "no fmt chunk before"),
        (riff(form(), form(), DATA), "two fmt chunks"),
        (riff(chunk(b"fmt ", b"short"), DATA), "cut short"),
        (riff(form()), "ends before its data chunk"),
        (riff(chunk(b"LIST", b"ab", 1 << 31), form(), DATA), "ends before its data chunk"),
        (riff(form(), chunk(b"data", SPEECH.tobytes(), 2**32 - 2)), "claims 4294967294 bytes"),
        (wav(SPEECH, 16000)[:-1], "of which 6399 are there"),
        (riff(*[chunk(b"junk", b"")] * MAX_CHUNKS, form(), DATA), "chunks before the samples"),
    ],
)
def test_the_dpu_is_not_given_anything_else_and_the_reason_is_told(data, reason):
    with pytest.raises(UnsupportedInput, match=reason):
        pcm(data, RATES, LONGEST_S)


@pytest.mark.parametrize(
    ("data", "within"),
    [
        (written(SPEECH, 16000, "FLAC", "PCM_16"), 0),
        (written(SPEECH / 32768, 16000, "WAV", "PCM_24"), 2e-7),
        (written(SPEECH / 32768, 16000, "WAV", "FLOAT"), 0),
        (written(SPEECH / 32768, 16000, "WAV", "DOUBLE"), 0),
        (written(SPEECH / 32768, 16000, "WAV", "ALAW"), 0.03),
        (written(SPEECH, 16000, "WAVEX", "PCM_16"), 0),
        (written(SPEECH, 16000, "RF64", "PCM_16"), 0),
        (riff(form(), chunk(b"data", SPEECH.tobytes(), 2**32 - 2)), 0),
        (riff(form(), chunk(b"data", SPEECH.tobytes(), 0xFFFFFFFF)), 0),
    ],
)
def test_what_the_dpu_cannot_take_libsndfile_decodes(data, within):
    samples, rate = decode(data, RATES, LONGEST_S)
    assert rate == 16000 and np.abs(samples - SPEECH / 32768).max() <= within


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "RF64"])
@pytest.mark.parametrize("channels", [3, 6, 8])
def test_more_channels_than_two_are_mixed_as_by_librosa(channels, kind):
    frames = np.random.default_rng(channels).integers(-32768, 32768, (500, channels), np.int16)
    data = written(frames, 16000, kind, "PCM_16")
    samples, _ = decode(data, RATES, LONGEST_S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, _ = librosa.load(io.BytesIO(data), sr=None, mono=True)
    assert samples.dtype == np.float32 and np.abs(samples - found).max() <= 1e-7


def test_any_rate_that_is_no_nonsense_is_resampled():
    data = wav(int16(speechlike(0.5, 12000)), 12000)
    assert preprocess(data, AudioSpec()).shape == (80, 51)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", CorruptInput, "empty"),
        (b"\xff\xd8\xff\xe0", CorruptInput, "neither a WAV nor a FLAC"),
        (b"FORM\0\0\0\0AIFF" + bytes(100), CorruptInput, "neither a WAV nor a FLAC"),
        (b"RIFF", CorruptInput, "neither a WAV nor a FLAC"),
        (riff(form()), CorruptInput, r"libsndfile cannot decode it.*ends before its data chunk"),
        (b"fLaC" + bytes(50), CorruptInput, "libsndfile cannot decode"),
        (wav(np.zeros((9, 17), np.int16), 16000), BadInput, "17 channels; mix them down to at most 16"),
        (written(SPEECH, 16000, "WAV", "G721_32"), BadInput, "are G721_32; convert them"),
        (written(SPEECH, 16000, "WAV", "IMA_ADPCM"), BadInput, "are IMA_ADPCM; convert them"),
        (wav(SPEECH, 500), BadInput, "resample it"),
        (wav(np.zeros(8000 * 35 + 1, np.int16), 8000), BadInput, "at most 35 s"),
        (
            written(np.zeros(16000 * 40, np.int16), 16000, "FLAC", "PCM_16"),
            BadInput,
            "the audio is 40.0 s long; cut it into",
        ),
        (written(np.array([0, np.nan, 0]), 16000, "WAV", "FLOAT"), BadInput, "no numbers"),
        (written(np.array([0, 1e30, 0]), 16000, "WAV", "FLOAT"), BadInput, "within -1 to 1"),
    ],
)
def test_what_cannot_be_decoded_or_is_too_much_says_what_to_change(data, error, message):
    with pytest.raises(error, match=message):
        decode(data, RATES, LONGEST_S)


@pytest.mark.parametrize("data", [b"", b"FORM\0\0\0\0AIFF" + bytes(100), riff(form()), b"fLaC" + bytes(50)])
def test_what_is_no_sound_has_no_length_for_the_same_reason(data):
    with pytest.raises(CorruptInput) as undecoded:
        decode(data, RATES, LONGEST_S)
    with pytest.raises(CorruptInput) as unmeasured:
        length(data, RATES)
    assert str(undecoded.value).split()[:3] == str(unmeasured.value).split()[:3]


def test_the_longest_sound_is_taken():
    assert preprocess(wav(np.zeros(8000 * 35, np.int16), 8000), AudioSpec()).shape == (80, 3501)


def test_a_flac_stream_of_untold_length_is_refused():
    untold = bytearray(written(SPEECH, 16000, "FLAC", "PCM_16"))
    untold[21] &= 0xF0  # STREAMINFO's 36 bits of total samples: 0 is unknown
    untold[22:26] = bytes(4)
    with pytest.raises(BadInput, match="write it to a file"):
        decode(bytes(untold), RATES, LONGEST_S)


def test_a_claim_is_refused_before_memory_is_spent_on_it():
    claims = bytearray(written(np.zeros(16000, np.int16), 16000, "FLAC", "PCM_16"))
    claims[22:26] = b"\x7f\xff\xff\xff"
    tracemalloc.start()
    try:
        with pytest.raises((BadInput, CorruptInput)):
            decode(bytes(claims), RATES, LONGEST_S)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


WHOLE = [
    wav(SPEECH[:700], 16000),
    wav(np.stack([SPEECH, SPEECH], 1)[:300], 44100),
    written(SPEECH[:700], 16000, "FLAC", "PCM_16"),
    written(SPEECH[:700] / 32768, 8000, "WAV", "FLOAT"),
    written(SPEECH[:700] / 32768, 8000, "WAV", "ALAW"),
    riff(chunk(b"LIST", b"abc"), form(), DATA[:900]),
]
SIZES = st.sampled_from([0, 1, 2, 15, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF])


@examples(200, 600)
@given(st.sampled_from(WHOLE), st.data())
def test_damaged_files_become_a_tensor_or_are_refused(whole, choose):
    """Files are cut short, overwritten in places, or have a wrong size, rate or format in the header."""
    damaged = bytearray(whole[: choose.draw(st.integers(0, len(whole))) or None])
    for at in choose.draw(st.lists(st.integers(0, min(63, len(damaged) - 1)), max_size=4)):
        damaged[at] = choose.draw(st.integers(0, 255))
    if choose.draw(st.booleans()):
        at = choose.draw(st.sampled_from([4, 16, 20, 22, 24, 28, 32, 40]))
        damaged[at : at + 4] = struct.pack("<I", choose.draw(SIZES | st.integers(0, 0x100)))
    try:
        tensor = preprocess(bytes(damaged), AudioSpec())
    except (CorruptInput, BadInput):
        return
    assert tensor.shape[0] == 80 and 1 <= tensor.shape[1] <= 3501 and np.isfinite(tensor).all()


@examples(120, 300)
@given(st.binary(max_size=300), st.booleans())
def test_whatever_a_header_says_the_samples_that_it_tells_of_are_there(noise, begins_well):
    data = b"RIFF\0\0\0\0WAVE" + form() + noise if begins_well else noise
    try:
        found = pcm(data, RATES, LONGEST_S)
    except (UnsupportedInput, BadInput):
        return
    assert found.rate in RATES and found.start + 2 * found.channels * found.frames <= len(data)

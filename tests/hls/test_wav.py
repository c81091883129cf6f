"""wav x {csim, rtlsim}: the samples of a file, or the status for the reason that audio_file.pcm gives.

One model serves all RTL cases, without a reset between them, and every case runs twice in it: without stalls, within
the clocks of the cycle model, and with random stalls on every stream."""

import ctypes
import itertools
import struct
from functools import cache

import csim
import numpy as np
import pytest
import rtlsim
from hypothesis import given, settings
from hypothesis import strategies as st
from sounds import int16, speechlike, wav, written

from headrace.batching import UnsupportedInput
from headrace.host.dpu.reference.audio_file import MAX_CHUNKS, pcm
from headrace.host.dpu.specs import RATES
from headrace.host.dpu.units.status import Status
from headrace.sim.hardware.dpu.audio import wav_cycles, wav_header_cycles

LONGEST = (65535 * 160 - 1) / 16000  # seconds
BROKEN, TIMEOUT = 255, 254
SPEECH = np.random.default_rng(1).integers(-32768, 32768, 701).astype("<i2")

# Beginnings of what audio_file.pcm says.
REASONS = {
    "not a WAV": Status.NOT_WAV,
    "the file ends": Status.TRUNCATED,
    "two fmt": Status.CORRUPT_HEADER,
    "the fmt chunk": Status.CORRUPT_HEADER,
    "more than 64": Status.CORRUPT_HEADER,
    "no fmt": Status.CORRUPT_HEADER,
    "format": Status.SOUND_FORMAT,
    "blocks": Status.CORRUPT_HEADER,
    "the data chunk": Status.TRUNCATED,
}


def verdict(file: bytes):
    """Of the reference: status, rate, mono samples as integers with a unit of 2^-16."""
    try:
        header = pcm(file, RATES, 1e9)
    except UnsupportedInput as reason:
        text = str(reason)
        status = next((status for start, status in REASONS.items() if text.startswith(start)), None)
        if status is None:
            status = Status.CHANNELS if "channels" in text else Status.RATE
        return status, None, None
    if header.frames > int(LONGEST * header.rate):
        return Status.TOO_LONG, None, None
    count = header.frames * header.channels
    samples = np.frombuffer(file, "<i2", count, header.start).reshape(-1, header.channels).astype(np.int32)
    return Status.OK, header.rate, samples.sum(1) * (3 - header.channels)


def padded(file: bytes) -> bytes:
    """To whole words, with what memory may have behind a file."""
    return file + b"\xee" * (-len(file) % 16)


def pointer(array) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def answer(code, sound, out):
    assert code != BROKEN, "the unit broke the stream contract"
    assert code != TIMEOUT, "the unit did not end"
    if code != Status.OK:
        assert tuple(sound) == (0, 0)
        return Status(code), None, None
    return Status.OK, RATES[sound[0]], out[: sound[1]]


@cache
def library() -> ctypes.CDLL:
    return csim.load("wav")


def through_csim(file: bytes):
    out, sound, source = np.zeros(len(file) // 2 + 1, np.int32), (ctypes.c_uint32 * 2)(), padded(file)
    code = library().csim_wav(source, ctypes.c_uint32(len(file)), pointer(out), ctypes.c_uint64(len(out)), sound)
    return answer(code, sound, out)


SEEDS = itertools.count(1)


def through_rtl(file: bytes):
    unstalled = run_rtl(file, 0)
    frames = 0 if unstalled[2] is None else len(unstalled[2])
    assert unstalled[3].cycles <= len(file) / 16 + frames + MAX_CHUNKS * 17 + 50
    seed = next(SEEDS)
    stalled = run_rtl(file, seed)
    assert stalled[:2] == unstalled[:2] and np.array_equal(stalled[2], unstalled[2]), f"stalls of seed {seed} change it"
    return unstalled[:3]


class Numbers(ctypes.Structure):
    _fields_ = [("cycles", ctypes.c_uint64), ("header", ctypes.c_uint64), ("words_left", ctypes.c_uint64)]


def clocked(file: bytes, seed: int, max_clocks: int):
    """Returns the bench's code, the rate's index and the count, the samples, and the clocks."""
    out, sound, numbers = np.zeros(len(file) // 2 + 1, np.int32), (ctypes.c_uint32 * 2)(), Numbers()
    code = rtlsim.load("wav").rtl_wav(
        padded(file),
        ctypes.c_uint32(len(file)),
        pointer(out),
        ctypes.c_uint64(len(out)),
        sound,
        ctypes.c_uint64(max_clocks),
        ctypes.c_uint32(seed),
        ctypes.byref(numbers),
    )
    return code, sound, out, numbers


def run_rtl(file: bytes, seed: int):
    code, sound, out, numbers = clocked(file, seed, 100_000 + 100 * len(file))
    return (*answer(code, sound, out), numbers)


IMPLEMENTATIONS = {"csim": through_csim, "rtlsim": through_rtl}
on_both = pytest.mark.parametrize("through", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)


def check(through, file: bytes) -> Status:
    """Equal to the reference. Returns the status."""
    status, rate, samples = through(file)
    expected = verdict(file)
    assert (status, rate) == expected[:2]
    assert status != Status.OK or np.array_equal(samples, expected[2])
    return status


def chunk(name: bytes, body: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(body) if size is None else size) + body + b"\0" * (len(body) % 2)


def form(code=1, channels=1, rate=16000, block=None, bits=16, more=b"") -> bytes:
    block = 2 * channels if block is None else block
    return chunk(b"fmt ", struct.pack("<HHIIHH", code, channels, rate, rate * block % 2**32, block, bits) + more)


PCM_GUID = bytes.fromhex("0100000000001000800000aa00389b71")  # KSDATAFORMAT_SUBTYPE_PCM, from Microsoft's ksmedia.h


def extensible(length=22, valid_bits=16, speakers=0, guid=PCM_GUID, more=b"", **fields) -> bytes:
    return form(code=0xFFFE, more=struct.pack("<HHI", length, valid_bits, speakers) + guid + more, **fields)


def riff(*chunks: bytes) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def data(frames: int, channels: int = 1) -> bytes:
    return chunk(b"data", np.resize(SPEECH, frames * channels).tobytes())


@on_both
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", RATES)
def test_every_rate_in_mono_and_stereo_gives_its_samples(through, rate, channels):
    assert check(through, riff(form(channels=channels, rate=rate), data(350, channels))) == Status.OK


@on_both
@pytest.mark.parametrize("rate", [11025, 48000])
def test_files_by_python_and_libsndfile_give_their_samples(through, rate):
    speech = speechlike(0.02, rate)
    stereo = np.stack([speech, speech[::-1]], 1)
    for samples in (speech, stereo):
        assert check(through, wav(int16(samples), rate)) == Status.OK
        assert check(through, written(samples, rate, "WAV", "PCM_16")) == Status.OK
    for subtype in ("PCM_24", "FLOAT", "ALAW", "PCM_U8"):
        assert check(through, written(stereo, rate, "WAV", subtype)) == Status.SOUND_FORMAT
        assert check(through, written(samples, rate, "WAVEX", "PCM_16")) == Status.OK
    for subtype in ("PCM_24", "FLOAT", "ULAW"):
        assert check(through, written(stereo, rate, "WAVEX", subtype)) == Status.SOUND_FORMAT
    for container in ("FLAC", "AIFF", "RF64"):
        assert check(through, written(stereo, rate, container, "PCM_16")) == Status.NOT_WAV


@on_both
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_may_begin_at_any_even_place_of_a_word_and_be_of_any_number(through, channels):
    for before in range(0, 18, 2) if through is through_csim else (0, 2, 14, 16):
        for frames in (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33):
            file = riff(form(channels=channels), chunk(b"LIST", bytes(before)), data(frames, channels))
            assert check(through, file) == Status.OK


@on_both
@pytest.mark.parametrize("channels", [1, 2])
def test_the_loudest_samples_are_exact(through, channels):
    loud = np.array([-32768, -32768, 32767, 32767, -32768, 32767, 32767, -32768], "<i2")
    assert check(through, riff(form(channels=channels), chunk(b"data", loud.tobytes()))) == Status.OK


@on_both
def test_other_chunks_are_skipped_at_any_size_before_and_behind(through):
    for size in (0, 1, 2, 3, 5, 15, 16, 17, 31, 255, 4097):
        extra = chunk(b"LIST", b"data" * (size // 4) + b"x" * (size % 4))
        assert check(through, riff(extra, form(), extra, extra, data(20), extra)) == Status.OK
        assert check(through, riff(form(more=bytes(size)), data(20)) + b"tail" * size) == Status.OK


@pytest.mark.quick(rtlsim=5)
@on_both
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", RATES)
def test_the_extensible_form_of_a_header_gives_the_same_samples(through, rate, channels):
    for speakers in (0, 3, 2**32 - 1):
        file = riff(extensible(speakers=speakers, channels=channels, rate=rate), data(60, channels))
        assert check(through, file) == Status.OK
    for size in (1, 2, 3, 16, 17):
        file = riff(extensible(channels=channels, rate=rate, more=bytes(size)), data(60, channels))
        assert check(through, file) == Status.OK
        file = riff(chunk(b"LIST", bytes(size)), extensible(channels=channels, rate=rate), data(9, channels))
        assert check(through, file) == Status.OK


@on_both
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_an_extension_that_says_anything_else_is_refused(through, step):
    """Any bit of its identifier is another one; every fifth lies in each byte."""
    assert check(through, riff(extensible(), data(8))) == Status.OK
    for bit in range(0, 8 * len(PCM_GUID), step):
        guid = (int.from_bytes(PCM_GUID, "little") ^ 1 << bit).to_bytes(len(PCM_GUID), "little")
        assert check(through, riff(extensible(guid=guid), data(8))) == Status.SOUND_FORMAT
    for length, valid_bits in ((0, 16), (18, 16), (23, 16), (22, 0), (22, 12), (22, 15), (22, 17), (22, 24), (16, 22)):
        assert check(through, riff(extensible(length, valid_bits), data(8))) == Status.SOUND_FORMAT
    assert check(through, riff(extensible(bits=24, block=3), data(9))) == Status.SOUND_FORMAT
    assert check(through, riff(extensible(channels=3), data(9))) == Status.CHANNELS
    for code in (0, 2, 0xFFFD, 0xFFFF, 0xFF01, 0x00FE):
        plain = bytearray(riff(extensible(), data(8)))
        plain[20:22] = struct.pack("<H", code)
        assert check(through, bytes(plain)) == Status.SOUND_FORMAT
    plain[20:22] = struct.pack("<H", 1)  # a fmt of 40 bytes whose rest means nothing
    plain[36:60] = bytes(24)
    assert check(through, bytes(plain)) == Status.OK


@on_both
def test_an_extension_that_is_cut_is_none(through):
    """One that fmt has no room for, and a file that ends in it."""
    for size in range(16, 40):
        short = chunk(b"fmt ", extensible()[8 : 8 + size])
        assert check(through, riff(short, data(20))) == Status.SOUND_FORMAT
    short = chunk(b"fmt ", extensible()[8:44])
    assert check(through, riff(short, chunk(PCM_GUID[12:], b"12"), data(20))) == Status.SOUND_FORMAT
    for fill in range(0, 16, 2) if through is through_csim else (0, 6, 14):
        file = riff(chunk(b"LIST", bytes(fill)), extensible())
        for end in range(len(file) - 24, len(file)):
            assert check(through, file[:end]) == Status.TRUNCATED
    last = riff(*[chunk(b"LIST", b"")] * (MAX_CHUNKS - 1), extensible(), data(5))
    assert check(through, last) == Status.CORRUPT_HEADER
    assert check(through, riff(*[chunk(b"LIST", b"")] * (MAX_CHUNKS - 2), extensible(), data(5))) == Status.OK


@on_both
@pytest.mark.parametrize(
    ("file", "status"),
    [
        (b"", Status.NOT_WAV),
        (b"RIFF\x04\0\0\0WAV", Status.NOT_WAV),
        (b"RIFX\x04\0\0\0WAVE" + form() + data(9), Status.NOT_WAV),
        (b"RIFF\x04\0\0\0AVI " + form() + data(9), Status.NOT_WAV),
        (b"fLaC" + bytes(40), Status.NOT_WAV),
        (riff(), Status.TRUNCATED),
        (riff(form()), Status.TRUNCATED),
        (riff(form(), data(9))[:-1], Status.TRUNCATED),
        (riff(form())[:30], Status.CORRUPT_HEADER),
        (riff(form()) + b"data\4\0\0", Status.TRUNCATED),
        (riff(form(), chunk(b"data", b"12", 2**32 - 2)), Status.TRUNCATED),
        (riff(form(), chunk(b"LIST", b"12", 2**32 - 1), data(9)), Status.TRUNCATED),
        (riff(form(), chunk(b"LIST", b"12", 2**32 - 2), data(9)), Status.TRUNCATED),
        (riff(data(9), form()), Status.CORRUPT_HEADER),
        (riff(form(), form(), data(9)), Status.CORRUPT_HEADER),
        (riff(chunk(b"fmt ", bytes(14)), data(9)), Status.CORRUPT_HEADER),
        (riff(form(), *[chunk(b"LIST", b"")] * (MAX_CHUNKS - 2), data(9)), Status.OK),
        (riff(form(), *[chunk(b"LIST", b"")] * (MAX_CHUNKS - 1), data(9)), Status.CORRUPT_HEADER),
        (riff(form(), *[chunk(b"LIST", b"")] * (MAX_CHUNKS - 1)), Status.CORRUPT_HEADER),
        (riff(form(), *[chunk(b"LIST", b"")] * (MAX_CHUNKS - 2)), Status.TRUNCATED),
        (riff(form(code=3, bits=32, block=4), data(8)), Status.SOUND_FORMAT),
        (riff(form(code=6, bits=8, block=1), data(8)), Status.SOUND_FORMAT),
        (riff(form(code=0xFFFE), data(8)), Status.SOUND_FORMAT),
        (riff(form(bits=24, block=3), data(9)), Status.SOUND_FORMAT),
        (riff(form(bits=8, block=1), data(8)), Status.SOUND_FORMAT),
        (riff(form(channels=0), data(8)), Status.CHANNELS),
        (riff(form(channels=3), data(9)), Status.CHANNELS),
        (riff(form(channels=65535, block=2), data(9)), Status.CHANNELS),
        *[
            (riff(form(rate=rate), data(9)), Status.RATE)
            for rate in (0, 7999, 44056, 96000, 16000 + 2**16, 2**31 + 8000)
        ],
        (riff(form(block=4), data(8)), Status.CORRUPT_HEADER),
        (riff(form(channels=2, block=2), data(8)), Status.CORRUPT_HEADER),
        (riff(form(), chunk(b"data", b"123")), Status.CORRUPT_HEADER),
        (riff(form(channels=2), chunk(b"data", bytes(6))), Status.CORRUPT_HEADER),
    ],
)
def test_what_the_dpu_does_not_take_ends_in_the_status_for_the_references_reason(through, file, status):
    assert check(through, file) == status


@pytest.mark.quick(csim=8, rtlsim=2)
@on_both
@pytest.mark.parametrize("fill", [1, 3, 5, 7, 9, 11, 13, 15])
def test_a_file_cut_anywhere_ends_in_a_status(through, fill):
    file = riff(form(), chunk(b"LIST", bytes(fill)), data(5))
    for end in range(len(file)):
        assert check(through, file[:end]) != Status.OK


@on_both
@pytest.mark.parametrize("rate", [8000, *(pytest.param(rate, marks=pytest.mark.slow) for rate in RATES[1:])])
def test_a_sound_of_more_than_65535_frames_is_too_long(through, rate):
    most = int(LONGEST * rate)
    assert -(-most * 16000 // rate) // 160 + 1 == 65535 and -(-(most + 1) * 16000 // rate) // 160 + 1 == 65536
    file = riff(form(rate=rate), chunk(b"data", bytes(2 * most)))
    assert check(through, riff(form(rate=rate), chunk(b"data", bytes(2 * most + 2)))) == Status.TOO_LONG
    if through is through_csim:
        assert check(through, file) == Status.OK
    else:  # all of it takes minutes
        code, sound, *_ = clocked(file, 0, max_clocks=1000)
        assert code == TIMEOUT and tuple(sound) == (RATES.index(rate), most)


def test_a_reset_in_mid_file_leaves_nothing_behind():
    file = riff(form(channels=2), chunk(b"LIST", bytes(500)), data(300, 2))
    for clocks in range(1, 120, 7):
        assert clocked(file, 0, clocks)[0] == TIMEOUT
        assert check(through_rtl, riff(form(), data(40))) == Status.OK


names = st.sampled_from([b"fmt ", b"data", b"LIST", b"fact", b"Data", b"fmt\0"])
bodies = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda more, cut, **fields: extensible(**fields, more=more)[8 : 48 + len(more) - cut],
        st.sampled_from([b"", b"", b"1", b"1234"]),
        st.sampled_from([0, 0, 0, 1, 24]),
        channels=st.sampled_from([1, 2, 3]),
        rate=st.sampled_from(RATES),
        valid_bits=st.sampled_from([16, 16, 16, 12]),
    ),
    st.builds(
        lambda *fields: struct.pack("<HHIIHH", *fields),
        st.sampled_from([0, 1, 1, 1, 3, 0xFFFE]),
        st.sampled_from([0, 1, 1, 2, 2, 3]),
        st.sampled_from([*RATES, 0, 44056]),
        st.just(0),
        st.sampled_from([2, 2, 4, 4, 0, 3]),
        st.sampled_from([16, 16, 16, 8, 24]),
    ),
)
sizes = st.one_of(st.none(), st.none(), st.integers(0, 64), st.integers(0, 2**32 - 1))


CHUNKS = {
    "chunks": st.lists(st.tuples(names, bodies, sizes), max_size=6),
    "cut": st.integers(0, 3),
    "tail": st.binary(max_size=20),
}


@on_both
@settings(max_examples=50)
@given(**CHUNKS)
def test_any_chunks_have_the_references_verdict(through, chunks, cut, tail):
    check_chunks(through, chunks, cut, tail)


@pytest.mark.slow
@on_both
@settings(max_examples=200)
@given(**CHUNKS)
def test_two_hundred_sets_of_chunks_have_the_references_verdict(through, chunks, cut, tail):
    check_chunks(through, chunks, cut, tail)


def check_chunks(through, chunks, cut: int, tail: bytes) -> None:
    file = riff(*(chunk(*parts) for parts in chunks)) + tail
    check(through, file[: len(file) - cut])


def damaged(count: int, seed: int):
    """Files with a few bytes changed, cut, or doubled, most of them in the headers."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        channels, rate = int(random.integers(1, 3)), int(random.choice(RATES))
        extra = [chunk(b"LIST", random.bytes(int(random.integers(0, 40)))) for _ in range(random.integers(0, 3))]
        head = extensible if random.integers(0, 2) else form
        file = bytearray(riff(head(channels=channels, rate=rate), *extra, data(int(random.integers(0, 60)), channels)))
        for _ in range(random.integers(1, 4)):
            at = int(random.integers(0, min(len(file), 90)))
            match random.integers(0, 5):
                case 0:
                    file[at] ^= 1 << int(random.integers(0, 8))
                case 1:
                    file[at] = int(random.integers(0, 256))
                case 2:
                    del file[at : at + int(random.integers(1, 9))]
                case 3:
                    file[at:at] = file[at : at + int(random.integers(1, 9))]
                case 4:
                    del file[max(12, len(file) - int(random.integers(1, 60))) :]
        yield bytes(file)


@on_both
@pytest.mark.parametrize(
    ("rtl_count", "csim_count"), [(100, 500), pytest.param(2000, 20000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_damaged_files_have_the_references_verdict(through, rtl_count, csim_count):
    count = csim_count if through is through_csim else rtl_count
    seen = {check(through, file) for file in damaged(count, seed=count)}
    assert {Status.OK, Status.NOT_WAV, Status.TRUNCATED, Status.CORRUPT_HEADER, Status.RATE} <= seen
    assert Status.SOUND_FORMAT in seen


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("skipped", [(), (1,), (26,), (4096, 4099, 18)])
@pytest.mark.parametrize("frames", [0, 1, 350])
@pytest.mark.parametrize("head", [form, extensible])
def test_clocks_are_those_of_the_cycle_model(channels, skipped, frames, head):
    file = riff(head(channels=channels), *(chunk(b"LIST", bytes(size)) for size in skipped), data(frames, channels))
    numbers = run_rtl(file, 0)[3]
    extended = head is extensible
    assert numbers.header == wav_header_cycles(skipped, extensible=extended)
    assert numbers.cycles == wav_cycles(frames, skipped, extensible=extended)


def test_words_behind_the_samples_are_left():
    file = riff(form(), data(100), chunk(b"LIST", bytes(4000)))
    assert run_rtl(file, 0)[3].words_left == -(-len(file) // 16) - -(-244 // 16)  # 44 bytes of headers

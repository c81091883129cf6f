"""The audio units: clock cycles of their SystemVerilog.

The models follow the structure, as in image.py. Each constant is a depth, the length of a pipeline or a count of states
in the module that it names.
"""

from collections import deque
from collections.abc import Sequence
from math import ceil, gcd
from typing import Final

WORD: Final = 16  # bytes of a word of device memory

# ---- wav ----

# wav.sv, wav_words.sv: four bytes are fetched in one clock and looked at in the next
FIRST_WORD: Final = 2  # from the start: the word is taken, then read
RIFF: Final = 6  # RIFF, the length, WAVE
CHUNK: Final = 9  # begin, skip bytes in front, name and size, judge, pad, compare
FMT: Final = 8
EXTENSION: Final = 12  # the 24 bytes of WAVE_FORMAT_EXTENSIBLE
DATA: Final = 10  # up to the first sample; in place of CHUNK
TO_PCM: Final = 2  # from a sample frame's bytes to its sample


def wav_header_cycles(skipped: Sequence[int] = (), *, extensible: bool = False) -> int:
    """Return the clocks from the start to the first sample; the file's words never pause.

    Between fmt and the samples are chunks of `skipped` bytes. fmt has 16 bytes, or 40 if it is `extensible`."""
    clocks, at = FIRST_WORD + RIFF + CHUNK + FMT, 36
    if extensible:
        clocks, at = clocks + EXTENSION, at + 24
    for size in skipped:
        at += 8
        passed = (at % WORD + size + size % 2) // WORD
        clocks += CHUNK + passed
        at += size + size % 2
    return clocks + DATA


def wav_cycles(frames: int, skipped: Sequence[int] = (), *, extensible: bool = False) -> int:
    """Return the clocks from the start to the last of `frames` samples, or to the end of the headers if there is none.

    The other arguments are as in `wav_header_cycles`."""
    return wav_header_cycles(skipped, extensible=extensible) + (frames + TO_PCM if frames else 0)


# ---- resample ----

# resample.sv, resample_count.sv, resample_taps.sv, resample_lanes.sv
TARGET_HZ: Final = 16000
LANES: Final = 88  # outputs under way at the same time
WORDS_A_WORD: Final = 22  # words of memory for one tap of each lane
TO_TAPS: Final = 3  # a load's start, and its last write
TO_COUNT: Final = 39  # a multiplication, and a division bit by bit
TO_SAMPLE: Final = 6  # from a step to the output that it completes: taps, product, sum, queue


def _ratio(rate: int) -> tuple[int, int, int]:
    """Return 16000 / `rate` in lowest terms, and the passes for an input.

    There are two passes where half as many samples again, or more, come out: then twice LANES outputs overlap."""
    common = gcd(rate, TARGET_HZ)
    return TARGET_HZ // common, rate // common, 2 if 4 * rate < 3 * TARGET_HZ else 1


def taps_cycles(rate: int) -> int:
    """Return the clocks from the start of a load to the first sample that is taken; memory's words never pause."""
    _, down, passes = _ratio(rate)
    return WORDS_A_WORD * down * passes + TO_TAPS if rate != TARGET_HZ else 1


def resample_cycles(samples: int, rate: int) -> int:
    """Return the clocks from the first output, TO_COUNT after its input, to the last sample at 16 kHz.

    There is a step for each pass of each of `samples` at `rate` Hz. Zeros follow them as far as the last output has
    taps."""
    if samples == 0:
        return 0
    if rate == TARGET_HZ:
        return samples + TO_SAMPLE
    up, down, passes = _ratio(rate)
    # the last output, counted from those before the first sample
    last = -(-samples * up // down) - 1 + LANES // 2 * passes
    steps = last * down // up * passes + 1
    if passes == 2 and (last - 1) * down // up == last * down // up:  # both passes complete an output
        steps += 1
    return steps + TO_SAMPLE


# ---- mel ----

# mel.sv, frame.sv
HOP: Final = 160
PROGRAM: Final = 256  # words of the filterbank's program, one a clock
TO_ZEROS: Final = 1 + 27 + 1  # the start; the number of frames by division, a bit a clock; the report of it
ZEROS: Final = 100  # pairs in front of the first sample, one a clock
WINDOW: Final = 200  # pairs that a frame waits for
TO_READ: Final = 6  # from the last of these to the beginning of the frame: pre-emphasis, ring, level
READ: Final = 1 + 128  # from one frame's beginning to the next one's: pairs of points
# From a frame's beginning to the first step of its filters. The window comes first, then the FFT's eight stages: six
# turn points by products, one by a quarter and one not at all, with an exchange between every two of them. The last
# pair ends it.
TO_STEPS: Final = 7 + (6 * 5 + 3 + 2) + (64 + 32 + 16 + 8 + 4 + 2 + 1 + 7) + 127 + 1
# filterbank.sv, spectrum.sv, filter_lane.sv, natural_log.sv
TO_ENERGIES: Final = 3 + 13 + 4 + 1  # from a frame's last step: program and bin, powers, weights and sums, the report
TO_VALUE: Final = 4 + 11  # from memory: sums and floor, logarithm
STEPS: Final = 129  # the steps of the filters of up to 96 bands: 128 bins, and an end


def mel_cycles(samples: int, n_mels: int = 80, steps: int = STEPS, spacing: float = 1.0) -> int:
    """Return the clocks from the first word of the program to the last value.

    Args:
        samples: The number of samples.
        n_mels: The number of bands.
        steps: The steps of the filterbank's program.
        spacing: The clocks between two samples. Values are taken at once.
    """
    frames = samples // HOP + 1
    first_sample = PROGRAM + TO_ZEROS + ZEROS
    read = begun = given = 0
    for frame in range(max(0, frames - 4), frames):  # earlier frames are through when their samples are
        pairs = frame * HOP // 2 + WINDOW - ZEROS  # pairs of samples or, after the last one, of zeros
        zeros = max(0, pairs - (samples + 1) // 2)  # pairs after the last sample
        whole = first_sample + ceil(spacing * min(2 * pairs, samples)) + zeros
        read = max(whole + TO_READ, read + READ)
        begun = max(read + TO_STEPS, begun + steps)
        given = max(begun + steps + TO_ENERGIES, given + n_mels)
    return given + TO_VALUE + n_mels - 1


# ---- audio_norm_cu ----

# norm_statistics.sv
SLOT: Final = 6  # the clocks of a band in a stage
SLOTS: Final = 20
# audio_norm_cu.sv, axi_read.sv. TO_STATISTICS: from the start to the first slot, in addition to memory's latency.
# TO_VALUES: from the last band's slot to the first value, in addition to memory's latency; the value is asked for while
# the last two words of statistics wait for theirs. TO_TILE: from a tile's last value to its first reading.
TO_STATISTICS: Final = 11
TO_VALUES: Final = -11
VALUES_AFTER: Final = -2  # the values come after the last slot, at the earliest
TO_TILE: Final = 2
TILE_FRAMES: Final = 128
# mel_normalize.sv, tensor_rows.sv, axi_write.sv. TO_ISSUE: from the reading of a burst's last values to its issue.
# AHEAD: words that may have been read and not yet written. ROW, BURST: clocks from row to row, and from burst to burst
# of a row.
TO_ISSUE: Final = 18
AHEAD: Final = 80
ROW: Final = 3
BURST: Final = 2
BURST_WORDS: Final = 32
# axi_write.sv, audio_norm_cu.sv, record_write.sv: from the last word to the end, in addition to twice memory's latency
TO_DONE: Final = 8


def norm_cycles(
    frames: int, mels: int, *, element_bytes: int = 4, latency: int = 120, max_outstanding: int = 32
) -> int:
    """Return the clocks from start to done of audio_norm_cu, for buffers at whole pages.

    Args:
        frames: The number of frames.
        mels: The number of bands.
        element_bytes: The bytes of an output value, 4 or 2.
        latency: Clocks from an address to its first word, and from the last word of a write to its confirmation. The
            words under way hide some 400 of the latter.
        max_outstanding: Bursts that memory takes without having confirmed them.
    """
    in_a_word = WORD // element_bytes
    pitch = ceil(frames / in_a_word)
    taken = latency + TO_STATISTICS + SLOT * mels
    scaled = taken + SLOT * SLOTS
    filled = taken + max(latency + TO_VALUES, VALUES_AFTER)
    emptied = deque([0, 0], 2)  # the clocks in which the reading of the last two tiles ended
    confirmed = deque([0] * max_outstanding, max_outstanding)  # the clocks of the last bursts
    issued = written = 0
    for first in range(0, frames, TILE_FRAMES):
        count = min(TILE_FRAMES, frames - first)
        filled = max(filled, emptied[0]) + count * mels // 4
        read = max(filled + TO_TILE, emptied[1], scaled)
        for row in range(mels):
            at = row * pitch + first // in_a_word
            left = ceil(count / in_a_word)
            gap = ROW
            while left:
                size = min(left, BURST_WORDS - at % BURST_WORDS)
                read = max(read + size * (in_a_word // 4), written - AHEAD)
                issued = max(issued + gap, read + TO_ISSUE, confirmed[0])
                written = max(written, issued) + size
                confirmed.append(written + latency)
                at, left, gap = at + size, left - size, BURST
        emptied.append(read)
    return written + 2 * latency + TO_DONE


# ---- audio_mel_cu ----

# audio_mel_cu.sv, axi_read.sv. TO_START: two states that judge arguments. TO_READ_WORD: from the start of a reader to
# its first word, in addition to memory's latency.
TO_START: Final = 2
TO_READ_WORD: Final = 5
WAV_BETWEEN: Final = 32  # the greatest number of words of the file that memory gives before the last of the program
TO_CHECK: Final = 1  # rate_check.sv
QUEUE: Final = 16  # resample.sv: the samples that can wait for mel
# sound_store.sv: from a value to its word, and from the last word to its burst. record_write.sv: the record.
TO_WORD: Final = 6
TO_BURST: Final = 5
TO_RECORD: Final = 5


def mel_cu_cycles(
    frames: int,
    rate: int = 16000,
    n_mels: int = 80,
    steps: int = STEPS,
    *,
    loads_taps: bool = False,
    skipped: Sequence[int] = (),
    latency: int = 120,
) -> int:
    """Return the clocks from start to done of audio_mel_cu with all its stages.

    Args:
        frames: Sample frames in the file.
        rate: Their rate in Hz.
        n_mels: The number of bands.
        steps: As in `mel_cycles`.
        loads_taps: The taps in the unit are of another rate, so that it loads new ones.
        skipped: As in `wav_header_cycles`.
        latency: Clocks from an address to its first word, and from the last word of a write to its confirmation.
    """
    begun = TO_START + latency + TO_READ_WORD
    audio = begun + wav_header_cycles(skipped) + TO_CHECK
    program = begun + PROGRAM + min(WAV_BETWEEN, -(-(44 + 2 * frames) // WORD))
    taps = program + taps_cycles(rate) if loads_taps else 0
    up, down, passes = _ratio(rate)
    samples, spacing = -(-frames * up // down), passes * down / up
    resampled = max(audio, taps) + TO_COUNT
    # Resample begins when mel has taken the start. It gets as far as its queue until mel's zeros are in.
    heard = max(resampled, program)
    wanted = heard + TO_ZEROS + ZEROS
    alone = mel_cycles(samples, n_mels, steps)
    drain = mel_cycles(samples, n_mels, steps, spacing) - PROGRAM - TO_ZEROS - ZEROS - ceil(spacing * samples)
    filtered = resample_cycles(frames, rate)
    queued = filtered if samples <= QUEUE else resample_cycles((QUEUE - 1) * down // up, rate)
    value = max(heard - PROGRAM + alone, max(heard + filtered, wanted + filtered - queued) + drain)
    # The sums are a word each. A burst of them leaves while the next one comes in.
    words = (samples // HOP + 5) * n_mels // 4
    return value + TO_WORD + n_mels + TO_BURST + min(words, BURST_WORDS) + 2 * latency + TO_RECORD

"""The audio units: clock cycles of their SystemVerilog.

The models follow the structure, as in image.py. Each constant is a depth, the length of a pipeline or a count of states
in the module that it names.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
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
PROGRAM: Final = 256 + 128  # words of the filterbank's program and of the window, one a clock
# The start; the count of samples within its limits; the number of frames by division, a bit a clock; the report of it
TO_ZEROS: Final = 1 + 3 + 28 + 1
ZEROS: Final = 100  # pairs in front of the first sample, one a clock
WINDOW: Final = 200  # pairs that a frame waits for
# from the last of these to the beginning of the frame: pre-emphasis, level; a clock more where the ends are mirrored
TO_READ: Final = 5
# frame_mean.sv: from a block's end, a clock after its last sample's, to the mean: states, a bit of 25 and of 48 a clock
TO_MEAN: Final = 72
READ: Final = 1 + 128  # from one frame's beginning to the next one's: pairs of points
# frame_points.sv: from a frame's beginning to that of its points, and from there to the next one's
TO_POINTS: Final = 8 + 127 + 4
# From the beginning of a frame's points to the first step of its filters: the exponent, the DFT, whose last pair ends
# it. Of the FFT's eight stages six turn points by products, one by a quarter and one not at all, with an exchange
# between every two of them.
FFT: Final = (6 * 5 + 3 + 2) + (64 + 32 + 16 + 8 + 4 + 2 + 1 + 7)
# fft_fifths.sv: two passes of 120 clocks, with 15 and 11 from a DFT of 5 to memory, and memory behind them; then the
# last three stages
FIFTHS: Final = (15 + 120 + 2) + (11 + 120 + 2) + (5 + 3 + 2) + (2 + 1 + 2)
# filterbank.sv, spectrum.sv, filter_lane.sv, natural_log.sv
TO_ENERGIES: Final = 3 + 13 + 5 + 1  # from a frame's last step: program and bin, powers, weights and sums, the report
TO_VALUE: Final = 4 + 13  # from memory: sums and floor, logarithm
STEPS: Final = 129  # the steps of the filters of up to 96 bands: 128 bins, and an end


@dataclass(frozen=True, slots=True)
class MelPlan:
    """How the mel unit makes frames.

    Args:
        points_400: A frame has 400 samples, otherwise 512.
        ends: Place of the frames: "zeros", "mirrored" or "inside", as `AudioSpec.ends` has it.
        min_samples: A sound of fewer samples gets zeros up to these.
        max_samples: A sound of more samples is cut to these.
        mean_removed: A frame loses the mean of its samples.
    """

    points_400: bool = False
    ends: str = "zeros"
    min_samples: int = 0
    max_samples: int = 65535 * HOP
    mean_removed: bool = False

    def count(self, samples: int) -> int:
        """Return how many samples count, of a sound of so many."""
        return min(max(samples, self.min_samples), self.max_samples)

    def frames(self, samples: int) -> int:
        """Return the number of frames of a sound of so many samples."""
        count = self.count(samples)
        if self.ends == "inside":
            return max(0, (count - 240) // HOP)
        return count // HOP + (self.ends == "zeros")

    @property
    def points_clocks(self) -> int:
        """Clocks from the beginning of a frame's points to that of the next one's."""
        return 136 if self.points_400 else 129

    @property
    def to_steps(self) -> int:
        """Clocks from the beginning of a frame's points to the first step of its filters."""
        return 6 + FIFTHS + 99 + 1 if self.points_400 else 6 + FFT + 127 + 1

    @property
    def to_read(self) -> int:
        """Clocks from the last sample of a frame to its beginning."""
        return TO_READ + (self.ends == "mirrored") + (TO_MEAN if self.mean_removed else 0)

    @property
    def front(self) -> int:
        """Clocks for what lies in front of the first sample."""
        return ZEROS if self.ends == "zeros" else 0


NEMO: Final = MelPlan()


def mel_cycles(
    samples: int, n_mels: int = 80, steps: int = STEPS, spacing: float = 1.0, *, plan: MelPlan = NEMO
) -> int:
    """Return the clocks from the first word of the program to the last value. There is at least one frame.

    Args:
        samples: The number of samples.
        n_mels: The number of bands.
        steps: The steps of the filterbank's program.
        spacing: The clocks between two samples. Values are taken at once.
        plan: How the unit makes frames.
    """
    frames, given = plan.frames(samples), min(samples, plan.count(samples))
    first_sample = PROGRAM + TO_ZEROS + plan.front
    mirrored, before = plan.ends == "mirrored", 0 if plan.ends == "inside" else ZEROS
    read = begun = done = 0
    points = [0, 0]  # the clocks in which the points of the last two frames began
    for frame in range(max(0, frames - 8), frames):  # earlier frames are through when their samples are
        pairs = frame * HOP // 2 + WINDOW - before + mirrored  # of samples or, after the last one, of zeros
        own = min(2 * pairs, given)
        # After the last sample there are pairs of zeros, or single samples.
        after = 2 * pairs - own if mirrored else max(0, pairs - (given + 1) // 2)
        whole = first_sample + ceil(spacing * own) + after
        read = max(whole + plan.to_read, read + READ, points[0] + plan.points_clocks)
        points = [points[1], max(read + TO_POINTS, points[1] + plan.points_clocks)]
        begun = max(points[1] + plan.to_steps, begun + steps)
        done = max(begun + steps + TO_ENERGIES, done + n_mels)
    return done + TO_VALUE + n_mels - 1


# ---- audio_norm_cu ----

# norm_statistics.sv
SLOT: Final = 6  # the clocks of a band in a stage
SLOTS: Final = 32
# audio_norm_cu.sv, axi_read.sv. TO_STATISTICS: from the start to the first slot, in addition to memory's latency.
# TO_VALUES: from the last band's slot to the first value, in addition to memory's latency; the value is asked for while
# the last two words of statistics wait for theirs. TO_TILE: from a tile's last value to its first reading.
TO_STATISTICS: Final = 13
TO_VALUES: Final = -9
VALUES_AFTER: Final = -2  # the values come after the last slot, at the earliest
TO_TILE: Final = 3
TILE_FRAMES: Final = 128
# mel_normalize.sv, tensor_rows.sv, axi_write.sv. TO_ISSUE: from the reading of a burst's last values to its issue.
# AHEAD: words that may have been read and not yet written. ROW, BURST: clocks from row to row, and from burst to burst
# of a row.
TO_ISSUE: Final = 20
AHEAD: Final = 80
ROW: Final = 3
BURST: Final = 2
BURST_WORDS: Final = 32
# axi_write.sv, audio_norm_cu.sv, record_write.sv: from the last word to the end, in addition to twice memory's latency
TO_DONE: Final = 8


def norm_cycles(
    frames: int,
    mels: int,
    *,
    element_bytes: int = 4,
    by_frames: bool = False,
    latency: int = 120,
    max_outstanding: int = 32,
) -> int:
    """Return the clocks from start to done of audio_norm_cu, for buffers at whole pages.

    Args:
        frames: The number of frames.
        mels: The number of bands.
        element_bytes: The bytes of an output value, 4 or 2.
        by_frames: Rows of the output are frames, otherwise bands.
        latency: Clocks from an address to its first word, and from the last word of a write to its confirmation. The
            words under way hide some 400 of the latter.
        max_outstanding: Bursts that memory takes without having confirmed them.
    """
    in_a_word = WORD // element_bytes
    pitch = ceil((mels if by_frames else frames) / in_a_word)
    taken = latency + TO_STATISTICS + SLOT * mels
    scaled = taken + SLOT * SLOTS
    filled = taken + max(latency + TO_VALUES, VALUES_AFTER)
    emptied = deque([0, 0], 2)  # the clocks in which the reading of the last two tiles ended
    confirmed = deque([0] * max_outstanding, max_outstanding)  # the clocks of the last bursts
    issued = written = waiting = 0  # waiting: words of a burst that goes on in the next tile
    for first in range(0, frames, TILE_FRAMES):
        count = min(TILE_FRAMES, frames - first)
        filled = max(filled, emptied[0]) + count * mels // 4
        read = max(filled + TO_TILE, emptied[1], scaled)
        last = first + count == frames
        # Where each run of words begins, and its words
        runs = (
            [(first * pitch, count * pitch)]
            if by_frames
            else [(row * pitch + first // in_a_word, ceil(count / in_a_word)) for row in range(mels)]
        )
        for at, left in runs:
            gap = BURST if by_frames else ROW
            while left:
                size = min(left, BURST_WORDS - at % BURST_WORDS)
                read = max(read + size * (in_a_word // 4), written - AHEAD)
                at, left, waiting = at + size, left - size, waiting + size
                if by_frames and not (last and not left) and at % BURST_WORDS:
                    continue
                issued = max(issued + gap, read + TO_ISSUE, confirmed[0])
                written = max(written, issued) + waiting
                confirmed.append(written + latency)
                waiting, gap = 0, BURST
        emptied.append(read)
    return written + 2 * latency + TO_DONE


# ---- audio_mel_cu ----

# audio_mel_cu.sv, axi_read.sv. TO_START: two states that judge arguments. TO_READ_WORD: from the start of a reader to
# its first word, in addition to memory's latency.
TO_START: Final = 2
TO_READ_WORD: Final = 7
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
    plan: MelPlan = NEMO,
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
        plan: As in `mel_cycles`.
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
    wanted = heard + TO_ZEROS + plan.front
    alone = mel_cycles(samples, n_mels, steps, plan=plan)
    drain = mel_cycles(samples, n_mels, steps, spacing, plan=plan)
    drain -= PROGRAM + TO_ZEROS + plan.front + ceil(spacing * samples)
    filtered = resample_cycles(frames, rate)
    queued = filtered if samples <= QUEUE else resample_cycles((QUEUE - 1) * down // up, rate)
    taken = max(heard + filtered, wanted + filtered - queued)  # the last sample, also of a sound that is cut
    value = max(heard - PROGRAM + alone, taken + drain)
    # The sums are a word each. A burst of them leaves while the next one comes in.
    words = (plan.frames(samples) + 4) * n_mels // 4
    stored = value + TO_WORD + n_mels + TO_BURST + min(words, BURST_WORDS) + latency
    return max(stored, taken) + latency + TO_RECORD

"""Draw lengths: how long the input of a request is, in steps or seconds, together with its number of output steps.

A length distribution is a plain function of a random generator. `dec_timesteps` computes from the outputs the coverage
that LazyBatching's Algorithm 1 needs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError
from headrace.sim.text_files import read_text

Steps = NDArray[np.int64]
Inputs = NDArray[np.int64] | NDArray[np.float64]


class Lengths(Protocol):
    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Inputs, Steps]:
        """Draw the lengths of requests.

        Returns:
            Lengths of inputs, above 0, in the model's own unit (`Request.input_len`: steps, or seconds of audio), and
                output steps, at least 1. Both have shape (requests,).
        """
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    input_steps: int = 1
    output_steps: int = 1

    def __post_init__(self) -> None:
        if self.input_steps < 1 or self.output_steps < 1:
            raise UsageError(f"lengths of {self.input_steps} and {self.output_steps} steps: give at least 1 of each")

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Steps, Steps]:
        return np.full(requests, self.input_steps), np.full(requests, self.output_steps)


@dataclass(frozen=True, slots=True)
class LogNormalPair:
    """Both lengths are log-normal and rounded. A pair with a length above `longest` is drawn again.

    `input_median` and `output_median` are in steps. `sigma` is the standard deviation of the logarithm of both, and
    `correlation` that of the logarithms."""

    input_median: float
    output_median: float
    sigma: float
    correlation: float
    longest: int

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Steps, Steps]:
        inputs, outputs = np.empty(0, np.int64), np.empty(0, np.int64)
        while len(inputs) < requests:
            common, own = rng.standard_normal((2, requests))
            other = self.correlation * common + math.sqrt(1 - self.correlation**2) * own
            drawn_in = np.rint(self.input_median * np.exp(self.sigma * common)).astype(np.int64)
            drawn_out = np.rint(self.output_median * np.exp(self.sigma * other)).astype(np.int64)
            fits = (np.maximum(drawn_in, drawn_out) <= self.longest) & (np.minimum(drawn_in, drawn_out) >= 1)
            inputs, outputs = np.append(inputs, drawn_in[fits]), np.append(outputs, drawn_out[fits])
        return inputs[:requests], outputs[:requests]


# English to German. LazyBatching (Fig. 11 and Section VI-C) says of its corpus: 70 % of the English sentences have less
# than 20 words. dec_timesteps of 10 covers 16 % of the German ones, and dec_timesteps of 32 covers 90 %; none has more
# than 80 words. Two of these fix median and sigma of the German lengths, the third the English median. One sigma for
# both, and the correlation (long sentences stay long), are our choice.
TRANSLATION = LogNormalPair(input_median=15.0, output_median=17.2, sigma=0.497, correlation=0.9, longest=80)

# Other pairs of LazyBatching: Section VI-C names Russian to English and English to French. Nothing is published of
# their lengths. The Parallel Universal Dependencies treebanks have the same 1,000 sentences in English, German, French
# and Russian (UD_English-PUD and so on, release 2.16). The geometric means of their words are 16.91, 16.59, 18.92 and
# 14.97. The deviations of the logarithms are 0.44 to 0.45 in all four, and their correlations 0.89 to 0.94. So French
# is taken to be 18.92 / 16.59 as long as the German above, and Russian 14.97 / 16.91 as long as the English above.
ENGLISH_TO_FRENCH = replace(TRANSLATION, output_median=17.2 * 18.92 / 16.59)
RUSSIAN_TO_ENGLISH = replace(TRANSLATION, input_median=15.0 * 14.97 / 16.91, output_median=15.0)

# Speech for Listen, Attend and Spell. Nothing is published of LazyBatching's. One input step is 8 frames of 10 ms. The
# median is 3 s (a spoken query), with 14 characters a second, and at most 16 s.
SPEECH_STEP_S = 0.08
SPEECH = LogNormalPair(input_median=37.5, output_median=42.0, sigma=0.5, correlation=0.95, longest=200)


# WMT-15 Europarl, German to English: mean 24 words, at most 330, 99 % below 100 (BatchMaker, Section 7.1). A log-normal
# distribution with the first and the last of these has the median and sigma below. The paper says nothing of output
# lengths. They are taken to be distributed as the inputs, and to correlate with them as TRANSLATION's do.
WMT15 = LogNormalPair(input_median=18.43, output_median=18.43, sigma=0.727, correlation=0.9, longest=330)


@dataclass(frozen=True, slots=True)
class Clipped:
    """WMT15 with every length cut to `longest` (BatchMaker, Section 7.3). Raises UsageError for a limit below 1."""

    longest: int

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise UsageError(f"lengths clipped to {self.longest}: give at least 1")

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Steps, Steps]:
        inputs, outputs = WMT15.sample(requests, rng)
        return np.minimum(inputs, self.longest), np.minimum(outputs, self.longest)


@dataclass(frozen=True, slots=True)
class Sentences:
    """Leaves of a binary parse tree of the Stanford Sentiment TreeBank.

    The bank has 215,154 phrases in 11,855 sentences, so a sentence has 19.1 words on average (Socher et al., EMNLP
    2013). Our choice is a normal distribution with a deviation of 9, cut to 2 to 56 words. That leaves a mean of 19.6.
    """

    mean: float = 19.1
    deviation: float = 9.0
    longest: int = 56

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Steps, Steps]:
        leaves = np.empty(0, np.int64)
        while len(leaves) < requests:
            drawn = np.rint(rng.normal(self.mean, self.deviation, requests)).astype(np.int64)
            leaves = np.append(leaves, drawn[(drawn >= 2) & (drawn <= self.longest)])
        return leaves[:requests], np.ones(requests, np.int64)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Seconds of audio, with one output step each: a mixture of distributions, each given by some of its quantiles.

    `parts` are pairs of (weight, seconds), with seconds at the shares `shares`, which rise from 0 to 1. Between two
    shares all lengths are equally likely. A length below `shortest` or above `longest` is cut to it."""

    shares: Sequence[float]
    parts: Sequence[tuple[float, Sequence[float]]]
    shortest: float
    longest: float

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Inputs, Steps]:
        weights = np.array([weight for weight, _ in self.parts])
        chosen = rng.choice(len(self.parts), requests, p=weights / weights.sum())
        share = rng.random(requests)
        every = np.stack([np.interp(share, self.shares, seconds) for _, seconds in self.parts])
        drawn = every[chosen, np.arange(requests)]
        return np.clip(drawn, self.shortest, self.longest), np.ones(requests, np.int64)


# Utterances of LibriSpeech (Panayotov, Chen, Povey and Khudanpur, ICASSP 2015). They are cut at silences. Those for
# training are cut at any silence of 0.3 s or more, the others at ends of sentences only; none is above 35 s. The
# distribution is synthetic. It is drawn from the quantiles of train-clean-360 for both clean training sets (they differ
# by 0.2 s), of train-other-500, and of test-clean for the four sets to tune and to test on. Weights are utterances. The
# quantiles are those in icefall's egs/librispeech/ASR/local/display_manifest_statistics.py. icefall trains at speeds of
# 0.9, 1 and 1.1, so the first two mix these three speeds. They are longer than the corpus by 0.7 % on average, and a
# little flatter around their peak at 15 s.
LIBRISPEECH = Quantiles(
    shares=(0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0),
    parts=(
        (28_539 + 104_014, (1.0, 1.8, 2.2, 2.5, 4.2, 6.2, 11.2, 13.7, 15.3, 16.6, 17.3, 18.1, 18.4, 18.8, 33.0)),
        (148_688, (0.8, 1.7, 2.1, 2.3, 3.5, 5.0, 9.8, 13.4, 15.1, 16.5, 17.2, 18.1, 18.4, 18.9, 31.0)),
        (
            2_703 + 2_864 + 2_620 + 2_939,
            (1.3, 1.6, 1.8, 2.0, 2.3, 2.7, 3.7, 5.8, 9.6, 14.6, 17.8, 25.5, 28.4, 32.8, 35.0),
        ),
    ),
    shortest=1.0,
    longest=35.0,
)
# The sets to tune and to test on alone.
LIBRISPEECH_TEST = replace(LIBRISPEECH, parts=LIBRISPEECH.parts[2:])


# The distributions by name, as `headrace simulate --lengths` takes them.
LENGTHS: dict[str, Lengths] = {
    "translation": TRANSLATION,
    "english-to-french": ENGLISH_TO_FRENCH,
    "russian-to-english": RUSSIAN_TO_ENGLISH,
    "speech": SPEECH,
    "wmt15": WMT15,
    "sentences": Sentences(),
    "librispeech": LIBRISPEECH,
    "librispeech-test": LIBRISPEECH_TEST,
}


@dataclass(frozen=True, slots=True)
class Frames:
    """Seconds of audio as numbers of spectrogram frames, one each `step_s`, centred on its time.

    Graphs count these frames; seconds would be rounded. The rule is that of `AudioSpec.frames` in
    host/dpu/reference/audio.py."""

    seconds: Lengths
    step_s: float

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Inputs, Steps]:
        seconds, outputs = self.seconds.sample(requests, rng)
        return (seconds / self.step_s).astype(np.int64) + 1, outputs


@dataclass(frozen=True, slots=True)
class Scaled:
    """Lengths in another unit, of which `factor` make one of theirs. They are not rounded."""

    lengths: Lengths
    factor: float

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Inputs, Steps]:
        inputs, outputs = self.lengths.sample(requests, rng)
        return np.asarray(inputs, np.float64) * self.factor, outputs


@dataclass(frozen=True, slots=True)
class Corpus:
    """The empirical distribution of pairs: a request has the lengths of one pair, and every pair is equally likely."""

    inputs: Inputs
    outputs: Steps

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Inputs, Steps]:
        chosen = rng.integers(0, len(self.inputs), requests)
        return self.inputs[chosen], self.outputs[chosen]


def read_corpus(path: Path) -> Corpus:
    """Read a text file with one pair for each line: source and target, separated by a tab.

    Blanks separate words. Where both sides are numbers, they are the lengths themselves. Raises UsageError that names
    file and line."""
    text = read_text(str(path), path)
    pairs: list[tuple[int, int]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        sides = line.split("\t")
        if len(sides) < 2:
            raise UsageError(f"{path}, line {number}: no tab; each line needs source and target separated by a tab")
        counted = [int(side) if side.strip().isdecimal() else len(side.split()) for side in sides[:2]]
        if min(counted) < 1 or max(counted) > 100_000:
            raise UsageError(f"{path}, line {number}: lengths of {counted} words; give 1 to 100000")
        pairs.append((counted[0], counted[1]))
    if not pairs:
        raise UsageError(f"{path} has no pairs; give one a line, source and target separated by a tab")
    inputs, outputs = np.array(pairs, dtype=np.int64).T
    return Corpus(inputs, outputs)


def read_durations(folder: Path) -> Corpus:
    """Return the seconds of all WAV and FLAC files anywhere below `folder`, from their headers.

    Raises UsageError for a folder without any, or with a file that cannot be read."""
    import soundfile  # it loads libsndfile

    seconds = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in (".wav", ".flac") and path.is_file():
            try:
                seconds.append(float(soundfile.info(str(path)).duration))
            except soundfile.LibsndfileError as error:
                raise UsageError(f"{path}: {error.error_string} Take it out of the folder") from error
            if not 0 < seconds[-1] <= 1e6:
                raise UsageError(f"{path}: {seconds[-1]:g} s; take it out of the folder")
    if not seconds:
        raise UsageError(f"{folder} holds no .wav or .flac files")
    return Corpus(np.array(seconds), np.ones(len(seconds), np.int64))


def dec_timesteps(lengths: Lengths, coverage: float = 0.9, samples: int = 100_000) -> int:
    """Return the number of decoder steps within which the share `coverage` of all outputs end (LazyBatching, Section
    IV-C)."""
    if not 0 < coverage <= 1:
        raise UsageError(f"a coverage of {coverage}: give a share above 0 and at most 1")
    _, outputs = lengths.sample(samples, np.random.default_rng(0))
    return int(np.quantile(outputs, coverage, method="inverted_cdf"))

"""Sequence lengths: how many input steps and output steps a request has, drawn together.

A length distribution is a plain function of a random generator; `dec_timesteps` reads the coverage that LazyBatching's
Algorithm 1 needs off its outputs.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.batching.errors import UsageError

Steps = NDArray[np.int64]


class Lengths(Protocol):
    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Steps, Steps]:
        """Input and output steps, each of shape (requests,) and at least 1."""
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
    """Both lengths are log-normal, rounded and drawn again above `longest`; `correlation` is of their logarithms.

    `input_median` and `output_median` in steps; `sigma` is the standard deviation of the logarithm of both."""

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


# English to German. LazyBatching (Fig. 11 and Section VI-C) tells of its corpus: 70 % of the English sentences have
# less than 20 words, dec_timesteps of 10 covers 16 % and of 32 covers 90 % of the German ones, none has more than 80.
# Two of these fix median and sigma of the German lengths, the third the English median. That both have one sigma, and
# how closely they go together (long sentences stay long), is our choice.
TRANSLATION = LogNormalPair(input_median=15.0, output_median=17.2, sigma=0.497, correlation=0.9, longest=80)

# Speech for Listen, Attend and Spell; nothing is published of LazyBatching's. One input step is 8 frames of 10 ms.
# A median of 3 s (a spoken query), 14 characters a second, at most 16 s.
SPEECH = LogNormalPair(input_median=37.5, output_median=42.0, sigma=0.5, correlation=0.95, longest=200)


# WMT-15 Europarl, German to English: mean 24 words, at most 330, 99 % below 100 (BatchMaker, Section 7.1). A log-normal
# with the first and the last of these has the median and sigma below. Of output lengths the paper says nothing: they
# are taken to be distributed as the inputs, and to go with them as TRANSLATION's do.
WMT15 = LogNormalPair(input_median=18.43, output_median=18.43, sigma=0.727, correlation=0.9, longest=330)


@dataclass(frozen=True, slots=True)
class Clipped:
    """WMT15 with every length cut to `longest` (BatchMaker, Section 7.3). Raises UsageError."""

    longest: int

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise UsageError(f"lengths clipped to {self.longest}: give at least 1")

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Steps, Steps]:
        inputs, outputs = WMT15.sample(requests, rng)
        return np.minimum(inputs, self.longest), np.minimum(outputs, self.longest)


@dataclass(frozen=True, slots=True)
class Sentences:
    """Leaves of a binary parse tree of the Stanford Sentiment TreeBank: 215,154 phrases in 11,855 sentences, so 19.1
    words a sentence on average (Socher et al., EMNLP 2013). That they are normal with a deviation of 9, cut to 2 to 56
    (which leaves a mean of 19.6), is our choice."""

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
class Corpus:
    """The empirical distribution of pairs: a request has the lengths of one pair, each as likely as the others."""

    inputs: Steps
    outputs: Steps

    def sample(self, requests: int, rng: np.random.Generator) -> tuple[Steps, Steps]:
        chosen = rng.integers(0, len(self.inputs), requests)
        return self.inputs[chosen], self.outputs[chosen]


def read_corpus(path: Path) -> Corpus:
    """A text file, one pair a line: source and target separated by a tab. Words are what blanks separate; where both
    sides are numbers, they are the lengths themselves. Raises UsageError that names file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
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


def dec_timesteps(lengths: Lengths, coverage: float = 0.9, samples: int = 100_000) -> int:
    """The decoder steps within which `coverage` of all outputs end (LazyBatching, Section IV-C)."""
    if not 0 < coverage <= 1:
        raise UsageError(f"a coverage of {coverage}: give a share above 0 and at most 1")
    _, outputs = lengths.sample(samples, np.random.default_rng(0))
    return int(np.quantile(outputs, coverage, method="inverted_cdf"))

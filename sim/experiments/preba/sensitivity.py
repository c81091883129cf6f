"""Run the rows under each reading of what the paper leaves open, to see how far it moves them.

A reading changes one condition of the rows: the paper's baseline on LibriSpeech, with all slices. Its numbers are those
of the rows of Figs. 17, 20, 21 and 22, computed in the same way.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from headrace.sim.experiments.preba.conditions import (
    AUDIO_NETWORKS,
    BASELINES,
    CLIP,
    CPU,
    DPU,
    IDEAL,
    IMPLIED,
    MORE_UNITS,
    NETWORKS,
    OTHER_PRECISION,
    SLOWER,
    STATIC,
    STATIC_READINGS,
    TEST_UTTERANCES,
    TODAY,
    UTTERANCES,
    Server,
    server,
)
from headrace.sim.experiments.preba.rows import Rows, Run, mean

STATIC_DEFAULT: Final = STATIC_READINGS[0]


@dataclass(frozen=True, slots=True)
class Condition:
    """One reading of what the paper leaves open.

    Attributes:
        unknown: What the paper does not tell.
        reading: What is taken for it here.
        cpu, dpu: The preprocessing of the baseline and of PREBA.
        lengths: The lengths of audio.
        static: The limits of Base, one of STATIC_READINGS.
        every: Further settings of all servers.
    """

    unknown: str
    reading: str
    cpu: str = CPU
    dpu: str = DPU
    lengths: str = UTTERANCES
    static: str = STATIC_DEFAULT
    slower: float = 1.0
    every: dict[str, Any] = field(default_factory=dict)

    def server(self, model: str, preprocess: str, policy: str = "preba") -> Server:
        slower = self.slower if preprocess == self.cpu else 1.0
        return server(model, preprocess, self.lengths, policy=policy, slower=slower, **self.every)

    def servers(self) -> list[Server]:
        found = [self.server(model, each) for model in NETWORKS for each in (IDEAL, self.dpu, self.cpu)]
        static = f"{STATIC}:{self.static}"
        return found + [self.server(model, each, static) for model in AUDIO_NETWORKS for each in (self.dpu, self.cpu)]


CONDITIONS: Final = (
    Condition("none: the rows", f"kaiser_best, this core, 500x375, TF32, LibriSpeech, {DPU}, mean length"),
    Condition("librosa's resampler", "soxr_hq, the default since 0.10", cpu=BASELINES[TODAY]),
    *(Condition("speed of a core", f"{slower:g} times slower", slower=slower) for slower in SLOWER),
    Condition("cost of a CPU", "what the paper's own numbers imply", cpu=BASELINES[IMPLIED]),
    Condition("sizes of photos", "0.1 megapixels", every={"pixels": 100_000}),
    Condition("sizes of photos", "0.5 megapixels", every={"pixels": 500_000}),
    Condition("sizes of photos", "1 megapixel", every={"pixels": 1_000_000}),
    Condition("type of products", OTHER_PRECISION, every={"precision": OTHER_PRECISION}),
    Condition("type of products", "fp16", every={"precision": "fp16"}),
    Condition("lengths of audio", "2.5 s, as in Section 3", lengths=CLIP),
    Condition("lengths of audio", "LibriSpeech's sets to tune and test", lengths=TEST_UTTERANCES),
    *(Condition("compute units", units, dpu=units) for units in MORE_UNITS),
    *(Condition("limits of Base", f"those of: {reading}", static=reading) for reading in STATIC_READINGS[1:]),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of the rows under a reading: shares and differences in per cent, ratios of PREBA to the baseline.

    `kept` is the share of Ideal's throughput that PREBA keeps for the fifth of six networks."""

    unknown: str
    reading: str
    lost: float
    throughput: float
    kept: float
    cpu_power_saved: float
    gpu_power: float
    per_joule: float
    per_dollar: float
    dpu_gain: float
    batching_gain: float


PAPER: Final = Reading("", "the paper", 77.2, 3.7, 91.6, 35.4, 2.8, 3.5, 3.0, 101.0, 54.0)
HEADINGS: Final = {
    "lost": "17: lost beside Ideal, %",
    "throughput": "17: throughput, x",
    "kept": "17: kept by PREBA, %",
    "cpu_power_saved": "20: CPU power saved, %",
    "gpu_power": "20: GPU power (audio), x",
    "per_joule": "20: requests/J, x",
    "per_dollar": "21: requests/$, x",
    "dpu_gain": "22: DPU above Base, %",
    "batching_gain": "22: batching above that, %",
}


def servers() -> list[Server]:
    """Return the servers of all readings. Several readings share some."""
    return list(dict.fromkeys(one for condition in CONDITIONS for one in condition.servers()))


def readings(rows: Rows) -> list[Reading]:
    return [_reading(rows, condition) for condition in CONDITIONS]


def _reading(rows: Rows, condition: Condition) -> Reading:
    def run(model: str, preprocess: str, policy: str = "preba") -> Run:
        one = condition.server(model, preprocess, policy)
        return rows.one(load="saturated", **{each.name: getattr(one, each.name) for each in fields(one)})

    def ratio(value: Callable[[Run], float], networks: Sequence[str] = NETWORKS) -> float:
        return mean(value(run(m, condition.dpu)) / value(run(m, condition.cpu)) for m in networks)

    def share(model: str, preprocess: str) -> float:
        return run(model, preprocess).throughput_rps / run(model, IDEAL).throughput_rps

    def gain(ours: tuple[str, str], theirs: tuple[str, str]) -> float:
        rates = [(run(m, *ours).throughput_rps, run(m, *theirs).throughput_rps) for m in AUDIO_NETWORKS]
        return mean(100 * (mine / other - 1) for mine, other in rates)

    static = f"{STATIC}:{condition.static}"
    return Reading(
        condition.unknown,
        condition.reading,
        100 * (1 - mean(share(model, condition.cpu) for model in NETWORKS)),
        ratio(lambda one: one.throughput_rps),
        100 * sorted(share(model, condition.dpu) for model in NETWORKS)[1],
        100 * (1 - ratio(lambda one: one.cpu_w)),
        ratio(lambda one: one.gpu_w, AUDIO_NETWORKS),
        ratio(lambda one: one.requests_per_j),
        ratio(lambda one: one.requests_per_usd),
        gain((condition.dpu, static), (condition.cpu, static)),
        gain((condition.dpu, "preba"), (condition.dpu, static)),
    )


def table(found: Sequence[Reading]) -> str:
    """Return the readings as a table in Markdown. Bold numbers are those that a reading moves by 5 % or more."""
    usual = found[0]
    lines = [
        f"| what the paper leaves open | reading | {' | '.join(HEADINGS.values())} |",
        f"| --- | --- |{' ---: |' * len(HEADINGS)}",
    ]
    for one in (replace(PAPER, unknown="the paper", reading=""), *found):
        cells = []
        for name in HEADINGS:
            value, base = getattr(one, name), getattr(usual, name)
            moved = one in found and not math.isclose(value, base, rel_tol=0.05)
            cells.append(f"**{value:.3g}**" if moved else f"{value:.3g}")
        lines.append(f"| {one.unknown} | {one.reading} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"

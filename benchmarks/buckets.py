"""Gain of `preba` from buckets by length and from merging them (PREBA, Section 4.3), with LibriSpeech's lengths.

    .venv/bin/python -m benchmarks.buckets [--requests 20000] [--seed 0] [--json [FILE]]

All runs are simulated. The workers are:

- 7 slices as in PREBA's Fig. 15. Up to the knee a batch takes 35 ms, whatever its length. It is at the knee with 40 or
  160 s of audio in it, padding included. These two figures are assumed.
- Simulated NPUs, with Conformer, and with LAS and its usual utterances of 1 to 16 s.
- The CPU core that examples/conformer_ctc_small.profile.json was measured on.

Without buckets, Batch_max and Time_queue are those of the longest input, or of the median one. Each row has the highest
rate at which 99 % are served within the SLO, and latencies at 70 % of the highest of these rates. The SLO is five times
what the longest input takes alone. Arrivals are Poisson, the same for all, for 50 times the SLO at least.
"""

import argparse
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.harness import ROOT, Report, arguments, main, progress, table
from headrace.batching import ModelGraph, NodeTimes, PrebaBatching, Profile
from headrace.sim.hardware.npu import npu_times
from headrace.sim.hardware.profiles import read_profile
from headrace.sim.machine import CONFORMER_STEP_S, curves
from headrace.sim.simulation import simulate
from headrace.sim.workload.lengths import LIBRISPEECH, SPEECH, Frames, Lengths
from headrace.sim.workload.traffic import generate, poisson
from headrace.sim.zoo import model_graph

PROFILE = ROOT / "examples" / "conformer_ctc_small.profile.json"
SLO_LENGTHS, SHARE, STEPS, RUN_SLOS = 5.0, 0.7, 9, 50
TIME_KNEE_S, FRAME_S = 0.035, 0.01  # PREBA, Section 4.3


class Slice:
    """A `LatencyModel` of one node: up to `full_s` seconds of sound in a batch take Time_knee, more in proportion."""

    def __init__(self, full_s: float) -> None:
        self.full_s = full_s

    def latency(self, node: int, batch: int, length: float) -> float:
        return TIME_KNEE_S * max(1.0, batch * length * FRAME_S / self.full_s)


def variants(profile: Profile) -> dict[str, tuple[Profile, Mapping[str, Any]]]:
    median = replace(profile, points=profile.curve(profile.typical_length))
    return {
        "one queue, knee of the longest": (profile, {"bucket_s": math.inf}),
        "one queue, knee of the median": (median, {}),
        "buckets": (profile, {"merge": False}),
        "buckets, merged": (profile, {}),
    }


class Bench:
    """Each variant of `preba` on the same workers and arrivals."""

    def __init__(
        self, profile: Profile, times: NodeTimes, workers: int, lengths: Lengths, requests: int, seed: int
    ) -> None:
        self.profile, self.times, self.workers, self.lengths = profile, times, workers, lengths
        self.requests, self.seed = requests, seed
        inputs, outputs = lengths.sample(requests, np.random.default_rng(seed))
        self.slo_s = SLO_LENGTHS * times.whole(1, float(inputs.max()), int(outputs.max()))

    def run(self, variant: tuple[Profile, Mapping[str, Any]], rate_rps: float) -> dict[str, Any]:
        profile, options = variant
        graph: ModelGraph = self.times.graph
        policy = PrebaBatching([graph], {graph.name: profile}, self.workers, **options)
        times = {graph.name: self.times}
        requests = max(self.requests, round(RUN_SLOS * self.slo_s * rate_rps))
        load = generate(poisson(rate_rps, requests, self.seed), {graph.name: self.lengths}, self.slo_s, self.seed)
        return simulate(policy, load, times, self.workers, seed=self.seed).result

    def at_slo(self, variant: tuple[Profile, Mapping[str, Any]]) -> float:
        """Return the highest rate (requests/s, to 1 %) whose p99 is within the SLO."""
        low, high = 0.0, 1.0
        while self.run(variant, high)["latency_ms"]["p99"] <= 1e3 * self.slo_s:
            low, high = high, 2 * high
        for _ in range(STEPS):
            middle = (low + high) / 2
            if self.run(variant, middle)["latency_ms"]["p99"] <= 1e3 * self.slo_s:
                low = middle
            else:
                high = middle
        return low


def workers(requests: int, seed: int) -> dict[str, Bench]:
    measured = read_profile(PROFILE)
    opaque = ModelGraph.opaque("conformer")
    utterances, frames = Frames(LIBRISPEECH, CONFORMER_STEP_S), Frames(LIBRISPEECH, FRAME_S)
    ends = [round(2.5 / FRAME_S * number) for number in range(1, 15)]
    on: dict[str, tuple[Profile, NodeTimes, int, Lengths]] = {}
    for full_s in (40, 160):
        times = NodeTimes(opaque, Slice(full_s))
        profile = Profile.of("conformer", times, 7, lengths=ends, step_s=FRAME_S)
        on[f"7 slices that {full_s} s of sound fill"] = (profile, times, 7, frames)
    for model, count, lengths in (("las", 7, SPEECH), ("conformer", 7, utterances)):
        times = npu_times(model_graph(model))
        on[f"{model} on {count} NPUs"] = (curves(model, times, count, lengths), times, count, lengths)
    on["conformer_ctc_small on 1 CPU core"] = (measured, measured.times(), 1, frames)
    return {name: Bench(*each, requests, seed) for name, each in on.items()}


def run(options: argparse.Namespace) -> Report:
    figures: dict[str, Any] = {}
    parts = []
    for name, bench in workers(options.requests, options.seed).items():
        profile = bench.profile
        knees = {round(end * (profile.step_s or 1), 1): profile.knee(end) for end in profile.lengths}
        every = variants(profile)
        at_slo = {variant: bench.at_slo(what) for variant, what in every.items()}
        rate = SHARE * max(at_slo.values())
        rows = {}
        for variant, what in every.items():
            result = bench.run(what, rate)
            rows[variant] = {
                "rps_at_slo": at_slo[variant],
                "p50_ms": result["latency_ms"]["p50"],
                "p99_ms": result["latency_ms"]["p99"],
                "batch_size_mean": result["batch_size_mean"],
            }
        figures[name] = {
            "slo_ms": 1e3 * bench.slo_s,
            "rate_rps": rate,
            "rows": rows,
            "knees": {seconds: [knee.batch, 1e3 * knee.latency_s] for seconds, knee in knees.items()},
        }
        told = ", ".join(f"{s:g} s: {knee.batch} in {1e3 * knee.latency_s:.0f} ms" for s, knee in knees.items())
        head = f"preba | requests/s at the SLO | at {rate:.1f}/s: p50 ms | p99 ms | mean batch"
        shown = table(head, (" | ".join([name, *(f"{n:.4g}" for n in row.values())]) for name, row in rows.items()))
        parts.append(f"{name}: SLO {1e3 * bench.slo_s:.0f} ms; knees {told}\n\n{shown}")
        progress(name)
    return Report(figures, "\n\n".join(parts))


if __name__ == "__main__":
    main(arguments(__doc__, requests=20_000, seed=0), run)

"""Simulate the policies for speech on the slices of PREBA's server, at equal load.

Photos are all alike, so any policy that batches serves them well. Sounds differ in length, and a batch takes as long as
its longest: there a policy must know lengths and slices, as `preba` does. The network is PREBA's CitriNet with clips as
long as LibriSpeech's utterances. The inputs are ready, so that the slices alone are loaded.

The load is the live runs' rule, HEAVY of what the slices sustain in batches of the knee of each length. A policy with a
window and a limit gets those of the knee of the mean length, which is the best that one pair of limits can do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headrace.batching import PolicyContext, preba_limits
from headrace.batching.registry import policy_with
from headrace.batching.settings import settings_of
from headrace.host.demo.options import DemoOptions
from headrace.host.demo.runs.load import HEAVY, SLO_KNEES, Capacity
from headrace.sim.engine import Arrivals
from headrace.sim.experiments.preba.conditions import GPU, SEVENTHS
from headrace.sim.hardware.settings import PRECISION
from headrace.sim.simulation import simulate
from headrace.sim.system.system import System
from headrace.sim.workload.lengths import LIBRISPEECH
from headrace.sim.workload.traffic import poisson
from headrace.sim.zoo.traced import traced

NETWORK: Final = "citrinet"
POLICIES: Final = ("serial", "graph", "preba")
REQUESTS: Final = 6000


@dataclass(frozen=True, slots=True)
class SpeechOnSlices:
    """The results by policy, each with the result keys of every Headrace run.

    `settings` are those that a policy got, by its name."""

    network: str
    gpu: str
    slices: int
    rate_rps: float
    slo_s: float
    settings: dict[str, dict[str, float]]
    results: dict[str, dict[str, Any]]


def speech_on_slices(options: DemoOptions, policies: Sequence[str] = POLICIES) -> SpeechOnSlices:
    """Simulate each policy with the same clips and arrivals. `options` have the seed."""
    system = System.of(GPU, [NETWORK], parts=SEVENTHS, image_sizes=1, precision=PRECISION)
    profiles, times, count = system.profiles(), system.slowest_times(), len(system.slices)
    assert isinstance(profiles, dict)  # all slices are equal
    profile, step_s = profiles[NETWORK], traced(NETWORK).step_s
    assert step_s is not None  # it takes audio
    seconds, _ = LIBRISPEECH.sample(REQUESTS, np.random.default_rng([options.seed, 3]))
    lengths = (np.asarray(seconds, np.float64) / step_s).tolist()
    capacity = Capacity.of((profile, length) for length in lengths)
    rate, slo = HEAVY * capacity.in_batches_rps, SLO_KNEES * capacity.knee_s
    at = poisson(rate, REQUESTS, options.seed)
    sent = Arrivals([NETWORK] * REQUESTS, at.tolist(), (at + slo).tolist(), lengths, [1] * REQUESTS)
    limits = preba_limits(profile, count, float(np.mean(lengths)))
    best = {"max_batch": limits.max_batch, "window_ms": 1e3 * limits.window_s}
    settings, results = {}, {}
    for name in policies:
        known = {each.name for each in settings_of(type(policy_with(name)))}
        settings[name] = {key: value for key, value in best.items() if key in known}
        policy = policy_with(name, **settings[name]).build(PolicyContext(times, count, profiles, tables={}))
        results[name] = dict(simulate(policy, sent, system.times(), count).result)
    return SpeechOnSlices(NETWORK, GPU, count, rate, slo, settings, results)

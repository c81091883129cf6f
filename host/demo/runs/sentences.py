"""The sentence demo: sentences of all lengths through a step model, under each policy. Nothing is preprocessed.

Untrained weights never produce <eos>. So the runtime cuts the translation of a sentence at the length that a
translation of it would have. The policies do not know that length in advance.
"""

import asyncio
import math
from dataclasses import dataclass

import numpy as np

from headrace.host.demo.inputs.sentences import random_lengths, random_sentences
from headrace.host.demo.options import BEFOREHAND, DemoOptions
from headrace.host.demo.runs.live import LiveReport, live_runs, take_profiles
from headrace.host.demo.runs.load import Capacity, run_requests
from headrace.host.demo.runs.serving import Progress
from headrace.host.live.hardware import NodeWorkers
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.inspection.parent import signature
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.profiling.batches import machine
from headrace.sim.workload.lengths import TRANSLATION, dec_timesteps

SAMPLES = 10_000  # lengths that are drawn for their means
HEAVY = 0.85  # largest share of the rate in batches
SLO_S = 0.5
NOTE = "The weights are random; every output is cut at the length that a translation of its sentence would have."


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceReport(LiveReport):
    """The results of the sentence demo. The capacity is that for sentences of the mean length, in the profile's largest
    batch without padding."""


def demo(options: DemoOptions, network: Network, progress: Progress) -> SentenceReport:
    """Run the sentence demo with the network that `step_network` returned.

    Raises UsageError, also for a network over trees, and WorkerLost if no worker can be started."""
    return asyncio.run(_demo(options, network, progress))


async def _demo(options: DemoOptions, network: Network, progress: Progress) -> SentenceReport:
    name = network.name
    hardware = NodeWorkers([], worker_devices(options.workers), whole=False, steps=[network])
    profiles = await take_profiles(
        options,
        [name],
        lambda name: hardware.profile(name, options.max_batch),
        f"on {hardware.count} workers, by step, batch and length",
        progress,
    )
    nodes, times = profiles[name].nodes, hardware.times(profiles[name])
    shapes, rng = signature(network), np.random.default_rng(options.seed)
    lengths, outputs = (np.mean(drawn) for drawn in zip(*random_lengths(shapes, SAMPLES, rng), strict=True))
    batch = nodes.batches[-1] if nodes is not None else 1
    alone_s, batch_s = (times.whole(size, float(lengths), round(float(outputs))) for size in (1, batch))
    capacity = Capacity(hardware.count / alone_s, hardware.count * batch / batch_s, batch_s)
    # Batches are padded, and end when their longest sentence does. So they sustain less than that.
    chosen = min(math.sqrt(capacity.one_by_one_rps * capacity.in_batches_rps), HEAVY * capacity.in_batches_rps)
    rate = options.rate_rps if options.rate_rps is not None else chosen
    slo = options.slo_s if options.slo_s is not None else SLO_S
    source = random_sentences(shapes, run_requests(options, rate), rng)
    runs = await live_runs(
        options,
        hardware,
        profiles,
        {BEFOREHAND: rate},
        {BEFOREHAND: slo},
        {BEFOREHAND: {name: source}},
        progress,
        title=lambda _, policy: policy,
        dec_timesteps={name: dec_timesteps(TRANSLATION)},
    )
    return SentenceReport(
        options=options,
        machine=machine(),
        workers=hardware.count,
        profiles=profiles,
        rates_rps={BEFOREHAND: rate},
        capacity=capacity,
        slo_s=slo,
        runs=runs,
    )

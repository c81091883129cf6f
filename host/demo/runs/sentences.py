"""The sentence demo: sentences of all lengths through a step model, under each policy. Nothing is preprocessed.

Untrained weights never produce <eos>. So the runtime cuts the translation of a sentence at the length that a
translation of it would have. The policies do not know that length in advance.
"""

import asyncio
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headrace.host.demo.inputs.sentences import random_lengths, random_sentences
from headrace.host.demo.options import BEFOREHAND, DemoOptions
from headrace.host.demo.runs.live import LiveReport, live_runs, take_profiles
from headrace.host.demo.runs.load import heavy_rps, run_requests
from headrace.host.demo.runs.serving import Progress
from headrace.host.live.hardware import NodeWorkers
from headrace.host.workers.devices import worker_devices
from headrace.host.workers.inspection.parent import signature
from headrace.host.workers.networks.sequence_networks import Network
from headrace.host.workers.profiling.batches import machine
from headrace.sim.workload.lengths import TRANSLATION, dec_timesteps

SAMPLES = 10_000  # lengths that are drawn for their means
NOTE = "The weights are random; every output is cut at the length that a translation of its sentence would have."


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceReport(LiveReport):
    """The results of the sentence demo. The rates that the workers sustain are for sentences of the mean length, in
    the profile's largest batch without padding."""

    footnote: ClassVar[str] = NOTE


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
    one_by_one, in_batches = (
        hardware.count * batch / times.whole(batch, float(lengths), round(float(outputs)))
        for batch in (1, nodes.batches[-1] if nodes is not None else 1)
    )
    rate = heavy_rps(options, one_by_one, in_batches)
    source = random_sentences(shapes, run_requests(options, rate), rng)
    runs = await live_runs(
        options,
        hardware,
        profiles,
        {BEFOREHAND: rate},
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
        one_by_one_rps=one_by_one,
        in_batches_rps=in_batches,
        runs=runs,
    )

"""Run the audio demo: speech of all lengths goes through CPU or DPU into speech networks, under each policy.

    clips -> DPU tensors, compared with the definition -> a profile of each network by length -> the loads
          -> a live run for each preprocessor and policy -> the same on a simulated server of PREBA's size

All runs at one load have the same Poisson arrivals.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from headrace.batching import Profile
from headrace.host.demo.inputs.audio import AudioClip
from headrace.host.demo.inputs.prepared_audio import PreparedAudio, prepare_audio
from headrace.host.demo.networks import AudioNetwork
from headrace.host.demo.options import DemoOptions
from headrace.host.demo.runs.live import (
    LiveReport,
    distinct,
    live_runs,
    open_dpus,
    preprocessor_of,
    take_profiles,
)
from headrace.host.demo.runs.load import Capacity, run_rates, slo_s
from headrace.host.demo.runs.serving import Progress, Run
from headrace.host.demo.runs.simulated import SIMULATING, simulate_audio
from headrace.host.dpu.preprocessor import CuRun
from headrace.host.live.hardware import hardware_of
from headrace.host.workers.profiling.batches import machine, measure_curve

PROFILE_S = 24.0  # limit of the measurement of a network's profile
LENGTHS = (0.1, 0.5, 1.0)  # the profile is measured at these quantiles of the clips' lengths
WEIGHTS_NOTE = "The weights are random, so the networks' outputs mean nothing."


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioReport(LiveReport):
    """The results of the audio demo.

    `prepared` is by network, in the order of the options. `cus` are the names of the CUs; there are none without a DPU.
    `step_s` is the time from frame to frame."""

    cus: Sequence[str]
    prepared: Mapping[str, PreparedAudio]
    step_s: float

    @property
    def distinct(self) -> list[PreparedAudio]:
        return distinct(self.prepared)

    @property
    def inaccurate(self) -> int:
        """The number of the DPU's tensors whose RMS error is beyond the bound."""
        return sum(part.accuracy.on_dpu - part.accuracy.good for part in self.distinct)


def demo(
    options: DemoOptions,
    clips: Sequence[AudioClip],
    networks: Sequence[AudioNetwork],
    xclbin: Path | None,
    progress: Progress,
) -> AudioReport:
    """Run the audio demo with the networks that `load_audio_networks` returned. Without `xclbin` there is no DPU.

    Raises UsageError for options that cannot be met, and WorkerLost if no worker can be started."""
    live = asyncio.run(_demo(options, clips, networks, xclbin, progress))
    progress.stage(SIMULATING)
    mel, norm = (max(1, sum(kind in cu for cu in live.cus)) for kind in ("mel", "norm"))
    return replace(live, simulated=simulate_audio(options, live.prepared, live.compared[0], (mel, norm)))


async def _demo(
    options: DemoOptions,
    clips: Sequence[AudioClip],
    loaded: Sequence[AudioNetwork],
    xclbin: Path | None,
    progress: Progress,
) -> AudioReport:
    networks = {network.name: network for network in loaded}
    hardware = hardware_of(loaded, workers=options.workers, npus=0, by_node=False, whole=True)
    async with open_dpus(xclbin, (network.spec for network in loaded), options.api) as dpus:
        by_spec = {}
        for spec, dpu in dpus.items():
            progress.stage("DPU tensors against the definition" if dpu else "tensors by the CPU", len(clips))
            by_spec[spec] = await prepare_audio(dpu, spec, clips, progress.step)
        prepared = {name: by_spec[network.spec] for name, network in networks.items()}
        profiles = await take_profiles(
            options,
            networks,
            lambda name: _profile(networks[name], prepared[name], options),
            f"on {hardware.count} workers, by length and batch",
            progress,
        )
        capacity = Capacity.of(
            (profiles[name], float(frames)) for name, part in prepared.items() for frames in part.frames
        )
        here = machine()
        files_per_s = [part.files_per_s for part in prepared.values()]
        rates, slo = run_rates(options, capacity, capacity, files_per_s, here["cores"]), slo_s(options, capacity)
        rng = np.random.default_rng([options.seed, 2])
        orders = {name: rng.permutation(len(part.files)).tolist() for name, part in prepared.items()}
        sources = {
            kind: {
                name: prepared[name].source(
                    preprocessor_of(kind, network.spec, dpus[network.spec]), orders[name], network.description.inputs
                )
                for name, network in networks.items()
            }
            for kind in options.preprocessors
        }
        runs = await live_runs(options, hardware, profiles, rates, dict.fromkeys(rates, slo), sources, progress)
        cus = next((dpu.cus for dpu in dpus.values() if dpu is not None), ())
    return AudioReport(
        options=options,
        machine=here,
        workers=hardware.count,
        profiles=profiles,
        rates_rps=rates,
        capacity=capacity,
        slo_s=slo,
        runs=runs,
        cus=cus,
        prepared=prepared,
        step_s=loaded[0].spec.hop / loaded[0].spec.rate,
    )


async def _profile(network: AudioNetwork, prepared: PreparedAudio, options: DemoOptions) -> Profile:
    """Measure the network's profile at a few of the clips' lengths."""
    seconds = np.quantile(prepared.frames, LENGTHS, method="higher") * network.spec.hop / network.spec.rate
    profile = await measure_curve(
        network.source,
        network.weights,
        workers=options.workers,
        max_batch=options.max_batch,
        lengths=sorted({min(float(length), network.spec.longest_s) for length in seconds}),
        limit_s=PROFILE_S,
        rules=options.rules,
    )
    return replace(profile, model=network.name)


def cu_runs(run: Run) -> list[CuRun]:
    """Return the CU runs of all requests of a live run."""
    return [each for record in run.records if record.preprocessed is not None for each in record.preprocessed.runs]


def overlap(runs: Iterable[CuRun]) -> dict[str, float] | None:
    """Return for how many seconds CUs A, CUs B, and both kinds at once were busy.

    Returns None if one of the kinds had no run."""
    busy: dict[str, list[tuple[float, float]]] = {"mel": [], "norm": []}
    for each in runs:
        for kind, spans in busy.items():
            if kind in each.unit:
                spans.append((each.started, each.finished))
    if not busy["mel"] or not busy["norm"]:
        return None
    moments = sorted({moment for spans in busy.values() for span in spans for moment in span})
    seconds = dict.fromkeys((*busy, "both"), 0.0)
    for begin, end in pairwise(moments):
        active = [kind for kind, spans in busy.items() if any(a <= begin and end <= b for a, b in spans)]
        for kind in (*active, *(("both",) if len(active) == len(busy) else ())):
            seconds[kind] += end - begin
    return {"mel_s": seconds["mel"], "norm_s": seconds["norm"], "both_s": seconds["both"]}

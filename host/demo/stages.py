"""`headrace demo`: the main job on real input, each batching policy beside the others and CPU beside DPU preprocessing.

Photos -> every DPU tensor against OpenCV's -> each network's profile and knee -> the load -> one live run for each
preprocessor and policy, with the same Poisson arrivals at the same load -> the same on a simulated server of the
paper's size. The networks run on this machine's workers or,
in modelled time, on simulated NPUs, which node-level policies can interrupt at every node.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.batching import Policy, PolicyContext, Profile, policy_with
from headrace.host.demo.equality import Clocks, Equality, Prepared, prepare
from headrace.host.demo.labels import Label, Labels
from headrace.host.demo.load import run_rates, run_requests
from headrace.host.demo.networks import ImageNetwork
from headrace.host.demo.options import BEFOREHAND, DemoOptions
from headrace.host.demo.serving import Arrivals, Photos, Progress, Run, Source, run_arrivals
from headrace.host.demo.simulated import SIMULATING, Simulated, simulate_images
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import CpuPreprocessor, Preprocessor
from headrace.host.dpu.reference.image import ImageSpec
from headrace.host.live.hardware import Hardware, hardware_of, schedules_nodes
from headrace.host.live.results import Execution
from headrace.host.live.runtime import Runtime
from headrace.host.live.smdp_tables import solve_tables_in_background
from headrace.host.workers.profiling.batches import machine
from headrace.host.xrt import Api
from headrace.sim.workload.traffic import poisson

MAX_IN_FLIGHT = 4096  # of each network; beyond this requests are shed


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What was found out. `prepared`, `profiles` and `labels` are by network, in the order of the options; `rates_rps`
    by preprocessor; `simulated` tells why there is nothing, if so."""

    options: DemoOptions
    machine: dict[str, Any]
    workers: int
    cus: int
    networks: Mapping[str, ImageNetwork]
    prepared: Mapping[str, Prepared]
    profiles: Mapping[str, Profile]
    rates_rps: Mapping[str, float]
    labels: Mapping[str, Mapping[str, Label]]
    runs: Sequence[Run]
    simulated: Simulated | str = ""

    @property
    def hardware(self) -> str:
        """In words."""
        kind = "simulated NPU" if self.options.npus else "worker"
        return f"{self.workers} {kind}{'s' if self.workers > 1 else ''}"

    footnote = "The emulated DPU's time is not a card's."

    @property
    def distinct(self) -> list[Prepared]:
        """Networks that take the same tensors share them."""
        return list({network.spec: self.prepared[name] for name, network in self.networks.items()}.values())

    @property
    def equality(self) -> Equality:
        return Equality.total(prepared.equality for prepared in self.distinct)

    @property
    def clocks(self) -> Clocks | None:
        return Clocks.total(prepared.clocks for prepared in self.distinct)

    @property
    def unequal(self) -> int:
        """Tensors of the DPU that are not OpenCV's."""
        return self.equality.on_dpu - self.equality.equal

    @property
    def unserved(self) -> int:
        return sum(run.result["requests"] - run.result["finished"] for run in self.runs)


def demo(options: DemoOptions, loaded: Sequence[ImageNetwork], xclbin: Path, progress: Progress) -> DemoReport:
    """`loaded` is what `load_networks` made of the options. Raises UsageError for options that cannot be met, and
    WorkerLost if no worker can be started."""
    live = asyncio.run(run_demo(options, loaded, xclbin, progress))
    progress.stage(SIMULATING)
    return replace(live, simulated=simulate_images(options, live.networks, live.prepared, live.runs, live.cus))


async def run_demo(
    options: DemoOptions, loaded: Sequence[ImageNetwork], xclbin: Path, progress: Progress
) -> DemoReport:
    """The live part. Raises as `demo` does."""
    networks = {network.name: network for network in loaded}
    by_node = schedules_nodes(options.policies, options.profiles)
    if by_node and not options.npus:
        progress.stage(f"cutting {' and '.join(networks)} into nodes")
    hardware = hardware_of(loaded, workers=options.workers, npus=options.npus, by_node=by_node, whole=options.whole)
    async with _dpus(xclbin, networks.values(), options.api) as dpus:
        by_spec = {}
        for spec, dpu in dpus.items():
            progress.stage(
                f"DPU tensors of 3x{spec.crop_height}x{spec.crop_width} against OpenCV's", len(options.photos)
            )
            by_spec[spec] = await prepare(dpu, options.photos, progress.step)
        prepared = {name: by_spec[network.spec] for name, network in networks.items()}
        given = {profile.model: profile for profile in options.profiles}
        profiles = {}
        for name in networks:
            if name not in given:
                progress.stage(f"profile of {name} on {hardware.count} {hardware.kind}")
            profiles[name] = given.get(name) or await hardware.profile(name, options.max_batch)
        here = machine()
        rates = run_rates(options, list(profiles.values()), list(prepared.values()), here["cores"])
        labels = Labels({name: None if options.npus else net.description.categories for name, net in networks.items()})
        sources = {
            preprocessor: {
                name: Photos(prepared[name], _preprocessor(preprocessor, network.spec, dpus))
                for name, network in networks.items()
            }
            for preprocessor in options.preprocessors
        }
        runs = await live_runs(options, hardware, profiles, rates, sources, labels.see, progress)
        cus = len(next(iter(dpus.values())).cus)
    return DemoReport(options, here, hardware.count, cus, networks, prepared, profiles, rates, labels.of, runs)


@contextlib.asynccontextmanager
async def _dpus(xclbin: Path, networks: Iterable[ImageNetwork], api: Api | None) -> AsyncIterator[dict[ImageSpec, Dpu]]:
    """A driver for each kind of tensor, all of the same CUs."""
    async with contextlib.AsyncExitStack() as stack:
        specs = {network.spec for network in networks}
        yield {spec: await stack.enter_async_context(Dpu(xclbin, spec, api=api)) for spec in specs}


def _preprocessor(name: str, spec: ImageSpec, dpus: Mapping[ImageSpec, Dpu]) -> Preprocessor[ImageSpec] | None:
    if name == BEFOREHAND:
        return None
    return dpus[spec] if name == "dpu" else CpuPreprocessor(spec)


async def live_runs(
    options: DemoOptions,
    hardware: Hardware,
    profiles: Mapping[str, Profile],
    rates_rps: Mapping[str, float],
    sources: Mapping[str, Mapping[str, Source]],
    on_answer: Callable[[str, str, Any], None],
    progress: Progress,
) -> list[Run]:
    """One for each preprocessor and policy, one after the other on the same workers; `sources` are by preprocessor and
    network, `on_answer` as in `run_arrivals`."""
    times = {name: hardware.times(profile) for name, profile in profiles.items()}

    context = PolicyContext(times, hardware.count, profiles, tables={})

    def policy(name: str) -> Policy:
        return policy_with(name, window_ms=options.window_s * 1e3, max_batch=options.max_batch).build(context)

    policies = [policy(name) for name in options.policies]
    largest = {name: max(policy.largest_batch(name) for policy in policies) for name in profiles}
    arrivals = {name: _arrivals(options, rate, list(profiles)) for name, rate in rates_rps.items()}
    slots = min(MAX_IN_FLIGHT, max(len(planned.at) for planned in arrivals.values()))
    runs = []
    tasks, workers = hardware.serving(largest, slots)
    with contextlib.closing(tasks):
        async with workers as pool:
            for preprocessor in options.preprocessors:
                for name in options.policies:
                    serving, executions = policy(name), list[Execution]()
                    planned = arrivals[preprocessor]
                    progress.stage(f"{preprocessor} + {name}", len(planned.at))
                    async with (
                        Runtime(serving, pool, tasks, on_execution=executions.append) as runtime,
                        solve_tables_in_background(serving, times, profiles, options.max_batch, hardware.count),
                    ):
                        run = await run_arrivals(
                            preprocessor,
                            name,
                            runtime,
                            executions,
                            sources[preprocessor],
                            planned,
                            seed=options.seed,
                            sla_s=options.sla_s,
                            drain_timeout_s=options.drain_timeout_s,
                            on_answer=on_answer,
                            on_done=progress.step,
                        )
                    runs.append(run)
    return runs


def _arrivals(options: DemoOptions, rate_rps: float, models: Sequence[str]) -> Arrivals:
    """Poisson; each request is for one of the networks at random."""
    at = poisson(rate_rps, run_requests(options, rate_rps), options.seed)
    chosen = np.random.default_rng([options.seed, 1]).integers(len(models), size=len(at))
    return Arrivals(at, [models[number] for number in chosen])

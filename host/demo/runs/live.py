"""The steps that the demos of images, audio and sentences share: drivers, profiles, runs and their report."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from headrace.batching import PolicyContext, Profile
from headrace.host.demo.options import BEFOREHAND, PREPROCESSORS, DemoOptions
from headrace.host.demo.runs.load import Capacity, run_requests
from headrace.host.demo.runs.serving import Arrivals, Progress, Run, Source, run_arrivals
from headrace.host.demo.runs.simulated import Simulated
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import CpuPreprocessor, Preprocessor
from headrace.host.dpu.specs import AudioSpec, ImageSpec
from headrace.host.live.hardware import Hardware
from headrace.host.live.results import Execution
from headrace.host.live.runtime import Runtime
from headrace.host.live.smdp_tables import solve_tables_in_background
from headrace.host.xrt import Api
from headrace.sim.workload.traffic import poisson

MAX_IN_FLIGHT = 4096  # requests of each network; the runtime sheds further requests

SpecT = TypeVar("SpecT", ImageSpec, AudioSpec)
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReport:
    """The results that all demos have.

    `profiles` are by network, in the order of the options, and `rates_rps` by preprocessor. `capacity` is that of the
    workers for the networks under which the policies are compared. `simulated` is the reason if there is no simulated
    server."""

    options: DemoOptions
    machine: Mapping[str, Any]
    workers: int
    profiles: Mapping[str, Profile]
    rates_rps: Mapping[str, float]
    capacity: Capacity
    slo_s: float
    runs: Sequence[Run]
    simulated: Simulated | str = ""

    @property
    def hardware(self) -> str:
        """The number and kind of the workers, in words."""
        kind = "simulated NPU" if self.options.npus else "worker"
        return f"{self.workers} {kind}{'s' if self.workers > 1 else ''}"

    @property
    def compared(self) -> list[Run]:
        """The runs that compare the policies."""
        first = min((run.preprocessor for run in self.runs), key=PREPROCESSORS.index)
        return [run for run in self.runs if run.preprocessor == first]

    @property
    def unserved(self) -> int:
        """The number of requests in all runs that did not finish."""
        return sum(run.result["requests"] - run.result["finished"] for run in self.runs)


def distinct(parts: Mapping[str, Part]) -> list[Part]:
    """Return each object among the values once. Networks that take the same tensors share their prepared files."""
    return list({id(part): part for part in parts.values()}.values())


@contextlib.asynccontextmanager
async def open_dpus(
    xclbin: Path | None, specs: Iterable[SpecT], api: Api | None
) -> AsyncIterator[dict[SpecT, Dpu[SpecT] | None]]:
    """Open a driver for each kind of tensor; all drivers share the CUs. They are None without `xclbin`."""
    async with contextlib.AsyncExitStack() as stack:
        yield {
            spec: None if xclbin is None else await stack.enter_async_context(Dpu(xclbin, spec, api=api))
            for spec in dict.fromkeys(specs)
        }


def preprocessor_of(name: str, spec: SpecT, dpu: Dpu[SpecT] | None) -> Preprocessor[SpecT] | None:
    """Return the preprocessor of that name, or None if the tensors were made beforehand."""
    if name == BEFOREHAND:
        return None
    return dpu if name == "dpu" else CpuPreprocessor(spec)


async def take_profiles(
    options: DemoOptions,
    names: Iterable[str],
    measure: Callable[[str], Awaitable[Profile]],
    title: str,
    progress: Progress,
) -> dict[str, Profile]:
    """Return a profile for each network: the one that the options give, or a measured one. `title` ends the progress
    line of the measurement."""
    given = {profile.model: profile for profile in options.profiles}
    profiles = {}
    for name in names:
        if name not in given:
            progress.stage(f"profile of {name} {title}")
        profiles[name] = given.get(name) or await measure(name)
    return profiles


async def live_runs(
    options: DemoOptions,
    hardware: Hardware,
    profiles: Mapping[str, Profile],
    rates_rps: Mapping[str, float],
    slos_s: Mapping[str, float],
    sources: Mapping[str, Mapping[str, Source]],
    progress: Progress,
    *,
    title: Callable[[str, str], str] = "{} + {}".format,
    on_answer: Callable[[str, str, Any], None] = lambda *_: None,
    dec_timesteps: Mapping[str, int] | None = None,
) -> list[Run]:
    """Run the policies of each preprocessor, one run after another on the same workers.

    `sources` are by preprocessor and network, `rates_rps` and `slos_s` by preprocessor. `title` makes a run's progress
    line of its preprocessor and policy. `on_answer` is as in `run_arrivals`."""
    times = {name: hardware.times(profile) for name, profile in profiles.items()}

    steps_of = None if dec_timesteps is None else lambda _: dec_timesteps
    # The tables of `smdp` are solved while it already serves.
    context = PolicyContext(times, hardware.count, profiles, steps_of=steps_of, tables={})
    policies = [options.policy(name).build(context) for name in options.policies]
    max_batch = {name: max(policy.largest_batch(name) for policy in policies) for name in profiles}
    arrivals = {name: _arrivals(options, rate, list(sources[name])) for name, rate in rates_rps.items()}
    slots = min(MAX_IN_FLIGHT, max(len(planned.at) for planned in arrivals.values()))
    runs = []
    tasks, workers = hardware.serving(max_batch, slots)
    with contextlib.closing(tasks):
        async with workers as pool:
            for preprocessor, by_network in sources.items():
                for name in options.policies_of(preprocessor):
                    settings = options.policy(name)
                    serving, executions = settings.build(context), list[Execution]()
                    largest = int(getattr(settings, "max_batch", options.max_batch))
                    planned = arrivals[preprocessor]
                    progress.stage(title(preprocessor, name), len(planned.at))
                    async with (
                        Runtime(serving, pool, tasks, on_execution=executions.append) as runtime,
                        solve_tables_in_background(serving, times, profiles, largest, hardware.count),
                    ):
                        run = await run_arrivals(
                            preprocessor,
                            name,
                            runtime,
                            executions,
                            by_network,
                            planned,
                            seed=options.seed,
                            slo_s=slos_s[preprocessor],
                            drain_timeout_s=options.drain_timeout_s,
                            on_answer=on_answer,
                            on_done=progress.step,
                        )
                    runs.append(run)
    return runs


def _arrivals(options: DemoOptions, rate_rps: float, models: Sequence[str]) -> Arrivals:
    """Return Poisson arrivals. Each request is for one of the networks, at random."""
    at = poisson(rate_rps, run_requests(options, rate_rps), options.seed)
    chosen = np.random.default_rng([options.seed, 1]).integers(len(models), size=len(at))
    return Arrivals(at, [models[number] for number in chosen])

"""A whole server in one run: preprocessing, a GPU cut into slices, and the power and cost of all of it.

The server is PREBA's (Section 5): one CPU, one GPU, and a DPU card if that preprocesses the inputs. Requests pass the
preprocessor's steps, wait in the policy and run on a slice. Each slice has a server process of its own. It keeps a core
of the CPU while a batch runs, because an eager framework launches its kernels from there.

A policy that knows one set of node times (`lazy`, `smdp`, all but `preba`) receives those of the slowest slice. Its
predictions are then on the safe side for the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import ceil, inf
from pathlib import Path
from typing import Any, Final

import numpy as np

from headrace.batching.errors import OutOfMemory, UsageError
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.profile import Profile
from headrace.batching.graphs.traced import Traced
from headrace.batching.policy import Policy
from headrace.sim.engine import Arrivals
from headrace.sim.hardware import cpu
from headrace.sim.hardware.gpu import power
from headrace.sim.hardware.gpu.mig import Gpu, Instance, InstanceProfile, gpu_named, partition
from headrace.sim.hardware.gpu.slice import PREBA, PRECISIONS, check_fits, slice_of, slice_profile, slice_times
from headrace.sim.hardware.inputs import UNITS, KnownImages, usual
from headrace.sim.preprocessing import Preprocessor, Sizes, Times
from headrace.sim.simulation import Simulation
from headrace.sim.system import cost
from headrace.sim.system.preprocessors import COSTS, Host, parse, read_costs
from headrace.sim.system.processors import inputs_of
from headrace.sim.workload.images import ImageSizes, Pixels, draw
from headrace.sim.zoo.traced import traced

CORES: Final = 32  # the cores of a CPU, EPYC 7502
SERVER: Final = replace(PREBA, copy_bytes_s=inf)  # after preprocessing, inputs are on the GPU


@dataclass(frozen=True, slots=True)
class System:
    """A server with its networks.

    `slices` are the instances that serve, each a worker, of a GPU with all its `instances`. The image of a request is
    one of `images`, by `image_weights` if there are any. `images` has pixels, or numbers of images that are known.
    `precision` is one of PRECISIONS."""

    gpu: Gpu
    instances: tuple[Instance, ...]
    slices: tuple[Instance, ...]
    networks: tuple[Traced, ...]
    preprocessor: Preprocessor
    cores: int
    images: Pixels
    image_weights: Pixels | None
    precision: str
    prices_usd: Mapping[str, float]

    @classmethod
    def of(
        cls,
        accelerator: str,
        models: Sequence[str],
        *,
        parts: str | None = None,
        preprocess: str = "ideal",
        active_slices: int | None = None,
        cpu_costs: Path | None = None,
        image_sizes: int | ImageSizes,
        processor: str | None = None,
        precision: str,
        prices: str | None = None,
    ) -> "System":
        """Return the server that these settings describe.

        Args:
            accelerator: The name of the GPU.
            models: The names of traced networks.
            parts: The partition, as `mig.partition` takes it; None for as many of the smallest slice as fit.
            preprocess: The preprocessor, as `preprocessors.parse` takes it.
            active_slices: How many slices serve; None for all.
            cpu_costs: A file with costs of the CPU.
            image_sizes: The pixels of all images, or sizes of several.
            processor: The processor, as `processors.inputs_of` takes it. That of images needs sizes.
            precision: One of PRECISIONS.
            prices: The prices of parts, as `cost.given_prices` takes them.

        Raises:
            UsageError: A setting is out of range, or the settings do not fit each other.
        """
        if precision not in PRECISIONS:
            raise UsageError(f"--precision {precision!r}: choose from {', '.join(PRECISIONS)}")
        gpu = gpu_named(accelerator)
        smallest = next(iter(gpu.profiles.values()))
        instances = partition(gpu, f"{smallest.name}:{smallest.max_count}" if parts is None else parts)
        # The largest come first, because an idle one is offered work before the others.
        instances = tuple(sorted(instances, key=lambda each: -each.profile.sms))
        active = len(instances) if active_slices is None else active_slices
        if not 1 <= active <= len(instances):
            raise UsageError(f"--active-slices {active}: give 1 to {len(instances)}, which the partition has")
        networks = tuple(traced(name) for name in models)
        audio = [network.name for network in networks if network.step_s is not None]
        if audio and len(audio) < len(networks):
            raise UsageError(f"--model {','.join(models)}: give networks that take audio, or others, but not both")
        tokens = [network.name for network in networks if network.step_s is None and len(network.graphs) > 1]
        if tokens and preprocess != "ideal":
            raise UsageError(f"--preprocess {preprocess}: {tokens[0]} takes text; give ideal")
        sizes = None if isinstance(image_sizes, int) else image_sizes
        images = np.array([image_sizes], np.float64) if sizes is None else sizes.pixels
        kind = "audio" if audio else "image"
        if processor is None or preprocess == "ideal":
            inputs = usual(kind)
        else:
            inputs = inputs_of(processor, kind, sizes, preprocess)
        if isinstance(inputs, KnownImages):
            images = np.arange(len(inputs.images), dtype=np.float64)
        host = Host(
            inputs,
            gpu,
            instances[:active],
            taken=active,
            costs=COSTS if cpu_costs is None else (read_costs(cpu_costs), *COSTS),
        )
        try:
            preprocessor = parse(preprocess, host)
        except UsageError as error:
            raise UsageError(f"--preprocess: {error}") from error
        try:
            prices_usd = cost.given_prices(prices)
        except UsageError as error:
            raise UsageError(f"--prices: {error}") from error
        name, *words = preprocess.split(":")
        cores = int(words[0]) if name == "cpu" else CORES
        return cls(
            gpu,
            instances,
            instances[:active],
            networks,
            preprocessor,
            cores,
            images,
            None if sizes is None else sizes.weight,
            precision,
            prices_usd,
        )

    def times(self) -> list[dict[str, NodeTimes]]:
        """Return the node times by model, for each worker."""
        return [self._times_of(each.profile) for each in self.slices]

    def slowest_times(self) -> dict[str, NodeTimes]:
        return self._times_of(min((each.profile for each in self.slices), key=lambda profile: profile.sms))

    def profiles(self) -> dict[str, Profile] | list[dict[str, Profile]]:
        """Return the profiles by model, for each worker, or once for all if they are equal."""
        kinds = {each.profile.name for each in self.slices}
        if len(kinds) == 1:
            return self._profiles_of(self.slices[0].profile, len(self.slices))
        return [self._profiles_of(each.profile, 1) for each in self.slices]

    def _times_of(self, profile: InstanceProfile) -> dict[str, NodeTimes]:
        return {
            network.name: _slice_times(network.name, self.gpu.name, profile.name, self.precision)
            for network in self.networks
        }

    def _profiles_of(self, profile: InstanceProfile, workers: int) -> dict[str, Profile]:
        return {
            network.name: _slice_profile(network.name, self.gpu.name, profile.name, workers, self.precision)
            for network in self.networks
        }

    def sizes(self, seed: int) -> Sizes:
        """Return the function that gives the sizes of requests: seconds of audio, or pixels.

        Images are drawn by `seed`, in the order of arrival. Each request has the same image whether requests come
        together or in blocks."""
        step_s, rng = (
            self._step_s,
            np.random.default_rng((seed, 3)),
        )  # 1 and 2 draw models and lengths (traffic.generate)

        def seconds(arrivals: Arrivals) -> Times:
            found: Times = np.array(arrivals.input_len) * np.array([step_s[model] for model in arrivals.models])
            return found

        def pixels(arrivals: Arrivals) -> Times:
            return draw(self.images, len(arrivals.models), rng, self.image_weights)

        return seconds if step_s else pixels

    @property
    def _step_s(self) -> dict[str, float]:
        """Return the seconds of a step by name, for the networks that take audio."""
        return {network.name: network.step_s for network in self.networks if network.step_s is not None}

    def capacity_rps(self, typical: Mapping[str, tuple[float, int]], shares: Mapping[str, float]) -> dict[str, float]:
        """Return the greatest rate of each step of preprocessing, and of the slices in full batches.

        A step's mean time is that of all images. For audio it is that of the typical clip, because it grows on a line
        with the seconds.

        Args:
            typical: The lengths of input and output by model.
            shares: The probability of each model.
        """
        weights = [shares[model] for model in typical]
        sizes, of = self.images, self.image_weights
        if self._step_s:
            sizes = np.array([length * self._step_s[model] for model, (length, _) in typical.items()])
            of = np.array(weights)
        rates = {
            f"{step.name!r} of {self.preprocessor.name}": step.servers
            / float(np.average(step.service_s(sizes), weights=of))
            for step in self.preprocessor.steps
        }
        profiles = self.profiles()
        total = 0.0
        for known in [profiles] if isinstance(profiles, dict) else profiles:
            best = [max(p.throughput_rps for p in known[model].curve(length)) for model, (length, _) in typical.items()]
            total += 1 / sum(weight / rate for weight, rate in zip(weights, best, strict=True))
        rates[f"{len(self.slices)} slices"] = total
        return rates

    def launch_share(self, batch: int, typical: Mapping[str, tuple[float, int]], shares: Mapping[str, float]) -> float:
        """Return the share of the slices' time, for such batches, that launching the kernels adds."""
        launched = at_once = 0.0
        for each, (model, length) in product(self.slices, typical.items()):
            known = _slice_times(model, self.gpu.name, each.profile.name, self.precision)
            where = slice_of(self.gpu, each.profile)
            launched += shares[model] * known.whole(batch, *length)
            at_once += shares[model] * slice_times(
                traced(model), where, replace(SERVER, launch_s=0.0), PRECISIONS[self.precision]
            ).whole(batch, *length)
        return 1 - at_once / launched

    def machine(self) -> power.Server:
        return power.server(self.gpu.name, fpga="fpga" in self.parts(), cpus=1 + self.parts().count("cpu"))

    def parts(self) -> list[str]:
        """Return what is bought, by names in `cost.PRICES_USD`. A CPU has CORES, so further cores come with a further
        CPU."""
        fpga = any(step.name in UNITS for step in self.preprocessor.steps)
        return ["node", *["cpu"] * (ceil(self.cores / CORES) - 1), self.gpu.name, *(["fpga"] if fpga else [])]

    def check_memory(self, policy: Policy, longest: Mapping[str, float]) -> None:
        """Raise OutOfMemory if a slice does not hold the policy's largest batch of the `longest` inputs by model."""
        precision = PRECISIONS[self.precision]
        for network, each in product(self.networks, {each.profile.name: each for each in self.slices}.values()):
            batch = policy.largest_batch(network.name)
            try:
                check_fits(network, batch, longest[network.name], slice_of(self.gpu, each.profile), precision)
            except OutOfMemory as error:
                raise OutOfMemory(f"--partition, --max-batch: {error}") from error

    def reported(self, done: Simulation) -> dict[str, Any]:
        """Return the result of a run with the utilization, power, energy and cost of the server.

        It adds `part_utilization`, `power_w` (average), `energy_j`, `energy_per_request_j` and `cost`."""
        result = dict(done.result)
        finished, rate = result["finished"], result["throughput_rps"]
        if not (isinstance(finished, int) and isinstance(rate, float)):
            return result  # nothing was served
        span_s = finished / rate
        steps = result.get("preprocess_utilization") or {}
        assert isinstance(steps, dict)
        busy = [min(1.0, seconds / span_s) for seconds in done.outcome.worker_busy_s]
        at_work = {step.name: step.servers * (steps[step.name] or 0.0) for step in self.preprocessor.steps}
        units = [step.name for step in self.preprocessor.steps if step.name in UNITS]
        used = {
            "cpu": cpu.utilization(self.cores, at_work.get("cpu", 0.0), sum(busy)),
            "gpu": power.gpu_utilization(self.gpu, self.instances, [*busy, *[0.0] * (len(self.instances) - len(busy))]),
        }
        if units:
            used["fpga"] = float(np.mean([min(1.0, steps[name] or 0.0) for name in units]))
        machine = self.machine()
        drawn = machine.power_w(used)
        total = sum(drawn.values())
        result["energy_j"] = sum(machine.energy_j(used, span_s).values())
        result["power_w"] = {**drawn, "total": total}
        result["part_utilization"] = used
        result["energy_per_request_j"] = power.energy_a_request_j(drawn, rate)
        prices = self.prices_usd
        bought = cost.cost(rate, total, self.parts(), prices_usd=prices, usd_a_kwh=prices[cost.KWH])
        result["cost"] = {
            "capex_usd": bought.capex_usd,
            "opex_usd": bought.opex_usd,
            "requests_per_usd": bought.requests_a_usd,
        }
        return result


@cache
def _slice_times(network: str, gpu: str, profile: str, precision: str) -> NodeTimes:
    of = gpu_named(gpu)
    return slice_times(traced(network), slice_of(of, of.profiles[profile]), SERVER, PRECISIONS[precision])


@cache
def _slice_profile(network: str, gpu: str, profile: str, workers: int, precision: str) -> Profile:
    of = gpu_named(gpu)
    return slice_profile(traced(network), slice_of(of, of.profiles[profile]), workers, SERVER, PRECISIONS[precision])

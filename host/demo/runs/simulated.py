"""Simulate the same inputs, arrivals and policy on a server of the size of PREBA's, after the live runs.

The emulated DPU runs on the cores that a card would relieve, so the live runs cannot show what a card brings. In the
simulation, the DPU's units at their clock, or the CPU's 32 cores, preprocess for an A100 in seven slices (PREBA,
Section 5; sim/system/system.py). Two costs of each input are known: the clocks of its CU, from hw_emu or the cycle
model, and its time on one of this machine's cores, which is measured first. Everything else is modelled, and every
report says so.

The live arrivals are far too slow for seven slices. So the simulation runs twice: with the live arrivals, and with
arrivals so much faster that the CPU's cores are full, or the slices if those are full first. The load is LOADED of what
both sustain, so that latencies can be compared. The fast arrivals repeat until they suffice for a 99th percentile.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace.batching import HeadraceError, Policy, PolicyContext, Profile, UsageError, find_policy
from headrace.host.demo.inputs.prepared_audio import PreparedAudio
from headrace.host.demo.inputs.prepared_images import PreparedImages
from headrace.host.demo.networks import ImageNetwork
from headrace.host.demo.options import DemoOptions
from headrace.host.demo.runs.core_time import core_seconds
from headrace.host.demo.runs.load import Capacity, mean_rate, slo_s
from headrace.host.demo.runs.serving import Run
from headrace.host.demo.runs.simulated_inputs import Input, Inputs, audio_inputs, image_inputs
from headrace.sim.engine import Arrivals
from headrace.sim.experiments.preba.conditions import CPU_CORES, GPU, SEVENTHS
from headrace.sim.hardware.inputs import UNITS, usual
from headrace.sim.hardware.pcie import FPGA_LINK, to_device
from headrace.sim.hardware.settings import PRECISION
from headrace.sim.preprocessing import Preprocessor, Step
from headrace.sim.simulation import simulate
from headrace.sim.system.card import HBM_PORTS, MASTERS
from headrace.sim.system.dpu_server import CLOCK_HZ, START_S
from headrace.sim.system.preprocessors import Host, parse
from headrace.sim.system.system import System

SIMULATING: Final = "the same on a simulated server"
LOADED: Final = 0.9  # share of the rate that the slices, in batches of the knee, and the CPU's cores sustain
REQUESTS: Final = 20_000  # at that load, or those of the live run if they are more
KEPT_UP: Final = 0.95  # share of the arrival rate; a server that serves less has a growing queue
MAX_CUS: Final = HBM_PORTS // MASTERS["image cu"]  # on a card; its LUTs may allow fewer

MEASURED: Final = "cpu (measured here)"
IMPLIED: Final = "cpu (paper-implied)"


@dataclass(frozen=True, slots=True)
class Server:
    """One way to preprocess, at one load. `result` has the result keys of every Headrace run.

    `limited_by` is the part that cannot keep up. The latencies then say only how long the run was."""

    name: str
    preprocess: str
    result: Mapping[str, Any]
    busy_cores: float
    limited_by: str | None


@dataclass(frozen=True, slots=True)
class Load:
    """The live run's arrivals, `faster` times as fast."""

    rate_rps: float
    requests: int
    faster: float
    servers: tuple[Server, ...]


@dataclass(frozen=True, slots=True)
class Simulated:
    """The results of the simulated part.

    `capacity_rps` is the rate that the slices sustain in batches of the knee, or one by one if the policy makes no
    batches. `cpu_rps` is the rate of the cores that preprocess. `core_ms` is the mean time of an input on a core.
    `clocks_from` counts the inputs by the source of their
    clocks, and `for_cpu` the inputs that the DPU does not take."""

    what: str  # "photos" or "sounds"
    models: tuple[str, ...]
    policy: str
    capacity_rps: float
    cpu_rps: float
    core_ms: float
    cus: str
    clocks_from: Mapping[str, int]
    for_cpu: int
    loads: tuple[Load, Load]

    @property
    def loaded(self) -> Load:
        """The load at which the CPU or the slices are nearly full."""
        return self.loads[-1]

    @property
    def full(self) -> str:
        """The part that limits the load: "cores" or "slices"."""
        return "cores" if self.cpu_rps < self.capacity_rps else "slices"

    def by_name(self, name: str) -> Server:
        """Return one of the servers at the load that nearly fills a part."""
        return next(server for server in self.loaded.servers if server.name == name)

    @property
    def server(self) -> str:
        return f"{GPU} in {SEVENTHS}, {CPU_CORES} cores, {self.policy}"


def simulate_images(
    options: DemoOptions,
    networks: Mapping[str, ImageNetwork],
    prepared: Mapping[str, PreparedImages],
    run: Run,
    cus: int,
) -> Simulated | str:
    """Simulate the arrivals and photos of a live run. Returns the reason if that is not possible. `cus` counts the
    emulated DPU's CUs."""
    return _simulated_or_reason(options, partial(image_inputs, networks, prepared), run, (cus,))


def simulate_audio(
    options: DemoOptions, prepared: Mapping[str, PreparedAudio], run: Run, cus: tuple[int, int]
) -> Simulated | str:
    """Simulate the arrivals and clips of a live run. Returns the reason if that is not possible. `cus` counts the
    emulated DPU's CUs A and B."""
    return _simulated_or_reason(options, partial(audio_inputs, prepared), run, cus)


def _simulated_or_reason(
    options: DemoOptions, inputs_of: Callable[[Run], Inputs], run: Run, emulated: tuple[int, ...]
) -> Simulated | str:
    try:
        return _simulated(options, inputs_of(run), run, emulated)
    except HeadraceError as error:
        return str(error)


def _simulated(options: DemoOptions, inputs: Inputs, run: Run, emulated: tuple[int, ...]) -> Simulated:
    """Simulate both loads with each server. `emulated` counts the CUs by kind. Raises HeadraceError."""
    names = inputs.traced_names
    system = System.of(GPU, list(names.values()), parts=SEVENTHS, image_sizes=1, precision=PRECISION)
    name = "preba" if "preba" in options.policies else options.policies[-1]
    times, profiles = system.slowest_times(), system.profiles()
    assert isinstance(profiles, dict)  # all slices are equal

    context = PolicyContext(times, len(system.slices), profiles)

    def policy() -> Policy:
        return options.policy(name).build(context)

    known = list(inputs.by_name.values())
    index_of = {key: index for index, key in enumerate(inputs.by_name)}
    indexes = np.array([index_of[record.model, record.input] for record in run.records])
    models = [names[record.model] for record in run.records]
    lengths = [known[index].length for index in indexes]
    if not find_policy(name).limits_from_profile:  # profiles end where the memory does
        try:
            system.check_memory(policy(), {model: max(lengths) for model in names.values()})
        except UsageError as error:  # its message begins with options that the demo does not have
            raise UsageError(f"--max-batch {options.max_batch}: {error.__cause__}") from error
    capacity = _capacity(policy(), profiles, models, lengths)
    kind = "audio" if inputs.what == "sounds" else "image"
    host = Host(usual(kind), system.gpu, system.slices, taken=len(system.slices))
    core_s = np.array(core_seconds([each.preprocess for each in known]))
    dpu, cus = _dpu(host, known, core_s, indexes, capacity, emulated)
    servers = {
        "ideal": Preprocessor("ideal", ()),
        "dpu": dpu,
        MEASURED: _tabulated(parse(f"cpu:{CPU_CORES}", host), known, {"cpu": core_s}),
        IMPLIED: _tabulated(parse(f"cpu:{CPU_CORES}:paper-implied", host), known, {}),
    }
    at = np.array([record.arrival for record in run.records])
    mean_s = (at[-1] - at[0]) / (len(at) - 1) if len(at) > 1 and at[-1] > at[0] else 1.0
    gaps = np.diff(at, prepend=at[0] - mean_s)
    slo = slo_s(options, Capacity.of(zip(map(profiles.__getitem__, models), lengths, strict=True)))
    cpu_rps = (CPU_CORES - host.taken) / float(core_s[indexes].mean())
    loads = []
    for faster, times_over in ((1.0, 1), (LOADED * min(capacity, cpu_rps) * mean_s, ceil(REQUESTS / len(at)))):
        arrival = np.cumsum(np.tile(gaps, times_over)) / faster
        sent = Arrivals(
            models * times_over,
            arrival.tolist(),
            (arrival + slo).tolist(),
            lengths * times_over,
            [1] * len(arrival),
        )
        sizes = np.tile(indexes, times_over).astype(np.float64)
        rate = faster / mean_s
        loads.append(
            Load(
                rate,
                len(arrival),
                faster,
                tuple(
                    _server(label, replace(system, preprocessor=each), policy(), sent, sizes, rate)
                    for label, each in servers.items()
                ),
            )
        )
    return Simulated(
        inputs.what,
        tuple(names.values()),
        name,
        capacity,
        cpu_rps,
        1e3 * float(core_s[indexes].mean()),
        cus,
        inputs.clocks_from,
        sum(not each.clocks for each in known),
        (loads[0], loads[1]),
    )


def _capacity(
    policy: Policy, profiles: Mapping[str, Profile], models: Sequence[str], lengths: Sequence[float]
) -> float:
    """Return the rate (requests/s) that all slices sustain."""
    rates = []
    for model, length in zip(models, lengths, strict=True):
        alone = policy.largest_batch(model) == 1
        point = profiles[model].curve(length)[0] if alone else profiles[model].knee(length)
        rates.append(point.throughput_rps)
    return mean_rate(rates)


def _dpu(
    host: Host,
    inputs: Sequence[Input],
    core_s: NDArray[np.float64],
    indexes: NDArray[np.int64],
    capacity: float,
    emulated: tuple[int, ...],
) -> tuple[Preprocessor, str]:
    """Return the DPU as a preprocessor, and its CUs in words.

    It has as many CUs of each kind as keep up with the slices, but at least as many as the emulated DPU. Inputs that it
    does not take go on to the CPU."""
    taken = np.array([bool(each.clocks) for each in inputs])
    file_bytes = np.array([each.file_bytes for each in inputs], np.float64)
    base = parse("dpu:1", host)
    units = [step.name for step in base.steps if step.name in UNITS]
    link = to_device(base.steps[0].name, FPGA_LINK, lambda _: file_bytes)
    clocks = np.array([each.clocks or (0,) * len(units) for each in inputs])
    better = {link.name: link.service_s(file_bytes)}
    better |= {unit: START_S["kernel"] + clocks[:, number] / CLOCK_HZ for number, unit in enumerate(units)}
    known = _tabulated(base, inputs, better)
    numbers = np.arange(len(inputs), dtype=np.float64)
    steps: list[Step] = []
    counts: list[int] = []
    for step in known.steps:
        # For an input that the DPU does not take, the first unit reads the header, and there is no tensor on the DPU.
        seconds = step.service_s(numbers)
        if step.name not in (link.name, units[0], known.steps[-1].name):
            seconds = np.where(taken, seconds, 0.0)
        servers = step.servers
        if step.name in units:
            needed = ceil(capacity * float(seconds[indexes].mean()))
            servers = max(emulated[len(counts)], min(needed, MAX_CUS))
            counts.append(servers)
        steps.append(_step(step.name, servers, seconds))
        if step.name == units[-1] and not taken.all():
            steps.append(_step("cpu", CPU_CORES - host.taken, np.where(taken, 0.0, core_s)))
    kinds = ("",) if len(counts) == 1 else (" A", " B")
    words = " and ".join(
        f"{count} CU{'s' if count > 1 else ''}{kind}" for count, kind in zip(counts, kinds, strict=True)
    )
    return Preprocessor(f"dpu:{','.join(map(str, counts))}", tuple(steps)), words


def _tabulated(
    preprocessor: Preprocessor, inputs: Sequence[Input], better: Mapping[str, NDArray[np.float64]]
) -> Preprocessor:
    """Return the preprocessor for requests whose size is the index of their input.

    `better` has the seconds of each input for the steps that it names; the others follow from the inputs' sizes."""
    sizes = np.array([each.size for each in inputs])
    steps = [
        _step(step.name, step.servers, better.get(step.name, step.service_s(sizes))) for step in preprocessor.steps
    ]
    return Preprocessor(preprocessor.name, tuple(steps))


def _step(name: str, servers: int, seconds: NDArray[np.float64]) -> Step:
    """Return a step that takes `seconds[index]` for a request whose size is an index."""

    def service_s(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        taken: NDArray[np.float64] = seconds[sizes.astype(np.int64)]
        return taken

    return Step(name, servers, service_s)


def _server(
    label: str, system: System, policy: Policy, sent: Arrivals, sizes: NDArray[np.float64], rate: float
) -> Server:
    """Simulate one server at one load."""
    done = simulate(
        policy, sent, system.times(), len(system.slices), preprocessor=system.preprocessor, sizes=lambda _: sizes
    )
    result = system.reported(done)
    load = {step.name: rate * float(step.service_s(sizes).mean()) / step.servers for step in system.preprocessor.steps}
    limited_by = max(load, key=lambda name: load[name], default=None)
    if limited_by is None or load[limited_by] <= 1:
        limited_by = None if result["throughput_rps"] >= KEPT_UP * rate else "slices"
    busy = result["part_utilization"]["cpu"] * system.cores
    return Server(label, system.preprocessor.name, result, busy, limited_by)

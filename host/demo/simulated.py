"""After the live part: the same inputs, arrivals and policy on a simulated server of the size of PREBA's.

The emulated DPU runs on the cores that it is to relieve, so live runs cannot tell what a card brings. Here its units,
at their clock, or the CPU's 32 cores stand in front of an A100 in seven slices (PREBA, Section 5;
sim/system/system.py). What an input takes is known: the clocks of its CU, as hw_emu has counted them or as the cycle
model has it, and what it takes one of this machine's cores, which is measured first. Nothing else of this is run, and
every report says so.

The live arrivals are far below what seven slices can do. So they come once as they were, and once as many times faster
as it takes to load the slices, over and over, so that there are enough of them for a 99th percentile.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.batching import (
    HeadraceError,
    Policy,
    PolicyContext,
    Profile,
    UnsupportedInput,
    UsageError,
    find_policy,
    policy_with,
)
from headrace.host.demo import equality
from headrace.host.demo.inputs.audio import AudioClip
from headrace.host.demo.inputs.images import Photo
from headrace.host.demo.networks import ImageNetwork
from headrace.host.demo.options import BEFOREHAND, DemoOptions
from headrace.host.demo.serving import Run
from headrace.host.dpu.reference import audio, audio_file, image
from headrace.host.dpu.reference.audio import AudioSpec
from headrace.host.dpu.reference.image import ImageSpec
from headrace.host.dpu.units.run_limits import SOS
from headrace.sim.engine import Arrivals
from headrace.sim.experiments.preba.conditions import CPU_CORES, GPU, SEVENTHS
from headrace.sim.hardware.dpu.audio import TARGET_HZ, mel_cu_cycles
from headrace.sim.hardware.dpu.image import image_cu_cycles
from headrace.sim.hardware.dpu.jpeg import read_jpeg_work
from headrace.sim.hardware.inputs import estimated_clocks
from headrace.sim.hardware.pcie import FPGA_LINK, to_device
from headrace.sim.preprocessing import Preprocessor, Step
from headrace.sim.simulation import simulate
from headrace.sim.system.card import HBM_PORTS, MASTERS
from headrace.sim.system.dpu_server import CLOCK_HZ, START_S, UNITS
from headrace.sim.system.preprocessors import Host, parse
from headrace.sim.system.system import PRECISION, System
from headrace.sim.zoo.traced import traced

SIMULATING: Final = "the same on a simulated server"
LOADED: Final = 0.8  # of what the slices do in batches of the knee
REQUESTS: Final = 20_000  # at that load, or the live run's if those are more
KEPT_UP: Final = 0.95  # of the rate: what serves less than that has a queue that grows
MAX_CUS: Final = HBM_PORTS // MASTERS["image cu"]  # of a card, before LUTs end it
MODELLED_BYTES: Final = 2_500_000  # of scans by the cycle model, which takes some 0.6 s for 1 MB in each

ROUNDS: Final = 10
MEASURING_S: Final = 1.0  # a round that has begun is ended

MEASURED: Final = "cpu (measured here)"
IMPLIED: Final = "cpu (paper-implied)"


@dataclass(frozen=True, slots=True)
class Input:
    """What is known of one for a network: `length` in the network's unit, `size` in pixels (1 where the DPU has not
    told) or seconds, `clocks` of the first CU, or 0 of what the DPU does not take, which is then for the CPU.
    `preprocess` does so on a core."""

    length: float
    size: float
    file_bytes: int
    clocks: int
    preprocess: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Server:
    """One way to preprocess at one load: `result` has the result keys of every Headrace run. `limited_by` is what
    cannot keep up, so that latencies tell no more than how long the run was."""

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
    """`capacity_rps` is what the slices do in batches of the knee, or one by one if the policy makes no batches;
    `clocks_from` counts inputs by where their clocks are from; `for_cpu` are those that the DPU does not take."""

    what: str  # "photos" or "sounds"
    models: tuple[str, ...]
    policy: str
    capacity_rps: float
    core_ms: float
    cus: str
    clocks_from: Mapping[str, int]
    for_cpu: int
    loads: tuple[Load, Load]

    @property
    def server(self) -> str:
        return f"{GPU} in {SEVENTHS}, {CPU_CORES} cores, {self.policy}"


def simulate_images(
    options: DemoOptions,
    networks: Mapping[str, ImageNetwork],
    prepared: Mapping[str, equality.Prepared],
    runs: Sequence[Run],
    cus: int,
) -> Simulated | str:
    """`cus` are those of the emulated DPU. Why there is nothing to simulate, if so."""
    try:
        sizes = {f"{net.spec.crop_height}x{net.spec.crop_width}" for net in networks.values()} - {"224x224"}
        if sizes:
            raise UsageError(f"preprocessing is simulated for tensors of 224x224, and not of {' and '.join(sizes)}")
        run = _from_files(runs)
        places = {model: _places(part.photos) for model, part in prepared.items()}
        clocks_from = Counter[str]()
        inputs = {}
        left = MODELLED_BYTES
        for model, name in dict.fromkeys((record.model, record.input) for record in run.records):
            part, place = prepared[model], places[model][name]
            jpeg, seen, spec = part.photos[place].jpeg, part.seen[place], networks[model].spec
            source, clocks = _image_clocks(jpeg, seen, spec, left)
            left -= _modelled_bytes(jpeg) if source == "the cycle model" else 0
            clocks_from.update([source] if clocks else [])
            pixels = 1 if seen is None else seen.pixels
            inputs[model, name] = Input(1.0, pixels, len(jpeg), clocks, partial(image.preprocess, jpeg, spec))
        return _simulated("photos", options, {name: name for name in networks}, inputs, run, (cus,), clocks_from)
    except HeadraceError as error:
        return str(error)


def _image_clocks(jpeg: bytes, seen: equality.Seen | None, spec: ImageSpec, left: int) -> tuple[str, int]:
    """Where they are from; the cycle model is for no more than `left` bytes."""
    if seen is None:
        return "", 0
    if seen.cycles is not None:
        return "hw_emu", seen.cycles
    if _modelled_bytes(jpeg) <= left:
        try:
            return "the cycle model", image_cu_cycles(read_jpeg_work(jpeg), resize_short=spec.resize_short)
        except UsageError:  # damaged where the CU did not look, below the crop
            pass
    return "pixels and bytes", round(float(estimated_clocks(np.array(seen.pixels), np.array(len(jpeg)))))


def _modelled_bytes(jpeg: bytes) -> int:
    """Each scan is a pass over the image."""
    return len(jpeg) * jpeg.count(SOS)


class SpeechPrepared(Protocol):
    """What is needed of the sounds that speech.py has prepared."""

    @property
    def sounds(self) -> Sequence[AudioClip]: ...
    @property
    def frames(self) -> Sequence[int]: ...


def simulate_audio(
    options: DemoOptions,
    prepared: Mapping[str, SpeechPrepared],
    specs: Mapping[str, AudioSpec],
    traced_as: Mapping[str, str],
    runs: Sequence[Run],
    cus: tuple[int, int],
) -> Simulated | str:
    """`traced_as` gives the traced network of each that is not called the same; `cus` are A and B of the emulated DPU.
    Why there is nothing to simulate, if so."""
    try:
        run = _from_files(runs)
        names = {model: traced_as.get(model, model) for model in prepared}
        places = {model: _places(part.sounds) for model, part in prepared.items()}
        clocks_from = Counter[str]()
        inputs = {}
        for model, name in dict.fromkeys((record.model, record.input) for record in run.records):
            part, place, spec = prepared[model], places[model][name], specs[model]
            data = part.sounds[place].data
            try:
                header = audio_file.pcm(data, spec.rates, spec.longest_s)
                clocks = mel_cu_cycles(header.frames, header.rate, loads_taps=header.rate != TARGET_HZ)
            except UnsupportedInput:
                clocks = 0
            clocks_from.update(["the cycle model"] if clocks else [])
            seconds = part.frames[place] * spec.hop / spec.rate
            step_s = traced(names[model]).step_s
            if step_s is None:
                raise UsageError(f"{names[model]} takes no sounds")
            work = partial(audio.preprocess, data, spec)
            inputs[model, name] = Input(seconds / step_s, seconds, len(data), clocks, work)
        return _simulated("sounds", options, names, inputs, run, cus, clocks_from)
    except HeadraceError as error:
        return str(error)


def _places(files: Sequence[Photo | AudioClip]) -> dict[str, int]:
    return {file.name: place for place, file in enumerate(files)}


def _from_files(runs: Sequence[Run]) -> Run:
    """Whose arrivals are taken: of files, if there is such a run."""
    return next((run for run in runs if run.preprocessor != BEFOREHAND), runs[0])


def _simulated(
    what: str,
    options: DemoOptions,
    names: Mapping[str, str],
    inputs: Mapping[tuple[str, str], Input],
    run: Run,
    emulated: tuple[int, ...],
    clocks_from: Mapping[str, int],
) -> Simulated:
    """`names` are those of the traced networks, by the live ones'; `emulated` are CUs by kind. Raises HeadraceError."""
    system = System.of(GPU, list(names.values()), parts=SEVENTHS, image_pixels=1, precision=PRECISION)
    name = "preba" if "preba" in options.policies else options.policies[-1]
    times, profiles = system.slowest_times(), system.profiles()
    assert isinstance(profiles, dict)  # all slices are equal

    chosen = policy_with(name, window_ms=options.window_s * 1e3, max_batch=options.max_batch)
    context = PolicyContext(times, len(system.slices), profiles)

    def policy() -> Policy:
        return chosen.build(context)

    table = {key: place for place, key in enumerate(inputs)}
    places = np.array([table[record.model, record.input] for record in run.records])
    known = list(inputs.values())
    models = [names[record.model] for record in run.records]
    lengths = [known[place].length for place in places]
    if not find_policy(name).limits_from_profile:  # profiles end where memory does
        try:
            system.check_memory(policy(), {model: max(lengths) for model in names.values()})
        except UsageError as error:  # which begins with options that the demo does not have
            raise UsageError(f"--max-batch {options.max_batch}: {error.__cause__}") from error
    capacity = _capacity(policy(), profiles, models, lengths)
    host = Host("audio" if what == "sounds" else "image", system.gpu, system.slices, taken=len(system.slices))
    core_s = np.array(core_seconds([each.preprocess for each in known]))
    dpu, cus = _dpu(host, known, core_s, places, capacity, emulated)
    servers = {
        "ideal": Preprocessor("ideal", ()),
        "dpu": dpu,
        MEASURED: _tabulated(parse(f"cpu:{CPU_CORES}", host), known, {"cpu": core_s}),
        IMPLIED: _tabulated(parse(f"cpu:{CPU_CORES}:paper-implied", host), known, {}),
    }
    at = np.array([record.arrival for record in run.records])
    mean_s = (at[-1] - at[0]) / (len(at) - 1) if len(at) > 1 and at[-1] > at[0] else 1.0
    gaps = np.diff(at, prepend=at[0] - mean_s)
    loads = []
    for faster, times_over in ((1.0, 1), (LOADED * capacity * mean_s, ceil(REQUESTS / len(at)))):
        arrival = np.cumsum(np.tile(gaps, times_over)) / faster
        sent = Arrivals(
            models * times_over,
            arrival.tolist(),
            (arrival + options.sla_s).tolist(),
            lengths * times_over,
            [1] * len(arrival),
        )
        sizes = np.tile(places, times_over).astype(np.float64)
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
        what,
        tuple(names.values()),
        name,
        capacity,
        1e3 * float(core_s[places].mean()),
        cus,
        clocks_from,
        len(known) - sum(clocks_from.values()),
        (loads[0], loads[1]),
    )


def core_seconds(work: Sequence[Callable[[], object]]) -> list[float]:
    """Of processor time of each: the least of ROUNDS, or of as many as there is time for. The first loads libraries and
    caches, and on a busy machine all but the least have others' work in them."""
    rounds: list[list[float]] = []
    began = time.monotonic()
    with _one_blas_thread():
        while not rounds or (len(rounds) < ROUNDS and time.monotonic() - began < MEASURING_S):
            taken = []
            for each in work:
                started = time.thread_time()
                each()
                taken.append(time.thread_time() - started)
            rounds.append(taken)
    least: list[float] = np.min(rounds, axis=0).tolist()
    return least


def _one_blas_thread() -> contextlib.AbstractContextManager[object]:
    """A second one, whose core is busy with something else, has the first wait for it, which counts as work: the mel
    bands of 2 s of sound then took 12 ms instead of 0.3."""
    try:
        from threadpoolctl import threadpool_limits  # comes with scikit-learn, of the extra "demo"
    except ImportError:
        return contextlib.nullcontext()
    return threadpool_limits(1, "blas")


def _capacity(
    policy: Policy, profiles: Mapping[str, Profile], models: Sequence[str], lengths: Sequence[float]
) -> float:
    """Requests/s of all slices."""
    seconds = []
    for model, length in zip(models, lengths, strict=True):
        alone = policy.largest_batch(model) == 1
        point = profiles[model].curve(length)[0] if alone else profiles[model].knee(length)
        seconds.append(1 / point.throughput_rps)
    return 1 / float(np.mean(seconds))


def _dpu(
    host: Host,
    inputs: Sequence[Input],
    core_s: NDArray[np.float64],
    places: NDArray[np.int64],
    capacity: float,
    emulated: tuple[int, ...],
) -> tuple[Preprocessor, str]:
    """With as many CUs of each kind as keep up with the slices, or as the emulated one has if those are more; what it
    does not take goes to the CPU from there. And the CUs in words."""
    clocks = np.array([each.clocks for each in inputs])
    taken = clocks > 0
    file_bytes = np.array([each.file_bytes for each in inputs], np.float64)
    base = parse("dpu:1", host)
    units = [step.name for step in base.steps if step.name in UNITS]
    link = to_device(base.steps[0].name, FPGA_LINK, lambda _: file_bytes)
    better = {link.name: link.service_s(file_bytes), units[0]: START_S["kernel"] + clocks / CLOCK_HZ}
    known = _tabulated(base, inputs, better)
    numbers = np.arange(len(inputs), dtype=np.float64)
    steps: list[Step] = []
    counts = []
    for step in known.steps:
        # It has seen the header of what it does not take, and has no tensor of it.
        seconds = step.service_s(numbers)
        if step.name not in (link.name, units[0], known.steps[-1].name):
            seconds = np.where(taken, seconds, 0.0)
        servers = step.servers
        if step.name in units:
            wanted = ceil(capacity * float(seconds[places].mean()))
            servers = max(emulated[len(counts)], min(wanted, MAX_CUS))
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
    """For requests whose size is the number of their input: what steps take for each, from `better` where it has the
    step."""
    sizes = np.array([each.size for each in inputs])
    steps = [
        _step(step.name, step.servers, better.get(step.name, step.service_s(sizes))) for step in preprocessor.steps
    ]
    return Preprocessor(preprocessor.name, tuple(steps))


def _step(name: str, servers: int, seconds: NDArray[np.float64]) -> Step:
    def service_s(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        taken: NDArray[np.float64] = seconds[sizes.astype(np.int64)]
        return taken

    return Step(name, servers, service_s)


def _server(
    label: str, system: System, policy: Policy, sent: Arrivals, sizes: NDArray[np.float64], rate: float
) -> Server:
    done = simulate(
        policy, sent, system.times(), len(system.slices), preprocessor=system.preprocessor, sizes=lambda _: sizes
    )
    result = system.reported(done)
    asked = {step.name: rate * float(step.service_s(sizes).mean()) / step.servers for step in system.preprocessor.steps}
    limited_by = max(asked, key=lambda name: asked[name], default=None)
    if limited_by is None or asked[limited_by] <= 1:
        limited_by = None if result["throughput_rps"] >= KEPT_UP * rate else "slices"
    busy = result["part_utilization"]["cpu"] * system.cores
    return Server(label, system.preprocessor.name, result, busy, limited_by)

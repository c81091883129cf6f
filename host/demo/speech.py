"""`headrace demo --audio`: speech of all lengths through CPU or DPU into a speech network, the policies side by side.

Sounds -> every DPU tensor against the definition in floating point, with the DPU's own FIR -> the network's profile by
length -> the load -> one live run for each preprocessor and policy, with the same Poisson arrivals at the same load.
"""

import asyncio
import contextlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from headrace.batching import CorruptInput, Profile, UsageError
from headrace.bitstreams.build import CLOCK_MHZ
from headrace.host.demo.inputs.audio import AudioClip
from headrace.host.demo.load import HEAVY, LIGHT
from headrace.host.demo.options import BEFOREHAND, DemoOptions
from headrace.host.demo.report.picture import draw
from headrace.host.demo.report.report import (
    CLOCKED_NOTE,
    EMULATION_NOTE,
    each_mean,
    gains,
    print_runs,
    print_simulated,
    run_json,
    simulated_json,
)
from headrace.host.demo.report.trace import write_trace
from headrace.host.demo.serving import Progress, Run
from headrace.host.demo.simulated import SIMULATING, Simulated, simulate_audio
from headrace.host.demo.stages import live_runs
from headrace.host.dpu.driver import Dpu
from headrace.host.dpu.preprocessor import CpuPreprocessor, CuRun, Preprocessed, Preprocessor
from headrace.host.dpu.reference import audio, audio_file
from headrace.host.dpu.specs import AudioSpec
from headrace.host.live.hardware import Network, hardware_of
from headrace.host.memory.layout import TensorSpec
from headrace.host.workers.inspection.parent import describe
from headrace.host.workers.profiling.batches import machine, measure_curve

# Of Headrace's own, with random weights: the smaller ones, for a CPU.
NETWORKS = {
    "conformer": "headrace.host.workers.networks.zoo.conformer:conformer_ctc_small",
    "citrinet": "headrace.host.workers.networks.zoo.citrinet:citrinet_256",
}
# The traced networks that they are, where the names differ (sim/zoo/traced.py). Its citrinet has 512 channels, PREBA's.
TRACED_AS = {"conformer": "conformer_small"}
PROFILE_S = 24.0  # most time to measure a network's profile for
LENGTHS = (0.1, 0.5, 1.0)  # of which it is measured: quantiles of the sounds'
TOGETHER = "all sounds at once"  # in the trace
BOUND = 1e-3  # of a tensor's RMS error; its values have a standard deviation of 1
# Above the logarithm of the floor: a band that never gets there holds next to nothing, as those beyond the Nyquist
# frequency of a file at 8 kHz do, and normalize divides rounding errors by a standard deviation of as little.
FAINT = 3.0
WEIGHTS_NOTE = "Random weights: what the networks hear means nothing."


@dataclass(frozen=True, slots=True)
class SpeechNetwork(Network):
    """`spec` is how a sound becomes its input."""

    spec: AudioSpec


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How the DPU's tensors compare with the definition in floating point, over the distinct sounds that it took:
    `good` are within BOUND. Bands that are FAINT all along are left out, and told in `faint_rms`."""

    sounds: int = 0
    on_dpu: int = 0
    good: int = 0
    largest_rms: float = 0.0
    max_difference: float = 0.0
    faint_rms: float = 0.0


@dataclass(frozen=True, slots=True)
class Reference:
    """A sound's tensor by the definition; `heard` (n_mels,) tells which bands are not FAINT all along."""

    tensor: NDArray[Any]
    heard: NDArray[np.bool_]

    def errors(self, tensor: NDArray[Any]) -> tuple[float, float, float]:
        """Of the bands that are heard, root mean square and largest; root mean square of the others. Infinite if the
        shapes differ."""
        if tensor.shape != self.tensor.shape:
            return math.inf, math.inf, math.inf
        difference = np.abs(tensor.astype(np.float64) - self.tensor.astype(np.float64))
        heard, faint = difference[self.heard], difference[~self.heard]
        return _rms(heard), float(heard.max(initial=0.0)), _rms(faint)


def _rms(difference: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.square(difference).mean())) if difference.size else 0.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """The sounds that can be used, each with its tensor by the definition and by the DPU (by the CPU where the DPU does
    not take it, or without one). `skipped` are the others, with the reason; `unsupported` counts by status what the DPU
    did not take. `sounds_per_s` is of one sound at a time, by "cpu" on one thread and by "dpu"; 0 of a DPU that took
    none. `cycles` and `samples`, at 16 kHz, are of what a clocked DPU took.

    `alone_s` is what the DPU took for the sounds one by one, as a CU would that does all stages, and `together_s`
    when it had them all at once, with the CUs' `together` runs for each."""

    sounds: Sequence[AudioClip]
    references: Sequence["Reference"]
    tensors: Sequence[NDArray[Any]]
    skipped: dict[str, str]
    unsupported: dict[str, int]
    accuracy: Accuracy
    audio_per_s: dict[str, float]
    cycles: int = 0
    samples: int = 0
    alone_s: float = 0.0
    together_s: float = 0.0
    together: Sequence[tuple[str, Sequence[CuRun]]] = ()

    @property
    def frames(self) -> list[int]:
        return [tensor.shape[1] for tensor in self.tensors]


@dataclass(frozen=True, slots=True)
class Speech:
    """A `Source`: request i sends sound `order[i]`, through `preprocessor` or, without one, as the tensor that was made
    of it beforehand. `spec` and `inputs` are the network's: features, and how many of their frames count."""

    prepared: Prepared
    preprocessor: Preprocessor[AudioSpec] | None
    order: Sequence[int]
    spec: AudioSpec
    inputs: Sequence[TensorSpec]

    def _place(self, number: int) -> int:
        return self.order[number % len(self.order)]

    def name(self, number: int) -> str:
        return self.prepared.sounds[self._place(number)].name

    async def value(self, number: int) -> tuple[Any, Preprocessed | None]:
        preprocessed = None
        tensor = self.prepared.tensors[self._place(number)]
        if self.preprocessor is not None:
            preprocessed = await self.preprocessor.process(self.prepared.sounds[self._place(number)].data)
            tensor = preprocessed.tensor
        features, frames = self.inputs
        counted = np.array(self.spec.counted(tensor.shape[1]), frames.dtype)
        return {features.name: tensor, frames.name: counted}, preprocessed

    def options(self, number: int) -> Mapping[str, Any]:
        return {}

    def compare(self, number: int, tensor: NDArray[Any]) -> tuple[bool, float]:
        rms, difference, _ = self.prepared.references[self._place(number)].errors(tensor)
        return rms < BOUND, difference


@dataclass(frozen=True, slots=True)
class SpeechReport:
    """`prepared` and `profiles` are by network, in the order of the options; `rates_rps` by preprocessor. `cus` are
    names, none where no DPU was asked for."""

    options: DemoOptions
    machine: Mapping[str, Any]
    workers: int
    cus: Sequence[str]
    prepared: Mapping[str, Prepared]
    profiles: Mapping[str, Profile]
    rates_rps: Mapping[str, float]
    one_by_one_rps: float
    in_batches_rps: float
    step_s: float  # from frame to frame
    runs: Sequence[Run]
    simulated: Simulated | str = ""  # why there is nothing, if so

    footnote = f"{WEIGHTS_NOTE} The emulated DPU's time is not a card's."

    @property
    def hardware(self) -> str:
        return f"{self.workers} worker{'s' if self.workers > 1 else ''}"

    @property
    def unserved(self) -> int:
        return sum(run.result["requests"] - run.result["finished"] for run in self.runs)

    @property
    def distinct(self) -> list[Prepared]:
        """Networks that take the same tensors share them."""
        return list({id(part): part for part in self.prepared.values()}.values())

    @property
    def inaccurate(self) -> int:
        """Tensors of the DPU beyond BOUND."""
        return sum(part.accuracy.on_dpu - part.accuracy.good for part in self.distinct)


def load_networks(options: DemoOptions) -> list[SpeechNetwork]:
    """Raises UsageError for a network that cannot be loaded, or that does not take sounds."""
    if options.npus or options.input_shapes:
        raise UsageError(
            "--audio: speech networks run on worker processes, and know their inputs; leave out npu:N and --input-shape"
        )
    found = []
    nothing: Sequence[str | None] = [None] * len(options.models)
    for name, weights in zip(options.models, options.weights or nothing, strict=True):
        source = NETWORKS.get(name, name)
        if name not in NETWORKS and ":" not in name:
            raise UsageError(
                f"--model {name}: with --audio, {', '.join(NETWORKS)}, or module:function of a network "
                "that has an AudioSpec as its `transform`"
            )
        network = describe(source, weights, rules=options.rules)
        if network.audio_spec is None:
            raise UsageError(
                f"--model {name} takes no sounds; leave out --audio, or see host/workers/networks/zoo/conformer.py"
            )
        spec = network.audio_spec
        found.append(SpeechNetwork(name, source, network, weights, None, spec, rules=options.rules))
    return found


def demo(
    options: DemoOptions,
    sounds: Sequence[AudioClip],
    networks: Sequence[SpeechNetwork],
    xclbin: Path | None,
    progress: Progress,
) -> SpeechReport:
    """`networks` are what `load_networks` made of the options; without `xclbin` there is no DPU. Raises UsageError for
    what cannot be met, and WorkerLost if no worker can be started."""
    live = asyncio.run(_demo(options, sounds, networks, xclbin, progress))
    progress.stage(SIMULATING)
    mel, norm = (max(1, sum(kind in cu for cu in live.cus)) for kind in ("mel", "norm"))
    specs = {network.name: network.spec for network in networks}
    simulated = simulate_audio(options, live.prepared, specs, TRACED_AS, live.runs, (mel, norm))
    return replace(live, simulated=simulated)


async def _demo(
    options: DemoOptions,
    sounds: Sequence[AudioClip],
    networks: Sequence[SpeechNetwork],
    xclbin: Path | None,
    progress: Progress,
) -> SpeechReport:
    hardware = hardware_of(networks, workers=options.workers, npus=0, by_node=False, whole=True)
    async with contextlib.AsyncExitStack() as stack:
        dpus: dict[AudioSpec, Dpu[AudioSpec] | None] = {}
        prepared: dict[AudioSpec, Prepared] = {}
        for spec in dict.fromkeys(network.spec for network in networks):
            dpu = None if xclbin is None else await stack.enter_async_context(Dpu(xclbin, spec, api=options.api))
            progress.stage("DPU tensors against the definition" if dpu else "tensors by the CPU", len(sounds))
            dpus[spec], prepared[spec] = dpu, await prepare(dpu, spec, sounds, progress.step)
        of = {network.name: prepared[network.spec] for network in networks}
        networks_by_name = {network.name: network for network in networks}
        given = {profile.model: profile for profile in options.profiles}
        profiles = {}
        for name in of:
            if name not in given:
                progress.stage(f"profile of {name} on {hardware.count} workers, by length and batch")
            profiles[name] = given.get(name) or await _profile(networks_by_name[name], of[name], options)
        alone = _mean_rate((profiles[name], frames, 1) for name in of for frames in of[name].frames)
        batched = _mean_rate((profiles[name], frames, None) for name in of for frames in of[name].frames)
        here = machine()
        rates = _rates(options, list(of.values()), alone, batched, here["cores"])
        order = np.random.default_rng([options.seed, 2])

        def preprocessor(name: str, spec: AudioSpec) -> Preprocessor[AudioSpec] | None:
            return None if name == BEFOREHAND else dpus[spec] if name == "dpu" else CpuPreprocessor(spec)

        orders = {name: order.permutation(len(part.sounds)).tolist() for name, part in of.items()}
        sources = {
            kind: {
                network.name: Speech(
                    of[network.name],
                    preprocessor(kind, network.spec),
                    orders[network.name],
                    network.spec,
                    network.description.inputs,
                )
                for network in networks
            }
            for kind in options.preprocessors
        }
        runs = await live_runs(options, hardware, profiles, rates, sources, lambda *_: None, progress)
        cus = next((dpu.cus for dpu in dpus.values() if dpu is not None), ())
    step_s = networks[0].spec.hop / networks[0].spec.rate
    return SpeechReport(options, here, hardware.count, cus, of, profiles, rates, alone, batched, step_s, runs)


async def _profile(network: SpeechNetwork, prepared: Prepared, options: DemoOptions) -> Profile:
    """At a few of the sounds' lengths."""
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


async def prepare(
    dpu: Dpu[AudioSpec] | None, spec: AudioSpec, sounds: Sequence[AudioClip], step: Callable[[], None]
) -> Prepared:
    """Through the CPU and, if there is one, through the DPU; `step` is called after each. Raises UsageError if none of
    the sounds can be used."""
    usable, references, tensors = list[AudioClip](), list[Reference](), list[NDArray[Any]]()
    skipped: dict[str, str] = {}
    unsupported: Counter[str] = Counter()
    by_cpu = set[str]()
    accuracy = Accuracy()
    cpu_s = dpu_s = 0.0
    cycles = samples = 0
    for sound in sounds:
        step()
        started = time.monotonic()
        try:
            on_cpu = audio.preprocess(sound.data, spec)
        except (CorruptInput, UsageError) as error:
            skipped[sound.name] = str(error)
            continue
        cpu_s += time.monotonic() - started
        reference = by_definition(sound.data, spec)
        done = None if dpu is None else await dpu.process(sound.data)
        usable.append(sound)
        references.append(reference)
        tensors.append(on_cpu if done is None else done.tensor)
        if done is None:
            continue
        if done.unit == "cpu":
            unsupported[done.dpu_status or "no CU in service"] += 1
            by_cpu.add(sound.name)
            continue
        dpu_s += done.finished - done.started
        rms, difference, faint_rms = reference.errors(done.tensor)
        accuracy = Accuracy(
            0,
            accuracy.on_dpu + 1,
            accuracy.good + (rms < BOUND),
            max(accuracy.largest_rms, rms),
            max(accuracy.max_difference, difference),
            max(accuracy.faint_rms, faint_rms),
        )
        if done.counters is not None:
            cycles += done.counters["cycles"]
            samples += spec.resampled(*audio_file.length(sound.data, spec.rates))
    if not usable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(skipped.items())[:3])
        raise UsageError(f"none of the {len(sounds)} sounds can be used ({reasons})")
    together, together_s = [], 0.0
    if dpu is not None and accuracy.on_dpu:
        taken = [sound for sound in usable if sound.name not in by_cpu]
        started = time.monotonic()
        every = await asyncio.gather(*(dpu.process(sound.data) for sound in taken))
        together_s = time.monotonic() - started
        together = [(sound.name, done.runs) for sound, done in zip(taken, every, strict=True)]
    rates = {"cpu": len(usable) / cpu_s, "dpu": accuracy.on_dpu / dpu_s if dpu_s else 0.0}
    accuracy = replace(accuracy, sounds=len(usable))
    return Prepared(
        usable,
        references,
        tensors,
        skipped,
        dict(unsupported),
        accuracy,
        rates,
        cycles,
        samples,
        dpu_s,
        together_s,
        together,
    )


def by_definition(data: bytes, spec: AudioSpec) -> Reference:
    """Return what the CPU path makes of a file, and which bands hold anything. Raises as `audio.preprocess` does."""
    samples = audio.resample(*audio_file.decode(data, spec.rates, spec.longest_s), spec)
    mel = audio.log_mel(samples, spec)
    return Reference(audio.normalize(mel, spec), mel.max(1) >= math.log(spec.log_floor) + FAINT)


def _mean_rate(wanted: Iterable[tuple[Profile, int, int | None]]) -> float:
    """Requests/s that the workers sustain of these lengths in frames, which come equally often, in batches of that
    size, or of the knee's if None."""
    seconds = []
    for profile, frames, batch in wanted:
        curve = profile.curve(frames)
        seconds.append(1 / (profile.knee(frames) if batch is None else curve[0]).throughput_rps)
    return 1 / float(np.mean(seconds))


def _rates(
    options: DemoOptions, prepared: Sequence[Prepared], alone: float, batched: float, cores: int
) -> dict[str, float]:
    """Requests/s by preprocessor, as load.py chooses them."""
    if options.rate_rps is not None:
        return dict.fromkeys(options.preprocessors, options.rate_rps)
    heavy = min(math.sqrt(alone * batched), HEAVY * batched)
    measured = [rate for part in prepared for kind, rate in part.audio_per_s.items() if kind in options.preprocessors]
    slowest = min((rate for rate in measured if rate > 0), default=math.inf)
    light = LIGHT / (1 / (slowest * cores) + 1 / alone)
    return {name: heavy if name == BEFOREHAND else light for name in options.preprocessors}


def cu_runs(run: Run) -> list[CuRun]:
    return [each for record in run.records if record.preprocessed is not None for each in record.preprocessed.runs]


def overlap(runs: Iterable[CuRun]) -> dict[str, float] | None:
    """Seconds that CUs A, CUs B, and both at once were busy; None if one of them had nothing to do."""
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


def shows(report: SpeechReport) -> list[str]:
    """What the runs show, a sentence for each load, from what was measured."""
    sentences = []
    for rate in dict.fromkeys(report.rates_rps.values()):
        runs = [run for run in report.runs if report.rates_rps[run.preprocessor] == rate]
        names = [run.policy if run.preprocessor == BEFOREHAND else run.name for run in runs]
        sentences.append(
            f"At {rate:.1f} sounds/s, {rate / report.one_by_one_rps:.2f} times what the workers sustain one by one "
            f"({report.one_by_one_rps:.1f}/s) and {rate / report.in_batches_rps:.2f} times what they sustain in "
            f"batches of the knee at each length ({report.in_batches_rps:.1f}/s), one took on average "
            f"{each_mean(runs, names)}."
        )
    for kind in report.options.preprocessors:
        runs = [run for run in report.runs if run.preprocessor == kind]
        sentences += [f"{kind}: {sentence}" for sentence in gains(runs)]
    if report.in_batches_rps < 1.1 * report.one_by_one_rps:
        sentences.append("Batches bring hardly any throughput here, so batching cannot pay.")
    for part in report.distinct:
        if (spans := overlap(each for _, runs in part.together for each in runs)) is not None:
            sentences.append(
                f"The emulated CUs took {part.alone_s:.2f} s for {len(part.together)} sounds one after the other, and "
                f"{part.together_s:.2f} s with CU A on the next sound while CU B had the one before: CU B's "
                f"{spans['norm_s']:.2f} s were beside CU A's for {spans['both_s'] / spans['norm_s']:.0%}."
            )
    return sentences


def as_json(report: SpeechReport) -> dict[str, Any]:
    """Everything measured, with the result keys of every Headrace run."""
    clocked = any(part.cycles for part in report.prepared.values())
    emulated = [CLOCKED_NOTE if clocked else EMULATION_NOTE] if report.cus else []
    return {
        "models": {name: _model(report, name) for name in report.prepared},
        "sounds": len(next(iter(report.prepared.values())).sounds),
        "skipped": {name: reason for part in report.distinct for name, reason in part.skipped.items()},
        "machine": dict(report.machine),
        "workers": report.workers,
        "audio_cus": list(report.cus),
        "rates_rps": dict(report.rates_rps),
        "one_by_one_rps": report.one_by_one_rps,
        "in_batches_rps": report.in_batches_rps,
        "sla_ms": report.options.sla_s * 1e3,
        "window_ms": report.options.window_s * 1e3,
        "max_batch": report.options.max_batch,
        "shows": shows(report),
        "note": " ".join([*emulated, WEIGHTS_NOTE]),
        "runs": [
            run_json(run, report.rates_rps[run.preprocessor]) | {"overlap": overlap(cu_runs(run))}
            for run in report.runs
        ],
        "simulated": simulated_json(report.simulated),
    }


def _model(report: SpeechReport, name: str) -> dict[str, Any]:
    part, profile = report.prepared[name], report.profiles[name]
    step_s = profile.step_s or report.step_s
    knees = {f"{length * step_s:.1f}": profile.knee(length) for length in profile.lengths}  # by seconds of sound
    return {
        "seconds": {"total": sum(part.frames) * report.step_s, "longest": max(part.frames) * report.step_s},
        "knees": {
            length: {"batch": knee.batch, "latency_ms": knee.latency_s * 1e3, "throughput_rps": knee.throughput_rps}
            for length, knee in knees.items()
        },
        "preprocess_sounds_per_s": part.audio_per_s,
        "accuracy": {
            "sounds": part.accuracy.sounds,
            "on_dpu": part.accuracy.on_dpu,
            "good": part.accuracy.good,
            "largest_rms": part.accuracy.largest_rms,
            "max_difference": part.accuracy.max_difference,
            "faint_rms": part.accuracy.faint_rms,
            "unsupported": part.unsupported,
        },
        "all_at_once": {
            "alone_s": part.alone_s,
            "together_s": part.together_s,
            "overlap": overlap(each for _, runs in part.together for each in runs),
        },
        "dpu_clocks": {
            "cycles": part.cycles,
            "cycles_per_sample": part.cycles / part.samples,
            "clock_mhz": CLOCK_MHZ,
        }
        if part.cycles
        else None,
    }


def print_report(report: SpeechReport, console: Console) -> None:
    def line(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    data = as_json(report)
    cus = f", {len(report.cus)} emulated audio CUs" if report.cus else ""
    line(
        f"{' and '.join(report.prepared)} on {report.hardware}{cus}, Poisson requests over {data['sounds']} sounds; "
        f"{report.machine['cpu']}, {report.machine['cores']} cores."
    )
    for name, reason in data["skipped"].items():
        line(f"Skipped {name}: {reason}")
    for name, model in data["models"].items():
        found = model["accuracy"]
        if report.cus:
            line(
                f"DPU against floating point, {found['on_dpu']} sounds: {found['good']} within an RMS error of "
                f"{BOUND:g}; the largest is {found['largest_rms']:.1e}, of one value {found['max_difference']:.1e}. In "
                f"bands that hold next to nothing it is up to {found['faint_rms']:.1e}."
                + (f" Not taken by the DPU: {found['unsupported']}." if found["unsupported"] else "")
            )
        if (clocks := model["dpu_clocks"]) is not None:
            line(
                f"Audio CUs: {clocks['cycles']:,} cycles for {model['seconds']['total']:.0f} s of sound, "
                f"{clocks['cycles_per_sample']:.3f} a sample at 16 kHz."
            )
        knees = ", ".join(f"{knee['batch']} at {length} s" for length, knee in model["knees"].items())
        line(f"{name}: {model['seconds']['total']:.0f} s of sound; knee of the profile at batch {knees}.")
    print_runs(data["runs"], console)
    for sentence in (*data["shows"], data["note"]):
        line(sentence)
    print_simulated(report.simulated, console)


def write_report(report: SpeechReport, folder: Path) -> list[Path]:
    """Writes report.json, demo.png, trace.pftrace and a profile for each network into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"profile.{name.replace(':', '.')}.json" for name in report.profiles]
    paths = [folder / name for name in ("report.json", "demo.png", "trace.pftrace", *names)]
    paths[0].write_text(json.dumps(as_json(report), indent=2) + "\n")
    draw(report, shows(report), paths[1], report.simulated)
    write_trace(paths[2], report.runs, {TOGETHER: [each for part in report.distinct for each in part.together]})
    for path, profile in zip(paths[3:], report.profiles.values(), strict=True):
        path.write_text(profile.to_json())
    return paths

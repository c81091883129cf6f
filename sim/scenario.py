"""One simulated run described by its settings, as `headrace simulate` takes them."""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from headrace.batching.errors import Unstable, UsageError
from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import NodeKind
from headrace.batching.graphs.profile import KNEE_GROWTH, Profile
from headrace.batching.policies.bucketed_graph import BUCKET_WIDTH
from headrace.batching.policies.cellular import MAX_TASKS
from headrace.batching.policies.lazy import SLACK_SCOPES
from headrace.batching.policies.preba import BUCKET_S
from headrace.batching.policies.smdp import RateTables
from headrace.batching.policies.smdp_phases import PhaseTables
from headrace.batching.registry import CELL_POLICIES, POLICIES, make_policy
from headrace.batching.smdp.arrivals import Mmpp2
from headrace.batching.smdp.service import BatchService, Weights
from headrace.batching.smdp.tables import phase_tables, rate_tables
from headrace.sim.engine import Arrivals
from headrace.sim.fleet.settings import Delay, Fleet, parse_autoscale, parse_delay, parse_failures
from headrace.sim.fleet.simulation import simulate_fleet
from headrace.sim.hardware.gpu.mig import GPUS
from headrace.sim.hardware.inputs import TYPICAL_PIXELS
from headrace.sim.hardware.npu import npu_times
from headrace.sim.hardware.profiles import read_profile
from headrace.sim.hardware.v100 import padded_times
from headrace.sim.preprocessing import Preprocessor, input_lengths
from headrace.sim.simulation import Simulation, simulate
from headrace.sim.system.card import too_many
from headrace.sim.system.system import PRECISION, System
from headrace.sim.text_files import read_toml
from headrace.sim.workload import replay, traffic
from headrace.sim.workload.images import MAX_PIXELS, Pixels, read_images
from headrace.sim.workload.lengths import (
    LENGTHS,
    LIBRISPEECH,
    LIBRISPEECH_TEST,
    SPEECH,
    SPEECH_STEP_S,
    TRANSLATION,
    WMT15,
    Corpus,
    Fixed,
    Frames,
    Lengths,
    Scaled,
    Sentences,
    dec_timesteps,
    read_corpus,
    read_durations,
)
from headrace.sim.workload.trees import read_trees
from headrace.sim.zoo import model_graph
from headrace.sim.zoo.cells import CELL_NETWORKS, cell_network
from headrace.sim.zoo.traced import traced

ACCELERATORS = ("npu", "profile", "v100", *GPUS)
CONFORMER_STEP_S = 0.04
SAMPLES = 2000  # of a length distribution, to learn its mean and its longest
CURVES = 9  # of modelled hardware, by length; between them `preba` interpolates
TRAFFICS = ("poisson", "deterministic", "mmpp")


def usual_lengths(model: str) -> Lengths:
    """The length distribution that goes with a model of the zoo, or of host/workers: translation, speech, or none."""
    if model == "las":
        return SPEECH
    if model in ("conformer", "conformer_small", "citrinet"):
        return LIBRISPEECH
    if model in CELL_NETWORKS:
        return Sentences() if model == "treelstm" else WMT15
    return TRANSLATION if model in ("gnmt", "transformer", "transformer_uncached", "bert_base") else Fixed()


@dataclass(frozen=True, slots=True)
class Scenario:
    """`model` may name several, separated by commas: they share the workers and the arrivals, equally or as `shares`, a
    number for each, tell.

    `accelerator` "npu" runs networks of the zoo on the NPU model; "profile" runs the one network of the file `profile`
    with the latencies measured there, node by node if its nodes were measured, else as a whole; "v100" the recurrent
    networks of sim/zoo/cells.py, as cells for `cellular` and `dynamic-graph`, else padded to one length. The others are
    GPUs (sim/system/system.py): networks of TRACED on the slices of `partition`, of which the first `active_slices`
    serve (all if None), in `precision`, behind `preprocess` (sim/system/preprocessors.py), photos having
    `photo_pixels` each, or those of one that is drawn from the file `photos` (sim/workload/images.py);
    `cpu_costs`, a file of `headrace profile --cpu-preprocessing`, replaces the costs that are measured;
    `overhead_ms` is what a request takes beside preprocessing, queue and batch, whatever the accelerator: network,
    protocol and copies, to the server and back. All of it counts before the request is in the server.
    `prices` are $ of parts and of a kWh ("node=6000,kwh=0.2"; sim/system/cost.py has those taken without).

    With `stream` the arrivals, of "poisson", are made in blocks and forgotten, as is each request when it has ended:
    memory does not grow with `requests`; models and lengths then differ from those of the same seed without it.
    `replay` is a trace (sim/workload/replay.py) in place of `traffic`, of which every `replay_every`-th request
    comes, from number `seed` % `replay_every` on, `replay_speed` times as fast. "mmpp" is Poisson at 1.8 and 0.2
    times the rate in turn, `burst_s` each on average. `lengths`, one of LENGTHS (sim/workload/lengths.py), a number
    (seconds of sound, else the model's unit) or a folder of WAV and FLAC files, replaces the usual lengths of all
    models; `corpus` is a file of sentence pairs for those of translation models, `trees` one of parse trees for
    treelstm.

    Buckets of `preba` and `preba-lazy` are `bucket_s` wide where the input is sound, else `bucket_width`;
    `merge_buckets` as there; `knee_growth` is of the knee rule (batching/graphs/profile.py). `dec_timesteps` overrides
    what `coverage` of the output lengths gives. `drop_late` drops, under any policy, what has not begun when its
    deadline comes, or, where the policy can tell, when it could not meet it any more. `busy_w` is what a busy worker
    draws; `smdp` minimises mean latency (ms) + `w2` * mean power (W), for inputs and outputs of mean length; with
    `by_phase` it knows of "mmpp" and has a table for each phase instead of for each rate. `merge_us` is what
    `dynamic-graph` takes to merge a cell, and `max_tasks` how many tasks `cellular` hands to a worker at a time.

    With `servers`, so many of this machine, each with its policy, stand behind a `router`; what the rest says is in
    sim/fleet/settings.py."""

    model: str = "resnet50"
    accelerator: str = "npu"
    npus: int = 1
    policy: str = "lazy"
    traffic: str = "poisson"
    rate_rps: float = 1000.0
    burst_s: float = 1.0
    requests: int = 20_000
    stream: bool = False
    replay: str | None = None
    replay_every: int = 1
    replay_speed: float = 1.0
    shares: str | None = None
    lengths: str | None = None
    corpus: str | None = None
    profile: str | None = None
    partition: str | None = None
    active_slices: int | None = None
    preprocess: str = "ideal"
    cpu_costs: str | None = None
    photo_pixels: int = TYPICAL_PIXELS
    photos: str | None = None
    precision: str = PRECISION
    overhead_ms: float = 0.0
    prices: str | None = None
    sla_ms: float = 100.0
    window_ms: float = 5.0
    max_batch: int = 64
    coverage: float = 0.9
    dec_timesteps: int | None = None
    defer_late: bool = False
    slack_scope: str = "table"
    equal_timesteps: bool = False
    drop_late: bool = False
    busy_w: float | None = None
    w2: float = 0.0
    by_phase: bool = False
    bucket_width: int = BUCKET_WIDTH
    bucket_s: float = BUCKET_S
    merge_buckets: bool = True
    knee_growth: float = KNEE_GROWTH
    merge_us: float = 10.0
    max_tasks: int = MAX_TASKS
    trees: str | None = None
    servers: int | None = None
    router: str = "least-outstanding"
    network_delay: str | None = None
    failure: str | None = None
    mtbf_s: float | None = None
    mttr_s: float | None = None
    lost: str = "reroute"
    autoscale: str | None = None
    seed: int = 0

    def models(self) -> list[str]:
        return [name.strip() for name in self.model.split(",") if name.strip()]


def rate_shares(scenario: Scenario) -> dict[str, float]:
    """The share of each model in all requests. Raises UsageError."""
    models = scenario.models()
    if scenario.replay is not None:
        counts = replay.counts(trace_of(scenario))
        return {model: counts[model] / sum(counts.values()) for model in models}
    if scenario.shares is None:
        return {model: 1 / len(models) for model in models}
    try:
        rates = [float(word) for word in scenario.shares.split(",")]
    except ValueError:
        rates = []
    if len(rates) != len(models) or not all(0 < rate < math.inf for rate in rates):
        raise UsageError(f"--shares {scenario.shares!r}: give a number above 0 for each of --model {scenario.model}")
    return {model: rate / sum(rates) for model, rate in zip(models, rates, strict=True)}


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, named as the fields of `Scenario`, dashes allowed. Raises UsageError."""
    body = read_toml(f"--config {path}", path)
    settings = {key.replace("-", "_"): value for key, value in body.items()}
    return {key: checked_setting(f"--config {path}", key, value) for key, value in settings.items()}


def checked_setting(where: str, key: str, value: Any) -> Any:
    """A value for the field `key` of `Scenario`, in the field's type. Raises UsageError that begins with `where`."""
    kinds = get_type_hints(Scenario)
    if key not in kinds:
        raise UsageError(f"{where}: there is no setting {key!r}; known are {', '.join(kinds)}")
    kind = next(kind for kind in (bool, int, float, str) if kind in (kinds[key], *get_args(kinds[key])))
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise UsageError(f"{where}: {key} is {value!r}; it must be of type {kind.__name__}")
    return value


def _cells(scenario: Scenario) -> dict[str, tuple[CellModel, NodeTimes]]:
    trees = read_trees(Path(scenario.trees)) if scenario.trees else None
    return {name: cell_network(name, scenario.max_batch, trees) for name in scenario.models()}


def _system(scenario: Scenario) -> System | None:
    """None if the hardware is no GPU cut into slices."""
    if scenario.accelerator not in GPUS:
        return None
    photos = None if scenario.photos is None else Path(scenario.photos)
    unseen = [name for name in scenario.models() if len(traced(name).graphs) > 1]
    if photos is not None and unseen:
        raise UsageError(f"--photos: {unseen[0]} takes inputs of other kinds")
    return System.of(
        scenario.accelerator,
        scenario.models(),
        parts=scenario.partition,
        preprocess=scenario.preprocess,
        active_slices=scenario.active_slices,
        cpu_costs=None if scenario.cpu_costs is None else Path(scenario.cpu_costs),
        image_pixels=scenario.photo_pixels if photos is None else _read_photos(photos, _written_ns(photos)),
        precision=scenario.precision,
        prices=scenario.prices,
    )


def _times(
    scenario: Scenario,
    cells: Mapping[str, tuple[CellModel, NodeTimes]],
    profiles: Mapping[str, Profile],
    system: System | None,
) -> dict[str, NodeTimes]:
    """What a policy knows; by model."""
    if system is not None:
        return system.slowest_times()
    if cells:
        return {name: times for name, (_, times) in cells.items()}
    if scenario.accelerator == "v100":
        return {name: padded_times(name, decoder=name == "seq2seq") for name in scenario.models()}
    if scenario.accelerator == "npu":
        return {name: npu_times(model_graph(name)) for name in scenario.models()}
    return {model: profile.times() for model, profile in profiles.items()}


def _profiles(scenario: Scenario) -> dict[str, Profile]:
    """What was measured, by model; empty if the hardware is a model of it."""
    if scenario.accelerator != "profile":
        return {}
    if scenario.profile is None:
        raise UsageError("--accelerator profile needs --profile FILE, which `headrace profile` writes")
    profile = read_profile(Path(scenario.profile))
    if scenario.models() != [profile.model]:
        raise UsageError(f"--profile {scenario.profile} is of {profile.model!r}; give --model {profile.model}")
    return {profile.model: profile}


def trace_of(scenario: Scenario) -> Arrivals:
    """The whole trace of a scenario that has one, as it was, without deadlines. Raises UsageError."""
    assert scenario.replay is not None
    path = Path(scenario.replay)
    return _read_trace(path, _written_ns(path), tuple(scenario.models()))


def _written_ns(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


@lru_cache(maxsize=4)  # a search asks for the same ones again and again
def _read_photos(path: Path, written_ns: int) -> Pixels:
    return read_images(path)


@lru_cache(maxsize=4)
def _read_trace(path: Path, written_ns: int, models: tuple[str, ...]) -> Arrivals:
    return replay.read_trace(path, models, math.inf)


def _given_lengths(name: str) -> Lengths:
    if name in LENGTHS:
        return LENGTHS[name]
    with contextlib.suppress(ValueError):
        return Corpus(np.array([_length(float(name))]), np.ones(1, np.int64))
    if not name or not Path(name).is_dir():
        raise UsageError(
            f"--lengths {name!r}: choose from {', '.join(LENGTHS)}, or give a number, or a folder of WAV and FLAC files"
        )
    return read_durations(Path(name))


def _length(number: float) -> float:
    if not 0 < number < 1e6:
        raise UsageError(f"--lengths {number:g}: give a number above 0 and below 1,000,000")
    return number


def _lengths(model: str, profile: Profile | None) -> Lengths:
    """Its usual ones; for a measured network that is none of the zoo's and takes inputs of many lengths, utterances
    where it takes sounds, else sentences."""
    if profile is not None and profile.step_s is not None:
        return LIBRISPEECH
    usual = usual_lengths(model)
    if profile is None or not isinstance(usual, Fixed):
        return usual
    nodes = profile.nodes
    steps = nodes is not None and any(kind is not NodeKind.STATIC for kind in nodes.kinds)
    many = len(profile.lengths) > 1 or (nodes is not None and len(nodes.lengths) > 1)
    return TRANSLATION if steps or many else usual


def _step_s(model: str, profile: Profile | None, system: System | None) -> float | None:
    """Seconds of a step of its input; None if it takes no sounds."""
    if system is not None:
        return traced(model).step_s
    if profile is not None:
        return profile.step_s
    return {"las": SPEECH_STEP_S, "conformer": CONFORMER_STEP_S}.get(model)


def curves(model: str, times: NodeTimes, workers: int, lengths: Lengths) -> Profile:
    """What `preba` and `preba-lazy` know of modelled hardware: at CURVES quantiles of its lengths, the shortest and the
    longest among them, with outputs as much longer or shorter than the inputs as they are on average."""
    inputs, _ = lengths.sample(SAMPLES, np.random.default_rng(0))
    mean_in, mean_out = mean_lengths(lengths)
    spread = np.quantile(inputs, np.linspace(0, 1, CURVES))
    return Profile.of(
        model,
        times,
        workers,
        lengths=sorted({max(1.0, float(round(length))) for length in spread}),
        outputs=mean_out / mean_in,
        step_s=_step_s(model, None, None),
    )


def _check(scenario: Scenario) -> None:
    """Refuses what cannot be simulated; each message names the option to change."""
    if not scenario.models():
        raise UsageError("--model is empty; name one or more, separated by commas")
    if len(set(scenario.models())) < len(scenario.models()):
        raise UsageError(f"--model {scenario.model} names a model twice")
    for option, value, known in (
        ("--policy", scenario.policy, POLICIES),
        ("--accelerator", scenario.accelerator, ACCELERATORS),
        ("--traffic", scenario.traffic, TRAFFICS),
        ("--slack-scope", scenario.slack_scope, SLACK_SCOPES),
    ):
        if value not in known:
            raise UsageError(f"{option} {value!r}: choose from {', '.join(known)}")
    on_cells, on_gpu = scenario.accelerator == "v100", scenario.accelerator in GPUS
    foreign = [name for name in scenario.models() if (name in CELL_NETWORKS) != on_cells]
    if on_gpu and scenario.policy in CELL_POLICIES:
        raise UsageError(f"--policy {scenario.policy} serves cells: give --accelerator v100")
    if foreign and scenario.accelerator != "profile" and not on_gpu:
        raise UsageError(
            f"--model {foreign[0]} is not for --accelerator {scenario.accelerator}: "
            f"v100 runs {', '.join(CELL_NETWORKS)}, npu the others"
        )
    if scenario.policy in CELL_POLICIES and not on_cells:
        raise UsageError(f"--policy {scenario.policy} serves cells: give --accelerator v100")
    if "treelstm" in scenario.models() and on_cells and scenario.policy not in CELL_POLICIES:
        raise UsageError(f"--model treelstm has no padded graph; give --policy {' or '.join(CELL_POLICIES)}")
    if scenario.lengths is not None and scenario.corpus is not None:
        raise UsageError("--lengths and --corpus both tell lengths; give one of them")
    if scenario.trees is not None and "treelstm" not in scenario.models():
        raise UsageError("--trees is for --model treelstm")
    for option, number, most in (
        ("--npus", scenario.npus, 1024),
        ("--requests", scenario.requests, 100_000_000),
        ("--bucket-width", scenario.bucket_width, 100_000),
        ("--max-batch", scenario.max_batch, 4096),
        ("--photo-pixels", scenario.photo_pixels, MAX_PIXELS),
        ("--replay-every", scenario.replay_every, 1024),
        ("--max-tasks", scenario.max_tasks, 1000),
    ):
        if not 1 <= number <= most:
            raise UsageError(f"{option} {number}: give 1 to {most}")
    if scenario.dec_timesteps is not None and scenario.dec_timesteps < 1:
        raise UsageError(f"--dec-timesteps {scenario.dec_timesteps}: give 1 or more")
    for option, positive in (
        ("--rate-rps", scenario.rate_rps),
        ("--sla-ms", scenario.sla_ms),
        ("--burst-s", scenario.burst_s),
        ("--bucket-s", scenario.bucket_s),
        ("--replay-speed", scenario.replay_speed),
        ("--busy-w", 1.0 if scenario.busy_w is None else scenario.busy_w),
    ):
        if not positive > 0 or (math.isinf(positive) and option != "--sla-ms"):
            raise UsageError(f"{option} {positive}: give a number above 0")
    for option, amount in (
        ("--window-ms", scenario.window_ms),
        ("--merge-us", scenario.merge_us),
        ("--w2", scenario.w2),
        ("--seed", scenario.seed),
        ("--overhead-ms", scenario.overhead_ms),
    ):
        if not (amount >= 0 and math.isfinite(amount)):
            raise UsageError(f"{option} {amount}: give a number of 0 or more")
    if not KNEE_GROWTH <= scenario.knee_growth < math.inf:
        raise UsageError(f"--knee-growth {scenario.knee_growth:g}: give {KNEE_GROWTH:g} or more")
    if not 0 < scenario.coverage <= 1:
        raise UsageError(f"--coverage {scenario.coverage}: give a share above 0 and at most 1")
    if scenario.replay is None:
        rate_shares(scenario)
    elif scenario.shares is not None:
        raise UsageError("--replay brings its own models; leave out --shares")
    if scenario.replay is None and (scenario.replay_every, scenario.replay_speed) != (1, 1.0):
        raise UsageError("--replay-every and --replay-speed are for --replay")
    if scenario.w2 > 0 and scenario.busy_w is None:
        raise UsageError("--w2 weighs the power; give what a busy worker draws, --busy-w")
    if scenario.stream and (scenario.traffic != "poisson" or scenario.replay is not None):
        raise UsageError("--stream is for --traffic poisson")
    if scenario.by_phase and (scenario.traffic != "mmpp" or scenario.replay is not None):
        raise UsageError("--by-phase is for --traffic mmpp")


def check_given(scenario: Scenario, given: set[str]) -> list[str]:
    """Refuses settings that contradict each other; returns warnings about those in `given` that have no effect."""
    if scenario.replay is not None and (
        both := given & {"traffic", "rate_rps", "requests", "burst_s", "corpus", "lengths"}
    ):
        raise UsageError(
            f"--replay brings its own arrivals and lengths; leave out {', '.join(map(_option, sorted(both)))}"
        )
    if "router" in given and scenario.servers is None:
        raise UsageError("--router is for a fleet; give --servers, too")
    if {"photos", "photo_pixels"} <= given:
        raise UsageError("--photos and --photo-pixels both tell sizes; give one of them")
    on_gpu = scenario.accelerator in GPUS
    lazy, unsized = ("lazy", "oracle"), ("serial", "preba", "preba-lazy")
    single = (*lazy, "preba-lazy", "deferred", "earliest-deadline")  # they predict how long requests take
    useless = {
        "window_ms": scenario.policy != "graph",
        "max_batch": scenario.policy in unsized,
        "bucket_width": scenario.policy not in ("bucketed-graph", "preba", "preba-lazy"),
        "bucket_s": scenario.policy not in ("preba", "preba-lazy"),
        "merge_buckets": scenario.policy not in ("preba", "preba-lazy"),
        "knee_growth": scenario.policy not in ("preba", "preba-lazy"),
        "merge_us": scenario.policy != "dynamic-graph",
        "max_tasks": scenario.policy != "cellular",
        "dec_timesteps": scenario.policy not in single,
        "coverage": scenario.policy not in single,
        "defer_late": scenario.policy not in lazy,
        "slack_scope": scenario.policy not in lazy,
        "equal_timesteps": scenario.policy not in lazy,
        "w2": scenario.policy != "smdp",
        "by_phase": scenario.policy != "smdp",
        "burst_s": scenario.traffic != "mmpp",
        "profile": scenario.accelerator != "profile",
        "npus": on_gpu,
        "busy_w": on_gpu and scenario.w2 == 0,
        "partition": not on_gpu,
        "active_slices": not on_gpu,
        "preprocess": not on_gpu,
        "cpu_costs": not (on_gpu and scenario.preprocess.startswith("cpu")),
        "photo_pixels": not on_gpu or scenario.preprocess == "ideal",
        "photos": not on_gpu or scenario.preprocess == "ideal",
        "precision": not on_gpu,
        "prices": not on_gpu,
    }
    return [
        f"{_option(name)} has no effect with --policy {scenario.policy}, --traffic {scenario.traffic}, "
        f"--accelerator {scenario.accelerator}" + (f", --preprocess {scenario.preprocess}" if on_gpu else "")
        for name, without_effect in useless.items()
        if without_effect and name in given
    ]


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def warnings(
    scenario: Scenario, times: Mapping[str, NodeTimes], lengths: Mapping[str, Lengths], system: System | None
) -> list[str]:
    """What can be simulated but is hardly what was meant."""
    if scenario.policy in CELL_POLICIES:
        return []  # a node's latency there is one of a cell, of which a request has many
    found = []
    if system is not None and (excess := too_many(system.preprocessor)) is not None:
        found.append(f"--preprocess {scenario.preprocess}: {excess}")
    typical = {model: mean_lengths(known) for model, known in lengths.items()}
    for model, length in typical.items():
        alone_ms = times[model].whole(1, *length) * 1e3 + scenario.overhead_ms
        if alone_ms > scenario.sla_ms:
            found.append(f"--sla-ms {scenario.sla_ms:g} is below the {alone_ms:.2f} ms that {model} takes alone")
    if scenario.replay is not None:
        return found
    shares = rate_shares(scenario)
    if system is not None:
        limits = system.capacity_rps(typical, shares)
    else:
        batch_s = sum(
            shares[model] * times[model].whole(scenario.max_batch, *length) for model, length in typical.items()
        )
        limits = {f"{scenario.npus} workers": scenario.npus * scenario.max_batch / batch_s}
    binds = min(limits, key=lambda part: limits[part])
    if scenario.rate_rps > limits[binds]:
        found.append(
            f"--rate-rps {scenario.rate_rps:g} is more than {binds} can serve (about {limits[binds]:.0f}/s in "
            "full batches): the queue will grow to the end of the run"
        )
    return found


def _longest(lengths: Lengths) -> float:
    return float(lengths.sample(SAMPLES, np.random.default_rng(0))[0].max())


def mean_lengths(lengths: Lengths) -> tuple[float, int]:
    """Mean input and output steps."""
    inputs, outputs = lengths.sample(SAMPLES, np.random.default_rng(0))
    return float(inputs.mean()), round(float(outputs.mean()))


def _all_lengths(
    scenario: Scenario, profiles: Mapping[str, Profile], system: System | None, models: Iterable[str]
) -> dict[str, Lengths]:
    """By model, in its own unit."""
    corpus = read_corpus(Path(scenario.corpus)) if scenario.corpus else None
    given = None if scenario.lengths is None else _given_lengths(scenario.lengths)
    replayed = {} if scenario.replay is None else replay.lengths_of(trace_of(scenario))
    lengths: dict[str, Lengths] = {}
    for model in models:
        if model in replayed:
            lengths[model] = replayed[model]
            continue
        usual = given or _lengths(model, profiles.get(model))
        step_s = _step_s(model, profiles.get(model), system)
        if step_s is not None and usual is not SPEECH:  # which is in steps
            if scenario.lengths in LENGTHS and usual not in (LIBRISPEECH, LIBRISPEECH_TEST):
                raise UsageError(f"--lengths {scenario.lengths}: {model} takes sounds; give librispeech or a folder")
            usual = Frames(usual, step_s) if system is None else Scaled(usual, 1 / step_s)
        lengths[model] = corpus if corpus is not None and usual in (TRANSLATION, WMT15) else usual
    return lengths


def server_of(scenario: Scenario) -> tuple[System, dict[str, Lengths]]:
    """The hardware of a scenario on a GPU, and what lengths its inputs have by model. Raises UsageError, as
    `run_scenario` does."""
    _check(scenario)
    system = _system(scenario)
    if system is None:
        raise UsageError(f"accelerator {scenario.accelerator!r}: choose from {', '.join(GPUS)}")
    return system, _all_lengths(scenario, {}, system, scenario.models())


@dataclass(frozen=True, slots=True)
class Machine:
    """What a scenario runs on, and how long its inputs are: `times` by model on all workers, or on the slowest; the
    networks of `cells`, what was measured in `profiles`, and `system`, only where there are such."""

    workers: int
    times: dict[str, NodeTimes]
    lengths: dict[str, Lengths]
    cells: dict[str, tuple[CellModel, NodeTimes]]
    profiles: dict[str, Profile]
    system: System | None


def machine_of(scenario: Scenario) -> Machine:
    """Raises UsageError for what cannot be simulated."""
    _check(scenario)
    cells = _cells(scenario) if scenario.policy in CELL_POLICIES else {}
    profiles = _profiles(scenario)
    system = _system(scenario)
    times = _times(scenario, cells, profiles, system)
    lengths = _all_lengths(scenario, profiles, system, times)
    workers = scenario.npus if system is None else len(system.slices)
    return Machine(workers, times, lengths, cells, profiles, system)


def _with_growth(
    profiles: Mapping[str, Profile] | Sequence[Mapping[str, Profile]], growth: float
) -> Mapping[str, Profile] | Sequence[Mapping[str, Profile]]:
    if not isinstance(profiles, Mapping):
        return [{model: replace(known, knee_growth=growth) for model, known in of.items()} for of in profiles]
    return {model: replace(known, knee_growth=growth) for model, known in profiles.items()}


def run_scenario(
    scenario: Scenario, *, record: bool = False, max_late: int | None = None
) -> tuple[Simulation, list[str]]:
    """The simulated run, and warnings about the settings. `record` keeps every task; `most_late` as in
    `simulate`. Raises UsageError."""
    machine = machine_of(scenario)
    if record and scenario.stream:
        raise UsageError("--stream keeps no tasks; leave out --trace")
    workers, times, lengths, cells = machine.workers, machine.times, machine.lengths, machine.cells
    profiles, system = machine.profiles, machine.system
    assumed = {
        model: scenario.dec_timesteps or dec_timesteps(lengths[model], scenario.coverage)
        for model, known in times.items()
        if len(known.sections.decoder)
    }
    models = {name: model for name, (model, _) in cells.items()} or None
    known_profiles: Mapping[str, Profile] | Sequence[Mapping[str, Profile]] = profiles
    if system is not None:
        known_profiles = system.profiles()
    elif not profiles and scenario.policy in ("preba", "preba-lazy"):
        known_profiles = {model: curves(model, known, workers, lengths[model]) for model, known in times.items()}
    if scenario.knee_growth != KNEE_GROWTH:
        known_profiles = _with_growth(known_profiles, scenario.knee_growth)
    fleet = fleet_of(scenario)
    new_policy = partial(
        make_policy,
        scenario.policy,
        times,
        workers=workers,
        window_s=scenario.window_ms / 1e3,
        max_batch=scenario.max_batch,
        profiles=known_profiles,
        dec_timesteps=assumed,
        defer_late=scenario.defer_late,
        slack_scope=scenario.slack_scope,
        equal_timesteps=scenario.equal_timesteps,
        tables=_tables(scenario, times, lengths, workers),
        cells=models,
        bucket_width=scenario.bucket_width,
        bucket_s=scenario.bucket_s,
        merge_buckets=scenario.merge_buckets,
        merge_s=1e-6 * scenario.merge_us,
        max_tasks=scenario.max_tasks,
    )
    policy = new_policy()
    if system is not None and scenario.policy not in ("preba", "preba-lazy"):  # whose profiles end where memory does
        system.check_memory(policy, {model: _longest(known) for model, known in lengths.items()})
    arrivals = _arrivals(scenario, lengths)
    if fleet is not None:
        if record or max_late is not None:
            raise UsageError("--servers keeps no tasks and no requests; leave out --trace")
        done = simulate_fleet(
            fleet,
            new_policy,
            arrivals,
            times if system is None else system.times(),
            workers,
            seed=scenario.seed,
            busy_power_w=scenario.busy_w,
            cell_models=models,
            preprocessor=_preprocessor(scenario, system),
            sizes=input_lengths if system is None else system.sizes(scenario.seed),
        )
        one = scenario if scenario.replay else replace(scenario, rate_rps=scenario.rate_rps / fleet.servers)
        return done, warnings(one, times, lengths, system)
    done = simulate(
        policy,
        arrivals,
        times if system is None else system.times(),
        workers,
        seed=scenario.seed,
        record=record,
        busy_power_w=scenario.busy_w,
        cell_models=models,
        drop_late=scenario.drop_late,
        preprocessor=_preprocessor(scenario, system),
        sizes=input_lengths if system is None else system.sizes(scenario.seed),
        max_late=max_late,
    )
    if system is not None:
        done = replace(done, result=system.reported(done))
    return done, warnings(scenario, times, lengths, system)


def fleet_of(scenario: Scenario) -> Fleet | None:
    """None if it is one server. Raises UsageError."""
    if scenario.servers is None:
        usual = Scenario()
        names = ("router", "network_delay", "failure", "mtbf_s", "mttr_s", "lost", "autoscale")
        if given := [name for name in names if getattr(scenario, name) != getattr(usual, name)]:
            raise UsageError(f"{_option(given[0])} is for a fleet; give --servers, too")
        return None
    if scenario.drop_late:
        raise UsageError("--drop-late is not simulated with --servers; leave out one of them")
    return Fleet(
        scenario.servers,
        scenario.router,
        Delay() if scenario.network_delay is None else parse_delay(scenario.network_delay),
        () if scenario.failure is None else parse_failures(scenario.failure),
        scenario.mtbf_s,
        scenario.mttr_s,
        scenario.lost,
        None if scenario.autoscale is None else parse_autoscale(scenario.autoscale),
    )


def _preprocessor(scenario: Scenario, system: System | None) -> Preprocessor | None:
    if system is None and scenario.overhead_ms == 0:
        return None
    passed = Preprocessor("ideal", ()) if system is None else system.preprocessor
    return replace(passed, delay_s=1e-3 * scenario.overhead_ms)


def _tables(
    scenario: Scenario, times: Mapping[str, NodeTimes], lengths: Mapping[str, Lengths], workers: int
) -> dict[str, RateTables | PhaseTables] | None:
    if scenario.policy != "smdp":
        return None
    weights = Weights(latency=1e3, power=scenario.w2)  # 1000 for a second: 1 for a ms
    tables: dict[str, RateTables | PhaseTables] = {}
    for model, known in times.items():
        typical, power = mean_lengths(lengths[model]), scenario.busy_w or 0.0
        machine = (known, scenario.max_batch, typical, power, weights, workers)
        if scenario.by_phase:
            share = rate_shares(scenario)[model]  # of the arrivals, whatever the phase
            found = _phase_tables(*machine, share * scenario.rate_rps, scenario.burst_s)
            if isinstance(found, Unstable):
                raise Unstable(*found.args)
            tables[model] = found
        else:
            tables[model] = _rate_tables(*machine)
    return tables


# A search asks for the same ones again and again: at every rate, and with every way of preprocessing.
@lru_cache(maxsize=512)
def _phase_tables(
    times: NodeTimes,
    max_batch: int,
    typical: tuple[float, int],
    power: float,
    weights: Weights,
    workers: int,
    rate_rps: float,
    burst_s: float,
) -> PhaseTables | Unstable:
    """Or why there are none, which takes longest to find out."""
    bursts = Mmpp2(np.array(traffic.burst_rates(rate_rps)), np.array([burst_s] * 2))
    try:
        return phase_tables(BatchService.of_times(times, max_batch, typical, power), bursts, weights, workers)
    except Unstable as error:
        return error


@lru_cache(maxsize=512)
def _rate_tables(
    times: NodeTimes, max_batch: int, typical: tuple[float, int], power: float, weights: Weights, workers: int
) -> RateTables:
    return rate_tables(BatchService.of_times(times, max_batch, typical, power), weights, workers)


def _arrivals(scenario: Scenario, lengths: Mapping[str, Lengths]) -> Arrivals | Iterator[Arrivals]:
    sla_s = scenario.sla_ms / 1e3
    if scenario.replay is not None:
        whole = replay.faster(trace_of(scenario), scenario.replay_speed, sla_s)
        return replay.every(whole, scenario.replay_every, scenario.seed % scenario.replay_every)
    rate, count, seed = scenario.rate_rps, scenario.requests, scenario.seed
    shares = None if scenario.shares is None else list(rate_shares(scenario).values())
    if scenario.stream:
        blocks = traffic.poisson_blocks(rate, count, seed)
        return traffic.generate_blocks(blocks, lengths, sla_s, seed, shares)
    match scenario.traffic:
        case "deterministic":
            times = traffic.deterministic(rate, count)
        case "mmpp":
            times = traffic.mmpp2(
                traffic.burst_rates(scenario.rate_rps), (scenario.burst_s, scenario.burst_s), count, seed
            )
        case _:
            times = traffic.poisson(rate, count, seed)
    return traffic.generate(times, lengths, sla_s, seed, shares=shares)

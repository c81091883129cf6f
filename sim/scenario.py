"""One simulated run described by its settings, as `headrace simulate` takes them."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from headrace.batching.catalog import CELL_POLICIES, POLICIES, make_policy
from headrace.batching.errors import UsageError
from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import NodeKind
from headrace.batching.graphs.profile import Profile
from headrace.batching.policies.bucketed_graph import BUCKET_WIDTH
from headrace.batching.policies.smdp_batching import RateTables
from headrace.batching.policies.smdp_phases import PhaseTables
from headrace.batching.smdp.arrivals import Mmpp2
from headrace.batching.smdp.service import BatchService, Weights
from headrace.batching.smdp.tables import phase_tables, rate_tables
from headrace.sim.engine import Arrivals
from headrace.sim.hardware.npu import npu_times
from headrace.sim.hardware.profiles import read_profile
from headrace.sim.hardware.v100 import padded_times
from headrace.sim.load import traffic
from headrace.sim.load.lengths import (
    SPEECH,
    TRANSLATION,
    WMT15,
    Fixed,
    Lengths,
    Sentences,
    dec_timesteps,
    read_corpus,
)
from headrace.sim.load.replay import read_trace
from headrace.sim.load.trees import read_trees
from headrace.sim.simulation import Simulation, simulate
from headrace.sim.zoo import model_graph
from headrace.sim.zoo.cells import CELL_NETWORKS, cell_network

ACCELERATORS = ("npu", "profile", "v100")
TRAFFICS = ("poisson", "deterministic", "mmpp")


def usual_lengths(model: str) -> Lengths:
    """The length distribution that goes with a model of the zoo: translation, speech, or none."""
    if model == "las":
        return SPEECH
    if model in CELL_NETWORKS:
        return Sentences() if model == "treelstm" else WMT15
    return TRANSLATION if model in ("gnmt", "transformer", "bert_base") else Fixed()


@dataclass(frozen=True, slots=True)
class Scenario:
    """`model` may name several, separated by commas: they share the workers and the arrivals.

    `accelerator` "npu" runs networks of the zoo on the NPU model; "profile" runs the one network of the file
    `profile` with the latencies measured there, node by node if its nodes were measured, else as a whole; "v100" the
    recurrent networks of sim/zoo/cells.py, as cells for `cellular` and `dynamic-graph`, else padded to one length.
    `replay` is a trace (sim/load/replay.py) in place of `traffic`; "mmpp" is Poisson at 1.8 and 0.2 times the rate in
    turn, `burst_s` each on average.
    `corpus` is a file of sentence pairs (sim/load/lengths.py) for the lengths of translation models. `dec_timesteps`
    overrides what `coverage` of the output lengths gives. `drop_late` drops, under any policy, what has not begun when
    its deadline comes. `busy_w` is what a busy worker draws; `smdp` minimises mean latency (ms) + `w2` * mean power
    (W), for inputs and outputs of mean length; with `by_phase` it knows of "mmpp" and has a table for each phase
    instead of for each rate. `trees` is a file of parse trees for treelstm, `merge_us` what `dynamic-graph` takes to
    merge a cell."""

    model: str = "resnet50"
    accelerator: str = "npu"
    npus: int = 1
    policy: str = "lazy"
    traffic: str = "poisson"
    rate_rps: float = 1000.0
    burst_s: float = 1.0
    requests: int = 20_000
    replay: str | None = None
    corpus: str | None = None
    profile: str | None = None
    sla_ms: float = 100.0
    window_ms: float = 5.0
    max_batch: int = 64
    coverage: float = 0.9
    dec_timesteps: int | None = None
    defer_late: bool = False
    drop_late: bool = False
    busy_w: float | None = None
    w2: float = 0.0
    by_phase: bool = False
    bucket_width: int = BUCKET_WIDTH
    merge_us: float = 10.0
    trees: str | None = None
    seed: int = 0

    def models(self) -> list[str]:
        return [name.strip() for name in self.model.split(",") if name.strip()]


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, named as the fields of `Scenario`, dashes allowed. Raises UsageError."""
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--config {path}: {error}") from error
    settings = {key.replace("-", "_"): value for key, value in body.items()}
    kinds = get_type_hints(Scenario)
    for key, value in settings.items():
        if key not in kinds:
            raise UsageError(f"--config {path}: there is no setting {key!r}; known are {', '.join(kinds)}")
        kind = next(kind for kind in (bool, int, float, str) if kind in (kinds[key], *get_args(kinds[key])))
        if kind is float and type(value) is int:
            settings[key] = float(value)
        elif type(value) is not kind:
            raise UsageError(f"--config {path}: {key} is {value!r}; it must be of type {kind.__name__}")
    return settings


def _cells(scenario: Scenario) -> dict[str, tuple[CellModel, NodeTimes]]:
    trees = read_trees(Path(scenario.trees)) if scenario.trees else None
    return {name: cell_network(name, scenario.max_batch, trees) for name in scenario.models()}


def _times(
    scenario: Scenario, cells: Mapping[str, tuple[CellModel, NodeTimes]], profiles: Mapping[str, Profile]
) -> dict[str, NodeTimes]:
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


def _lengths(model: str, profile: Profile | None) -> Lengths:
    """Its usual ones; sentences, for a measured network that is none of the zoo's and takes inputs of many lengths."""
    usual = usual_lengths(model)
    nodes = profile.nodes if profile is not None else None
    if nodes is None or not isinstance(usual, Fixed):
        return usual
    steps = any(kind is not NodeKind.STATIC for kind in nodes.kinds)
    return TRANSLATION if steps or len(nodes.lengths) > 1 else usual


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
    ):
        if value not in known:
            raise UsageError(f"{option} {value!r}: choose from {', '.join(known)}")
    on_cells = scenario.accelerator == "v100"
    foreign = [name for name in scenario.models() if (name in CELL_NETWORKS) != on_cells]
    if foreign and scenario.accelerator != "profile":
        raise UsageError(
            f"--model {foreign[0]} is not for --accelerator {scenario.accelerator}: "
            f"v100 runs {', '.join(CELL_NETWORKS)}, npu the others"
        )
    if scenario.policy in CELL_POLICIES and not on_cells:
        raise UsageError(f"--policy {scenario.policy} serves cells: give --accelerator v100")
    if "treelstm" in scenario.models() and on_cells and scenario.policy not in CELL_POLICIES:
        raise UsageError(f"--model treelstm has no padded graph; give --policy {' or '.join(CELL_POLICIES)}")
    if scenario.trees is not None and "treelstm" not in scenario.models():
        raise UsageError("--trees is for --model treelstm")
    for option, number, most in (("--npus", scenario.npus, 1024), ("--requests", scenario.requests, 100_000_000),
        ("--bucket-width", scenario.bucket_width, 100_000), ("--max-batch", scenario.max_batch, 4096),
    ):  # fmt: skip
        if not 1 <= number <= most:
            raise UsageError(f"{option} {number}: give 1 to {most}")
    if scenario.dec_timesteps is not None and scenario.dec_timesteps < 1:
        raise UsageError(f"--dec-timesteps {scenario.dec_timesteps}: give 1 or more")
    for option, positive in (
        ("--rate-rps", scenario.rate_rps), ("--sla-ms", scenario.sla_ms), ("--burst-s", scenario.burst_s),
        ("--busy-w", 1.0 if scenario.busy_w is None else scenario.busy_w),
    ):  # fmt: skip
        if not positive > 0 or (math.isinf(positive) and option != "--sla-ms"):
            raise UsageError(f"{option} {positive}: give a number above 0")
    for option, amount in (
        ("--window-ms", scenario.window_ms), ("--merge-us", scenario.merge_us), ("--w2", scenario.w2),
        ("--seed", scenario.seed),
    ):  # fmt: skip
        if not (amount >= 0 and math.isfinite(amount)):
            raise UsageError(f"{option} {amount}: give a number of 0 or more")
    if not 0 < scenario.coverage <= 1:
        raise UsageError(f"--coverage {scenario.coverage}: give a share above 0 and at most 1")
    if scenario.w2 > 0 and scenario.busy_w is None:
        raise UsageError("--w2 weighs the power; give what a busy worker draws, --busy-w")
    if scenario.by_phase and (scenario.traffic != "mmpp" or scenario.replay is not None):
        raise UsageError("--by-phase is for --traffic mmpp")


def check_given(scenario: Scenario, given: set[str]) -> list[str]:
    """Refuses settings that contradict each other; returns warnings about those in `given` that have no effect."""
    if scenario.replay is not None and (both := given & {"traffic", "rate_rps", "requests", "burst_s", "corpus"}):
        raise UsageError(
            f"--replay brings its own arrivals and lengths; leave out {', '.join(map(_option, sorted(both)))}"
        )
    lazy, unsized = ("lazy", "oracle"), ("serial", "preba", "preba-lazy")
    single = (*lazy, "preba-lazy")  # they estimate the time of a single input
    useless = {
        "window_ms": scenario.policy != "graph",
        "max_batch": scenario.policy in unsized,
        "bucket_width": scenario.policy != "bucketed-graph",
        "merge_us": scenario.policy != "dynamic-graph",
        "dec_timesteps": scenario.policy not in single,
        "coverage": scenario.policy not in single,
        "defer_late": scenario.policy not in lazy,
        "w2": scenario.policy != "smdp",
        "by_phase": scenario.policy != "smdp",
        "burst_s": scenario.traffic != "mmpp",
        "profile": scenario.accelerator != "profile",
    }
    return [
        f"{_option(name)} has no effect with --policy {scenario.policy}, --traffic {scenario.traffic}, "
        f"--accelerator {scenario.accelerator}"
        for name, without_effect in useless.items()
        if without_effect and name in given
    ]


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def warnings(scenario: Scenario, times: Mapping[str, NodeTimes], lengths: Mapping[str, Lengths]) -> list[str]:
    """What can be simulated but is hardly what was meant."""
    if scenario.policy in CELL_POLICIES:
        return []  # a node's latency there is one of a cell, of which a request has many
    found = []
    capacity = []
    for model, known in times.items():
        length = _typical(lengths[model])
        alone_ms = known.whole(1, *length) * 1e3
        capacity.append(scenario.max_batch / known.whole(scenario.max_batch, *length))
        if alone_ms > scenario.sla_ms:
            found.append(f"--sla-ms {scenario.sla_ms:g} is below the {alone_ms:.2f} ms that {model} takes alone")
    most = scenario.npus * len(capacity) / sum(1 / rate for rate in capacity)
    if scenario.replay is None and scenario.rate_rps > most:
        found.append(
            f"--rate-rps {scenario.rate_rps:g} is more than {scenario.npus} workers can serve (about {most:.0f}/s in "
            "full batches): the queue will grow to the end of the run"
        )
    return found


def _typical(lengths: Lengths) -> tuple[float, int]:
    """Mean input and output steps."""
    inputs, outputs = lengths.sample(2000, np.random.default_rng(0))
    return float(inputs.mean()), round(float(outputs.mean()))


def run_scenario(scenario: Scenario, *, record: bool = False) -> tuple[Simulation, list[str]]:
    """The simulated run, and warnings about the settings. `record` keeps every task. Raises UsageError."""
    _check(scenario)
    cells = _cells(scenario) if scenario.policy in CELL_POLICIES else {}
    profiles = _profiles(scenario)
    times = _times(scenario, cells, profiles)
    corpus = read_corpus(Path(scenario.corpus)) if scenario.corpus else None
    lengths: dict[str, Lengths] = {}
    for model in times:
        usual = _lengths(model, profiles.get(model))
        lengths[model] = corpus if corpus is not None and usual in (TRANSLATION, WMT15) else usual
    assumed = {
        model: scenario.dec_timesteps or dec_timesteps(lengths[model], scenario.coverage)
        for model, known in times.items()
        if len(known.sections.decoder)
    }
    models = {name: model for name, (model, _) in cells.items()} or None
    policy = make_policy(
        scenario.policy,
        times,
        workers=scenario.npus,
        window_s=scenario.window_ms / 1e3,
        max_batch=scenario.max_batch,
        profiles=profiles,
        dec_timesteps=assumed,
        defer_late=scenario.defer_late,
        tables=_tables(scenario, times, lengths),
        cells=models,
        bucket_width=scenario.bucket_width,
        merge_s=1e-6 * scenario.merge_us,
    )
    arrivals = _arrivals(scenario, lengths)
    done = simulate(
        policy,
        arrivals,
        times,
        scenario.npus,
        seed=scenario.seed,
        record=record,
        busy_power_w=scenario.busy_w,
        cell_models=models,
        drop_late=scenario.drop_late,
    )
    return done, warnings(scenario, times, lengths)


def _tables(
    scenario: Scenario, times: Mapping[str, NodeTimes], lengths: Mapping[str, Lengths]
) -> dict[str, RateTables | PhaseTables] | None:
    if scenario.policy != "smdp":
        return None
    weights = Weights(latency=1e3, power=scenario.w2)  # 1000 for a second: 1 for a ms
    tables: dict[str, RateTables | PhaseTables] = {}
    for model, known in times.items():
        typical, power = _typical(lengths[model]), scenario.busy_w or 0.0
        service = BatchService.of_times(known, scenario.max_batch, typical, power)
        if scenario.by_phase:
            share = 1 / len(times)  # of the arrivals, whatever the phase
            bursts = Mmpp2(np.array(traffic.burst_rates(scenario.rate_rps)) * share, np.array([scenario.burst_s] * 2))
            tables[model] = phase_tables(service, bursts, weights, scenario.npus)
        else:
            tables[model] = rate_tables(service, weights, scenario.npus)
    return tables


def _arrivals(scenario: Scenario, lengths: Mapping[str, Lengths]) -> Arrivals:
    if scenario.replay is not None:
        return read_trace(Path(scenario.replay), list(lengths), scenario.sla_ms / 1e3)
    rate, count, seed = scenario.rate_rps, scenario.requests, scenario.seed
    match scenario.traffic:
        case "deterministic":
            times = traffic.deterministic(rate, count)
        case "mmpp":
            times = traffic.mmpp2(
                traffic.burst_rates(scenario.rate_rps), (scenario.burst_s, scenario.burst_s), count, seed
            )
        case _:
            times = traffic.poisson(rate, count, seed)
    return traffic.generate(times, lengths, scenario.sla_ms / 1e3, seed)

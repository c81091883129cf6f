"""Make the machine of a scenario: node latencies, measured profiles, slices, preprocessing, and lengths of inputs.

Files that a scenario names (profiles, traces, corpora, image sizes) are read here, and nowhere else."""

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

import numpy as np

from headrace.batching.errors import UnknownModel, UsageError
from headrace.batching.graphs.cell_graph import CellModel
from headrace.batching.graphs.execution import NodeTimes
from headrace.batching.graphs.model_graph import NodeKind
from headrace.batching.graphs.profile import Profile
from headrace.batching.graphs.traced import Traced
from headrace.batching.policies.shared.settings import MAX_BATCH
from headrace.batching.settings import option
from headrace.sim.engine import Arrivals
from headrace.sim.hardware.gpu.measured import NodeShare, laid_out, measured_times, node_shares
from headrace.sim.hardware.gpu.mig import GPUS
from headrace.sim.hardware.inputs import TYPICAL_SIZE
from headrace.sim.hardware.npu import npu_times
from headrace.sim.hardware.profiles import read_profile
from headrace.sim.hardware.settings import MEASURED_GPUS, V100, Measured, MeasuredGpu, MigGpu, Npu, accelerator_name
from headrace.sim.hardware.v100 import padded_times
from headrace.sim.scenario import Scenario
from headrace.sim.system.settings import Preprocess
from headrace.sim.system.system import System
from headrace.sim.workload import replay
from headrace.sim.workload.images import ImageSizes, one_size, parse_sizes, read_images
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
    read_corpus,
    read_durations,
)
from headrace.sim.workload.settings import Bursty
from headrace.sim.workload.trees import read_trees
from headrace.sim.zoo import model_graph
from headrace.sim.zoo.cells import CELL_NETWORKS, cell_network
from headrace.sim.zoo.traced import TRACED, traced

CONFORMER_STEP_S = 0.04
_OF_TOKENS = (
    "gnmt",
    "transformer",
    "transformer_uncached",
    "bert_base",
    "whisper_small_decoder",
    "gpt2",
    "gpt2_step",
)
SAMPLES = 2000  # of a length distribution, to learn its mean and its longest
CURVES = 9  # of modelled hardware, by length; between them `preba` interpolates


def usual_lengths(model: str) -> Lengths:
    """Return the usual length distribution of a model: translation, speech, or a fixed length."""
    if model == "las":
        return SPEECH
    if model in ("conformer", "conformer_small", "citrinet", "whisper_small_encoder"):
        return LIBRISPEECH
    if model in CELL_NETWORKS:
        return Sentences() if model == "treelstm" else WMT15
    return TRANSLATION if model in _OF_TOKENS else Fixed()


def _cells(scenario: Scenario) -> dict[str, tuple[CellModel, NodeTimes]]:
    trees = read_trees(Path(scenario.workload.trees)) if scenario.workload.trees else None
    return {name: cell_network(name, max_batch_of(scenario), trees) for name in scenario.workload.models()}


def _images(preprocess: Preprocess) -> ImageSizes | None:
    """Return the sizes of images that the settings tell, or None if they tell pixels only."""
    if preprocess.images is not None:
        path = Path(preprocess.images)
        return _read_images(path, _written_ns(path))
    if preprocess.image_sizes is not None:
        try:
            return parse_sizes(preprocess.image_sizes)
        except UsageError as error:
            raise UsageError(f"--image-sizes: {error}") from error
    return None if preprocess.processor is None else one_size(*TYPICAL_SIZE)


def _system(scenario: Scenario) -> System | None:
    """Return the server with a GPU cut into slices, or None if the hardware is none."""
    if not isinstance(scenario.hardware, MigGpu):
        return None
    hardware, preprocess, models = scenario.hardware, scenario.preprocess, scenario.workload.models()
    others = [name for name in models if len(traced(name).graphs) > 1]
    told = [name for name in ("images", "image_sizes") if getattr(preprocess, name) is not None]
    if others and told:
        raise UsageError(f"{option(told[0])}: {others[0]} takes inputs of other kinds")
    if preprocess.processor is not None and preprocess.cpu_costs is not None:
        raise UsageError("--cpu-costs has no costs of processors; leave out --processor or --cpu-costs")
    images = _images(preprocess)
    return System.of(
        hardware.gpu,
        models,
        parts=hardware.partition,
        preprocess=preprocess.preprocess,
        active_slices=hardware.active_slices,
        cpu_costs=None if preprocess.cpu_costs is None else Path(preprocess.cpu_costs),
        image_sizes=preprocess.image_pixels if images is None else images,
        processor=preprocess.processor,
        precision=hardware.precision,
        prices=hardware.prices,
    )


def _times(
    scenario: Scenario,
    cells: Mapping[str, tuple[CellModel, NodeTimes]],
    profiles: Mapping[str, Profile],
    system: System | None,
) -> dict[str, NodeTimes]:
    """Return by model the node latencies that a policy knows: those of the slowest slice, where slices differ."""
    if system is not None:
        return system.slowest_times()
    if cells:
        return {name: times for name, (_, times) in cells.items()}
    if isinstance(scenario.hardware, V100):
        return {name: padded_times(name, decoder=name == "seq2seq") for name in scenario.workload.models()}
    if isinstance(hardware := scenario.hardware, MeasuredGpu):
        gpu, launch_s = MEASURED_GPUS[hardware.gpu], hardware.launch_us / 1e6
        return {name: measured_times(network_of(name), gpu, launch_s) for name in scenario.workload.models()}
    if isinstance(scenario.hardware, Npu):
        return {name: npu_times(model_graph(name)) for name in scenario.workload.models()}
    return {model: profile.times() for model, profile in profiles.items()}


@cache
def network_of(name: str) -> Traced:
    """Return the network that a measured GPU runs: a traced one, or a graph of the zoo or of the user, laid out as
    kernels. Raises UnknownModel and UsageError."""
    if name in TRACED:
        return traced(name)
    try:
        return laid_out(model_graph(name))
    except UnknownModel:
        return traced(name)  # says which networks there are


def measured_nodes(model: str, on: MeasuredGpu, batch: int = 1, length: float | None = None) -> list[NodeShare]:
    """Return where the time of each node of a network comes from, on a GPU with measured kernels.

    Args:
        model: A network that `simulate` takes with such a GPU.
        on: The GPU.
        batch: The size of the batch.
        length: The input's length, in the network's unit; None for its usual one.

    Raises UsageError."""
    at = usual_length(model, on) if length is None else length
    return node_shares(network_of(model), MEASURED_GPUS[on.gpu], batch, at)


def usual_length(model: str, on: MeasuredGpu) -> float:
    """Return the mean of a network's usual lengths, in its unit. Raises UsageError."""
    scenario = Scenario.of(model=model, accelerator=on.gpu)
    return mean_lengths(_all_lengths(scenario, {}, None, [model])[model])[0]


def measured_share(nodes: Iterable[NodeShare]) -> dict[str, float]:
    """Return the shares of the nodes' time that come from tables, from bytes, and from the slice model."""
    times = [(node.tables_s, node.bytes_s, node.modelled_s) for node in nodes]
    parts = [math.fsum(column) for column in zip(*times, strict=True)]
    return {name: part / math.fsum(parts) for name, part in zip(("tables", "bytes", "modelled"), parts, strict=True)}


def _profiles(scenario: Scenario) -> dict[str, Profile]:
    """Return measured profiles by model. There are none if the hardware is a model."""
    if not isinstance(scenario.hardware, Measured):
        return {}
    if scenario.hardware.profile is None:
        raise UsageError("--accelerator profile needs --profile FILE, which `headrace profile` writes")
    profile = read_profile(Path(scenario.hardware.profile))
    if scenario.workload.models() != [profile.model]:
        raise UsageError(f"--profile {scenario.hardware.profile} is of {profile.model!r}; give --model {profile.model}")
    return {profile.model: profile}


def trace_of(scenario: Scenario) -> Arrivals:
    """Return the whole trace of a scenario that has one, at its own speed, without deadlines. Raises UsageError."""
    trace = scenario.workload.trace
    assert trace is not None
    path = Path(trace.replay)
    return _read_trace(path, _written_ns(path), tuple(scenario.workload.models()))


def _written_ns(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


@lru_cache(maxsize=4)  # a search asks for the same ones again and again
def _read_images(path: Path, written_ns: int) -> ImageSizes:
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
    """Return a model's usual lengths; for a measured network that is none of the zoo's and takes inputs of many
    lengths, utterances where it takes sounds, else sentences."""
    if profile is not None and profile.step_s is not None:
        return LIBRISPEECH
    usual = usual_lengths(model)
    if profile is None or not isinstance(usual, Fixed):
        return usual
    nodes = profile.nodes
    steps = nodes is not None and any(kind is not NodeKind.STATIC for kind in nodes.kinds)
    many = len(profile.lengths) > 1 or (nodes is not None and len(nodes.lengths) > 1)
    return TRANSLATION if steps or many else usual


def _step_s(model: str, profile: Profile | None, on_gpu: bool) -> float | None:
    """Seconds of a step of its input; None if it takes no sounds."""
    if on_gpu and model in TRACED:
        return traced(model).step_s
    if profile is not None:
        return profile.step_s
    return {"las": SPEECH_STEP_S, "conformer": CONFORMER_STEP_S}.get(model)


def curves(model: str, times: NodeTimes, workers: int, lengths: Lengths) -> Profile:
    """Return the latency curves of modelled hardware, for policies that take limits from a profile.

    There is one curve at each of CURVES quantiles of the lengths, the shortest and the longest among them. The ratio of
    output to input length is the average one."""
    inputs, _ = lengths.sample(SAMPLES, np.random.default_rng(0))
    mean_in, mean_out = mean_lengths(lengths)
    spread = np.quantile(inputs, np.linspace(0, 1, CURVES))
    return Profile.of(
        model,
        times,
        workers,
        lengths=sorted({max(1.0, float(round(length))) for length in spread}),
        outputs=mean_out / mean_in,
        step_s=_step_s(model, None, False),
    )


def longest(lengths: Lengths) -> float:
    """Return the longest input of a sample."""
    return float(lengths.sample(SAMPLES, np.random.default_rng(0))[0].max())


def mean_lengths(lengths: Lengths) -> tuple[float, int]:
    """Return the mean input length and the mean number of output steps."""
    inputs, outputs = lengths.sample(SAMPLES, np.random.default_rng(0))
    return float(inputs.mean()), round(float(outputs.mean()))


def _all_lengths(
    scenario: Scenario, profiles: Mapping[str, Profile], system: System | None, models: Iterable[str]
) -> dict[str, Lengths]:
    """Return by model the lengths of inputs and outputs, in the model's own unit."""
    corpus = read_corpus(Path(scenario.workload.corpus)) if scenario.workload.corpus else None
    given = None if scenario.workload.lengths is None else _given_lengths(scenario.workload.lengths)
    replayed = {} if scenario.workload.trace is None else replay.lengths_of(trace_of(scenario))
    lengths: dict[str, Lengths] = {}
    for model in models:
        if model in replayed:
            lengths[model] = replayed[model]
            continue
        usual = given or _lengths(model, profiles.get(model))
        step_s = _step_s(model, profiles.get(model), isinstance(scenario.hardware, MigGpu | MeasuredGpu))
        if step_s is not None and usual is not SPEECH:  # which is in steps
            if scenario.workload.lengths in LENGTHS and usual not in (LIBRISPEECH, LIBRISPEECH_TEST):
                raise UsageError(
                    f"--lengths {scenario.workload.lengths}: {model} takes audio; give librispeech or a folder"
                )
            usual = Frames(usual, step_s) if system is None else Scaled(usual, 1 / step_s)
        lengths[model] = corpus if corpus is not None and usual in (TRANSLATION, WMT15) else usual
    return lengths


def server_of(scenario: Scenario) -> tuple[System, dict[str, Lengths]]:
    """Return the server of a scenario on a GPU, and the lengths of inputs by model. Raises UsageError."""
    check_fits(scenario)
    system = _system(scenario)
    if system is None:
        raise UsageError(f"accelerator {accelerator_name(scenario.hardware)!r}: choose from {', '.join(GPUS)}")
    return system, _all_lengths(scenario, {}, system, scenario.workload.models())


@dataclass(frozen=True)
class Machine:
    """The machine of a scenario.

    `times` are node latencies by model: of all workers, or of the slowest. `cells` holds networks of cells, `profiles`
    measured curves, and `system` the server with a GPU in slices; each is empty or None where there is none."""

    workers: int
    times: dict[str, NodeTimes]
    lengths: dict[str, Lengths]
    cells: dict[str, tuple[CellModel, NodeTimes]]
    profiles: dict[str, Profile]
    system: System | None

    @cached_property
    def typical(self) -> dict[str, tuple[float, int]]:
        """Return, by model, the mean input length and the mean number of output steps."""
        return {model: mean_lengths(known) for model, known in self.lengths.items()}


def machine_of(scenario: Scenario) -> Machine:
    """Return the machine of a scenario. Raises UsageError for a scenario that cannot be simulated."""
    check_fits(scenario)
    cells = _cells(scenario) if scenario.entry.tasks == "cells" else {}
    profiles = _profiles(scenario)
    system = _system(scenario)
    times = _times(scenario, cells, profiles, system)
    lengths = _all_lengths(scenario, profiles, system, times)
    workers = int(getattr(scenario.hardware, "npus", 1)) if system is None else len(system.slices)
    return Machine(workers, times, lengths, cells, profiles, system)


def max_batch_of(scenario: Scenario) -> int:
    """Return the largest batch of the scenario's policy; the usual one where the policy has no such setting."""
    return int(getattr(scenario.policy, "max_batch", MAX_BATCH))


def check_fits(scenario: Scenario) -> None:
    """Raise UsageError, with the option to change, where policy, models and hardware do not fit together."""
    name, policy, models = accelerator_name(scenario.hardware), scenario.entry.name, scenario.workload.models()
    on_cells, on_gpu = isinstance(scenario.hardware, V100), isinstance(scenario.hardware, MigGpu)
    of_cells = scenario.entry.tasks == "cells"
    others = [model for model in models if (model in CELL_NETWORKS) != on_cells]
    if on_gpu and of_cells:
        raise UsageError(f"--policy {policy} serves cells: give --accelerator v100")
    if others and not isinstance(scenario.hardware, Measured) and not on_gpu:
        raise UsageError(
            f"--model {others[0]} is not for --accelerator {name}: v100 runs {', '.join(CELL_NETWORKS)}, npu the others"
        )
    if of_cells and not on_cells:
        raise UsageError(f"--policy {policy} serves cells: give --accelerator v100")
    if "treelstm" in models and on_cells and not of_cells:
        raise UsageError("--model treelstm has no padded graph; give --policy cellular or dynamic-graph")
    if scenario.fleet is not None and scenario.drop_late:
        raise UsageError("--drop-late is not simulated with --servers; leave out one of them")
    weight = getattr(scenario.policy, "w2", 0.0)
    if weight > 0 and scenario.hardware.busy_w is None:
        raise UsageError("--w2 needs the power of a busy worker; give --busy-w")
    if getattr(scenario.policy, "by_phase", False) and not isinstance(scenario.workload.traffic, Bursty):
        raise UsageError("--by-phase needs bursty arrivals; give --traffic mmpp")


def rate_shares(scenario: Scenario) -> dict[str, float]:
    """Return the share of each model in all requests. Raises UsageError."""
    if scenario.workload.trace is None:
        return scenario.workload.given_shares()
    counts = replay.counts(trace_of(scenario))
    return {model: counts[model] / sum(counts.values()) for model in scenario.workload.models()}

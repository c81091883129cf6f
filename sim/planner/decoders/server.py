"""Describe the nodes of a plan for a model that decodes: replicas, front end and price, and a simulation of one node.

A node has one replica of the model or more (`--node-gpus`), each on `tp` GPUs, and CPUs of `system.CORES` cores. A core
is kept for each GPU, where the process of the replica runs. The other cores preprocess, or DPUs do, and all replicas of
the node share them. Replicas are spread over as few nodes as possible, and as evenly as possible.

Each replica takes an equal share of the arrivals, at random. A share of a Poisson process is again one. The replicas of
a node differ by chance alone. So a trial simulates one replica of the fullest node, behind a front end that has the
requests of all its replicas.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from headrace.batching.errors import UsageError
from headrace.batching.steps.request import StepRequest
from headrace.sim.decoding.front_end import PreprocessStage
from headrace.sim.decoding.latency import StepLatency
from headrace.sim.decoding.multimodal import EncoderLatency, audio_tokens
from headrace.sim.decoding.results import DecodingResult
from headrace.sim.decoding.simulation import simulate_decoding
from headrace.sim.hardware import cpu
from headrace.sim.hardware.gpu import power
from headrace.sim.hardware.gpu.mig import gpu_named
from headrace.sim.hardware.inputs import UNITS, AudioWork
from headrace.sim.planner.decoders.target import DecodingTarget, parse_images
from headrace.sim.planner.target import LONGEST
from headrace.sim.planner.trials import SURE_SPANS
from headrace.sim.preprocessing import Preprocessor
from headrace.sim.system import cost
from headrace.sim.system.card import too_many
from headrace.sim.system.preprocessors import Host, parse
from headrace.sim.system.processors import core_seconds, inputs_of, work_of
from headrace.sim.system.system import CORES
from headrace.sim.workload.images import ImageSizes

IDEAL: Final = "ideal"
BLOCK_SIZE: Final = 16
PERCENTILES: Final = ((0.99, "p99"), (0.95, "p95"), (0.9, "p90"), (0.0, "p50"))


@dataclass(frozen=True, slots=True)
class FrontEndChoice:
    """The front end of a node: `count` cores of a library ("cpu") or compute units ("dpu"), or nothing ("ideal").

    For audio, `count` counts the compute units of each kind. A node may have several `cards` with so many."""

    device: str
    count: int = 0
    library: str | None = None
    cards: int = 1

    @property
    def one(self) -> str:
        """Return the cores, or one card, as `headrace simulate --preprocess` takes it."""
        words = [self.device, *([str(self.count)] if self.count else []), *([self.library] if self.library else [])]
        return ":".join(words)

    @property
    def text(self) -> str:
        """Return the front end in words, without cores kept for the replicas."""
        return self.one if self.cards == 1 else f"{self.cards} x {self.one}"

    def cpus(self, kept: int) -> int:
        """Return the number of CPUs, if `kept` cores do other work."""
        return max(1, math.ceil((kept + (self.count if self.device == "cpu" else 0)) / CORES))


@dataclass(frozen=True, slots=True)
class DecodingCandidate:
    """A number of equal replicas, with the front end of each node and a policy."""

    replicas: int
    front_end: FrontEndChoice
    policy: str


def nodes_of(target: DecodingTarget, replicas: int) -> dict[int, int]:
    """Return how many nodes there are, by their number of replicas, the fullest first."""
    nodes = math.ceil(replicas / target.node_replicas)
    fewer, more = divmod(replicas, nodes)
    return {count: number for count, number in ((fewer + 1, more), (fewer, nodes - more)) if number}


def fullest(target: DecodingTarget, replicas: int) -> int:
    """Return the replicas of the fullest node."""
    return max(nodes_of(target, replicas))


@dataclass(frozen=True, slots=True)
class DecodingTrial:
    """A simulation of the fullest node of a candidate, which gets its share of `rate_rps`."""

    target: DecodingTarget
    candidate: DecodingCandidate
    rate_rps: float
    seed: int = 0


@dataclass(frozen=True, slots=True)
class DecodingMeasured:
    """The figures of a trial. Cost and power are those of all nodes.

    Attributes:
        late: The share of requests that missed a target.
        ttft_ms, tpot_ms: The percentiles of both times.
        preprocess_ms: The same of the front end; None without one.
        preprocess_wait_ms: The mean wait of an image or a sound in the front end.
        used: The share of each part's time in which it works: gpu, cores or cus, and pcie.
        cost_usd, power_w: Of all nodes, over their time.
    """

    late: float
    ttft_ms: Mapping[str, float | None]
    tpot_ms: Mapping[str, float | None]
    preprocess_ms: Mapping[str, float | None] | None
    preprocess_wait_ms: float | None
    used: Mapping[str, float]
    cost_usd: float
    power_w: float


# It takes words for a progress display, and returns results in the order of the trials.
DecodingRun = Callable[[str, Sequence[DecodingTrial]], list[DecodingMeasured]]


@lru_cache(maxsize=2)
def replica(target: DecodingTarget) -> tuple[StepLatency, EncoderLatency | None, int]:
    """Return the latency of steps, that of the encoder, and the blocks of the KV cache. Raises UsageError."""
    both = target.multimodal
    precision = target.weight_precision
    latency = StepLatency(
        target.decoder,
        target.gpu,
        target.kernels,
        tp=target.tp,
        products=precision,  # type: ignore[arg-type]  # checked against PRECISIONS
        keys=target.kv_precision,
    )
    encoder = None if both is None else EncoderLatency(both.encoder, target.gpu, target.kernels)
    encoder_bytes = 0.0 if both is None else both.encoder.weight_bytes
    tokens = latency.kv_tokens(encoder_bytes=encoder_bytes)
    if tokens < BLOCK_SIZE:
        weights = latency.weight_bytes + encoder_bytes
        raise UsageError(
            f"--tp {target.tp}: the weights of {target.model} take {weights / 1e9:.0f} GB on each GPU, and "
            f"{target.gpu} has {latency.operators.memory.size / 1e9:.0f} GB; give more GPUs to a replica"
        )
    return latency, encoder, tokens // BLOCK_SIZE


@lru_cache(maxsize=2)
def items(target: DecodingTarget) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    """Return tokens and weights of the kinds of items, and the items of a request. There are none for text."""
    both = target.multimodal
    if both is None:
        return (), (), 0
    if target.audio_s is not None:
        return (audio_tokens(target.audio_s),), (1.0,), 1
    assert target.images is not None
    images = parse_images(target.images)
    work = work_of(both.processor)
    assert not isinstance(work, AudioWork)
    tokens = [
        work(int(width), int(height)).tokens or 0
        for width, height in zip(images.sizes.width, images.sizes.height, strict=True)
    ]
    weights = images.sizes.weight / images.sizes.weight.sum()
    return tuple(tokens), tuple(weights.tolist()), images.count


def requests_of(
    target: DecodingTarget, rate_rps: float, seed: int, replicas: int = 1
) -> tuple[list[StepRequest], list[list[float]]]:
    """Return the requests of a node's trial, and the sizes of the items of each, as the front end takes them.

    They last SURE_SPANS times the target for the first token at least, up to LONGEST requests for each of the node's
    replicas. `rate_rps` is that of the node."""
    rng = np.random.default_rng((seed, 5))
    tokens, weights, count = items(target)
    span_s = SURE_SPANS * target.slo_ttft_ms / 1e3
    total = replicas * max(target.trial_requests, min(LONGEST, math.ceil(span_s * rate_rps / replicas)))
    arrivals = np.cumsum(rng.exponential(1 / rate_rps, total)).tolist()
    kinds = rng.choice(len(tokens), (total, count), p=weights).tolist() if count else [[]] * total
    ttft_s, tpot_s = target.slo_ttft_ms / 1e3, target.slo_tpot_ms / 1e3
    made = []
    contents = ((0, target.system_tokens),) if target.system_tokens else ()
    for number, (at, own) in enumerate(zip(arrivals, kinds, strict=True)):
        images = tuple(tokens[kind] for kind in own)
        prompt = target.system_tokens + target.prompt_tokens + sum(images)
        made.append(
            StepRequest(number, at, prompt, target.output_tokens, None, images, at + ttft_s, tpot_s, contents=contents)
        )
    sizes = kinds if target.audio_s is None else [[target.audio_s]] * total
    return made, sizes


@lru_cache(maxsize=64)
def device(target: DecodingTarget, front_end: FrontEndChoice) -> Preprocessor:
    """Return the cores or compute units of a front end. Raises UsageError if there are none such."""
    both = target.multimodal
    assert both is not None
    sizes: ImageSizes | None = None if target.images is None else parse_images(target.images).sizes
    inputs = inputs_of(both.processor, both.kind, sizes, front_end.one)
    made = parse(front_end.one, Host(inputs, gpu_named(target.gpu)))
    if (excess := too_many(made)) is not None:
        raise UsageError(excess)
    steps = tuple(replace(step, servers=front_end.cards * step.servers) for step in made.steps)
    return replace(made, steps=steps)


def library_of(target: DecodingTarget) -> str | None:
    """Return the library that preprocesses on the CPU: the one of the target, or the one that takes least time.

    Raises UsageError for a library of which no time was measured."""
    both = target.multimodal
    if both is None:
        return None
    known = core_seconds(both.processor)
    known.pop("measured", None)  # the same as ours
    if target.library is not None:
        if target.library not in known:
            raise UsageError(
                f"--library {target.library[:60]}: its time for {both.processor} was not measured; choose from "
                f"{', '.join(known)}"
            )
        return target.library
    if target.audio_s is not None:
        amounts, weights = np.array([target.audio_s]), np.ones(1)
    else:
        assert target.images is not None
        sizes = parse_images(target.images).sizes
        amounts, weights = sizes.pixels, sizes.weight
    return min(known, key=lambda library: float(np.average(known[library](amounts), weights=weights)))


def simulated(trial: DecodingTrial) -> DecodingResult:
    """Return the result of one replica of a trial, with the front end of its whole node."""
    target, candidate = trial.target, trial.candidate
    latency, encoder, blocks = replica(target)
    together = fullest(target, candidate.replicas)
    requests, sizes = requests_of(target, trial.rate_rps * together / candidate.replicas, trial.seed, together)
    owners = np.random.default_rng((trial.seed, 6)).integers(together, size=len(requests)).tolist()
    stage = None
    if candidate.front_end.device != IDEAL:
        elsewhere = None if together == 1 else lambda request: owners[request.id] > 0
        stage = PreprocessStage(device(target, candidate.front_end), lambda request: sizes[request.id], elsewhere)
    else:
        requests = [request for request, owner in zip(requests, owners, strict=True) if owner == 0]
    return simulate_decoding(
        requests,
        latency,
        kv_blocks=blocks,
        block_size=BLOCK_SIZE,
        prefix_caching=target.prefix_caching and target.system_tokens > 0,
        preprocess=stage,
        encoder=encoder,
        policy=candidate.policy,
        seed=trial.seed,
    )


def measure(trial: DecodingTrial) -> DecodingMeasured:
    """Simulate one replica of a trial and its node's front end. Return its figures with the cost of all nodes."""
    target, candidate = trial.target, trial.candidate
    result = simulated(trial)
    used = {"gpu": result.utilization or 0.0}
    preprocessor = None if candidate.front_end.device == IDEAL else device(target, candidate.front_end)
    at_work = 0.0
    for step in () if preprocessor is None else preprocessor.steps:
        assert result.preprocess_utilization is not None
        share = result.preprocess_utilization[step.name] or 0.0
        part = "cores" if step.name == "cpu" else "cus" if step.name in UNITS else "pcie"
        used[part] = max(used.get(part, 0.0), share)
        if part == "cores":
            at_work = share * step.servers
    usd, watts = _spent(target, candidate, used, at_work / fullest(target, candidate.replicas))
    return DecodingMeasured(
        result.sla_violation_rate or 0.0,
        result.ttft_ms,
        result.tpot_ms,
        result.preprocess_ms,
        result.preprocess_wait_ms,
        used,
        usd,
        watts,
    )


def front_end_usd(target: DecodingTarget, candidate: DecodingCandidate, needed: int) -> float:
    """Return dollars of the preprocessing of all nodes: of the cores `needed` as parts of CPUs, or of the cards."""
    prices = cost.given_prices(target.prices)
    nodes = sum(nodes_of(target, candidate.replicas).values())
    match candidate.front_end.device:
        case "cpu":
            return nodes * prices["cpu"] * needed / CORES
        case "dpu":
            return nodes * candidate.front_end.cards * prices["fpga"]
        case _:
            return 0.0


def parts_of(target: DecodingTarget, front_end: FrontEndChoice, replicas: int = 1) -> list[str]:
    """Return the parts of a node that are bought, by names in `cost.PRICES_USD`."""
    gpus = replicas * target.tp
    further = ["cpu"] * (front_end.cpus(gpus) - 1)
    cards = ["fpga"] * (front_end.cards if front_end.device == "dpu" else 0)
    return ["node", *further, *[target.gpu] * gpus, *cards]


def idle_usd(target: DecodingTarget, candidate: DecodingCandidate) -> float:
    """Return dollars of all nodes if they do nothing, energy over their time included."""
    return _spent(target, candidate, {"gpu": 0.0, "cus": 0.0}, 0.0)[0]


def _spent(
    target: DecodingTarget, candidate: DecodingCandidate, used: Mapping[str, float], cores_a_replica: float
) -> tuple[float, float]:
    """Return dollars and watts of all nodes, over their time.

    Args:
        target, candidate: The nodes.
        used: The share of each part's time in which it works.
        cores_a_replica: How many cores the inputs of one replica keep at work.
    """
    front_end = candidate.front_end
    prices = cost.given_prices(target.prices)
    usd = watts = 0.0
    gpu = min(1.0, used["gpu"])
    for replicas, number in nodes_of(target, candidate.replicas).items():
        gpus = replicas * target.tp
        cpus = front_end.cpus(gpus)
        cards = front_end.cards if front_end.device == "dpu" else 0
        shares = {
            "cpu": cpu.utilization(cpus * CORES, replicas * cores_a_replica, gpus * gpu),
            "gpu": gpu,
            **({"fpga": min(1.0, used["cus"])} if cards else {}),
        }
        node_w = sum(_machine(target, cpus, gpus, cards).power_w(shares).values())
        parts = parts_of(target, front_end, replicas)
        bought = cost.cost(0.0, node_w, parts, prices_usd=prices, usd_a_kwh=prices[cost.KWH])
        usd += number * (bought.capex_usd + bought.opex_usd)
        watts += number * node_w
    return usd, watts


def _machine(target: DecodingTarget, cpus: int, gpus: int, cards: int) -> power.Server:
    counts = {"gpu": gpus, "fpga": cards}
    parts = (
        power.Part(each.name, counts.get(each.name, 1) * each.idle_w, counts.get(each.name, 1) * each.busy_w)
        for each in power.server(target.gpu, fpga=cards > 0, cpus=cpus).parts
    )
    return power.Server(tuple(parts))


def at_quantile(percentiles: Mapping[str, float | None], quantile: float) -> float:
    """Return the time (ms) at the percentile that is next below a quantile; infinity where nothing ended."""
    name = next(name for share, name in PERCENTILES if quantile >= share)
    found = percentiles[name]
    return math.inf if found is None else found
